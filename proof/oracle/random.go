package oracle

import (
	"fmt"
	"math"
	"math/big"
	"math/bits"
	"math/rand/v2"
	"strings"
)

// A Kind says what an Op does.
type Kind uint8

// The kinds are the methods of [Limiter].
const (
	Step Kind = iota
	Set
	SetFill
	Refund
	Spend
)

// An Op is one call of a method of [Limiter].
type Op struct {
	Kind                 Kind
	At                   int64
	N                    int64 // cost of Step, amount of Refund and Spend
	Of                   int64 // ofAt of Refund
	Limit, Period, Burst int64 // of Set and SetFill
}

// A List is a limit, and calls to be made of it in order.
type List struct {
	Algorithm            string
	Limit, Period, Burst int64
	Ops                  []Op
}

// String returns l as it can be read in a failing test, one call a line.
func (l List) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s limit %d period %d burst %d", l.Algorithm, l.Limit, l.Period, l.Burst)
	for _, op := range l.Ops {
		switch op.Kind {
		case Step:
			fmt.Fprintf(&b, "\n  at %d step %d", op.At, op.N)
		case Set, SetFill:
			fmt.Fprintf(&b, "\n  at %d set limit %d period %d burst %d", op.At, op.Limit, op.Period, op.Burst)
			if op.Kind == SetFill {
				b.WriteString(" fill")
			}
		case Refund:
			fmt.Fprintf(&b, "\n  at %d refund %d of %d", op.At, op.N, op.Of)
		case Spend:
			fmt.Fprintf(&b, "\n  at %d spend %d", op.At, op.N)
		}
	}
	return b.String()
}

// Do makes the call op of l. Only a Step has an answer; the others return the
// zero Answer.
func (l *Limiter) Do(op Op) Answer {
	switch op.Kind {
	case Step:
		return l.Step(op.At, op.N)
	case Set:
		l.Set(op.At, op.Limit, op.Period, op.Burst)
	case SetFill:
		l.SetFill(op.At, op.Limit, op.Period, op.Burst)
	case Refund:
		l.Refund(op.At, op.N, op.Of)
	case Spend:
		l.Spend(op.At, op.N)
	}
	return Answer{}
}

// Answers returns the oracle's answer to each call of the list, by its
// position in Ops.
func (l List) Answers() ([]Answer, error) {
	lim, err := New(l.Algorithm, l.Limit, l.Period, l.Burst)
	if err != nil {
		return nil, err
	}
	as := make([]Answer, len(l.Ops))
	for i, op := range l.Ops {
		as[i] = lim.Do(op)
	}
	return as, nil
}

// The ranges of random lists: limits that an exact limiter with two words of
// state can be expected to carry, and times and spans that end before an int64
// of nanoseconds does.
const (
	maxRate    = 1<<42 - 1 // units a period, and a second
	maxPeriod  = 366 * day
	maxHorizon = 100 * year // to earn a whole burst
	maxBurst   = 1 << 60
	maxAt      = 100 * year
	maxCounter = 1<<32 - 1 // limit of a sliding counter
	minCounter = 1_000_000 // its least period
	maxLog     = 65536     // limit of a log

	second int64 = 1_000_000_000
	day          = 86400 * second
	year         = 365 * day
)

