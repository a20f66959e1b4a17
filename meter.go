package spillgate

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"sync"
	"sync/atomic"
)

// A State is what is remembered of one key under one limit: two words. The
// zero State is that of a key never seen.
//
// The second word's upper 22 bits name the [Meter] that wrote the state, so
// that a change of limit is settled at the numbers under which it was earned.
// What the rest means is the algorithm's affair; for a bucket it is the
// instant at which it will be full, as its ceiling in nanoseconds (first word)
// and by how many parts of a nanosecond that ceiling is too late (lower 42
// bits; how many parts there are is the meter's, a multiple of its rate in
// lowest terms). With that remainder three a second is three a second for ever.
type State struct {
	A int64
	B uint64
}

const (
	idBits   = 22
	partBits = 64 - idBits
	partMask = 1<<partBits - 1
	maxIDs   = 1 << idBits
)

// meter returns the meter that wrote s, nil for the zero State.
func (s State) meter() *Meter { return meterOf(uint32(s.B >> partBits)) }

// A Meter is a [Limit] made ready to decide: checked, reduced to lowest terms
// and interned, so that equal limits are one Meter. It is immutable and safe
// for concurrent use.
type Meter struct {
	limit Limit
	id    uint32

	// For flows: one unit takes num/den nanoseconds; den is below 2^42.
	num, den uint64
	one      span // one unit
	cap      span // as many units as fit at once

	window *window // for the kinds that count in windows

	plain       bool    // states are new when A is not after now, on the monotonic clock
	keeps       bool    // states are more than two words: a store keeps them
	most        int64   // Limit.Cap
	first, last Instant // times beyond are taken as these, so that no sum wraps
}

// ErrTooManyLimits is wrapped when 2^22-1 different limits have been made.
var ErrTooManyLimits = errors.New("too many different limits in this process (2^22-1)")

var interned struct {
	sync.Mutex
	byLimit map[Limit]*Meter
	byID    atomic.Pointer[[]*Meter] // append-only; index is the id, 0 unused
}

func meterOf(id uint32) *Meter {
	all := interned.byID.Load()
	if id == 0 || all == nil || int(id) >= len(*all) {
		return nil
	}
	return (*all)[id]
}

// Meter makes l ready to decide. Errors wrap [ErrLimit] or
// [ErrTooManyLimits].
func (l Limit) Meter() (*Meter, error) {
	interned.Lock()
	defer interned.Unlock()
	if m := interned.byLimit[l]; m != nil {
		return m, nil
	}
	m, err := newMeter(l)
	if err != nil {
		return nil, err
	}
	if interned.byLimit == nil {
		interned.byLimit = map[Limit]*Meter{}
	}
	interned.byLimit[l] = m
	return m, nil
}

// renewed returns a Meter of the same limit under a new id. A limit that
// comes back after another one was in force needs it, so that states of its
// first life are told from those of its second.
func (m *Meter) renewed() (*Meter, error) {
	interned.Lock()
	defer interned.Unlock()
	return newMeter(m.limit)
}

// newMeter compiles l and gives it the next id; interned is locked.
func newMeter(l Limit) (*Meter, error) {
	if err := l.Validate(); err != nil {
		return nil, err
	}
	all := []*Meter{nil}
	if p := interned.byID.Load(); p != nil {
		all = *p
	}
	if len(all) >= maxIDs {
		return nil, fmt.Errorf("spillgate: %w", ErrTooManyLimits)
	}
	m := &Meter{limit: l, id: uint32(len(all)), most: l.Cap(),
		first: firstInstant, last: lastInstant}
	m.plain = l.Algorithm <= FixedWindow && l.Calendar == NoCalendar
	switch l.Algorithm {
	case Bucket, Queue:
		m.compileFlow()
	case FixedWindow, SlidingCounter:
		w, err := newWindow(l)
		if err != nil {
			return nil, err
		}
		m.window = w
	case SlidingLog, Concurrency:
		m.keeps = true
	}
	all = append(all, m)
	interned.byID.Store(&all)
	return m, nil
}

// Limit returns the limit that m was made of.
func (m *Meter) Limit() Limit { return m.limit }

