package spillgate

import (
	"slices"
	"time"
	"unsafe"
)

// A logState is what a sliding window log remembers of one key: every
// admission of the last period, in order of time, those of one instant as
// one. An admission made at t is in view while now - t < period.
//
// It is a ring that grows with what is in view, up to Rate entries, as each is
// worth at least one unit, and some more for debt. Entries carry the running
// total, so that what leaves by when is found by halving. It is not safe for
// concurrent use.
type logState struct {
	m    *Meter // the limit that it was last settled at
	ring []logEntry
	head int
	n    int   // entries in view
	base int64 // the running total before the first
}

type logEntry struct {
	at    Instant
	total int64 // of all that was taken up to and with this entry
}

// logDebt is how many entries there is room for beyond the rate, which only
// debt can need.
const logDebt = 64

const logEntrySize = int64(unsafe.Sizeof(logEntry{}))

func (l *logState) entry(i int) *logEntry {
	if i += l.head; i >= len(l.ring) {
		i -= len(l.ring)
	}
	return &l.ring[i]
}

// used returns the units in view.
func (l *logState) used() int64 {
	if l.n == 0 {
		return 0
	}
	return l.entry(l.n-1).total - l.base
}

// settleTo brings l to the instant now and the limit of m: what had left the
// old view is gone, then the rest is seen with the new period.
func (l *logState) settleTo(m *Meter, now Instant) {
	if l.m != m {
		if l.m != nil {
			l.expire(now - Instant(l.m.limit.Period))
		}
		l.m = m
	}
	l.expire(now - Instant(m.limit.Period))
}

// expire drops the entries made at until or before.
func (l *logState) expire(until Instant) {
	if l.n == 0 || l.entry(0).at > until {
		return
	}
	gone := l.first(func(e *logEntry) bool { return e.at > until })
	l.base = l.entry(gone - 1).total
	l.head, l.n = (l.head+gone)%len(l.ring), l.n-gone
	if l.n == 0 {
		l.head, l.base = 0, 0
		if len(l.ring) > 16 {
			l.ring = nil // a long quiet after a crowd: give the room back
		}
	}
}

// first returns the index of the first entry for which ok, which then is so
// for all later ones; n if there is none.
func (l *logState) first(ok func(*logEntry) bool) int {
	from, to := 0, l.n
	for from < to {
		if mid := int(uint(from+to) >> 1); ok(l.entry(mid)) {
			to = mid
		} else {
			from = mid + 1
		}
	}
	return from
}

// ask decides, without taking anything yet.
func (l *logState) ask(m *Meter, now Instant, q Ask) (d Decision) {
	if !d.begin(m, now, q) {
		return d
	}
	now = m.within(now)
	if l.m != nil && l.m != m {
		// Asking changes nothing: another limit may see further back.
		c := *l
		c.ring = slices.Clone(l.ring)
		l = &c
	}
	l.settleTo(m, now)
	if l.n > 0 {
		d.ResetAfter = l.leaves(l.n-1, now)
	}
	if lacking := d.count(m, q, l.used()); lacking > 0 {
		d.RetryAfter = l.leaves(l.first(func(e *logEntry) bool { return e.total-l.base >= lacking }), now)
	}
	if d.Taken > 0 {
		d.ResetAfter = m.limit.Period
	}
	return d
}

// leaves returns the wait until the entry i is out of view.
func (l *logState) leaves(i int, now Instant) time.Duration {
	return l.m.limit.Period - time.Duration(now-l.entry(i).at)
}

// commit takes what d, the answer to an ask of m, grants.
func (l *logState) commit(m *Meter, d Decision) {
	if d.Taken > 0 {
		l.settleTo(m, m.within(d.At))
		l.add(m.within(d.At), d.Taken)
	}
}

func (l *logState) add(now Instant, n int64) {
	if n == 0 {
		return
	}
	total := l.base + l.used() + n
	if l.n > 0 {
		last := l.entry(l.n - 1)
		// Where even debt has no room left, the newest entry stays in view for
		// longer instead.
		if last.at >= now || l.n >= int(l.m.limit.Rate)+logDebt {
			last.at, last.total = max(last.at, now), total
			return
		}
	}
	if l.n == len(l.ring) {
		l.grow()
	}
	l.n++
	*l.entry(l.n - 1) = logEntry{now, total}
}

// grow makes room: half as much again, up to what the limit can need, then
// for debt.
func (l *logState) grow() {
	room, most := max(4, len(l.ring)+len(l.ring)/2), int(l.m.limit.Rate)
	if len(l.ring) < most {
		room = min(room, most)
	} else {
		room = min(room, most+logDebt)
	}
	ring := make([]logEntry, room)
	k := copy(ring, l.ring[l.head:])
	copy(ring[k:], l.ring[:l.head])
	l.ring, l.head = ring, 0
}

// settle takes delta units more at now, refused by nothing, or gives back
// what was taken at the instant taken, while that is in view.
func (l *logState) settle(m *Meter, now, taken Instant, delta int64) {
	now, taken = m.within(now), m.within(taken)
	l.settleTo(m, now)
	i := l.first(func(e *logEntry) bool { return e.at >= taken })
	if delta > 0 {
		more := min(delta, max(0, partMask-l.used())) // debt saturates
		if i == l.n || l.entry(i).at != taken {
			l.add(now, more)
			return
		}
		for k := i; k < l.n; k++ { // part of that charge, and given back with it
			l.entry(k).total += more
		}
		return
	}
	if i == l.n || l.entry(i).at != taken {
		return
	}
	before := l.base
	if i > 0 {
		before = l.entry(i - 1).total
	}
	back := min(l.entry(i).total-before, -max(delta, -partMask))
	for k := i; k < l.n; k++ {
		l.entry(k).total -= back
	}
	if l.entry(i).total == before {
		for k := i; k < l.n-1; k++ {
			*l.entry(k) = *l.entry(k + 1)
		}
		if l.n--; l.n == 0 {
			l.head, l.base = 0, 0
		}
	}
}

// newAt returns the instant from which l can't be told from a new log.
func (l *logState) newAt() Instant {
	if l.n == 0 {
		return l.m.first
	}
	return l.entry(l.n-1).at + Instant(l.m.limit.Period)
}

// size returns the bytes that l takes.
func (l *logState) size() int64 {
	return int64(unsafe.Sizeof(*l)) + int64(len(l.ring))*logEntrySize
}
