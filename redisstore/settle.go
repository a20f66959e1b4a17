package redisstore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spillgate/spillgate"
)

// Settle implements [spillgate.Store]. What can't be sent while the server does
// not answer is kept, up to 1,024 corrections, and sent when it does; what finds
// no room is counted, and an error that wraps [spillgate.ErrUnavailable]. What
// was sent and not answered is never sent again. It ends within one [Budget], for all
// of cs; ctx is as in [Store.Take].
func (s *Store) Settle(ctx context.Context, at time.Time, cs []spillgate.Correction) error {
	for i := range cs {
		if cs[i].Space == nil || cs[i].Meter == nil {
			return fmt.Errorf("redisstore: %w: correction %d has no space or no meter", spillgate.ErrCharge, i)
		}
		if m := cs[i].Space.InForce(cs[i].Meter); kindOf(m) == kindSpent && cs[i].Space.Options().TTL == 0 {
			return fmt.Errorf("redisstore: %w: correction %d of %q: %s never returns to new by itself, so its space needs a ttl", spillgate.ErrCharge, i, cs[i].Space.Name(), m.Limit())
		}
	}
	if s.closed.Load() {
		return spillgate.ErrClosed
	}
	w := s.newWait(ctx)
	defer w.stop()
	ops := make([]*op, 0, len(cs))
	together := map[*lane][]*op{}
	var failed error
	for i := range cs {
		o := s.correction(at, cs[i])
		if o == nil {
			continue
		}
		if cs[i].Delta < 0 {
			s.refusals.forget(refusedKey{cs[i].Space, cs[i].Key})
		}
		l, err := s.laneOf(w, o)
		if err == nil && l.breaker.open.Load() {
			err = errOpen
		}
		if err != nil {
			if !s.late.keep(o) {
				s.stats.dropped.Add(1)
				failed = err
			}
			continue
		}
		o.expect(s)
		together[l] = append(together[l], o)
		ops = append(ops, o)
	}
	carry := w.carry() && len(together) == 1 // several servers are asked at once
	for l, some := range together {
		l.submit(carry, some...)
	}
	for _, o := range ops {
		if err := s.settled(w, o); err != nil {
			failed = err
		}
	}
	return failed
}

// correction returns c as an op, nil if it corrects nothing.
func (s *Store) correction(at time.Time, c spillgate.Correction) *op {
	c.Meter = c.Space.InForce(c.Meter)
	k := kindOf(c.Meter)
	o := &op{fix: &c}
	if o.given = !at.IsZero(); o.given { // also what corrects nothing says how late it is
		o.now = s.given(at, slices.Values([]*spillgate.Space{c.Space}))
	} else {
		o.now = s.now()
	}
	if k == kindNone || c.Delta == 0 {
		return nil
	}
	p := part{sp: c.Space, id: c.Key, kind: k, key: s.key(c.Space, c.Key, c.Meter.Limit().Algorithm)}
	p.m, p.ttl, p.settle, p.delta, p.at, p.slot, p.until = c.Meter, c.Space.Options().TTL, true, c.Delta, c.At, c.Slot, c.Until
	if _, ok := c.Space.Changed(); ok {
		p.until = 0
	}
	if k.kept() {
		p.changed, p.space = changed(c.Space)
	}
	o.parts = []part{p}
	o.slot = slotOf(p.key)
	return o
}

// settled waits for a correction that was sent, and carries it out here if its
// state was written under another limit.
func (s *Store) settled(w *wait, o *op) error {
	for range maxRounds {
		if err := w.for1(o); err != nil {
			return err
		}
		if o.letter == 'A' {
			return nil
		}
		if o.letter == 'C' && o.fresh {
			p := &o.parts[0]
			from, _ := o.raws[0].(string)
			after := o.fix.Apply(p.sp.Settled(p.before.s, p.m, o.now), o.now)
			r := replacement{from: from, given: o.given, now: o.now}
			if after != (spillgate.State{}) {
				var b []byte
				b, r.until = appendState(nil, after, p.m, o.now, int64(p.ttl))
				r.to = string(b)
			}
			if r.to == r.from {
				return nil
			}
			o.replace = []replacement{r}
		} else {
			o.replace = nil
		}
		l, err := s.laneOf(w, o)
		if err != nil {
			return err
		}
		if !o.given {
			o.now = s.now()
		}
		o.expect(s)
		l.submit(w.carry(), o)
	}
	return fmt.Errorf("redisstore: %w: %d rounds, and each time somebody was faster", spillgate.ErrUnavailable, maxRounds)
}
