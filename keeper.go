package spillgate

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"unsafe"
)

// A keeper keeps the states of a space that are more than two words: logs and
// slots. The table bounds them and judges them as it does all others: in an
// entry's two words stand, for the state, the instant from which on it is as
// new, and its number here.
//
// Its lock guards the numbers alone. A state is used under the lock that its
// entry is used under, a shard's or the spill's.
type keeper struct {
	mu     sync.Mutex
	states map[uint64]*kept
	last   uint64 // number that was given; none comes again

	inUse atomic.Bool
	bytes atomic.Int64
}

type kept struct {
	log   *logState
	slots *slotState
	bytes int64 // as counted in the keeper's
}

// keptBytes is what a state takes beside itself: its part of the map.
const keptBytes = int64(unsafe.Sizeof(kept{})) + 32

// of returns the state that s stands for, settled at the limits that were in
// force up to now; nil if there is none.
func (k *keeper) of(sp *Space, s State, m *Meter, now Instant) *kept {
	if s.B == 0 {
		return nil
	}
	k.mu.Lock()
	o := k.states[s.B&partMask]
	k.mu.Unlock()
	if o == nil {
		return nil
	}
	if sp == nil {
		return o
	}
	if p := sp.changes.Load(); p != nil {
		for _, c := range *p {
			// Whoever looks at an instant before the change settles nothing.
			if c.from == o.meter() && c.from != m && c.until <= now && c.to.limit.Algorithm == c.from.limit.Algorithm {
				o.settleTo(c.to, c.until)
			}
		}
	}
	return o
}

// add makes a state and gives it a number.
func (k *keeper) add(m *Meter) (*kept, uint64) {
	o := &kept{}
	if m.limit.Algorithm == SlidingLog {
		o.log = &logState{m: m}
	} else {
		o.slots = &slotState{m: m}
	}
	k.inUse.Store(true)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.states == nil {
		k.states = map[uint64]*kept{}
		// Slots of an earlier life of the space free nothing in this one.
		k.last = rand.Uint64N(1 << (partBits - 1))
	}
	n := k.number()
	for n&partMask == 0 || k.states[n&partMask] != nil {
		n = k.number()
	}
	k.states[n&partMask] = o
	return o, n & partMask
}

// number returns the next number; k is locked.
func (k *keeper) number() uint64 {
	k.last++
	return k.last
}

// forget drops the state that an entry's second word stands for, if it stands
// for one.
func (k *keeper) forget(b uint64) {
	if !k.inUse.Load() || !keeps(b) {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if o := k.states[b&partMask]; o != nil {
		delete(k.states, b&partMask)
		k.bytes.Add(-o.bytes)
	}
}

// keeps reports whether the second word of a state is that of a kept one.
func keeps(b uint64) bool {
	m := meterOf(uint32(b >> partBits))
	return m != nil && m.keeps
}

// replace forgets what old stands for where s stands for something else.
func (k *keeper) replace(old uint64, s State) {
	if k.inUse.Load() && (old&partMask != s.B&partMask || !keeps(s.B)) {
		k.forget(old)
	}
}

func (k *keeper) clear() {
	k.mu.Lock()
	defer k.mu.Unlock()
	clear(k.states)
	k.bytes.Store(0)
}

// measure counts what a state takes now.
func (k *keeper) measure(o *kept) {
	n := keptBytes
	if o.log != nil {
		n += o.log.size()
	} else {
		n += o.slots.size()
	}
	if n != o.bytes {
		k.bytes.Add(n - o.bytes)
		o.bytes = n
	}
}

func (o *kept) meter() *Meter {
	if o.log != nil {
		return o.log.m
	}
	return o.slots.m
}

func (o *kept) settleTo(m *Meter, now Instant) {
	if o.log != nil {
		o.log.settleTo(m, m.within(now))
	} else {
		o.slots.settleTo(m, m.within(now))
	}
}

// newAt returns from which instant on o is as new.
func (o *kept) newAt() Instant {
	if o.log != nil {
		return o.log.newAt()
	}
	return o.slots.newAt()
}

// grant is [Meter.Grant] for kept states. What it grants is taken, at once:
// undo takes it back.
func (k *keeper) grant(sp *Space, m *Meter, s State, now Instant, q Ask) (State, Decision) {
	o := k.of(sp, s, m, now)
	d := o.ask(m, now, q)
	if d.Taken == 0 {
		return s, d
	}
	number := s.B & partMask
	if o == nil {
		o, number = k.add(m)
	}
	if o.log != nil {
		o.log.commit(m, d)
	} else {
		k.mu.Lock()
		n := k.number()
		k.mu.Unlock()
		d.Slot = o.slots.commit(m, d, n)
	}
	k.measure(o)
	return m.pack(int64(o.newAt()), number), d
}

// ask decides for o, nil being a key never seen.
func (o *kept) ask(m *Meter, now Instant, q Ask) Decision {
	switch {
	case o != nil && o.log != nil:
		return o.log.ask(m, now, q)
	case o != nil:
		return o.slots.ask(m, now, q)
	}
	// An empty log and empty slots say the same of a first request.
	var l logState
	return l.ask(m, now, q)
}

// undo takes back what d granted, which made after of before.
func (k *keeper) undo(m *Meter, before, after State, d Decision) {
	if d.Taken == 0 {
		return
	}
	if before.B&partMask != after.B&partMask || !keeps(before.B) {
		k.forget(after.B)
		return
	}
	if o := k.of(nil, after, m, d.At); o != nil {
		o.settle(m, d.At, &Correction{At: d.At, Slot: d.Slot, Delta: -d.Taken})
	}
}

func (o *kept) settle(m *Meter, now Instant, c *Correction) {
	if o.log != nil {
		o.log.settle(m, now, c.At, c.Delta)
	} else {
		o.slots.settle(m, now, c.Slot, c.Delta)
	}
}

// settle is [Meter.Settle] for kept states.
func (k *keeper) settle(sp *Space, m *Meter, s State, now Instant, c *Correction) State {
	o, number := k.of(sp, s, m, now), s.B&partMask
	if o == nil {
		if c.Delta <= 0 || m.limit.Algorithm == Concurrency {
			return State{} // nothing to give back, nobody inside
		}
		o, number = k.add(m)
	}
	o.settle(m, now, c)
	k.measure(o)
	if at := o.newAt(); at > now {
		return m.pack(int64(at), number)
	}
	if s.B == 0 {
		k.forget(m.pack(0, number).B)
	}
	return State{}
}
