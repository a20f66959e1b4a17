package spillgate

import (
	"math"

	"github.com/spillgate/spillgate/internal/table"
)

// take decides a single charge, into d.
func (b *binding) take(tag uint64, m *Meter, now Instant, q Ask, d *Decision) {
	if m.limit.Algorithm == Unlimited {
		b.grant(m, State{}, now, q, d)
		return
	}
	sh, at := b.table.Shard(tag)
	sh.Lock()
	if b.memory.closed.Load() { // since it was bound
		sh.Unlock()
		*d = m.closed()
		return
	}
	m = b.current(m)
	now = Instant(sh.Advance(int64(now)))
	if i := sh.Find(tag, at); i >= 0 {
		s := b.grant(m, b.load(sh, i, m, now), now, q, d)
		if b.ttl > 0 {
			b.clip(d, sh.Stamp(i), now)
		}
		if d.Taken > 0 {
			b.store(sh, i, m, s, d)
		}
	} else if b.room(sh, tag, now, 0) {
		s := b.grant(m, b.space.fresh(m, now), now, q, d)
		if d.Taken > 0 {
			b.store(sh, sh.Put(tag, int64(now)), m, s, d)
		}
		b.clip(d, uncharged, now)
	} else {
		sh.CountOverflow()
		b.spill.Lock()
		b.takeSpilled(m, now, q, d)
		b.spill.Unlock()
	}
	sh.Unlock()
	b.table.Look(int64(now))
}

// expect has the processor fetch the state of a tag that is about to be asked
// for. It pays if it comes before the clock is read.
func (b *binding) expect(tag uint64) {
	sh, at := b.table.Shard(tag)
	sh.Expect(tag, at)
}

// closed returns the decision of m after Close.
func (m *Meter) closed() Decision {
	return Decision{Reason: Closed, Limit: m.most, RetryAfter: Never, ResetAfter: Never}
}

// current returns the meter by which a request that came with m is decided.
func (b *binding) current(m *Meter) *Meter {
	if m = b.space.inForce(m); m.limit.Algorithm == SlidingCounter {
		b.countsSliding()
	}
	return m
}

// grant is [Meter.Grant], also of states that are kept, into d.
func (b *binding) grant(m *Meter, s State, now Instant, q Ask, d *Decision) State {
	if m.keeps {
		s, *d = b.keeper.grant(b.space, m, s, now, q)
		return s
	}
	return m.decide(s, now, q, d)
}

// correct is [Meter.Settle], also of states that are kept.
func (b *binding) correct(m *Meter, c *Correction, s State, now Instant) State {
	if m.keeps {
		return b.keeper.settle(b.space, m, s, now, c)
	}
	return m.correct(b.space, s, now, c)
}

func (b *binding) countsSliding() {
	if !b.sliding.Load() {
		b.sliding.Store(true)
	}
}

// load returns the state at an index, carried over to the limit at hand.
func (b *binding) load(sh *table.Shard, i int, m *Meter, now Instant) State {
	var s State
	s.A, s.B = sh.At(i)
	if b.ttl > 0 && int64(now) >= later(sh.Stamp(i), b.ttl) {
		return b.space.fresh(m, now)
	}
	if uint32(s.B>>partBits) != m.id {
		s = b.space.settled(s, m, now)
	}
	return s
}

// store writes a state that d has left.
func (b *binding) store(sh *table.Shard, i int, m *Meter, s State, d *Decision) {
	_, old := sh.At(i)
	b.keeper.replace(old, s)
	due := s.A
	if m.limit.Algorithm == SlidingCounter {
		due = later(int64(d.At), int64(d.ResetAfter))
	}
	sh.Set(i, s.A, s.B, due)
}

// room reports whether a tag that has no entry gets one, promised others
// besides.
func (b *binding) room(sh *table.Shard, tag uint64, now Instant, promised int) bool {
	return sh.Room(tag, int64(now), promised) || b.evict
}

// uncharged is the stamp of a state that was never charged: it has nothing to
// be forgotten.
const uncharged = math.MinInt64

// clip shortens the waits of a decision by what the TTL forgets: a state that
// was last charged at stamp.
func (b *binding) clip(d *Decision, stamp int64, now Instant) {
	if b.ttl == 0 || d.ResetAfter == 0 {
		return
	}
	if d.Taken > 0 {
		stamp = int64(now)
	}
	left := Instant(later(stamp, b.ttl)).sub(now)
	if left <= 0 {
		return
	}
	d.ResetAfter = min(d.ResetAfter, left)
	if d.Reason == OverLimit {
		d.RetryAfter = min(d.RetryAfter, left)
	}
}

// settle carries out one correction.
func (b *binding) settle(tag uint64, c *Correction, now Instant) {
	if c.Meter.limit.Algorithm == Unlimited {
		return
	}
	sh, at := b.table.Shard(tag)
	sh.Lock()
	if b.memory.closed.Load() {
		sh.Unlock()
		return
	}
	m := b.current(c.Meter)
	now = Instant(sh.Advance(int64(now)))
	i := -1
	if !c.Overflow {
		i = sh.Find(tag, at)
	}
	switch {
	case i >= 0:
		if s := b.correct(m, c, b.load(sh, i, m, now), now); s.B == 0 {
			sh.Drop(i)
		} else {
			var d Decision
			b.grant(m, s, now, Ask{}, &d)
			b.store(sh, i, m, s, &d)
		}
	case c.Overflow || c.Delta > 0 && !b.room(sh, tag, now, 0):
		b.spill.Lock()
		s := b.correct(m, c, b.loadSpilled(m, now), now)
		b.storeSpilled(m, s, now)
		b.spill.Unlock()
	case c.Delta > 0:
		if s := b.correct(m, c, b.space.fresh(m, now), now); s.B != 0 {
			var d Decision
			b.grant(m, s, now, Ask{}, &d)
			b.store(sh, sh.Put(tag, int64(now)), m, s, &d)
		}
	}
	sh.Unlock()
	b.table.Look(int64(now))
}

// pass is [Meter.Take] of one unit from a bucket or queue that moves, for those
// who want to know no more.
func (m *Meter) pass(s State, now Instant) (State, bool) {
	now = m.within(now)
	f := flowOf(s, now).plus(m.one, m.den)
	if f.over(m.cap, m.den) > 0 {
		return s, false
	}
	return m.packFlow(f, now), true
}

// passNew is pass for a tag that has no entry, in a space without a TTL.
func (b *binding) passNew(sh *table.Shard, tag uint64, m *Meter, now Instant) bool {
	if b.room(sh, tag, now, 0) {
		s, ok := m.pass(b.space.fresh(m, now), now)
		if ok {
			sh.Set(sh.Put(tag, int64(now)), s.A, s.B, s.A)
		}
		return ok
	}
	sh.CountOverflow()
	return b.passSpilled(m, now)
}
