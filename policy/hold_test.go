package policy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate"
)

func delayed(t testing.TB, limit string, most time.Duration, queue int, key ...string) Rule {
	t.Helper()
	r := testRule(t, "r", limit, key...)
	r.Delay = Delay{Most: most, Queue: queue}
	return r
}

// A crowd notes when whom Await let go, and how.
type crowd struct {
	t     *testing.T
	e     *Engine
	start time.Time
	wg    sync.WaitGroup
	mu    sync.Mutex
	log   []string
}

func newCrowd(t *testing.T, rules ...Rule) *crowd {
	return &crowd{t: t, e: testEngine(t, rules...), start: time.Now()}
}

// come asks in the background, for user u; with synctest.Wait those who come
// one after the other arrive in that order.
func (c *crowd) come(name, user string, opts ...Option) (cancel func(), verdict *Verdict) {
	ctx, cancel := context.WithCancel(context.Background())
	v := new(Verdict)
	c.wg.Go(func() {
		c.e.Await(ctx, v, Attrs{"user": user}, opts...)
		what := "passes"
		if err := v.Err(); errors.Is(err, context.Canceled) {
			what = "left"
		} else if err != nil {
			what = fmt.Sprintf("refused for %s", v.RetryAfter())
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.log = append(c.log, fmt.Sprintf("%s %s at %s", name, what, time.Since(c.start)))
	})
	synctest.Wait()
	return cancel, v
}

// want checks how it went. Each line says when, and of those of one instant
// nobody knows which is noted first.
func (c *crowd) want(log ...string) {
	c.t.Helper()
	c.wg.Wait()
	slices.Sort(c.log)
	slices.Sort(log)
	if !slices.Equal(c.log, log) {
		c.t.Errorf("it went\n  %s\nwant\n  %s", strings.Join(c.log, "\n  "), strings.Join(log, "\n  "))
	}
	if n := c.e.lines.busy.Load(); n != 0 || len(c.e.lines.of) != 0 {
		c.t.Errorf("%d still wait, in %d lines", n, len(c.e.lines.of))
	}
}

func after(d time.Duration) { <-time.After(d) }

func TestDelayedRequestsPassInOrderAtTheEarliestInstant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, delayed(t, "1/s burst 1", 5*time.Second, 0, "user"))
		for _, name := range []string{"a", "b", "c", "d"} {
			c.come(name, "x")
		}
		after(500 * time.Millisecond)
		c.come("e", "x")
		c.come("other", "y")
		after(3499 * time.Millisecond)
		c.come("late", "x") // e's unit comes in a millisecond
		c.want("a passes at 0s", "other passes at 500ms", "b passes at 1s", "c passes at 2s", "d passes at 3s",
			"e passes at 4s", "late passes at 5s")
	})
}

func TestWhoWouldWaitTooLongIsRefusedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, delayed(t, "1/s burst 1", 2*time.Second, 0, "user"))
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			c.come(name, "x")
		}
		c.want("a passes at 0s", "d refused for 3s at 0s", "e refused for 3s at 0s", "b passes at 1s", "c passes at 2s")
		if got := c.e.Limited("r", 9); len(got) != 1 || got[0].Denied != 2 {
			t.Errorf("listed %+v: who passed in the end was not denied", got)
		}
	})
}

func TestTheLineIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, delayed(t, "1/s burst 1", time.Minute, 2, "user"))
		for _, name := range []string{"a", "b", "c", "d"} {
			c.come(name, "x")
		}
		after(1500 * time.Millisecond)
		c.come("e", "x")
		c.want("a passes at 0s", "d refused for 3s at 0s", "b passes at 1s", "c passes at 2s", "e passes at 3s")
	})
}

func TestWhoLeavesFreesThePlaceAndPaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, delayed(t, "1/s burst 1", time.Minute, 3, "user"))
		c.come("a", "x")
		first, _ := c.come("b", "x")
		c.come("c", "x")
		third, v := c.come("d", "x")
		c.come("full", "x")
		after(500 * time.Millisecond)
		third()
		first()
		synctest.Wait()
		if err := v.Err(); !errors.Is(err, context.Canceled) || v.Len() != 0 {
			t.Errorf("who left has the verdict %v", err)
		}
		c.come("e", "x")
		c.come("f", "x")
		c.wg.Wait()
		c.log = slices.DeleteFunc(c.log, func(s string) bool { return strings.HasSuffix(s, "left at 500ms") })
		c.want("a passes at 0s", "full refused for 4s at 0s", "c passes at 1s", "e passes at 2s", "f passes at 3s")
	})
}

func TestCostsAreWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, delayed(t, "1/s burst 5", 20*time.Second, 0, "user"))
		cost := func(n int64) Option { return Cost(Requests, n) }
		c.come("a", "x", cost(5))
		c.come("b", "x", cost(3))
		c.come("c", "x", cost(1))
		c.come("d", "x", cost(4))
		c.come("never", "x", cost(6))
		after(12 * time.Second)
		c.come("e", "x", cost(4))
		c.come("f", "x", cost(5))
		want := []string{"a passes at 0s", "b passes at 3s", "c passes at 4s", "d passes at 8s"}
		c.want(append(want, "never refused for 2562047h47m16.854775807s at 0s", "e passes at 12s", "f passes at 17s")...)
	})
}

// A refusal by a rule that does not hold requests is one at once, and the line
// goes on.
func TestARuleWithoutDelayRefusesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		total := testRule(t, "total", "2/h burst 2")
		c := newCrowd(t, delayed(t, "1/s burst 1", time.Minute, 0, "user"), total)
		for _, name := range []string{"a", "b", "c"} {
			c.come(name, "x")
		}
		c.want("a passes at 0s", "b passes at 1s", "c refused for 29m59s at 1s")
	})
}

func TestARequestWaitsForAllRulesThatHoldIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := delayed(t, "1/2s burst 1", time.Minute, 0)
		all.Name = "all"
		c := newCrowd(t, delayed(t, "1/s burst 1", time.Minute, 0, "user"), all)
		c.come("a", "x")
		c.come("b", "x")
		c.come("c", "y")
		c.come("d", "x")
		c.want("a passes at 0s", "b passes at 2s", "c passes at 4s", "d passes at 6s")
	})
}

func TestSlotsAreWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, delayed(t, "1 at once", time.Second, 0, "user"))
		_, v := c.come("a", "x")
		_, w := c.come("b", "x")
		after(321 * time.Millisecond)
		v.Done()
		synctest.Wait()
		after(50 * time.Millisecond)
		c.come("c", "x")
		c.want("a passes at 0s", "b passes at 321ms", "c refused for 9m58.95s at 1.371s")
		if w.Held != 321*time.Millisecond || v.Held != 0 {
			t.Errorf("held %s and %s", v.Held, w.Held)
		}
	})
}

// Nobody is let in who stands behind, though there is something again for an
// instant: Decide takes what the line waits for.
func TestOthersMayTakeWhatTheLineWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, delayed(t, "1/s burst 1", 2500*time.Millisecond, 0, "user"))
		c.come("a", "x")
		c.come("b", "x")
		c.come("c", "x")
		after(999 * time.Millisecond)
		for range 2 { // a Decide in the very instant may come before or after
			after(time.Millisecond)
			if v := c.e.Decide(context.Background(), Attrs{"user": "x"}); v.Allowed {
				break
			}
		}
		c.wg.Wait()
		if last := c.log[len(c.log)-1]; !strings.HasPrefix(last, "c ") && !strings.HasPrefix(last, "b ") {
			t.Errorf("it went %q", c.log)
		}
		if n := c.e.lines.busy.Load(); n != 0 {
			t.Errorf("%d still wait", n)
		}
	})
}

