package oracle

import "math/big"

// small is the state of a limiter whose numbers are small: no allocation, and
// a copy of the struct is a copy of the state. Only Step works on it.
//
// Units are scaled by the period, so that limit such parts are earned in each
// nanosecond and every number is whole. Each product is held below small's
// bound when it is formed, so that no sum of a few of them overflows.
type small struct {
	// Bucket: the balance in parts. Queue: the backlog in parts. Fixed window
	// and sliding counter: the current count.
	x        int64
	previous int64 // count of the previous window (sliding counter)
	n        int   // entries of the log
	entries  [smallEntries]smallEntry
}

type smallEntry struct{ at, cost int64 }

const (
	smallEntries = 8
	smallBound   = 1 << 59
)

// isSmall reports whether a*b is below the bound, for a, b >= 0.
func isSmall(a, b int64) bool { return a == 0 || b < smallBound/a }

// startSmall puts l in its first state if its numbers are small.
func (l *Limiter) startSmall() bool {
	if l.limit >= smallBound || l.burst >= smallBound || !isSmall(l.limit, l.period) || !isSmall(l.burst+1, l.period) {
		return false
	}
	switch l.algorithm {
	case TokenBucket, GCRA, LeakyBucket:
		l.small.x = l.burst * l.period
	}
	return true
}

// staysSmall reports whether the step can be taken in small numbers.
func (l *Limiter) staysSmall(at, cost int64) bool {
	if cost < 0 || !isSmall(cost, l.period) {
		return false
	}
	return l.algorithm != SlidingWindowLog || l.small.n < smallEntries
}

// makeExact goes on in exact numbers from where the small ones are.
func (l *Limiter) makeExact() {
	if l.exact != nil {
		return
	}
	l.exact = newModel(l.algorithm, l.limit, l.period, l.burst, l.clock)
	s := &l.small
	switch m := l.exact.(type) {
	case *bucket:
		m.balance = ratio(s.x, l.period)
	case *queue:
		m.backlog = ratio(s.x, l.period)
	case *fixed:
		m.count = big.NewInt(s.x)
	case *counter:
		m.previous, m.current = big.NewInt(s.previous), big.NewInt(s.x)
	case *log:
		for _, e := range s.entries[:s.n] {
			m.entries = append(m.entries, entry{e.at, big.NewInt(e.cost)})
		}
	}
}

func (l *Limiter) stepSmall(at, cost int64) Answer {
	before := l.clock
	l.clock = max(l.clock, at)
	switch l.algorithm {
	case FixedWindow:
		return l.smallFixed(before, cost)
	case SlidingWindowCounter:
		return l.smallCounter(before, cost)
	case SlidingWindowLog:
		return l.smallLog(cost)
	case Queue:
		return l.smallQueue(l.clock-before, cost)
	}
	return l.smallBucket(l.clock-before, cost)
}

// ceilDiv returns a/b rounded up, for a >= 0 and b > 0.
func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }

// earnTime returns the nanoseconds in which parts are earned.
func (l *Limiter) earnTime(parts int64) int64 {
	switch {
	case parts <= 0:
		return 0
	case l.limit == 0:
		return Never
	}
	return ceilDiv(parts, l.limit)
}

func (l *Limiter) smallBucket(elapsed, cost int64) (a Answer) {
	s, full, want := &l.small, l.burst*l.period, cost*l.period
	if t := l.earnTime(full - s.x); t != Never && elapsed >= t {
		s.x = full
	} else {
		s.x += l.limit * elapsed
	}
	if a.Allowed = want <= s.x; a.Allowed {
		s.x -= want
	} else if a.RetryAfter = l.earnTime(want - s.x); cost > l.burst {
		a.RetryAfter = Never
	}
	a.Remaining = s.x / l.period
	a.ResetAfter = l.earnTime(full - s.x)
	return a
}

func (l *Limiter) smallQueue(elapsed, cost int64) (a Answer) {
	s, most, want := &l.small, (l.burst+1)*l.period, cost*l.period
	if l.limit == 0 {
		most = l.period // nothing that waits would ever leave
	}
	if t := l.earnTime(s.x); t != Never && elapsed >= t {
		s.x = 0
	} else {
		s.x -= l.limit * elapsed
	}
	if a.Allowed = cost == 0 || s.x+want <= most; a.Allowed {
		if cost > 0 {
			a.Delay = l.earnTime(s.x + want - l.period)
		}
		s.x += want
	} else if a.RetryAfter = l.earnTime(s.x + want - most); want > most {
		a.RetryAfter = Never
	}
	a.Remaining = (most - s.x) / l.period
	a.ResetAfter = l.earnTime(s.x)
	return a
}

func (l *Limiter) smallFixed(before, cost int64) (a Answer) {
	s := &l.small
	if l.clock/l.period != before/l.period {
		s.x = 0
	}
	left := l.period - l.clock%l.period
	if a.Allowed = s.x+cost <= l.limit; a.Allowed {
		s.x += cost
	} else if a.RetryAfter = left; cost > l.limit {
		a.RetryAfter = Never
	}
	a.Remaining = l.limit - s.x
	if s.x > 0 {
		a.ResetAfter = left
	}
	return a
}

func (l *Limiter) smallCounter(before, cost int64) (a Answer) {
	s := &l.small
	switch l.clock/l.period - before/l.period {
	case 0:
	case 1:
		s.previous, s.x = s.x, 0
	default:
		s.previous, s.x = 0, 0
	}
	// What is taken and what there is, in parts.
	into := l.clock % l.period
	left := l.period - into
	taken := func() int64 { return s.previous*left + s.x*l.period }
	most := l.limit * l.period
	if a.Allowed = cost == 0 || taken()+cost*l.period <= most; a.Allowed {
		s.x += cost
	} else {
		room := l.limit - cost
		switch {
		case room < 0:
			a.RetryAfter = Never
		case room >= s.x: // in this window, or at the edge of the next
			a.RetryAfter = ceilDiv((s.previous-(room-s.x))*l.period, s.previous) - into
		default:
			a.RetryAfter = left + ceilDiv((s.x-room)*l.period, s.x)
		}
	}
	a.Remaining = (most - taken()) / l.period
	switch {
	case s.x > 0:
		a.ResetAfter = left + l.period
	case s.previous > 0:
		a.ResetAfter = left
	}
	return a
}

func (l *Limiter) smallLog(cost int64) (a Answer) {
	s, now := &l.small, l.clock
	gone, sum := 0, int64(0)
	for _, e := range s.entries[:s.n] {
		if now-e.at >= l.period {
			gone++
		} else {
			sum += e.cost
		}
	}
	copy(s.entries[:], s.entries[gone:s.n])
	s.n -= gone
	if a.Allowed = sum+cost <= l.limit; a.Allowed {
		if cost > 0 {
			if s.n == 0 || s.entries[s.n-1].at != now {
				s.entries[s.n] = smallEntry{at: now}
				s.n++
			}
			s.entries[s.n-1].cost += cost
		}
		sum += cost
	} else if cost > l.limit {
		a.RetryAfter = Never
	} else {
		left := sum
		for _, e := range s.entries[:s.n] {
			if left -= e.cost; left+cost <= l.limit {
				a.RetryAfter = e.at - now + l.period
				break
			}
		}
	}
	a.Remaining = l.limit - sum
	if s.n > 0 {
		a.ResetAfter = s.entries[s.n-1].at - now + l.period
	}
	return a
}