// Random returns a list of n calls: steps, and, if changes is set, one in
// eight of the other kinds. It plays the list on the oracle while it makes it,
// so that it can aim where limiters err: at the very instants at which a
// denied cost comes to fit, the state is as new or a window ends, and the
// nanosecond before and after; at costs of what remains and one more; at jumps
// of years, steps back, and limits from one unit a year to thousands a
// nanosecond.
//
// Limits stay within what any limiter should carry: rates below 2^42 a second
// and a period, periods up to 366 days (a sliding counter's from 1 ms), bursts
// up to 2^60 and earned in at most 100 years (windows: 0), sliding counters
// below 2^32 and logs up to 65,536. Times are -1 s to 100 years. No call but a
// step leaves a state that needs more than 92 years to be as new, unless its
// limit is 0, or a window's count above the limits' range. Costs and amounts
// are not negative, but may be as large as an int64.
//
// The same r gives the same list. A fixed list is rand.New(rand.NewPCG(seed,
// 0)); a property-testing library can be the source of r, and shrinks then.
func Random(r *rand.Rand, algorithm string, n int, changes bool) (List, error) {
	list := List{Algorithm: algorithm}
	list.Limit, list.Period, list.Burst = randomLimit(r, algorithm)
	l, err := New(algorithm, list.Limit, list.Period, list.Burst)
	if err != nil {
		return List{}, err
	}
	a := aim{Rand: r, l: l, marks: []int64{0}}
	if r.IntN(2) == 0 { // begin somewhere else than at the origin
		a.at = r.Int64N(2 * list.Period)
		if r.IntN(4) == 0 {
			a.at = r.Int64N(50 * year)
		}
	}
	for range n {
		list.Ops = append(list.Ops, a.next(changes))
	}
	return list, nil
}

// An aim makes a list, playing it on a limiter.
type aim struct {
	*rand.Rand
	l     *Limiter
	at    int64   // of the latest call, as it was dated
	marks []int64 // instants worth a call
	taken []int64 // effective times of steps admitted
}

func (a *aim) next(changes bool) Op {
	op := Op{At: a.when()}
	if changes && a.IntN(8) == 0 {
		if op, ok := a.change(op); ok {
			a.play(op)
			return op
		}
	}
	op.Kind, op.N = Step, a.cost(a.remaining(op.At))
	a.play(op)
	return op
}

func (a *aim) remaining(at int64) int64 { return a.l.Clone().Step(at, 0).Remaining }

// play makes the call and marks the instants that follow from it.
func (a *aim) play(op Op) {
	a.at = op.At
	answer := a.l.Do(op)
	if op.Kind != Step {
		answer = a.l.Step(op.At, 0)
	} else if answer.Allowed && op.N > 0 {
		a.taken = append(a.taken, a.l.clock)
	}
	a.marks = a.marks[:0]
	for _, span := range []int64{answer.RetryAfter, answer.ResetAfter, answer.Delay, a.l.period - a.l.clock%a.l.period} {
		if span > 0 && span <= maxAt-a.l.clock {
			a.marks = append(a.marks, a.l.clock+span)
		}
	}
}

// when returns the instant of the next call.
func (a *aim) when() int64 {
	now := a.l.clock
	var at int64
	switch k := a.IntN(16); {
	case k < 4:
		return a.at
	case k < 10 && len(a.marks) > 0:
		at = a.marks[a.IntN(len(a.marks))] + a.Int64N(3) - 1
	case k == 10: // back
		at = now - a.Int64N(min(a.l.period, second)*2) - 1
	case k == 11: // a few whole periods
		at = now + min(a.l.period, year)*a.Int64N(4)
	case k == 12 && a.IntN(8) == 0: // idle for long
		at = now + a.Int64N(20*year)
	case k == 13: // about one unit's time
		at = now + a.Int64N(2*(a.l.period/max(a.l.limit, 1))+2)
	default:
		at = now + a.Int64N(a.l.period)
	}
	if at > maxAt {
		return now
	}
	return max(at, -second)
}

// cost returns a cost for a step that finds so much remaining.
func (a *aim) cost(remaining int64) int64 {
	most := a.l.Cap()
	switch k := a.IntN(16); {
	case k < 5:
		return 1
	case k < 8:
		return remaining
	case k < 10:
		return remaining + 1
	case k == 10:
		return max(remaining-1, 0)
	case k == 11:
		return 0
	case k == 12:
		return most
	case k == 13:
		if a.IntN(16) == 0 {
			return math.MaxInt64
		}
		return most + 1
	default:
		return a.Int64N(most + 1)
	}
}

