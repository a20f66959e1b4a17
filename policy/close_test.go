package policy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate"
)

// closedAs wants these verdicts to say that the engine is closed, and no more.
func (c *crowd) closedAs(verdicts ...*Verdict) {
	c.t.Helper()
	c.wg.Wait()
	for i, v := range verdicts {
		if err := v.Err(); !errors.Is(err, spillgate.ErrClosed) || errors.Is(err, spillgate.ErrDenied) || v.Len() != 0 || v.RetryAfter() != 0 {
			c.t.Errorf("verdict %d: %v, want closed and nothing of a rule", i, err)
		}
	}
}

func TestCloseEndsAllHoldsAndNothingIsPaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, delayed(t, "1/s burst 1", time.Minute, 0, "user"))
		c.come("a", "x")
		_, b := c.come("b", "x")
		_, d := c.come("c", "x")
		_, slow := c.come("d", "x")
		after(1500 * time.Millisecond) // b passes at 1s
		c.e.Close()
		c.e.Close()
		synctest.Wait()
		_, late := c.come("e", "x")
		c.closedAs(d, slow, late)
		if !b.Allowed || d.Held != 1500*time.Millisecond || late.Held != 0 {
			t.Errorf("b: %v; held %s and %s", b.Err(), d.Held, late.Held)
		}
		after(500 * time.Millisecond)
		c.come("f", "x") // nobody has paid since b, so there is a unit
		if n := len(c.log); c.log[n-1] != "f passes at 2s" {
			t.Errorf("it went %q", c.log)
		}
		if n := c.e.lines.busy.Load(); n != 0 {
			t.Errorf("%d still wait", n)
		}
		if got := c.e.Limited("r", 9); slices.ContainsFunc(got, func(l Caller) bool { return l.Denied > 0 }) {
			t.Errorf("listed %+v: a stop denies nobody", got)
		}
	})
}

func TestCloseLeavesRefusalsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, delayed(t, "1/s burst 1", time.Minute, 0, "user"), testRule(t, "total", "1/h burst 1"))
		c.e.Close()
		c.come("a", "x")
		c.come("b", "x")
		c.want("a passes at 0s", "b refused for 1h0m0s at 0s")
	})
}

// Who can't pass before its deadline is not held for it in vain.
func TestAwaitLooksAheadAtTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slots := delayed(t, "1 at once", time.Minute, 0, "user")
		slots.Name, slots.Match = "slots", on(t, "path", "/slots")
		rate := delayed(t, "1/s burst 1", time.Minute, 0, "user")
		rate.Match = on(t, "path", "/")
		e := testEngine(t, rate, slots)
		start := time.Now()
		ask := func(path string, within time.Duration) (*Verdict, context.CancelFunc) {
			ctx, cancel := context.WithTimeout(t.Context(), within)
			var v Verdict
			e.Await(ctx, &v, Attrs{"user": "x", "path": path})
			return &v, cancel
		}
		at := func(v *Verdict, want string) {
			t.Helper()
			got := "passes"
			switch err := v.Err(); {
			case errors.Is(err, spillgate.ErrDenied):
				got = fmt.Sprintf("refused for %s", v.RetryAfter())
			case errors.Is(err, context.DeadlineExceeded):
				got = "deadline"
			case err != nil:
				got = err.Error()
			}
			if got = fmt.Sprintf("%s at %s", got, time.Since(start)); got != want {
				t.Errorf("%s, want %s", got, want)
			}
		}
		v, cancel := ask("/", time.Second)
		defer cancel()
		at(v, "passes at 0s")
		for _, within := range []time.Duration{time.Millisecond, 999 * time.Millisecond, time.Second} {
			v, cancel := ask("/", within)
			defer cancel()
			at(v, fmt.Sprintf("refused for %s at 0s", time.Second))
		}
		go func() {
			var v Verdict
			e.Await(context.Background(), &v, Attrs{"user": "x", "path": "/"})
		}()
		synctest.Wait()
		v, cancel = ask("/", 2*time.Second) // behind that one
		defer cancel()
		at(v, "refused for 2s at 0s")
		v, cancel = ask("/", 2*time.Second+1)
		defer cancel()
		at(v, "passes at 2s")

		v, cancel = ask("/slots", time.Hour)
		defer cancel()
		at(v, "passes at 2s")
		w, cancel := ask("/slots", 10*time.Millisecond) // nobody knows
		defer cancel()
		at(w, "deadline at 2.01s")
		v.Done()
	})
}

func TestHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := testEngine(t, testRule(t, "r", "1/s"))
		start := time.Now()
		hold := func(ctx context.Context, d time.Duration, want error, took time.Duration) {
			t.Helper()
			err := e.Hold(ctx, d)
			if !errors.Is(err, want) || (err == nil) != (want == nil) || time.Since(start) != took {
				t.Errorf("%v after %s, want %v after %s", err, time.Since(start), want, took)
			}
			if err != nil && !strings.HasPrefix(err.Error(), "policy: ") {
				t.Errorf("error %q", err)
			}
			start = time.Now()
		}
		hold(t.Context(), 0, nil, 0)
		hold(t.Context(), -1, nil, 0)
		hold(t.Context(), time.Second, nil, time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		hold(ctx, time.Second, context.DeadlineExceeded, 0)
		var late *spillgate.DeadlineError
		if err := e.Hold(ctx, 3*time.Second); !errors.As(err, &late) || late.Needed != 3*time.Second || late.Left != time.Second {
			t.Errorf("%v", err)
		}
		hold(ctx, time.Second-1, nil, time.Second-1)
		cancel()
		hold(ctx, time.Second, context.Canceled, 0)
		ctx, cancel = context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		hold(ctx, time.Minute, context.Canceled, time.Second)
		time.AfterFunc(time.Second, e.Close)
		hold(t.Context(), time.Minute, spillgate.ErrClosed, time.Second)
		hold(t.Context(), time.Minute, spillgate.ErrClosed, 0)
		hold(t.Context(), 0, nil, 0)
	})
}
