package oracle

import (
	"flag"
	"fmt"
	"slices"
	"testing"
)

// A history is what was admitted, in effective time. The deciders below know
// nothing else: no balance and no window state is kept from step to step.
type history []Move

// definitions decide from the history alone whether cost may be admitted at
// now, as the algorithms are defined, in small whole numbers.
var definitions = map[string]func(h history, limit, period, burst, now, cost int64) bool{
	TokenBucket:          conforms,
	Queue:                queues,
	FixedWindow:          countsInWindow,
	SlidingWindowLog:     countsInView,
	SlidingWindowCounter: countsInTwoWindows,
}

// conforms is I1 and I2: admitted in [s, now], and cost, is at most
// burst + limit/period*(now-s), for all s.
func conforms(h history, limit, period, burst, now, cost int64) bool {
	h = append(h[:len(h):len(h)], Move{now, cost})
	for _, from := range h {
		var sum int64
		for _, m := range h {
			if m.At >= from.At {
				sum += m.Cost
			}
		}
		if sum*period > burst*period+limit*(now-from.At) {
			return false
		}
	}
	return true
}

// leaves returns when each unit leaves the queue, in 1/limit ns.
func leaves(h history, limit, period int64) (out []int64) {
	for _, m := range h {
		for range m.Cost {
			at := m.At * limit
			if n := len(out); n > 0 {
				at = max(at, out[n-1]+period)
			}
			out = append(out, at)
		}
	}
	return out
}

func queues(h history, limit, period, burst, now, cost int64) bool {
	var waiting int64
	for _, at := range leaves(append(h[:len(h):len(h)], Move{now, cost}), limit, period) {
		if at > now*limit {
			waiting++
		}
	}
	return waiting <= burst
}

func countsInWindow(h history, limit, period, _, now, cost int64) bool {
	for _, m := range h {
		if m.At/period == now/period {
			cost += m.Cost
		}
	}
	return cost <= limit
}

func countsInView(h history, limit, period, _, now, cost int64) bool {
	for _, m := range h {
		if now-m.At < period {
			cost += m.Cost
		}
	}
	return cost <= limit
}

func countsInTwoWindows(h history, limit, period, _, now, cost int64) bool {
	taken := cost * period
	for _, m := range h {
		switch m.At/period - now/period {
		case 0:
			taken += m.Cost * period
		case -1:
			taken += m.Cost * (period - now%period)
		}
	}
	return taken <= limit*period
}

// answerBySearch is everything an Answer says, found by trying: decide is
// asked for each cost and each instant until it says yes.
func answerBySearch(h history, decide func(h history, now, cost int64) bool, top, now, cost, horizon int64) Answer {
	a := Answer{Allowed: cost == 0 || decide(h, now, cost)}
	if a.Allowed && cost > 0 {
		h = append(h[:len(h):len(h)], Move{now, cost})
	}
	if !a.Allowed {
		a.RetryAfter = Never
		for d := int64(1); d <= horizon; d++ {
			if decide(h, now+d, cost) {
				a.RetryAfter = d
				break
			}
		}
	}
	for decide(h, now, a.Remaining+1) {
		a.Remaining++
	}
	a.ResetAfter = Never
	for d := int64(0); d <= horizon; d++ {
		// Balances are below top by a fraction at least unless all is as new.
		if top == 0 || decide(h, now+d, top) {
			a.ResetAfter = d
			break
		}
	}
	return a
}

var full = flag.Bool("full", false, "walk the whole small scope to depth 3, not a thinned one")

// distinct are the algorithms without the other names of the bucket.
var distinct = []string{TokenBucket, Queue, FixedWindow, SlidingWindowLog, SlidingWindowCounter}

// testScope is the small scope to depth 3, thinned unless -full is given.
func testScope(algorithm string) Scope {
	s := SmallScope(algorithm, 3)
	if !*full {
		s.Limits, s.Gaps, s.Costs = []int64{1, 3}, []int64{-1, 0, 1, 3}, []int64{0, 1, 2, 4}
	}
	return s
}

// TestNames holds GCRA and the meter to be the token bucket.
func TestNames(t *testing.T) {
	var answers []Answer
	for _, algorithm := range []string{TokenBucket, GCRA, LeakyBucket} {
		i := 0
		_, err := SmallScope(algorithm, 2).Walk(func(n *Node) bool {
			if algorithm == TokenBucket {
				answers = append(answers, n.Answer)
			} else if n.Answer != answers[i] {
				t.Fatalf("%s: %+v, token bucket: %+v", algorithm, n.Answer, answers[i])
			}
			i++
			return true
		})
		if err != nil || i != len(answers) {
			t.Fatal(i, err)
		}
	}
}

