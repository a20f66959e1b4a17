package spillgate

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A spill holds the buckets that newcomers to a full table share: one for each
// limit in use, which is one for most spaces. Its lock comes after those of
// all shards.
type spill struct {
	sync.Mutex
	buckets []*spilled
	shut    atomic.Pointer[spilled] // the one that last refused a single unit
}

type spilled struct {
	m     *Meter
	state State
	stamp int64 // when it was last charged

	// Before this instant a single unit is refused, unless the bucket is
	// written again: a flood need not queue for the lock to hear that.
	until atomic.Int64
}

// maxSpills bounds the buckets of one space; limits beyond share the last one,
// so that they are too strict rather than forgotten.
const maxSpills = 64

// spilledOf returns the bucket of m, nil if it has none. That of a limit that
// was replaced goes to the one that replaced it.
func (b *binding) spilledOf(m *Meter, now Instant) *spilled {
	for _, o := range b.spill.buckets {
		if o.m == m {
			return o
		}
	}
	for i, o := range b.spill.buckets {
		if b.space.replaced(o.m, m) {
			heir := &spilled{m: m, state: o.state, stamp: o.stamp}
			heir.until.Store(math.MinInt64)
			b.spill.buckets[i] = heir
			return heir
		}
	}
	if len(b.spill.buckets) == maxSpills {
		if b.forgetSpilled(now); len(b.spill.buckets) == maxSpills {
			return b.spill.buckets[maxSpills-1]
		}
	}
	return nil
}

// loadSpilled returns the state of m's bucket at now.
func (b *binding) loadSpilled(m *Meter, now Instant) State {
	at := b.spilledOf(m, now)
	if at == nil || b.ttl > 0 && int64(now) >= later(at.stamp, b.ttl) {
		return b.space.fresh(m, now)
	}
	return b.space.settled(at.state, m, now)
}

// storeSpilled writes the state of m's bucket.
func (b *binding) storeSpilled(m *Meter, s State, now Instant) {
	at := b.spilledOf(m, now)
	if at == nil {
		at = &spilled{m: m}
		b.spill.buckets = append(b.spill.buckets, at)
	}
	b.keeper.replace(at.state.B, s)
	at.until.Store(math.MinInt64)
	at.state, at.stamp = s, int64(now)
}

// forgetSpilled drops the buckets that are as new.
func (b *binding) forgetSpilled(now Instant) {
	b.spill.buckets = slices.DeleteFunc(b.spill.buckets, func(o *spilled) bool {
		if b.newAt(o.state.A, o.state.B, int64(now)) > int64(now) {
			return false
		}
		b.keeper.forget(o.state.B)
		return true
	})
}

// passSpilled takes one unit for a newcomer to a full table, in a space without
// a TTL and under a limit that [Meter.pass] is for.
func (b *binding) passSpilled(m *Meter, now Instant) bool {
	if o := b.spill.shut.Load(); o != nil && o.m == m && int64(now) < o.until.Load() {
		return false
	}
	b.spill.Lock()
	defer b.spill.Unlock()
	s := b.loadSpilled(m, now)
	s, ok := m.pass(s, now)
	if ok {
		b.storeSpilled(m, s, now)
		return true
	}
	if o := b.spilledOf(m, now); o != nil && o.m == m {
		o.until.Store(later(int64(now), int64(m.wait(s, now))))
		b.spill.shut.Store(o)
	}
	return false
}

// takeSpilled decides for a newcomer to a full table; the spill is locked.
func (b *binding) takeSpilled(m *Meter, now Instant, q Ask, d *Decision) {
	s := b.grant(m, b.loadSpilled(m, now), now, q, d)
	d.Overflow = true
	if d.Taken > 0 {
		b.storeSpilled(m, s, now)
	}
	b.clipSpilled(d, m, now)
}

// clipSpilled is [binding.clip] for a decision on m's bucket.
func (b *binding) clipSpilled(d *Decision, m *Meter, now Instant) {
	if b.ttl == 0 {
		return
	}
	stamp := int64(now)
	if at := b.spilledOf(m, now); at != nil {
		stamp = at.stamp
	}
	b.clip(d, stamp, now)
}

// wait returns how long a single unit has to wait that [Meter.pass] refuses.
func (m *Meter) wait(s State, now Instant) time.Duration {
	var d Decision
	m.decide(s, now, Ask{N: 1}, &d)
	return d.RetryAfter
}