func TestOnlyTheLastWordIsPenalised(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := delayed(t, "1/s burst 1", time.Second, 0, "user")
		r.Penalty = Penalty{After: 2, Within: time.Hour, Block: time.Hour}
		c := newCrowd(t, r)
		c.come("a", "x")
		c.come("b", "x")
		c.come("c", "x")
		after(1500 * time.Millisecond)
		c.come("d", "x")
		c.come("e", "x") // the second refusal blocks the key, and who waits for it
		after(10 * time.Second)
		c.come("f", "x")
		c.want("a passes at 0s", "c refused for 2s at 0s", "b passes at 1s", "e refused for 1h0m0s at 1.5s", "d refused for 59m59.5s at 2s", "f refused for 59m50s at 11.5s")
	})
}

func TestFaultsAreNotWaitedFor(t *testing.T) {
	r := delayed(t, "1/s burst 1", time.Minute, 0, "user")
	r.OnFault = Shut
	p, err := Compile([]Rule{r})
	if err != nil {
		t.Fatal(err)
	}
	e := NewEngine(p, faulty{})
	var v Verdict
	e.Await(context.Background(), &v, Attrs{"user": "x"})
	if err := v.Err(); !errors.Is(err, spillgate.ErrUnavailable) {
		t.Errorf("error %v", err)
	}
}

type faulty struct{}

func (faulty) Take(context.Context, time.Time, []spillgate.Charge, []spillgate.Decision) error {
	return spillgate.ErrUnavailable
}

func (faulty) Settle(context.Context, time.Time, []spillgate.Correction) error {
	return spillgate.ErrUnavailable
}

// Whoever comes and goes, no more pass than the limit admits, and nobody stays.
func TestLinesUnderConcurrency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := testEngine(t, delayed(t, "100/s burst 10", 500*time.Millisecond, 20, "user"))
		var passed, refused, left atomic.Int64
		var wg sync.WaitGroup
		start := time.Now()
		for i := range 400 {
			wg.Go(func() {
				for range 5 {
					ctx, cancel := context.WithCancel(context.Background())
					leaves := time.AfterFunc(time.Duration(i%37+1)*10*time.Millisecond, cancel)
					var v Verdict
					e.Await(ctx, &v, Attrs{"user": fmt.Sprint(i % 2)})
					leaves.Stop()
					cancel()
					switch err := v.Err(); {
					case err == nil:
						passed.Add(1)
					case errors.Is(err, spillgate.ErrDenied):
						refused.Add(1)
					default:
						left.Add(1)
					}
					after(100 * time.Millisecond)
				}
			})
		}
		wg.Wait()
		most := 2 * (10 + int64(time.Since(start)/(10*time.Millisecond)))
		if n := passed.Load(); n > most || n < most/2 || refused.Load() == 0 || left.Load() == 0 {
			t.Errorf("%d passed of %d, %d refused, %d left", n, most, refused.Load(), left.Load())
		}
		if n := e.lines.busy.Load(); n != 0 || len(e.lines.of) != 0 {
			t.Errorf("%d still wait, in %d lines", n, len(e.lines.of))
		}
	})
}

func TestDelaysThatCantBe(t *testing.T) {
	good := func() Rule { return delayed(t, "1/s", time.Second, 0, "user") }
	for want, change := range map[string]func(*Rule){
		"want from 1ms to 5m":   func(r *Rule) { r.Delay.Most = time.Microsecond },
		"most 6m0s":             func(r *Rule) { r.Delay.Most = 6 * time.Minute },
		"queue -1":              func(r *Rule) { r.Delay.Queue = -1 },
		"queue 10001":           func(r *Rule) { r.Delay.Queue = 10_001 },
		"waiting does not help": func(r *Rule) { r.Deny, r.Limit = true, spillgate.Limit{} },
		"refuses nobody":        func(r *Rule) { r.Limit = spillgate.Limit{Algorithm: spillgate.Unlimited} },
		"by itself":             func(r *Rule) { r.Limit.Algorithm = spillgate.Queue },
	} {
		r := good()
		change(&r)
		_, err := Compile([]Rule{r})
		var re *RuleError
		if !errors.As(err, &re) || re.Field != "delay" || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v", want, err)
		}
	}
}
