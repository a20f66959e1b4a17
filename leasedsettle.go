package spillgate

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Settle implements [Store]. What was used beyond a charge is taken from the
// key's lease if that has it; what is given back goes to the lease if it has
// room. The rest goes to the inner store.
func (l *Leased) Settle(ctx context.Context, at time.Time, cs []Correction) error {
	for i := range cs {
		if cs[i].Space == nil || cs[i].Meter == nil {
			return fmt.Errorf("spillgate: %w: correction %d has no space or no meter", ErrCharge, i)
		}
	}
	if l.closed.Load() {
		return ErrClosed
	}
	now := l.instant(at)
	var rest []Correction
	held := false
	for i := range cs {
		done, holds := l.settleHere(now, &cs[i])
		if held = held || holds; !done {
			rest = append(rest, cs[i])
		}
	}
	if held {
		l.kept(at)
	}
	if len(rest) == 0 {
		return nil
	}
	return l.inner.Settle(ctx, at, rest)
}

// settleHere carries a correction out on the lease of its key, and reports
// whether that is all, and whether the lease holds units. If it is not all, the
// lease knows of it all the same.
func (l *Leased) settleHere(now Instant, c *Correction) (done, holds bool) {
	if c.Meter.limit.Algorithm == Unlimited || c.Delta == 0 {
		return true, false
	}
	m := c.Space.inForce(c.Meter)
	if !leasable(c.Space, m) || c.Overflow {
		return false, false
	}
	sh, tag, set := l.find(c.Space, c.Key)
	sh.Lock()
	defer sh.Unlock()
	e := sh.lookup(tag, set, c.Space, c.Key)
	if e == nil || e.meter != m.id || e.since == never {
		return false, false
	}
	there := e.there(e.advance(now))
	window := m.limit.Algorithm == FixedWindow
	if window && there >= e.until {
		return false, false // nothing is known of the window at hand
	}
	if c.Delta > 0 {
		e.state = m.Settle(e.state, there, there, c.Delta)
		if e.have < c.Delta {
			return false, e.have > 0
		}
		sh.setHave(e, e.have-c.Delta)
		return true, e.have > 0
	}
	if window && !m.window.at(e.until-1).holds(c.At) {
		return false, false // what another window was charged is past
	}
	if e.least {
		e.since = never // an answer doesn't tell how far beyond its limit a window is
		return false, e.have > 0
	}
	room := l.block(m.most, l.nodes.Load()) - e.have - e.coming
	// A bucket gives back what is still missing of the charge. Where that is
	// all of it, giving it back and taking it again for the lease is the same
	// as keeping it.
	if whole := window || c.Until != 0 && m.missing(c.Until, there, -c.Delta); !whole || -c.Delta > room || c.Space.changed.Load() > 0 {
		e.state = m.correct(c.Space, e.state, there, c)
		return false, e.have > 0
	}
	if e.have == 0 {
		if e.back, e.expires = 0, Instant(later(int64(there), int64(l.hold))); !window {
			e.until = max(there+Instant(m.lasting(-c.Delta)), Instant(e.state.A)) // as if it was taken now
		}
	}
	e.state = m.Settle(e.state, there, there, c.Delta)
	back := e.back - c.Delta
	sh.setHave(e, e.have-c.Delta)
	e.back = back
	return true, true
}

// lasting returns how long a bucket that was full takes to earn n units back.
func (m *Meter) lasting(n int64) time.Duration {
	s, _ := m.spanOf(n)
	return time.Duration(flow{}.plus(s, m.den).ns)
}

// missing reports whether n units of a charge that would have been earned back
// at until are still missing at now.
func (m *Meter) missing(until, now Instant, n int64) bool {
	s, ok := m.spanOf(n)
	left := int64(until.sub(now))
	return ok && (s.ns < left || s.ns == left && s.part == 0)
}

// settleBack gives units back to the inner store. Those of a call that fails
// are lost to whoever comes until they would have been earned back: a call is
// never repeated, since it may have been carried out.
func (l *Leased) settleBack(ctx context.Context, at time.Time, cs []Correction) error {
	var n uint64
	for i := range cs {
		n += uint64(-cs[i].Delta)
	}
	if err := l.inner.Settle(ctx, at, cs); err != nil {
		l.forfeited.Add(n)
		return err
	}
	l.returned.Add(n)
	return nil
}

