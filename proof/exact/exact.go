// Package exact holds the engine against the oracle: the pure step and the
// store in memory, over every small list of steps and over random ones.
package exact

import (
	"context"
	"fmt"
	"time"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/proof/oracle"
)

// Algorithms lists the oracle's algorithms that differ from each other.
var Algorithms = []string{oracle.TokenBucket, oracle.Queue, oracle.FixedWindow, oracle.SlidingWindowCounter, oracle.SlidingWindowLog}

var named = map[string]spillgate.Algorithm{
	oracle.TokenBucket: spillgate.Bucket, oracle.GCRA: spillgate.Bucket, oracle.LeakyBucket: spillgate.Bucket,
	oracle.Queue: spillgate.Queue, oracle.FixedWindow: spillgate.FixedWindow,
	oracle.SlidingWindowCounter: spillgate.SlidingCounter, oracle.SlidingWindowLog: spillgate.SlidingLog,
}

// Limit returns the engine's limit for the oracle's numbers.
func Limit(algorithm string, limit, period, burst int64) spillgate.Limit {
	return spillgate.Limit{Algorithm: named[algorithm], Rate: limit, Period: time.Duration(period), Burst: burst}
}

// A Subject is one key under one limit, asked by one of the engine's ways.
type Subject interface {
	// Do carries out what the oracle's Limiter.Do does, with the same
	// answer. An error says that the answer contradicts itself, or that the
	// engine refused the call.
	Do(op oracle.Op) (oracle.Answer, error)
}

// A Way makes subjects.
type Way struct {
	Name string
	New  func(l spillgate.Limit) (Subject, error)
	// Forgets says that a full bucket is as one never seen, also after its
	// burst was raised: who carries states by hand has no other key to tell
	// it from.
	Forgets bool
}

// Ways returns the ways by which an algorithm can be asked.
func Ways(algorithm string) []Way {
	stored := Way{"memory", NewStored, false}
	if algorithm == oracle.SlidingWindowLog {
		return []Way{stored}
	}
	return []Way{{"meter", NewPure, true}, stored}
}

// clock is the oracle's: it starts at 0 and never goes back.
type clock int64

func (c *clock) at(t int64) spillgate.Instant {
	*c = max(*c, clock(t))
	return spillgate.Instant(*c)
}

func with(l spillgate.Limit, op oracle.Op) spillgate.Limit {
	l.Rate, l.Period, l.Burst, l.OnRaise = op.Limit, time.Duration(op.Period), op.Burst, spillgate.Keep
	if op.Kind == oracle.SetFill && l.Algorithm == spillgate.Bucket {
		l.OnRaise = spillgate.Fill
	}
	return l
}

// Answer returns d, the decision of a step of n at now, in the oracle's words.
func Answer(d spillgate.Decision, l spillgate.Limit, n int64, now spillgate.Instant) (oracle.Answer, error) {
	a := oracle.Answer{Allowed: d.Allowed, Remaining: d.Remaining, RetryAfter: span(d.RetryAfter), ResetAfter: span(d.ResetAfter), Delay: int64(d.Delay)}
	bad := func(what string) error {
		return fmt.Errorf("exact: %s in %+v of %d at %d under %s", what, d, n, now, l)
	}
	switch {
	case d.At != now:
		return a, bad("another instant")
	case d.Limit != l.Cap():
		return a, bad("another limit")
	case d.Allowed != (d.Reason == spillgate.Granted):
		return a, bad("another reason")
	case d.Allowed && d.Taken != n, !d.Allowed && d.Taken != 0:
		return a, bad("another amount taken")
	case (d.Reason == spillgate.NeverFits) != (n > l.Cap()):
		return a, bad("the reason never fits")
	}
	return a, nil
}

func span(d time.Duration) int64 {
	if d == spillgate.Never {
		return oracle.Never
	}
	return int64(d)
}

// A Pure is the step alone, its state carried by hand.
type Pure struct {
	clock clock
	Meter *spillgate.Meter
	State spillgate.State
}

