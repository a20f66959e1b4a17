package spillgate

import (
	"math"
	"math/bits"
	"time"
)

// A span is a length of time in exact parts: ns nanoseconds and part/den of
// one more, den being that of the meter at hand.
type span struct {
	ns   int64
	part uint64
}

// farthest bounds every backlog, so that debt and absurd costs saturate
// instead of wrapping: about 146 years. The sum of two still is an int64.
const farthest = int64(1)<<62 - 1

func (m *Meter) compileFlow() {
	l := m.limit
	if l.Rate == 0 {
		return
	}
	g := gcd(uint64(l.Period), uint64(l.Rate))
	m.num, m.den = uint64(l.Period)/g, uint64(l.Rate)/g
	// Finer parts than the rate needs let a state that is carried over from
	// another limit, whose parts don't divide these, lose next to nothing.
	for m.den < 1<<(partBits-1) && m.num < 1<<61 {
		m.num, m.den = m.num<<1, m.den<<1
	}
	m.one, _ = m.spanOf(1)
	m.cap, _ = m.spanOf(l.Burst)
	if l.Algorithm == Queue {
		m.cap = m.cap.plus(m.one, m.den) // beside those that wait, one leaves
	}
	m.last = min(m.last, math.MaxInt64-1-Instant(m.cap.ns))
}

func (s span) plus(t span, den uint64) span {
	s.ns += t.ns
	if s.part += t.part; s.part >= den {
		s.part -= den
		s.ns++
	}
	return s
}

// spanOf returns how long n units take, saturated at [farthest]; ok is false
// when it was.
func (m *Meter) spanOf(n int64) (s span, ok bool) {
	if n == 1 && m.one != (span{}) {
		return m.one, true
	}
	hi, lo := bits.Mul64(uint64(n), m.num)
	if hi >= m.den {
		return span{ns: farthest}, false
	}
	q, r := bits.Div64(hi, lo, m.den)
	if q >= uint64(farthest) {
		return span{ns: farthest}, false
	}
	return span{int64(q), r}, true
}

// units returns how many whole units s is worth, rounded down.
func (m *Meter) units(s span) int64 {
	if s.ns < 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(s.ns), m.den)
	lo, carry := bits.Add64(lo, s.part, 0)
	hi += carry
	if hi >= m.num {
		return math.MaxInt64
	}
	q, _ := bits.Div64(hi, lo, m.num)
	return int64(min(q, math.MaxInt64))
}

// A flow is a bucket's state taken apart: it is full ns nanoseconds from now,
// less late parts of one.
type flow struct {
	ns   int64
	late uint64
}

// flowOf returns the flow of s at now; what lies in the past is full.
func flowOf(s State, now Instant) flow {
	if s.B == 0 || s.A <= int64(now) {
		return flow{}
	}
	if ns := uint64(s.A) - uint64(now); ns < uint64(farthest) {
		return flow{int64(ns), s.B & partMask}
	}
	return flow{ns: farthest}
}

// packFlow is the way back; a full bucket is as new.
func (m *Meter) packFlow(f flow, now Instant) State {
	if f.ns <= 0 {
		return State{}
	}
	at := int64(now) + f.ns
	if at < int64(now) {
		at = math.MaxInt64
	}
	return m.pack(at, f.late)
}

// plus returns f + s.
func (f flow) plus(s span, den uint64) flow {
	f.ns += s.ns
	if f.late < s.part {
		f.late += den
		f.ns++
	}
	f.late -= s.part
	return f
}

// add returns f + s, saturated at farthest.
func (f flow) add(s span, den uint64) flow {
	if f = f.plus(s, den); f.ns > farthest {
		return flow{ns: farthest}
	}
	return f
}

// over returns ⌈f - cap⌉, how many nanoseconds f lies beyond what the bucket
// holds: it fits when that is not above 0.
func (f flow) over(cap span, den uint64) int64 {
	d := f.ns - cap.ns
	if f.late+cap.part >= den {
		d--
	}
	return d
}

// room returns cap - f: how much of the bucket is left.
func (f flow) room(cap span, den uint64) span {
	r := span{cap.ns - f.ns, cap.part + f.late}
	if r.part >= den {
		r.part -= den
		r.ns++
	}
	return r
}

// takeBucket is the one step behind token bucket, GCRA and the leaky meter.
// GCRA's theoretical arrival time is the instant kept here: balance =
// burst - (full - now)·rate.
func (m *Meter) takeBucket(s State, now Instant, q Ask, d *Decision) State {
	if m.den == 0 {
		return m.takeSpent(s, q, d)
	}
	f := flowOf(s, now)
	free := m.units(f.room(m.cap, m.den)) - q.Keep
	n := q.granted(free)
	d.Remaining = max(0, free)
	d.ResetAfter = time.Duration(f.ns)
	switch {
	case n == 0:
		d.Allowed, d.Reason = true, Granted
		return s
	case n > m.most-q.Keep:
		d.Reason, d.RetryAfter = NeverFits, Never
		return s
	case n > free:
		need, _ := m.spanOf(n + q.Keep)
		d.RetryAfter = time.Duration(f.plus(need, m.den).over(m.cap, m.den))
		return s
	}
	cost, _ := m.spanOf(n)
	f = f.add(cost, m.den)
	d.Allowed, d.Reason, d.Taken = true, Granted, n
	d.Remaining = free - n
	d.ResetAfter = time.Duration(f.ns)
	return m.packFlow(f, now)
}

