package oracle

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
)

const randomLists, randomCalls = 150, 40

func randomList(t testing.TB, algorithm string, seed uint64, changes bool) List {
	t.Helper()
	list, err := Random(rand.New(rand.NewPCG(seed, 0)), algorithm, randomCalls, changes)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// forLists runs check on random lists of each algorithm, with every other one
// containing changes if wanted.
func forLists(t *testing.T, changes bool, check func(t *testing.T, list List)) {
	for _, algorithm := range distinct {
		t.Run(algorithm, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(randomLists) {
				list := randomList(t, algorithm, seed, changes && seed%2 == 0)
				check(t, list)
				if t.Failed() {
					t.Fatalf("seed %d\n%s", seed, list)
				}
			}
		})
	}
}

// TestSmallAgreesAtRandom holds the small numbers' way, and the way over from
// it, against the exact one.
func TestSmallAgreesAtRandom(t *testing.T) {
	forLists(t, true, func(t *testing.T, list List) {
		fast := mustNew(t, list.Algorithm, list.Limit, list.Period, list.Burst)
		exact := mustExact(t, list.Algorithm, list.Limit, list.Period, list.Burst)
		for i, op := range list.Ops {
			if got, want := fast.Do(op), exact.Do(op); got != want {
				t.Errorf("call %d:\nsmall %+v\nexact %+v", i, got, want)
			}
		}
	})
}

// TestAnswersHold tries what each answer promises: that remaining fits and no
// more, that retry is enough and a nanosecond less is not, that after reset
// all fits again and a nanosecond before it does not.
func TestAnswersHold(t *testing.T) {
	forLists(t, true, func(t *testing.T, list List) {
		l := mustNew(t, list.Algorithm, list.Limit, list.Period, list.Burst)
		allowed := func(wait, cost int64) bool {
			return l.Clone().Step(l.Now()+wait, cost).Allowed
		}
		for i, op := range list.Ops {
			a := l.Do(op)
			if op.Kind != Step {
				continue
			}
			if !allowed(0, a.Remaining) || allowed(0, a.Remaining+1) {
				t.Errorf("call %d: remaining %d is not the most that fits", i, a.Remaining)
			}
			switch {
			case a.Allowed && a.RetryAfter != 0:
				t.Errorf("call %d: allowed, but retry after %d", i, a.RetryAfter)
			case a.Allowed:
			case a.RetryAfter == Never:
				if op.N <= l.Cap() && l.limit > 0 {
					t.Errorf("call %d: cost %d fits a new limiter, but retry is never", i, op.N)
				}
			case a.RetryAfter < 1 || !allowed(a.RetryAfter, op.N) || allowed(a.RetryAfter-1, op.N):
				t.Errorf("call %d: retry after %d is not the least wait", i, a.RetryAfter)
			}
			if a.Allowed && a.Delay > 0 && list.Algorithm != Queue {
				t.Errorf("call %d: delay %d", i, a.Delay)
			}
			top := l.Cap()
			switch {
			case a.ResetAfter == Never:
				if l.limit > 0 {
					t.Errorf("call %d: reset is never", i)
				}
			case a.ResetAfter < 0 || !allowed(a.ResetAfter, top) || a.ResetAfter > 0 && allowed(a.ResetAfter-1, top) && top > 0:
				t.Errorf("call %d: reset after %d is not the least wait", i, a.ResetAfter)
			}
		}
	})
}

// TestNothingIsNothing is I6: without the steps that took nothing, all other
// answers stay.
func TestNothingIsNothing(t *testing.T) {
	forLists(t, true, func(t *testing.T, list List) {
		l := mustNew(t, list.Algorithm, list.Limit, list.Period, list.Burst)
		kept := mustNew(t, list.Algorithm, list.Limit, list.Period, list.Burst)
		for i, op := range list.Ops {
			a := l.Do(op)
			if op.Kind == Step && (op.N == 0 || !a.Allowed) {
				continue
			}
			// The clock is all that a step that took nothing moved.
			op.At = l.Now()
			if b := kept.Do(op); a != b {
				t.Errorf("call %d:\nwith    %+v\nwithout %+v", i, a, b)
			}
		}
	})
}

