package spillgate

import (
	"math"
	"math/bits"
	"time"
)

// A sliding counter's state holds two counts of 32 bits, of the current and of
// the previous window (first word, upper and lower half), and the current
// window's number modulo 2^42 (second word): that comes round after 2^42
// periods, 137 years of the shortest period there is.
type sliding struct {
	current, previous uint32
	number            int64 // of the current window, modulo 2^42
	into              int64 // how far now lies in it
}

// setBack is how many windows a clock can be set back, whoever keeps states
// not seeing to it, before a state counts as one of long ago: two years of the
// shortest.
const setBack = 1 << 36

// slidingOf returns the counters of s as they are at now.
func (m *Meter) slidingOf(s State, now Instant) sliding {
	c := sliding{number: m.window.number(now) & partMask, into: m.window.into(now)}
	if s.B == 0 {
		return c
	}
	current, previous := uint32(uint64(s.A)>>32), uint32(s.A)
	switch passed := (c.number - int64(s.B&partMask)) & partMask; {
	case passed == 0:
		c.current, c.previous = current, previous
	case passed == 1:
		c.previous = current
	case passed > partMask-setBack: // written in a later window: time never flows back
		c.current, c.previous = current, previous
		c.number, c.into = int64(s.B&partMask), 0
	}
	return c
}

func (m *Meter) packSliding(c sliding) State {
	if c.current == 0 && c.previous == 0 {
		return State{}
	}
	return m.pack(int64(uint64(c.current)<<32|uint64(c.previous)), uint64(c.number))
}

// estimate returns previous·(part of its window still in view) + current,
// rounded up; what fits is a whole number, so rounding changes no decision.
func (c sliding) estimate(period int64) int64 {
	if c.previous == 0 {
		return int64(c.current)
	}
	hi, lo := bits.Mul64(uint64(c.previous), uint64(period-c.into))
	q, r := bits.Div64(hi, lo, uint64(period))
	if r != 0 {
		q++
	}
	return int64(c.current) + int64(q)
}

// faded returns how far into its successor a window's count n has faded to
// room, room < n: the least whole x with n·(period-x)/period <= room.
func faded(n uint32, room, period int64) int64 {
	hi, lo := bits.Mul64(uint64(room), uint64(period))
	q, _ := bits.Div64(hi, lo, uint64(n))
	return period - int64(q)
}

// retry returns the wait until c leaves room for what is asked. The estimate
// falls without a jump, also over the edge of the window, where the current
// count becomes the previous one and begins to fade.
func (c sliding) retry(room, period int64) time.Duration {
	if room >= int64(c.current) {
		return time.Duration(faded(c.previous, room-int64(c.current), period) - c.into)
	}
	return time.Duration(period - c.into + faded(c.current, room, period))
}

// reset returns the wait until nothing is in view.
func (c sliding) reset(period int64) time.Duration {
	switch {
	case c.current > 0:
		return time.Duration(2*period - c.into)
	case c.previous > 0:
		return time.Duration(period - c.into)
	}
	return 0
}

func (m *Meter) takeSliding(s State, now Instant, q Ask, d *Decision) State {
	c, period := m.slidingOf(s, now), m.window.period
	used := c.estimate(period)
	if lacking := d.count(m, q, used); lacking > 0 {
		d.RetryAfter = c.retry(used-lacking, period)
	}
	c.current += uint32(d.Taken)
	d.ResetAfter = c.reset(period)
	if d.Taken == 0 {
		return s
	}
	return m.packSliding(c)
}

// settleSliding counts more in the current window, over the limit if need be
// (up to 2^32-1), or gives back into the window in which it was taken, while
// that is in view.
func (m *Meter) settleSliding(s State, now, taken Instant, delta int64) State {
	c := m.slidingOf(s, now)
	switch {
	case delta > 0:
		c.current += uint32(min(delta, math.MaxUint32-int64(c.current)))
	case m.window.number(taken)&partMask == c.number:
		c.current = uint32(max(0, int64(c.current)+delta))
	case (m.window.number(taken)+1)&partMask == c.number:
		c.previous = uint32(max(0, int64(c.previous)+delta))
	}
	return m.packSliding(c)
}

// adoptSliding keeps the counts. Where the period changes, the estimate at the
// change, rounded up, is the count of the new window in which the change is
// made.
func (m *Meter) adoptSliding(s State, o *Meter, now Instant) State {
	c := o.slidingOf(s, now)
	if m.window.period == o.window.period {
		return m.packSliding(c)
	}
	used := min(c.estimate(o.window.period), math.MaxUint32)
	return m.packSliding(sliding{current: uint32(used), number: m.window.number(now) & partMask})
}

// slidingIsNew reports whether nothing that s counted is in view at now.
func (m *Meter) slidingIsNew(s State, now Instant) bool {
	o := m
	if id := uint32(s.B >> partBits); id != m.id {
		if o = meterOf(id); o == nil || o.limit.Algorithm != SlidingCounter {
			return true
		}
	}
	c := o.slidingOf(s, now)
	return c.current == 0 && c.previous == 0
}