// maxOwed bounds the corrections that wait to be sent.
const maxOwed = 1024

// owe puts corrections on the list of what goes back when leases do: nobody who
// waits for a decision waits for that.
func (l *Leased) owe(cs []Correction) {
	l.timing.Lock()
	defer l.timing.Unlock()
	for i := range cs {
		if len(l.owed) < maxOwed {
			l.owed = append(l.owed, cs[i])
		} else {
			l.forfeited.Add(uint64(-cs[i].Delta))
		}
	}
}

// Return gives back what is held in leases that are over, and fetches units for
// those that run low. With the store's own clock (a zero time) both come by
// themselves; whoever gives times of their own calls it, at least every half of
// Hold for the bound of Hold to be met by half as much again. It returns the
// errors of the inner store about what was given back, joined.
func (l *Leased) Return(ctx context.Context, at time.Time) error {
	err := l.giveBack(ctx, at, false)
	if l.low.begin() {
		l.fetchAll(at)
	}
	return err
}

// returnsAtOnce is how many leases one call to the inner store gives back.
const returnsAtOnce = 64

func (l *Leased) giveBack(ctx context.Context, at time.Time, all bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.instant(at)
	l.timing.Lock()
	back := l.owed
	l.owed = nil
	l.timing.Unlock()
	var errs []error
	flush := func() {
		if len(back) > 0 {
			errs = append(errs, l.settleBack(ctx, at, back))
			back = back[:0]
		}
	}
	flush()
	for i := range l.shards {
		sh := &l.shards[i]
		sh.Lock()
		for j := 0; j < len(sh.leases) && sh.units > 0; j++ {
			e := &sh.leases[j]
			if e.have == 0 {
				continue
			}
			there := e.there(e.advance(now))
			switch m := meterOf(e.meter); {
			case m.limit.Algorithm == FixedWindow && there >= e.until:
				sh.forfeit(e)
			case !all && !e.over(there) && e.have <= l.block(m.most, l.nodes.Load()): // or there are more nodes now
			case e.lapsed(there):
				sh.lapse(e)
			default:
				c := sh.giveBack(e, there)
				if c.Delta == 0 {
					continue
				}
				if back = append(back, c); len(back) == returnsAtOnce {
					sh.Unlock()
					flush()
					sh.Lock()
				}
			}
		}
		sh.Unlock()
	}
	flush()
	return errors.Join(errs...)
}

// kept sees to it that what is held now will be given back.
func (l *Leased) kept(at time.Time) {
	switch {
	case l.closed.Load(): // since the call began
		_ = l.giveBack(context.Background(), at, true)
	case !at.IsZero(): // whoever gives times calls Return
	case !l.armed.Swap(true):
		l.arm()
	}
}

func (l *Leased) arm() {
	l.timing.Lock()
	defer l.timing.Unlock()
	if l.closed.Load() {
		return
	}
	if l.timer == nil {
		l.timer = time.AfterFunc(l.hold/2, l.tick)
	} else {
		l.timer.Reset(l.hold / 2)
	}
}

// tick gives back what is over, and comes again while anything is held.
func (l *Leased) tick() {
	l.armed.Store(false)
	_ = l.giveBack(context.Background(), time.Time{}, false) // counted as forfeited
	held := false
	for i := range l.shards {
		sh := &l.shards[i]
		sh.Lock()
		held = held || sh.units > 0
		sh.Unlock()
	}
	if held && !l.armed.Swap(true) {
		l.arm()
	}
}

// Close gives back all that is held. What is asked afterwards is answered with
// [ErrClosed]; the inner store stays open. Closing again does nothing. It
// returns the errors of the inner store, joined.
func (l *Leased) Close() error {
	if l.closed.Swap(true) {
		return nil
	}
	l.timing.Lock()
	if l.timer != nil {
		l.timer.Stop()
	}
	l.timing.Unlock()
	l.low.close()
	at := time.Time{}
	if l.told.Load() {
		at = time.Unix(0, int64(l.latest()))
	}
	return l.giveBack(context.Background(), at, true)
}

// latest returns the latest instant that any lease has seen.
func (l *Leased) latest() Instant {
	latest := firstInstant
	for i := range l.shards {
		sh := &l.shards[i]
		sh.Lock()
		for j := range sh.leases {
			latest = max(latest, sh.leases[j].latest)
		}
		sh.Unlock()
	}
	return latest
}