// TestTimeShiftAndScale is I7: where on the clock a history lies, by whole
// windows, and the unit of time change no decision.
func TestTimeShiftAndScale(t *testing.T) {
	forLists(t, false, func(t *testing.T, list List) {
		l := mustNew(t, list.Algorithm, list.Limit, list.Period, list.Burst)
		shifted := l.Clone()
		scaled := mustNew(t, list.Algorithm, list.Limit, 3*list.Period, list.Burst)
		for i, op := range list.Ops {
			a := l.Step(op.At, op.N)
			if b := shifted.Step(l.Now()+5*list.Period, op.N); a != b {
				t.Errorf("call %d:\n        %+v\nshifted %+v", i, a, b)
			}
			b := scaled.Step(3*l.Now(), op.N)
			if a.Allowed != b.Allowed || a.Remaining != b.Remaining {
				t.Errorf("call %d:\n       %+v\nscaled %+v", i, a, b)
			}
			// A wait in the finer unit, rounded up to the coarse one, is the
			// coarse wait.
			if b.ResetAfter != Never && (b.ResetAfter+2)/3 != a.ResetAfter {
				t.Errorf("call %d: reset %d, scaled %d", i, a.ResetAfter, b.ResetAfter)
			}
		}
	})
}

// TestRandomRepeats holds that a seed says everything.
func TestRandomRepeats(t *testing.T) {
	for _, algorithm := range Algorithms {
		if a, b := randomList(t, algorithm, 7, true), randomList(t, algorithm, 7, true); !reflect.DeepEqual(a, b) {
			t.Errorf("%s: two lists from one seed:\n%s\n%s", algorithm, a, b)
		}
	}
	if _, err := Random(rand.New(rand.NewPCG(1, 0)), "leaky", 5, false); err == nil {
		t.Error("unknown algorithm: no error")
	}
}

// TestRandomAims holds that lists reach what they are made to reach.
func TestRandomAims(t *testing.T) {
	for _, algorithm := range distinct {
		t.Run(algorithm, func(t *testing.T) {
			t.Parallel()
			seen := map[string]int{}
			for seed := range uint64(randomLists) {
				list := randomList(t, algorithm, seed, true)
				if !carried(algorithm, list.Limit, list.Period, list.Burst) {
					t.Fatalf("seed %d: limit out of range\n%s", seed, list)
				}
				l := mustNew(t, algorithm, list.Limit, list.Period, list.Burst)
				var retry, reset int64 // instants
				for _, op := range list.Ops {
					if op.At < l.Now() {
						seen["back"]++
					}
					if op.At > maxAt {
						t.Fatalf("seed %d: time %d out of range", seed, op.At)
					}
					for d := int64(-1); d <= 1; d++ {
						if retry > 0 && op.At == retry+d {
							seen[fmt.Sprintf("retry%+d", d)]++
						}
						if reset > 0 && op.At == reset+d {
							seen[fmt.Sprintf("reset%+d", d)]++
						}
					}
					before := l.Clone().Step(op.At, 0).Remaining
					a := l.Do(op)
					seen[fmt.Sprintf("kind %d", op.Kind)]++
					retry, reset = 0, 0
					if a.ResetAfter > 0 {
						reset = l.Now() + a.ResetAfter
					}
					if op.Kind != Step {
						continue
					}
					switch {
					case a.Allowed && op.N == before && before > 0:
						seen["all that remains"]++
					case !a.Allowed && op.N == before+1:
						seen["one too many"]++
					case !a.Allowed && a.RetryAfter == Never:
						seen["never"]++
					}
					if a.RetryAfter > 0 {
						retry = l.Now() + a.RetryAfter
					}
				}
			}
			for _, what := range []string{
				"back", "retry-1", "retry+0", "retry+1", "reset-1", "reset+0", "reset+1", "all that remains", "one too many",
				"never", "kind 0", "kind 1", "kind 2", "kind 3", "kind 4",
			} {
				if seen[what] < 20 {
					t.Errorf("%s: reached %d times in %d calls", what, seen[what], randomLists*randomCalls)
				}
			}
			t.Logf("of %d calls: %v", randomLists*randomCalls, seen)
		})
	}
}
