// Package oracle answers, exactly and without any cleverness, what a rate
// limiter must answer. It is what the engine is compared with, so it shares
// no code with it: every algorithm is written from its textbook definition,
// with rational balances (math/big) and whole nanoseconds.
//
// # Rules
//
// The rules are R1 to R13 of testdata/vectors.json. Where they leave a choice
// open, this package chose:
//
//   - The clock starts at 0, the instant at which the limiter is made. A step
//     dated before that is taken at 0, as any step dated in the past is taken
//     at the latest time seen. Set, Refund and Spend move the clock too.
//   - A span that does not fit in an int64 of nanoseconds (292 years), or is
//     exactly the largest int64, is [Never].
//   - Limit 0 earns nothing. In a window it admits nothing but cost 0.
//   - A negative cost is refused for ever and a negative amount is ignored.
//     Limits and bursts below 0 and periods below 1 are an error of [New];
//     [Limiter.Set] ignores them.
//   - Queue: one unit leaves each period/limit and burst units may wait beside
//     the one that leaves at once, so the greatest cost is burst+1. A request
//     of several units goes when its last unit leaves; its Delay is the wait
//     for that. Cost 0 has no delay. At limit 0 one unit leaves an empty queue
//     and whatever would have to wait is refused for ever.
//   - Set, bucket: what was earned stays earned, also a fraction of a unit, and
//     so does debt. [Limiter.SetFill] makes a bucket whose burst is raised full.
//   - Set, queue: the units in the queue stay in it and leave at the new rate.
//     No place is promised or taken: with fewer places than units waiting, new
//     ones are refused until there is room. Fill makes no difference.
//   - Set, windows: counts are kept and compared with the new limit at once, so
//     fill makes no difference. When the period changes, the fixed window's
//     count moves whole into the new window in which the change is made; the
//     sliding counter's estimate, rounded up, becomes the current count there
//     and the previous one is 0; the log drops what had left its old view, then
//     looks at the rest with the new period.
//   - Refund: in a bucket and a queue ofAt has no meaning. In a fixed window it
//     counts if ofAt lies in the current window; in a sliding counter it lowers
//     the count, current or previous, of the window ofAt lies in; in a log
//     the entry made at exactly ofAt. Elsewhere it is void, and nowhere does it
//     give back more than was taken. ofAt is the effective time of the step.
//   - Spend: is never refused and takes from now on, whatever there is: a bucket
//     goes into debt, a queue and a window over their limit. A window's debt
//     leaves with the window.
//
// # Numbers
//
// Small numbers take a second way in scaled int64 arithmetic ([Limiter.Step]
// only; the first Set, Refund, Spend or large number leaves it for good), so
// that some hundred million steps can be walked. The tests hold both ways
// equal.
package oracle

import (
	"fmt"
	"math"
	"math/big"
)

// The algorithms, by the names they have in testdata/vectors.json. The last
// is what stands there as leaky_bucket with mode queue.
const (
	TokenBucket          = "token_bucket"
	GCRA                 = "gcra"         // decides exactly as TokenBucket
	LeakyBucket          = "leaky_bucket" // the meter: decides exactly as TokenBucket
	FixedWindow          = "fixed_window"
	SlidingWindowLog     = "sliding_window_log"
	SlidingWindowCounter = "sliding_window_counter"
	Queue                = "leaky_bucket_queue" // the shaper
)

// Algorithms lists the names that [New] knows.
var Algorithms = []string{TokenBucket, GCRA, LeakyBucket, FixedWindow, SlidingWindowLog, SlidingWindowCounter, Queue}

// Never is the span of a wait that does not help.
const Never int64 = -1

// An Answer is everything a limiter says about one step. Spans are whole
// nanoseconds counted from the effective time of the step.
type Answer struct {
	Allowed    bool
	Remaining  int64 // greatest cost that would be allowed right after the step
	RetryAfter int64 // least wait, at least 1, after which the same step is allowed; Never; 0 if allowed
	ResetAfter int64 // least wait until the state is as when new; Never
	Delay      int64 // Queue only: how long the admitted request waits before it goes
}

