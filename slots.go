package spillgate

import (
	"slices"
	"time"
	"unsafe"
)

// A slotState is what a concurrency limit remembers of one key: who is inside,
// in the order of coming, and so in the order in which a hold ends that nobody
// ends. It is not safe for concurrent use.
type slotState struct {
	m      *Meter // the limit that it was last settled at
	places []place
	used   int64 // units held
	oldest int32 // index in places+1, 0 for none
	newest int32
	unused int32 // a chain over next
}

// A place is one holder's.
type place struct {
	id         uint64 // what the holder knows it by; 0 while unused
	since      Instant
	units      int64
	next, prev int32
}

// The lower bits of a slot's id are its place, so that a holder is found at
// once; the upper are a number that never comes again, so that a holder who
// was taken for lost frees nobody else's place.
const (
	placeBits = 20
	maxSlots  = 1 << placeBits
)

func (l *slotState) at(i int32) *place { return &l.places[i-1] }

// settleTo brings l to the instant now and the limit of m: whoever has held
// for a whole period is taken for lost.
func (l *slotState) settleTo(m *Meter, now Instant) {
	if l.m != nil && l.m != m {
		l.expire(now - Instant(l.m.limit.Period))
	}
	l.m = m
	l.expire(now - Instant(m.limit.Period))
}

func (l *slotState) expire(until Instant) {
	for l.oldest != 0 && l.at(l.oldest).since <= until {
		l.free(l.oldest)
	}
	if l.oldest == 0 && len(l.places) > 16 {
		l.places, l.unused = nil, 0
	}
}

// free takes the place i out of the order.
func (l *slotState) free(i int32) {
	p := l.at(i)
	l.used -= p.units
	if p.prev != 0 {
		l.at(p.prev).next = p.next
	} else {
		l.oldest = p.next
	}
	if p.next != 0 {
		l.at(p.next).prev = p.prev
	} else {
		l.newest = p.prev
	}
	*p = place{next: l.unused}
	l.unused = i
}

// ask decides, without taking anything yet.
func (l *slotState) ask(m *Meter, now Instant, q Ask) (d Decision) {
	if !d.begin(m, now, q) {
		return d
	}
	now = m.within(now)
	if l.m != nil && l.m != m {
		// Asking changes nothing: another limit may have a longer hold.
		c := *l
		c.places = slices.Clone(l.places)
		l = &c
	}
	l.settleTo(m, now)
	if l.newest != 0 {
		d.ResetAfter = l.ends(l.newest, now)
	}
	if lacking := d.count(m, q, l.used); lacking > 0 {
		i := l.oldest
		for lacking -= l.at(i).units; lacking > 0; lacking -= l.at(i).units {
			i = l.at(i).next
		}
		d.RetryAfter = l.ends(i, now)
	}
	if d.Taken > 0 {
		d.ResetAfter = m.limit.Period
	}
	return d
}

// ends returns the longest that the holder of place i still can hold it.
func (l *slotState) ends(i int32, now Instant) time.Duration {
	return l.m.limit.Period - time.Duration(now-l.at(i).since)
}

// commit takes what d, the answer to an ask of m, grants and returns the
// slot's id. number is one that never was given before.
func (l *slotState) commit(m *Meter, d Decision, number uint64) uint64 {
	if d.Taken == 0 {
		return 0
	}
	l.settleTo(m, m.within(d.At))
	i := l.unused
	if i != 0 {
		l.unused = l.at(i).next
	} else {
		l.grow()
		i = int32(len(l.places))
	}
	p := l.at(i)
	*p = place{id: number<<placeBits | uint64(i-1), since: m.within(d.At), units: d.Taken, prev: l.newest}
	if l.newest != 0 {
		l.at(l.newest).next = i
	} else {
		l.oldest = i
	}
	l.newest = i
	l.used += d.Taken
	return p.id
}

// grow adds one place, in room that grows by half.
func (l *slotState) grow() {
	n := len(l.places)
	if n == cap(l.places) {
		room := max(4, n+n/2)
		if most := int(l.m.limit.Rate); n < most {
			room = min(room, most)
		}
		places := make([]place, n, room)
		copy(places, l.places)
		l.places = places
	}
	l.places = l.places[:n+1]
}

// settle changes the units of a slot: all given back, and it is free. A slot
// that is not held any more is left alone.
func (l *slotState) settle(m *Meter, now Instant, slot uint64, delta int64) {
	l.settleTo(m, m.within(now))
	i := slot & (maxSlots - 1)
	if slot == 0 || i >= uint64(len(l.places)) || l.places[i].id != slot {
		return
	}
	p := &l.places[i]
	delta = min(delta, partMask-l.used) // debt saturates
	if p.units+delta <= 0 {
		l.free(int32(i) + 1)
		return
	}
	p.units += delta
	l.used += delta
}

// newAt returns the instant from which l can't be told from new.
func (l *slotState) newAt() Instant {
	if l.newest == 0 {
		return l.m.first
	}
	return l.at(l.newest).since + Instant(l.m.limit.Period)
}

// size returns the bytes that l takes.
func (l *slotState) size() int64 {
	return int64(unsafe.Sizeof(*l)) + int64(cap(l.places))*int64(unsafe.Sizeof(place{}))
}
