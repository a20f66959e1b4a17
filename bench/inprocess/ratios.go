package main

import (
	"math"
	"time"

	"github.com/spillgate/spillgate/bench/internal/report"
)

// A ratio is one claim about the numbers of a run: over divided by under is
// at most goal. Beyond fail it is off by a factor.
type ratio struct {
	what        string
	over, under measure
	goal, fail  float64
	counted     bool // not a matter of time
	long        bool // too long to measure for -short
}

// A measure picks one number out of the results; false means that it was not
// measured.
type measure func(*results) (float64, bool)

// ns is what a contestant's decision costs.
func ns(contestant string, w workload) measure {
	return func(r *results) (float64, bool) {
		v, _, ok := r.value(cell{contestant, w})
		return v, ok
	}
}

// bestPeer is what the decision of the fastest peer costs that, as ours does,
// keeps a state of its own for every key.
func bestPeer(w workload) measure {
	return func(r *results) (best float64, ok bool) {
		for _, c := range lineup() {
			if c.kind != peer || !c.exact {
				continue
			}
			if v, _, measured := r.value(cell{c.name, w}); measured && (!ok || v < best) {
				best, ok = v, true
			}
		}
		return best, ok
	}
}

// weight is one number of a contestant's footprint.
func weight(contestant string, pick func(footprint) float64) measure {
	return func(r *results) (float64, bool) {
		f, ok := r.memory[contestant]
		return pick(f), ok
	}
}

// longest is one of a contestant's slowest decisions, in ns.
func longest(contestant string, pick func(slow) time.Duration) measure {
	return func(r *results) (float64, bool) {
		d, ok := r.slow(contestant, pick)
		return float64(d), ok
	}
}

// lesser is the smaller of two numbers.
func lesser(a, b measure) measure {
	return func(r *results) (float64, bool) {
		x, ok := a(r)
		y, ok2 := b(r)
		return min(x, y), ok && ok2
	}
}

// number is a fixed number, for claims that are not relative to anything.
func number(n float64) measure {
	return func(*results) (float64, bool) { return n, true }
}

// harnessRatios keep the harness itself honest: what is known about floors
// and peers has to show, or the numbers mean nothing.
func harnessRatios() []ratio {
	return []ratio{
		{"one hot key: least table / clock + SipHash", ns(leastSip, hot1), ns(clockSip, hot1), 1.5, 2.5, false, false},
		{"uniform: least table / clock + SipHash + atomic add", ns(leastSip, uniform), ns(allThree, uniform), 1.3, 2.5, false, false},
		{"uniform: least table / mutex map", ns(leastSip, uniform), ns(mutexMap, uniform), 0.17, 0.8, false, false},
		{"memory at the cap: least table / mutex map", weight(leastSip, atCap), weight(mutexMap, atCap), 0.25, 0.4, true, false},
	}
}

func atCap(f footprint) float64        { return f.full }
func whileGrowing(f footprint) float64 { return f.growing }
func forMore(f footprint) float64      { return f.more }
func inGrowth(s slow) time.Duration    { return s.growing }
func inExpiry(s slow) time.Duration    { return s.expiring }

// of returns over divided by under, or NaN if either was not measured.
func (r ratio) of(got *results) float64 {
	over, ok := r.over(got)
	under, ok2 := r.under(got)
	if !ok || !ok2 {
		return math.NaN()
	}
	return over / under
}

// value returns what a decision of a cell costs, and whether it was measured.
func (r *results) value(at cell) (ns float64, sure, ok bool) {
	var rounds []report.Round
	for _, s := range r.samples[at] {
		rounds = append(rounds, report.Round{Cost: s.ns, Void: r.watch.void(at.workload.goroutines(), s)})
	}
	ns, sure = report.Value(rounds)
	return ns, sure, len(rounds) > 0
}

// slow returns one of a contestant's slowest decisions, that of the best
// round: what is in the way of a decision by design shows in each of them, and
// what the machine does shows in some.
func (r *results) slow(contestant string, pick func(slow) time.Duration) (time.Duration, bool) {
	rounds := r.slowest[contestant]
	if len(rounds) == 0 {
		return 0, false
	}
	best := pick(rounds[0])
	for _, s := range rounds {
		best = min(best, pick(s))
	}
	return best, true
}