// A Limiter is one limit and the state of one key. Make it with [New], copy
// it with [Limiter.Clone] only. It is not safe for concurrent use.
type Limiter struct {
	// Forget says that a state that is as new is not kept, as in a table that
	// gives its place away: after a change of limit such a state is as new
	// under the new numbers. Otherwise a full bucket whose burst is raised has
	// what it had, like any other.
	Forget bool

	algorithm            string
	limit, period, burst int64
	clock                int64 // latest time seen
	exact                model // nil while the numbers are small
	small                small
}

// New returns a limiter in its first state, with its clock at 0. The windows
// take no burst; it is ignored there. An unknown algorithm, a negative limit
// or burst and a period below 1 are errors.
func New(algorithm string, limit, period, burst int64) (*Limiter, error) {
	if newModel(algorithm, 1, 1, 1, 0) == nil {
		return nil, fmt.Errorf("oracle: algorithm %q: unknown; use one of %q", algorithm, Algorithms)
	}
	if !valid(limit, period, burst) {
		return nil, fmt.Errorf("oracle: limit %d, period %d, burst %d: limit and burst must be at least 0, the period at least 1 ns", limit, period, burst)
	}
	l := &Limiter{algorithm: algorithm, limit: limit, period: period, burst: burst}
	if !l.startSmall() {
		l.exact = newModel(algorithm, limit, period, burst, 0)
	}
	return l, nil
}

func valid(limit, period, burst int64) bool { return limit >= 0 && period >= 1 && burst >= 0 }

// Clone returns a copy that shares nothing with l.
func (l *Limiter) Clone() *Limiter {
	c := *l
	if c.exact != nil {
		c.exact = c.exact.clone()
	}
	return &c
}

// Now returns the effective time: the latest that l has seen.
func (l *Limiter) Now() int64 { return l.clock }

// Cap returns the greatest cost that a new limiter would admit.
func (l *Limiter) Cap() int64 {
	switch {
	case windowed(l.algorithm):
		return l.limit
	case l.algorithm == Queue && l.limit == 0:
		return 1
	case l.algorithm == Queue && l.burst < math.MaxInt64:
		return l.burst + 1
	}
	return l.burst
}

// windowed reports whether an algorithm has windows, and so no burst.
func windowed(algorithm string) bool {
	return algorithm == FixedWindow || algorithm == SlidingWindowLog || algorithm == SlidingWindowCounter
}

// Step asks for cost units at the instant at. Cost 0 is a peek: allowed, and
// changes nothing.
func (l *Limiter) Step(at, cost int64) Answer {
	if l.exact == nil && !l.staysSmall(at, cost) {
		l.makeExact()
	}
	if l.exact == nil {
		return l.stepSmall(at, cost)
	}
	l.settle(at)
	m := l.exact
	var a Answer
	switch {
	case cost == 0:
		a.Allowed = true
	case cost > 0 && m.fits(cost):
		a.Allowed = true
		a.Delay = m.delay(cost)
		m.take(cost)
	case cost < 0:
		a.RetryAfter = Never
	default:
		a.RetryAfter = m.retry(cost)
	}
	a.Remaining = m.remaining()
	a.ResetAfter = m.reset()
	return a
}

// Set changes the limit at the instant at. The state is settled at the old
// numbers first; a smaller burst clamps, a larger one grants nothing.
func (l *Limiter) Set(at, limit, period, burst int64) { l.set(at, limit, period, burst, false) }

// SetFill is [Limiter.Set] for a limit whose raised burst fills the bucket at
// once, whatever was in it.
func (l *Limiter) SetFill(at, limit, period, burst int64) { l.set(at, limit, period, burst, true) }

func (l *Limiter) set(at, limit, period, burst int64, fill bool) {
	l.makeExact()
	l.settle(at)
	if !valid(limit, period, burst) {
		return
	}
	if l.Forget && l.exact.reset() == 0 {
		l.exact = newModel(l.algorithm, limit, period, burst, l.clock)
	} else {
		l.exact.set(limit, period, burst, fill)
	}
	l.limit, l.period, l.burst = limit, period, burst
}