// TestWalk holds a tree small enough to write down.
func TestWalk(t *testing.T) {
	s := Scope{
		Algorithm: FixedWindow, Limits: []int64{1}, Periods: []int64{10}, Bursts: []int64{0},
		Gaps: []int64{-1, 2}, Costs: []int64{1}, Depth: 2, Origin: 50, Scale: 3,
	}
	var got []string
	visit := func(n *Node) bool {
		got = append(got, fmt.Sprint(n.Period, n.Path, n.Answer.Allowed))
		return true
	}
	want := []string{
		"30 [] false", "30 [{47 1}] true", "30 [{47 1} {44 1}] false", "30 [{47 1} {53 1}] false",
		"30 [{56 1}] true", "30 [{56 1} {53 1}] false", "30 [{56 1} {62 1}] true",
	}
	if ok, err := s.Walk(visit); !ok || err != nil || !slices.Equal(got, want) {
		t.Errorf("%t, %v\n got %q\nwant %q", ok, err, got, want)
	}
	if got, want := s.Moves(), int64(len(want)-1); got != want {
		t.Errorf("Moves is %d, want %d", got, want)
	}
	if got := SmallScope(TokenBucket, 5).Moves(); got != 488_281_200 {
		t.Errorf("Moves of the small scope is %d", got)
	}
	calls := 0
	if ok, err := s.Walk(func(*Node) bool { calls++; return calls < 3 }); ok || err != nil || calls != 3 {
		t.Errorf("stopped walk: %t, %v after %d calls", ok, err, calls)
	}
	s.Algorithm = "window"
	if ok, err := s.Walk(visit); ok || err == nil {
		t.Error("unknown algorithm: no error")
	}
}

// TestDefinitions holds every answer in the small scope against what follows
// from the history by definition and by search.
func TestDefinitions(t *testing.T) {
	const horizon = 60 // ns; the longest span is 5 units at 1 a 4 ns
	for _, algorithm := range distinct {
		t.Run(algorithm, func(t *testing.T) {
			t.Parallel()
			scope := testScope(algorithm)
			histories := make([]history, scope.Depth+1)
			clocks := make([]int64, scope.Depth+1)
			ok, err := scope.Walk(func(n *Node) bool {
				d := len(n.Path)
				if d == 0 {
					return true
				}
				m := n.Path[d-1]
				now, h := max(clocks[d-1], m.At), histories[d-1]
				top := n.Limit
				switch algorithm {
				case TokenBucket:
					top = n.Burst
				case Queue:
					top = n.Burst + 1
				}
				decide := func(h history, now, cost int64) bool {
					return definitions[algorithm](h, n.Limit, n.Period, n.Burst, now, cost)
				}
				want := answerBySearch(h, decide, top, now, m.Cost, horizon)
				clocks[d], histories[d] = now, h
				if want.Allowed && m.Cost > 0 {
					histories[d] = append(h[:len(h):len(h)], Move{now, m.Cost})
					if algorithm == Queue {
						out := leaves(histories[d], n.Limit, n.Period)
						want.Delay = ceilDiv(out[len(out)-1]-now*n.Limit, n.Limit)
					}
				}
				if n.Answer != want {
					t.Errorf("limit %d period %d burst %d, %v:\n got %+v\nwant %+v", n.Limit, n.Period, n.Burst, n.Path, n.Answer, want)
				}
				return !t.Failed()
			})
			if err != nil || ok == t.Failed() {
				t.Fatal(ok, err)
			}
		})
	}
}

// TestSmallAgrees holds the small numbers' way against the exact one: the
// small scope, at two scales.
func TestSmallAgrees(t *testing.T) {
	for _, algorithm := range distinct {
		for _, scale := range []int64{1, 1_000_003} {
			t.Run(fmt.Sprintf("%s/scale=%d", algorithm, scale), func(t *testing.T) {
				t.Parallel()
				scope := testScope(algorithm)
				if !*full {
					scope.Bursts = scope.Bursts[:min(2, len(scope.Bursts))]
				}
				scope.Scale, scope.Origin = scale, 2*scale
				if scale > 1 { // off the grid as well
					scope.Periods, scope.Limits = []int64{3}, []int64{0, 2, 7}
				}
				states := make([]*Limiter, scope.Depth+1)
				var moves int64
				ok, err := scope.Walk(func(n *Node) bool {
					d := len(n.Path)
					if d == 0 {
						states[0] = mustExact(t, algorithm, n.Limit, n.Period, n.Burst)
						return true
					}
					moves++
					states[d] = states[d-1].Clone()
					m := n.Path[d-1]
					if want := states[d].Step(m.At, m.Cost); n.Answer != want {
						t.Errorf("limit %d period %d burst %d, %v:\nsmall %+v\nexact %+v", n.Limit, n.Period, n.Burst, n.Path, n.Answer, want)
					}
					return !t.Failed()
				})
				if err != nil || ok == t.Failed() {
					t.Fatal(ok, err)
				}
				if ok && moves != scope.Moves() {
					t.Errorf("walked %d moves, Moves says %d", moves, scope.Moves())
				}
			})
		}
	}
}

func mustExact(t testing.TB, algorithm string, limit, period, burst int64) *Limiter {
	t.Helper()
	l := mustNew(t, algorithm, limit, period, burst)
	l.makeExact()
	return l
}

func mustNew(t testing.TB, algorithm string, limit, period, burst int64) *Limiter {
	t.Helper()
	l, err := New(algorithm, limit, period, burst)
	if err != nil {
		t.Fatal(err)
	}
	return l
}
