package oracle

import "math/big"

// window returns the number of the window, of period nanoseconds and aligned
// to 0, in which the instant at lies.
func window(at, period int64) int64 {
	w := at / period
	if at%period < 0 {
		w--
	}
	return w
}

// within reports whether count+cost <= limit.
func within(count *big.Int, cost, limit int64) bool {
	return new(big.Int).Add(count, big.NewInt(cost)).Cmp(big.NewInt(limit)) <= 0
}

// lower returns count-amount, or 0.
func lower(count *big.Int, amount int64) *big.Int {
	n := new(big.Int).Sub(count, big.NewInt(amount))
	if n.Sign() < 0 {
		n.SetInt64(0)
	}
	return n
}

// A fixed window admits limit units in each window [k*period, (k+1)*period).
type fixed struct {
	limit, period int64
	now           int64
	count         *big.Int // taken in the window of now
}

func (f *fixed) settle(now int64) {
	if window(now, f.period) != window(f.now, f.period) {
		f.count = new(big.Int)
	}
	f.now = now
}

// end returns the wait until the next window.
func (f *fixed) end() int64 { return span(whole(f.period - f.now%f.period)) }

func (f *fixed) fits(cost int64) bool { return within(f.count, cost, f.limit) }

func (f *fixed) delay(int64) int64 { return 0 }

func (f *fixed) take(cost int64) { f.count = new(big.Int).Add(f.count, big.NewInt(cost)) }

func (f *fixed) retry(cost int64) int64 {
	if cost > f.limit {
		return Never
	}
	return f.end()
}

func (f *fixed) remaining() int64 { return units(sub(whole(f.limit), integer(f.count))) }

func (f *fixed) reset() int64 {
	if f.count.Sign() == 0 {
		return 0
	}
	return f.end()
}

func (f *fixed) refund(amount, of int64) {
	if window(of, f.period) == window(f.now, f.period) {
		f.count = lower(f.count, amount)
	}
}

func (f *fixed) set(limit, period, _ int64, _ bool) { f.limit, f.period = limit, period }

func (f *fixed) clone() model { c := *f; return &c }

// A counter is the sliding window counter: it keeps the counts of the current
// and the previous fixed window and estimates what the last period took as
//
//	previous * (part of the previous window still in view) + current
//
// in exact fractions. A step is admitted if estimate+cost <= limit.
type counter struct {
	limit, period     int64
	now               int64
	previous, current *big.Int
}

func (c *counter) settle(now int64) {
	switch window(now, c.period) - window(c.now, c.period) {
	case 0:
	case 1:
		c.previous, c.current = c.current, new(big.Int)
	default:
		c.previous, c.current = new(big.Int), new(big.Int)
	}
	c.now = now
}

// into returns how far now lies in its window.
func (c *counter) into() int64 { return c.now % c.period }

func (c *counter) estimate() *big.Rat {
	inView := ratio(c.period-c.into(), c.period)
	return add(mul(integer(c.previous), inView), integer(c.current))
}

func (c *counter) fits(cost int64) bool {
	return !less(whole(c.limit), add(c.estimate(), whole(cost)))
}

func (c *counter) delay(int64) int64 { return 0 }

func (c *counter) take(cost int64) { c.current = new(big.Int).Add(c.current, big.NewInt(cost)) }

func (c *counter) retry(cost int64) int64 {
	if cost > c.limit {
		return Never
	}
	room := whole(c.limit - cost)
	// The estimate falls all the time, and runs on without a jump over the
	// window's edge, where the current count becomes the previous one. So the
	// step is allowed in this window if the current count alone leaves room,
	// or else in the next.
	start := whole(-c.into())
	if current := integer(c.current); less(room, current) {
		return span(add(start, add(whole(c.period), c.faded(current, room))))
	} else {
		return span(add(start, c.faded(integer(c.previous), sub(room, current))))
	}
}

// faded returns how far into a window the previous count has faded to what is
// wanted, which it is above at the start: the x of previous*(period-x)/period
// = want.
func (c *counter) faded(previous, want *big.Rat) *big.Rat {
	return mul(whole(c.period), sub(whole(1), div(want, previous)))
}

func (c *counter) remaining() int64 { return units(sub(whole(c.limit), c.estimate())) }

func (c *counter) reset() int64 {
	end := whole(c.period - c.into())
	switch {
	case c.current.Sign() > 0: // in view to the end of the next window
		return span(add(end, whole(c.period)))
	case c.previous.Sign() > 0:
		return span(end)
	}
	return 0
}

func (c *counter) refund(amount, of int64) {
	switch window(c.now, c.period) - window(of, c.period) {
	case 0:
		c.current = lower(c.current, amount)
	case 1:
		c.previous = lower(c.previous, amount)
	}
}

func (c *counter) set(limit, period, _ int64, _ bool) {
	if period != c.period {
		c.previous, c.current = new(big.Int), ceil(c.estimate())
	}
	c.limit, c.period = limit, period
}

func (c *counter) clone() model { d := *c; return &d }

// A log is the sliding window log: it keeps every admission, and one made at t
// counts while now-t < period.
type log struct {
	limit, period int64
	now           int64
	entries       []entry // in order of time, one an instant, all in view
}

type entry struct {
	at   int64
	cost *big.Int // above 0
}

func (l *log) settle(now int64) {
	l.now = now
	gone := 0
	for gone < len(l.entries) && now-l.entries[gone].at >= l.period {
		gone++
	}
	l.entries = l.entries[gone:]
}

func (l *log) sum() *big.Int {
	s := new(big.Int)
	for _, e := range l.entries {
		s.Add(s, e.cost)
	}
	return s
}

func (l *log) fits(cost int64) bool { return within(l.sum(), cost, l.limit) }

func (l *log) delay(int64) int64 { return 0 }

func (l *log) take(cost int64) {
	if n := len(l.entries); n > 0 && l.entries[n-1].at == l.now {
		last := &l.entries[n-1]
		last.cost = new(big.Int).Add(last.cost, big.NewInt(cost))
		return
	}
	l.entries = append(l.entries, entry{l.now, big.NewInt(cost)})
}

// leaves returns the wait until e is out of view.
func (l *log) leaves(e entry) int64 {
	return span(sub(whole(l.period), sub(whole(l.now), whole(e.at))))
}

func (l *log) retry(cost int64) int64 {
	if cost > l.limit {
		return Never
	}
	sum := l.sum()
	for _, e := range l.entries {
		sum.Sub(sum, e.cost)
		if within(sum, cost, l.limit) {
			return l.leaves(e)
		}
	}
	return Never // not reached: an empty log admits up to the limit
}

func (l *log) remaining() int64 { return units(sub(whole(l.limit), integer(l.sum()))) }

func (l *log) reset() int64 {
	if len(l.entries) == 0 {
		return 0
	}
	return l.leaves(l.entries[len(l.entries)-1])
}

func (l *log) refund(amount, of int64) {
	for i := range l.entries {
		e := &l.entries[i]
		if e.at != of {
			continue
		}
		if e.cost = lower(e.cost, amount); e.cost.Sign() == 0 {
			l.entries = append(l.entries[:i], l.entries[i+1:]...)
		}
		return
	}
}

func (l *log) set(limit, period, _ int64, _ bool) {
	l.limit, l.period = limit, period
	l.settle(l.now)
}

func (l *log) clone() model {
	c := *l
	c.entries = append([]entry(nil), l.entries...) // costs are never changed in place
	return &c
}