// Refund gives amount units back at the instant at, which had been taken at
// the effective time ofAt.
func (l *Limiter) Refund(at, amount, ofAt int64) {
	l.makeExact()
	l.settle(at)
	if amount > 0 {
		l.exact.refund(amount, ofAt)
	}
}

// Spend takes amount units at the instant at, whether they are there or not.
func (l *Limiter) Spend(at, amount int64) {
	l.makeExact()
	l.settle(at)
	if amount > 0 {
		l.exact.take(amount)
	}
}

func (l *Limiter) settle(at int64) {
	l.clock = max(l.clock, at)
	l.exact.settle(l.clock)
}

// A model is the state of one algorithm in exact numbers. All its methods but
// settle speak of the instant of the latest settle, and costs and amounts are
// above 0.
type model interface {
	settle(now int64)        // now never lies before an earlier one
	fits(cost int64) bool    // whether cost is allowed
	delay(cost int64) int64  // how long it would wait
	take(cost int64)         // takes it, whether it fits or not
	retry(cost int64) int64  // of a cost that does not fit
	remaining() int64        // greatest cost that fits
	reset() int64            // least wait until as new
	refund(amount, of int64) // gives back what was taken at of
	set(limit, period, burst int64, fill bool)
	clone() model
}

// newModel returns the first state of an algorithm at the instant now, nil if
// it is unknown.
func newModel(algorithm string, limit, period, burst, now int64) model {
	switch algorithm {
	case TokenBucket, GCRA, LeakyBucket:
		return &bucket{limit: limit, period: period, burst: burst, now: now, balance: whole(burst)}
	case Queue:
		return &queue{limit: limit, period: period, places: burst, now: now, backlog: new(big.Rat)}
	case FixedWindow:
		return &fixed{limit: limit, period: period, now: now, count: new(big.Int)}
	case SlidingWindowCounter:
		return &counter{limit: limit, period: period, now: now, previous: new(big.Int), current: new(big.Int)}
	case SlidingWindowLog:
		return &log{limit: limit, period: period, now: now}
	}
	return nil
}

// Rational numbers. All of these return a new number and leave theirs alone.

func whole(n int64) *big.Rat      { return new(big.Rat).SetInt64(n) }
func add(a, b *big.Rat) *big.Rat  { return new(big.Rat).Add(a, b) }
func sub(a, b *big.Rat) *big.Rat  { return new(big.Rat).Sub(a, b) }
func mul(a, b *big.Rat) *big.Rat  { return new(big.Rat).Mul(a, b) }
func div(a, b *big.Rat) *big.Rat  { return new(big.Rat).Quo(a, b) }
func less(a, b *big.Rat) bool     { return a.Cmp(b) < 0 }
func integer(n *big.Int) *big.Rat { return new(big.Rat).SetInt(n) }
func ratio(a, b int64) *big.Rat   { return big.NewRat(a, b) }

func least(a, b *big.Rat) *big.Rat {
	if less(b, a) {
		return b
	}
	return a
}

// floor returns the greatest whole number up to r.
func floor(r *big.Rat) *big.Int {
	// Div rounds down when the divisor is above 0, as a denominator is.
	return new(big.Int).Div(r.Num(), r.Denom())
}

// ceil returns the least whole number from r up.
func ceil(r *big.Rat) *big.Int {
	n := floor(new(big.Rat).Neg(r))
	return n.Neg(n)
}

// span returns r nanoseconds rounded up, as the Answer has it.
func span(r *big.Rat) int64 {
	n := ceil(r)
	if !n.IsInt64() || n.Int64() == math.MaxInt64 {
		return Never
	}
	return n.Int64()
}

// units returns the whole units in r: none below 0, at most an int64.
func units(r *big.Rat) int64 {
	n := floor(r)
	switch {
	case n.Sign() < 0:
		return 0
	case !n.IsInt64():
		return math.MaxInt64
	}
	return n.Int64()
}
