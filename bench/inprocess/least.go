package main

import (
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/spillgate/spillgate/internal/siphash"
)

// set is how many neighbouring slots a key may live in: 128 bytes, two lines
// that the processor fetches as a pair.
const set = 8

// A least is the least table that keeps a state for each key: GCRA (ITU-T
// I.371) in one word, the instant when the bucket is full again, beside one
// word of tag. It is a floor, not a limiter to use: it never grows, counts in
// whole nanoseconds, and when a set is full the key nearest to a full bucket
// is forgotten (with 1M keys in 2M slots that happens to 0.3 % of them). A
// decision that races with the takeover of its slot may charge the newcomer.
type least struct {
	start     time.Time
	every     int64 // ns to earn one unit
	tolerance int64 // ns to earn all of the burst
	slots     []slot
}

type slot struct {
	tag  atomic.Uint64 // 0: never used
	full atomic.Int64  // ns since start
}

func newLeast(s setup) least {
	return least{
		start:     time.Now(),
		every:     int64(s.every),
		tolerance: int64(s.every) * s.burst,
		slots:     make([]slot, slots(s.keys)),
	}
}

// take charges one unit to the key with hash h.
func (t *least) take(h uint64) bool {
	now := int64(time.Since(t.start))
	tag := h | 1
	home := int(h>>8) & (len(t.slots) - set)
	var nearest *slot
	for i := range set {
		s := &t.slots[home+(int(h>>4)+i)&(set-1)]
		switch s.tag.Load() {
		case tag:
			return t.charge(s, now)
		case 0:
			if s.tag.CompareAndSwap(0, tag) || s.tag.Load() == tag {
				return t.charge(s, now)
			}
		}
		if nearest == nil || s.full.Load() < nearest.full.Load() {
			nearest = s
		}
	}
	nearest.tag.Store(tag)
	nearest.full.Store(now)
	return t.charge(nearest, now)
}

func (t *least) charge(s *slot, now int64) bool {
	for {
		full := s.full.Load()
		next := max(full, now) + t.every
		if next-now > t.tolerance {
			return false
		}
		if s.full.CompareAndSwap(full, next) {
			return true
		}
	}
}

type mapHashTable struct {
	least
	seed maphash.Seed
}

func (t *mapHashTable) Allow(key string) bool { return t.take(maphash.String(t.seed, key)) }

type sipHashTable struct {
	least
	key siphash.Key
}

func (t *sipHashTable) Allow(key string) bool { return t.take(siphash.Sum64String(&t.key, key)) }