// NewPure returns a new key under l.
func NewPure(l spillgate.Limit) (Subject, error) {
	m, err := l.Meter()
	if err != nil {
		return nil, err
	}
	return &Pure{Meter: m}, nil
}

// Do implements [Subject].
func (p *Pure) Do(op oracle.Op) (oracle.Answer, error) {
	now := p.clock.at(op.At)
	switch op.Kind {
	case oracle.Set, oracle.SetFill:
		m, err := with(p.Meter.Limit(), op).Meter()
		if err != nil {
			return oracle.Answer{}, err
		}
		p.State, p.Meter = m.Adopt(p.State, now), m
	case oracle.Refund:
		p.State = p.Meter.Settle(p.State, now, spillgate.Instant(op.Of), -op.N)
	case oracle.Spend:
		p.State = p.Meter.Settle(p.State, now, now, op.N)
	default:
		var d spillgate.Decision
		p.State, d = p.Meter.Take(p.State, now, op.N)
		return Answer(d, p.Meter.Limit(), op.N, now)
	}
	return oracle.Answer{}, nil
}

// A Stored is a key in a store, beside others.
type Stored struct {
	clock clock
	floor int64 // a change moves the oracle's clock, of which the table knows nothing
	store spillgate.Store
	space *spillgate.Space
	meter *spillgate.Meter
	key   spillgate.Key
}

// NewStored returns a new key under l in a memory of its own.
func NewStored(l spillgate.Limit) (Subject, error) {
	return NewStoredIn(spillgate.NewMemory(), "exact", l)
}

// NewStoredIn returns a new key under l in a space of that name, in a store.
func NewStoredIn(store spillgate.Store, space string, l spillgate.Limit) (Subject, error) {
	m, err := l.Meter()
	if err != nil {
		return nil, err
	}
	o := spillgate.SpaceOptions{MaxKeys: 3}
	if l.Rate == 0 && l.Algorithm == spillgate.Bucket {
		o.TTL = 1<<63 - 1 // for ever: only what the limit says
	}
	sp, err := spillgate.NewSpace(space, o)
	if err != nil {
		return nil, err
	}
	return &Stored{store: store, space: sp, meter: m, key: spillgate.Key{0x9e3779b97f4a7c15, 1}}, nil
}

// Do implements [Subject].
func (s *Stored) Do(op oracle.Op) (oracle.Answer, error) {
	// The store sees times as they are dated: that they never flow back is
	// its own affair.
	given := time.Unix(0, max(op.At, s.floor))
	now := s.clock.at(op.At)
	settle := func(delta int64, taken spillgate.Instant) error {
		return s.store.Settle(context.Background(), given, []spillgate.Correction{
			{Space: s.space, Key: s.key, Meter: s.meter, Delta: delta, At: taken}})
	}
	switch op.Kind {
	case oracle.Set, oracle.SetFill:
		m, err := with(s.meter.Limit(), op).Meter()
		if err != nil {
			return oracle.Answer{}, err
		}
		s.floor = int64(now)
		s.meter, err = s.space.Change(s.meter, m, now)
		return oracle.Answer{}, err
	case oracle.Refund:
		return oracle.Answer{}, settle(-op.N, spillgate.Instant(op.Of))
	case oracle.Spend:
		return oracle.Answer{}, settle(op.N, now)
	}
	var d [1]spillgate.Decision
	charge := []spillgate.Charge{{Space: s.space, Key: s.key, Meter: s.meter, Ask: spillgate.Ask{N: op.N}}}
	if err := s.store.Take(context.Background(), given, charge, d[:]); err != nil {
		return oracle.Answer{}, err
	}
	if s.space.Options().TTL > 0 && d[0].ResetAfter > 1<<62 {
		if d[0].RetryAfter > 1<<62 {
			d[0].RetryAfter = spillgate.Never
		}
		d[0].ResetAfter = spillgate.Never // for ever is what the ttl says, too
	}
	return Answer(d[0], s.meter.Limit(), op.N, now)
}