// An Ask says how much a request wants of a limit.
type Ask struct {
	// N is the cost in units: 0 only looks.
	N int64
	// Min above 0 accepts less: what fits in [Min, N] is granted.
	Min int64
	// Keep is how many units must stay for others after this request: a lane
	// of lower priority stops before the last ones.
	Keep int64
	// Need above N passes only while a charge of so many units would, and
	// takes N all the same: with N = 0 it asks whether the way is open. Logs
	// and slots can't be asked so.
	Need int64
}

// valid reports whether the ask can be carried out at all.
func (q Ask) valid() bool {
	return q.N >= 0 && q.Min >= 0 && q.Min <= q.N && q.Keep >= 0 && q.Need >= 0
}

// needed returns the ask for all that q needs.
func (q Ask) needed() Ask { return Ask{N: q.Need, Keep: q.Keep} }

// begin sets d to what every decision of m begins with, and reports whether q
// can be carried out.
func (d *Decision) begin(m *Meter, now Instant, q Ask) bool {
	*d = Decision{Limit: m.most, At: now}
	if !q.valid() {
		d.Reason, d.RetryAfter = BadCost, Never
		return false
	}
	return true
}

// granted returns how much of q is asked for when free units are there.
func (q Ask) granted(free int64) int64 {
	if q.N > free && q.Min > 0 {
		return max(min(q.N, free), q.Min)
	}
	return q.N
}

// count decides where units are counted up to the rate and used of them are
// taken. It leaves to the caller what only the algorithm knows: ResetAfter of
// what was taken and, if it returns more than 0, RetryAfter, when so many units
// more are free.
func (d *Decision) count(m *Meter, q Ask, used int64) (lacking int64) {
	free := m.limit.Rate - used - q.Keep
	n := q.granted(free)
	d.Remaining = max(0, free)
	switch {
	case n == 0:
		d.Allowed, d.Reason = true, Granted
	case n > m.limit.Rate-q.Keep:
		d.Reason, d.RetryAfter = NeverFits, Never
	case n > free:
		return n - free
	default:
		d.Allowed, d.Reason, d.Taken, d.Remaining = true, Granted, n, free-n
	}
	return 0
}

// Take decides whether n units pass at now, given the state s, and returns
// the state after. It is pure. A denied request changes nothing; n = 0 looks
// and changes nothing; a negative n is denied with [BadCost].
//
// The state may have been written under another limit of the same algorithm:
// it is settled at the old numbers up to now, then carried over. now must not
// be before the latest instant at which s was asked: time never flows back,
// and whoever keeps states counts an earlier instant as the latest one seen.
//
// [SlidingLog] and [Concurrency] remember more than two words: their states
// live in a [Store], and Take denies.
func (m *Meter) Take(s State, now Instant, n int64) (State, Decision) {
	return m.Grant(s, now, Ask{N: n})
}

// Grant is [Meter.Take] with every way to ask.
func (m *Meter) Grant(s State, now Instant, q Ask) (after State, d Decision) {
	after = m.decide(s, now, q, &d)
	return after, d
}

// decide is [Meter.Grant]; it writes the decision, which is large, where it
// will be.
func (m *Meter) decide(s State, now Instant, q Ask, d *Decision) State {
	if !d.begin(m, now, q) {
		return s
	}
	now = m.within(now)
	if uint32(s.B>>partBits) != m.id {
		s = m.Adopt(s, now)
	}
	if q.Need > q.N {
		if m.decide(s, now, q.needed(), d); !d.Allowed {
			return s
		}
		q.Need = 0
		return m.decide(s, now, q, d)
	}
	switch m.limit.Algorithm {
	case Bucket:
		return m.takeBucket(s, now, q, d)
	case Queue:
		return m.takeQueue(s, now, q, d)
	case FixedWindow:
		return m.takeFixed(s, now, q, d)
	case SlidingCounter:
		return m.takeSliding(s, now, q, d)
	case Unlimited:
		d.Allowed, d.Reason, d.Remaining, d.Taken = true, Granted, math.MaxInt64, q.N
		return State{}
	}
	d.RetryAfter = Never
	return s
}