// takeSpent is the bucket that earns nothing: the part counts what was spent.
func (m *Meter) takeSpent(s State, q Ask, d *Decision) State {
	spent := int64(s.B & partMask)
	free := m.limit.Burst - spent - q.Keep
	n := q.granted(free)
	d.Remaining = max(0, free)
	if spent > 0 {
		d.ResetAfter = Never
	}
	switch {
	case n == 0:
		d.Allowed, d.Reason = true, Granted
		return s
	case n > m.limit.Burst-q.Keep:
		d.Reason, d.RetryAfter = NeverFits, Never
		return s
	case n > free:
		d.RetryAfter = Never
		return s
	}
	d.Allowed, d.Reason, d.Taken = true, Granted, n
	d.Remaining, d.ResetAfter = free-n, Never
	return m.packSpent(spent + n)
}

func (m *Meter) packSpent(spent int64) State {
	if spent <= 0 {
		return State{}
	}
	return m.pack(math.MaxInt64, uint64(min(spent, partMask)))
}

// settleFlow moves a bucket or queue by delta units, into debt if need be,
// and never above full.
func (m *Meter) settleFlow(s State, now Instant, delta int64) State {
	if m.den == 0 {
		spent := int64(s.B & partMask)
		if delta > partMask {
			delta = partMask
		}
		return m.packSpent(spent + delta)
	}
	f := flowOf(s, now)
	if delta > 0 {
		more, _ := m.spanOf(delta)
		return m.packFlow(f.add(more, m.den), now)
	}
	if delta == math.MinInt64 {
		return State{}
	}
	back, ok := m.spanOf(-delta)
	if !ok {
		return State{}
	}
	return m.packFlow(f.minus(back, m.den), now)
}

func (f flow) minus(s span, den uint64) flow {
	f.ns -= s.ns
	if f.late += s.part; f.late >= den {
		f.late -= den
		f.ns--
	}
	return f
}

// correct is [Meter.Settle] in a space, but of a charge of which is known until
// when it counts a bucket is given back what it still costs.
func (m *Meter) correct(sp *Space, s State, now Instant, c *Correction) State {
	if c.Until != 0 && c.Delta < 0 && m.den != 0 && sp.changed.Load() == 0 {
		return m.giveBack(m.Adopt(s, now), m.within(now), c)
	}
	return m.Settle(s, now, c.At, c.Delta)
}

// giveBack gives back what a charge still costs. Without it the bucket would
// have been full at Until less the charge, or later: what was earned since then
// would have been lost, so it is not given back on top.
func (m *Meter) giveBack(s State, now Instant, c *Correction) State {
	back, ok := m.spanOf(-max(c.Delta, -math.MaxInt64))
	left := int64(c.Until.sub(now))
	if left <= 0 {
		return s
	}
	f := flowOf(s, now)
	if !ok || back.ns > left || back.ns == left && back.part > 0 {
		if f.ns <= left {
			return State{} // nothing else is missing
		}
		back = span{ns: left - 1} // Until is rounded up
	}
	return m.packFlow(f.minus(back, m.den), now)
}

// adoptFlow converts a state of the flow o at now. Used units are carried
// over exactly, shifted by the change of burst, and rounded up to whole parts
// of a nanosecond at the new rate. That can't change a decision: every later
// instant and cost is a whole number of those parts. Only where a state goes
// through several changes do roundings add up: each change after the first
// costs less than 2^-28 of a unit, always to the strict side.
func (m *Meter) adoptFlow(s State, o *Meter, now Instant) State {
	raised := m.limit.Burst > o.limit.Burst
	if raised && m.limit.OnRaise == Fill {
		return State{}
	}
	// What is used, in units of 1/num of o: (full - now)·den of o.
	per := max(o.num, 1)
	var hi, lo uint64
	if o.den == 0 {
		lo = s.B & partMask
	} else {
		f := flowOf(s, now)
		var borrow uint64
		hi, lo = bits.Mul64(uint64(f.ns), o.den)
		lo, borrow = bits.Sub64(lo, f.late, 0)
		hi -= borrow
	}
	if m.limit.Algorithm == Bucket {
		h, l := bits.Mul64(absDiff(m.limit.Burst, o.limit.Burst), per)
		var c uint64
		if raised {
			lo, c = bits.Add64(lo, l, 0)
			hi, _ = bits.Add64(hi, h, c)
		} else {
			lo, c = bits.Sub64(lo, l, 0)
			if hi, c = bits.Sub64(hi, h, c); c != 0 {
				return State{}
			}
		}
	}
	if m.den == 0 {
		hi, lo = mulDivUp(hi, lo, 1, per)
		if hi != 0 || lo > partMask {
			lo = partMask
		}
		return m.packSpent(int64(lo))
	}
	hi, lo = mulDivUp(hi, lo, m.num, per) // in parts of the new rate
	f := flow{ns: farthest}
	if hi < m.den {
		if ns, part := bits.Div64(hi, lo, m.den); ns < uint64(farthest) {
			f = flow{}.add(span{int64(ns), part}, m.den)
		}
	}
	return m.packFlow(f, now)
}

func absDiff(a, b int64) uint64 {
	if a > b {
		return uint64(a) - uint64(b)
	}
	return uint64(b) - uint64(a)
}