// change makes op a call of another kind than Step, if it finds one that keeps
// to the ranges.
func (a *aim) change(op Op) (Op, bool) {
	switch op.Kind = Set + Kind(a.IntN(4)); op.Kind {
	case Set, SetFill:
		op.Limit, op.Period, op.Burst = a.l.limit, a.l.period, a.l.burst
		switch a.IntN(3) {
		case 0: // near
			op.Burst = a.Int64N(2*op.Burst + 2)
			op.Limit = a.Int64N(2*op.Limit + 2)
		case 1: // the same rate in other words
			op.Limit, op.Period = 2*op.Limit, 2*op.Period
		case 2:
			op.Limit, op.Period, op.Burst = randomLimit(a.Rand, a.l.algorithm)
		}
		if windowed(a.l.algorithm) {
			op.Burst = 0
		}
		if !carried(a.l.algorithm, op.Limit, op.Period, op.Burst) {
			return op, false
		}
	case Refund:
		op.N, op.Of = a.cost(a.remaining(op.At)), op.At
		if n := len(a.taken); n > 0 && a.IntN(8) > 0 {
			op.Of = a.taken[n-1-a.IntN(min(n, 4))]
		}
	case Spend:
		op.N = a.cost(a.remaining(op.At))
		if op.N > 2*a.l.Cap()+1 {
			return op, false
		}
	}
	after := a.l.Clone()
	after.Do(op)
	if !countable(after.exact) {
		return op, false
	}
	reset := after.Step(op.At, 0).ResetAfter
	if after.limit == 0 {
		return op, true
	}
	return op, reset != Never && reset <= math.MaxInt64-maxAt-maxHorizon
}

// countable reports whether a window's debt is still a count that a limit
// could be.
func countable(m model) bool {
	switch m := m.(type) {
	case *fixed:
		return m.count.Cmp(big.NewInt(maxRate)) <= 0
	case *counter:
		return m.current.Cmp(big.NewInt(maxCounter)) <= 0
	case *log:
		return m.sum().Cmp(big.NewInt(maxRate)) <= 0
	}
	return true
}

// carried reports whether a limit lies in the ranges of [Random].
func carried(algorithm string, limit, period, burst int64) bool {
	if limit < 0 || limit > maxRate || period < 1 || period > maxPeriod || burst > maxBurst {
		return false
	}
	switch algorithm {
	case FixedWindow:
		return true
	case SlidingWindowLog:
		return limit <= maxLog
	case SlidingWindowCounter:
		return limit <= maxCounter && period >= minCounter
	}
	if limit == 0 {
		return algorithm != Queue && burst <= maxRate
	}
	return ratioAtMost(limit, second, period, maxRate) && ratioAtMost(burst, period, limit, maxHorizon)
}

// ratioAtMost reports whether a*b/c <= most.
func ratioAtMost(a, b, c, most int64) bool {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	hiMost, loMost := bits.Mul64(uint64(c), uint64(most))
	return hi < hiMost || hi == hiMost && lo <= loMost
}

// randomLimit returns a limit that the algorithm carries.
func randomLimit(r *rand.Rand, algorithm string) (limit, period, burst int64) {
	periods := []int64{1, 7, 1000, 1_000_000, second, 60 * second, 3600 * second, day, 30 * day, maxPeriod}
	for {
		period = periods[r.IntN(len(periods))]
		switch r.IntN(4) {
		case 0: // tiny
			limit, period, burst = 1+r.Int64N(3), 1+r.Int64N(4), r.Int64N(4)
			if algorithm == SlidingWindowCounter {
				period += minCounter - 1
			}
		case 1: // usual
			limit, burst = 1+r.Int64N(1000), r.Int64N(1000)
		case 2: // of any size
			limit, burst = sized(r, 42), sized(r, 42)
			period += sized(r, 40)
		case 3: // at an end of the range
			limit = []int64{0, 1, maxLog, maxCounter, maxRate}[r.IntN(5)]
			burst = []int64{0, 1, limit, limit + 1, sized(r, 60)}[r.IntN(5)]
		}
		if windowed(algorithm) {
			burst = 0
		}
		if carried(algorithm, limit, period, burst) {
			return limit, period, burst
		}
	}
}

// sized returns a number of up to so many bits, of any length alike.
func sized(r *rand.Rand, bits int) int64 { return r.Int64() >> (63 - r.IntN(bits+1)) }
