package spillgate

import "sync"

// A spill holds the buckets that newcomers to a full table share: one for each
// limit in use, which is one for most spaces. Its lock comes after those of
// all shards.
type spill struct {
	sync.Mutex
	buckets []spilled
	decided uint64
}

type spilled struct {
	m     *Meter
	state State
	stamp int64 // when it was last charged
}

// maxSpills bounds the buckets of one space; limits beyond share the last one,
// so that they are too strict rather than forgotten.
const maxSpills = 64

// spilledOf returns the bucket of m, nil if it has none. That of a limit that
// was replaced goes to the one that replaced it.
func (b *binding) spilledOf(m *Meter, now Instant) *spilled {
	bs := b.spill.buckets
	for i := range bs {
		if bs[i].m == m {
			return &bs[i]
		}
	}
	for i := range bs {
		if b.space.replaced(bs[i].m, m) {
			bs[i].m = m
			return &bs[i]
		}
	}
	if len(bs) == maxSpills {
		if b.forgetSpilled(now); len(b.spill.buckets) == maxSpills {
			return &bs[maxSpills-1]
		}
	}
	return nil
}

// loadSpilled returns the state of m's bucket at now.
func (b *binding) loadSpilled(m *Meter, now Instant) State {
	at := b.spilledOf(m, now)
	if at == nil || b.ttl > 0 && int64(now) >= later(at.stamp, b.ttl) {
		return State{}
	}
	return b.space.settled(at.state, m, now)
}

// storeSpilled writes the state of m's bucket.
func (b *binding) storeSpilled(m *Meter, s State, now Instant) {
	at := b.spilledOf(m, now)
	if at == nil {
		b.spill.buckets = append(b.spill.buckets, spilled{m: m})
		at = &b.spill.buckets[len(b.spill.buckets)-1]
	}
	b.keeper.replace(at.state.B, s)
	at.state, at.stamp = s, int64(now)
}

// forgetSpilled drops the buckets that are as new.
func (b *binding) forgetSpilled(now Instant) {
	kept := b.spill.buckets[:0]
	for _, o := range b.spill.buckets {
		if b.newAt(o.state.A, o.state.B, int64(now)) > int64(now) {
			kept = append(kept, o)
		} else {
			b.keeper.forget(o.state.B)
		}
	}
	b.spill.buckets = kept
}

// takeSpilled decides for a newcomer to a full table; the spill is locked.
func (b *binding) takeSpilled(m *Meter, now Instant, q Ask, d *Decision) {
	b.spill.decided++
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