// Settle corrects an earlier charge: delta above 0 takes that many units
// more, is never refused and may go into debt; below 0 it gives back, never
// above what the limit holds, and in a window only into the window of the
// instant at which the charge was taken.
func (m *Meter) Settle(s State, now, taken Instant, delta int64) State {
	now, taken = m.within(now), m.within(taken)
	s = m.Adopt(s, now)
	if delta == 0 {
		return s
	}
	switch m.limit.Algorithm {
	case Bucket, Queue:
		return m.settleFlow(s, now, delta)
	case FixedWindow:
		return m.settleFixed(s, now, taken, delta)
	case SlidingCounter:
		return m.settleSliding(s, now, taken, delta)
	}
	return s
}

// Adopt carries a state over from the limit that wrote it: settled at the old
// numbers up to now, then converted. A larger burst grants nothing by itself
// unless the limit says [Fill]; a smaller one clamps. A state of m itself is
// returned as it is, a state of another algorithm is as new. What is as new
// under the old limit is as new under m, and so full: a state that says nothing
// names no limit. Where the limit of all keys changes, [Space.Change] knows the
// old one, and full keys, too, earn what a larger burst adds.
func (m *Meter) Adopt(s State, now Instant) State {
	if uint32(s.B>>partBits) == m.id || s == (State{}) {
		return s
	}
	o := s.meter()
	if o == nil || o.limit.Algorithm != m.limit.Algorithm || !m.keeps && o.isNew(s, now) {
		return State{}
	}
	now = m.within(now)
	switch m.limit.Algorithm {
	case Bucket, Queue:
		return m.adoptFlow(s, o, now)
	case FixedWindow:
		return m.adoptFixed(s, o, now)
	case SlidingCounter:
		return m.adoptSliding(s, o, now)
	case SlidingLog, Concurrency:
		return m.pack(s.A, s.B) // whoever keeps what it stands for settles that
	}
	return State{}
}

// succeed returns what s, the state of a limit o up to now, is under m that
// takes its place. Other than [Meter.Adopt] it knows the limit of a state that
// says nothing: full under o. Where nothing is ever earned that would be for
// good, so there what is full is new.
func (m *Meter) succeed(s State, o *Meter, now Instant) State {
	if m.limit.Algorithm == Bucket && m.den == 0 && o.isNew(s, now) {
		return State{}
	}
	if m.limit.Algorithm == o.limit.Algorithm && (m.limit.Algorithm == Bucket || m.limit.Algorithm == Queue) {
		return m.adoptFlow(s, o, m.within(now))
	}
	return m.Adopt(s, now)
}

// isNew reports whether s at now can't be told from the zero State.
func (m *Meter) isNew(s State, now Instant) bool {
	if s == (State{}) {
		return true
	}
	now = m.within(now)
	if m.limit.Algorithm == SlidingCounter {
		return m.slidingIsNew(s, now)
	}
	return s.A <= int64(now)
}

// within returns now, kept away from the ends of time (the years 1677 and
// 2262) so far that the arithmetic of m can't wrap.
func (m *Meter) within(now Instant) Instant { return max(m.first, min(now, m.last)) }

func (m *Meter) pack(a int64, part uint64) State {
	return State{A: a, B: uint64(m.id)<<partBits | part&partMask}
}

func gcd(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// mulDivUp returns ⌈(hi,lo)·mul/div⌉, saturated at 2^128-1.
func mulDivUp(hi, lo, mul, div uint64) (uint64, uint64) {
	h0, l0 := bits.Mul64(lo, mul)
	h1, l1 := bits.Mul64(hi, mul)
	mid, carry := bits.Add64(h0, l1, 0)
	top := h1 + carry // at most 2^64-2: no overflow
	q2, r := top/div, top%div
	q1, r := bits.Div64(r, mid, div)
	q0, r := bits.Div64(r, l0, div)
	if q2 != 0 {
		return math.MaxUint64, math.MaxUint64
	}
	if r != 0 {
		var c uint64
		q0, c = bits.Add64(q0, 1, 0)
		q1, c = bits.Add64(q1, 0, c)
		if c != 0 {
			return math.MaxUint64, math.MaxUint64
		}
	}
	return q1, q0
}
