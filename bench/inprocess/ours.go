package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/rate"
)

// Names of our rows that the ratios refer to.
const (
	ourAllow = "spillgate, Allow"
	ourOne   = "spillgate.Memory, one charge"
	ourThree = "spillgate.Memory, three charges"
	ourRate  = "spillgate/rate, one limiter"
)

// ours lists what this repository publishes.
func ours() []contestant {
	row := func(name, note string, open func(setup) (limiter, error)) contestant {
		return contestant{name: name, kind: own, note: note, keyed: true, exact: true, open: open}
	}
	allow := row(ourAllow, "", func(s setup) (limiter, error) { return newOurs(s) })
	allow.stores, allow.grows = true, true
	return []contestant{
		allow,
		row("spillgate, Take", "with remaining, retry after and reset after", func(s setup) (limiter, error) {
			l, err := newOurs(s)
			return ourTake{l}, err
		}),
		row(ourOne, "what a policy of one rule costs in its store, the digest included", func(s setup) (limiter, error) {
			return newOurCharges(s, 1)
		}),
		row(ourThree, "the same of three rules, each with a table of its own: all or none", func(s setup) (limiter, error) {
			return newOurCharges(s, 3)
		}),
		{name: ourRate, kind: own, note: "the drop-in for x/time/rate", exact: true, open: func(s setup) (limiter, error) {
			return ourOneRate{rate.NewLimiter(rate.Every(s.every), int(s.burst))}, nil
		}},
	}
}

type ourOneRate struct{ *rate.Limiter }

// Allow ignores the key: there is one limiter.
func (o ourOneRate) Allow(string) bool { return o.Limiter.Allow() }

// ourLimit is the limit of s. Rules of one decision differ in their bursts.
func ourLimit(s setup, rule int) spillgate.Limit {
	return spillgate.Limit{Rate: 1, Period: s.every, Burst: s.burst + int64(rule)}
}

func newOurs(s setup) (*spillgate.Limiter, error) {
	return spillgate.New(ourLimit(s, 0), spillgate.MaxKeys(s.keys))
}

type ourTake struct{ *spillgate.Limiter }

// Allow asks for the whole decision.
func (t ourTake) Allow(key string) bool { return t.Take(key, 1).Allowed }

// ourCharges decides one charge of each of its spaces, as an engine with a
// policy does: a digest for each rule, scratch from a pool, one call.
type ourCharges struct {
	memory  *spillgate.Memory
	seed    spillgate.Seed
	kinds   []string
	scratch sync.Pool // of *charging
}

type charging struct {
	charges   []spillgate.Charge
	decisions []spillgate.Decision
	text      []byte
}

func newOurCharges(s setup, rules int) (*ourCharges, error) {
	p := &ourCharges{memory: spillgate.NewMemory(), seed: spillgate.NewSeed()}
	charges := make([]spillgate.Charge, rules)
	for i := range charges {
		kind := fmt.Sprint("rule", i)
		sp, err := spillgate.NewSpace(kind, spillgate.SpaceOptions{MaxKeys: s.keys})
		if err != nil {
			return nil, err
		}
		m, err := ourLimit(s, i).Meter()
		if err != nil {
			return nil, err
		}
		p.kinds = append(p.kinds, kind)
		charges[i] = spillgate.Charge{Space: sp, Meter: m, Ask: spillgate.Ask{N: 1}}
	}
	p.scratch.New = func() any {
		return &charging{append([]spillgate.Charge(nil), charges...), make([]spillgate.Decision, rules), nil}
	}
	return p, nil
}

func (p *ourCharges) Allow(key string) bool {
	c := p.scratch.Get().(*charging)
	defer p.scratch.Put(c)
	for i, kind := range p.kinds {
		c.text = spillgate.AppendPart(c.text[:0], kind, key)
		c.charges[i].Key = p.seed.Key(c.text)
	}
	if err := p.memory.Take(context.Background(), time.Time{}, c.charges, c.decisions); err != nil {
		return false
	}
	for _, d := range c.decisions {
		if !d.Allowed {
			return false
		}
	}
	return true
}

// Close gives the memory back.
func (p *ourCharges) Close() error { return p.memory.Close() }

// ourRatios lists what is claimed about it.
func ourRatios() []ratio {
	us := func(w workload) measure { return ns(ourAllow, w) }
	floor := func(w workload) measure { return ns(leastSip, w) }
	sweepers := lesser(longest(mutexSweep, inExpiry), longest(sethvargo, inExpiry))
	return []ratio{
		{"one hot key: spillgate / clock + SipHash", us(hot1), ns(clockSip, hot1), 1.35, 2.7, false, false},
		{"one hot key: spillgate / least table", us(hot1), floor(hot1), 1.25, 2.5, false, false},
		{"one hot key, 2: spillgate / best peer of equal promise", us(hot2), bestPeer(hot2), 1, 2, false, false},
		{"uniform: spillgate / least table", us(uniform), floor(uniform), 1.3, 2.6, false, false},
		{"uniform: spillgate / best peer of equal promise", us(uniform), bestPeer(uniform), 0.5, 1, false, false},
		{"uniform: spillgate / mutex map", us(uniform), ns(mutexMap, uniform), 0.167, 0.5, false, false},
		{"Zipf: spillgate / least table", us(zipf), floor(zipf), 1.3, 2.6, false, false},
		{"flood at the cap: spillgate / least table", us(flood), floor(flood), 1.3, 2.6, false, false},
		{"bytes a key at the cap", weight(ourAllow, atCap), number(1), 32, 40, true, false},
		{"bytes a key while growing", weight(ourAllow, whileGrowing), number(1), 48, 60, true, false},
		{"bytes for each key beyond the cap", weight(ourAllow, forMore), number(1), 0, 0.01, true, false},
		{"slowest decision while all expire: spillgate / sweepers", longest(ourAllow, inExpiry), sweepers, 0.05, 0.5, false, false},
		{"slowest decision while growing: spillgate / sweepers", longest(ourAllow, inGrowth), sweepers, 0.05, 0.5, false, false},
		{"a snapshot / writing the same bytes", saving(ourAllow, snapshotTime), saving(ourAllow, writeTime), 3, 6, false, false},
		{"limited keys that a flood has freed", saving(ourAllow, freedKeys), number(1), 0, 0, true, false},
		{"rate.Allow, one goroutine: spillgate / x/time", ns(ourRate, hot1), ns(xtimeSingle, hot1), 0.6, 0.9, false, false},
		{"rate.Allow, two: spillgate / x/time", ns(ourRate, hot2), ns(xtimeSingle, hot2), 0.6, 0.9, false, false},
		{"one hot key: three charges / one", ns(ourThree, hot1), ns(ourOne, hot1), 2.5, 4, false, false},
		{"uniform: three charges / one", ns(ourThree, uniform), ns(ourOne, uniform), 2.5, 4, false, true},
	}
}
