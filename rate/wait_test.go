package rate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate"
)

// stopwatch returns what tells how much time has passed since.
func stopwatch() func() time.Duration {
	start := time.Now()
	return func() time.Duration { return time.Since(start) }
}

func TestWaitsEndWhenTokensAreEarned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		since := stopwatch()
		lim := NewLimiter(3, 2)
		for _, want := range []time.Duration{0, 0, 333_333_334, 666_666_667, 1_000_000_000} {
			if err := lim.Wait(t.Context()); err != nil || since() != want {
				t.Errorf("error %v at %d, want none at %d", err, since(), want)
			}
		}
		if err := lim.WaitN(t.Context(), 2); err != nil || since() != 1_666_666_667 {
			t.Errorf("2 tokens: error %v at %d, want none at 1666666667", err, since())
		}
	})
}

func TestWaitRefusesAtOnce(t *testing.T) {
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		name  string
		limit Limit
		ctx   func(t *testing.T) context.Context
		n     int
		text  string
		is    error
	}{
		{"above the burst", 1, background, 3, "rate: Wait(n=3) exceeds limiter's burst 2", spillgate.ErrNeverFits},
		{"above the burst and canceled", 1, func(*testing.T) context.Context { return canceled }, 3, "rate: Wait(n=3) exceeds limiter's burst 2", spillgate.ErrNeverFits},
		{"negative", 1, background, -1, "rate: Wait(n=-1) is negative", spillgate.ErrCost},
		{"negative at Inf", Inf, background, -1, "rate: Wait(n=-1) is negative", spillgate.ErrCost},
		{"canceled", 1, func(*testing.T) context.Context { return canceled }, 1, "context canceled", context.Canceled},
		{"canceled at Inf", Inf, func(*testing.T) context.Context { return canceled }, 1, "context canceled", context.Canceled},
		{"past the deadline", 1, within(100 * time.Millisecond), 1, "rate: Wait(n=1) would exceed context deadline: it takes 1s of 100ms", context.DeadlineExceeded},
		{"1 ns past the deadline", 1, within(time.Second - 1), 1, "rate: Wait(n=1) would exceed context deadline: it takes 1s of 999.999999ms", context.DeadlineExceeded},
		{"limit 0", 0, background, 1, "rate: Wait(n=1) would take for ever", spillgate.ErrDenied},
		{"limit 0 with a deadline", 0, within(time.Hour), 1, "rate: Wait(n=1) would exceed context deadline: it takes for ever", context.DeadlineExceeded},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				since := stopwatch()
				lim := NewLimiter(c.limit, 2)
				lim.AllowN(time.Now(), 2)
				err := lim.WaitN(c.ctx(t), c.n)
				if err == nil || !strings.HasPrefix(err.Error(), c.text) || !errors.Is(err, c.is) {
					t.Errorf("error %v, want %q, a %q", err, c.text, c.is)
				}
				if since() != 0 {
					t.Errorf("it took %v", since())
				}
				if got := lim.Tokens(); got != 0 && c.limit != Inf {
					t.Errorf("%v tokens after the refusal, want 0", got)
				}
			})
		})
	}
}

func background(t *testing.T) context.Context { return t.Context() }

func within(d time.Duration) func(*testing.T) context.Context {
	return func(t *testing.T) context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), d)
		t.Cleanup(cancel)
		return ctx
	}
}

func TestWaitOfTheCanceledTakesNothing(t *testing.T) {
	lim := NewLimiter(Every(time.Hour), 1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := lim.Wait(ctx); err != context.Canceled {
		t.Errorf("error %v, want %v", err, context.Canceled)
	}
	if !lim.Allow() {
		t.Error("the token is gone")
	}
}

func TestWaitUpToTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		since := stopwatch()
		lim := NewLimiter(1, 1)
		lim.Allow()
		if err := lim.Wait(within(time.Second + 1)(t)); err != nil || since() != time.Second {
			t.Errorf("error %v after %v, want none after 1s", err, since())
		}
	})
}

func TestWaitersGoInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		since := stopwatch()
		lim := NewLimiter(10, 1)
		lim.Allow()
		var mu sync.Mutex
		var order []string
		for i := range 20 {
			go func() {
				if err := lim.WaitN(t.Context(), 1); err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				order = append(order, fmt.Sprintf("%d at %v", i, since()))
			}()
			synctest.Wait()
		}
		time.Sleep(3 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		for i, got := range order {
			if want := fmt.Sprintf("%d at %v", i, time.Duration(i+1)*100*time.Millisecond); got != want {
				t.Errorf("place %d: %s, want %s", i, got, want)
			}
		}
	})
}

// Those who give up leave no debt behind, in whatever order they go.
func TestWaitersWhoGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		since := stopwatch()
		lim := NewLimiter(1, 1)
		lim.Allow()
		ctx, cancel := context.WithCancel(t.Context())
		for range 100 {
			go lim.Wait(ctx)
		}
		synctest.Wait()
		if got := lim.Tokens(); got != -100 {
			t.Errorf("%v tokens while 100 wait, want -100", got)
		}
		for range 100 {
			if err := lim.Wait(within(10 * time.Millisecond)(t)); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("error %v, want a deadline exceeded", err)
			}
		}
		time.Sleep(500 * time.Millisecond)
		cancel()
		synctest.Wait()
		if got := lim.Tokens(); got != 0.5 {
			t.Errorf("%v tokens after they gave up, want 0.5", got)
		}
		if err := lim.Wait(t.Context()); err != nil || since() != time.Second {
			t.Errorf("error %v after %v, want none after 1s", err, since())
		}
	})
}

// Who waits keeps the time that was told, and what those before left behind is
// given back after it.
func TestWaiterBehindOnesWhoGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		since := stopwatch()
		lim := NewLimiter(1, 5)
		lim.AllowN(time.Now(), 5)
		ctx, cancel := context.WithCancel(t.Context())
		for range 9 {
			go lim.Wait(ctx)
		}
		synctest.Wait()
		done := make(chan time.Duration, 1)
		go func() {
			if err := lim.Wait(t.Context()); err != nil {
				t.Error(err)
			}
			done <- since()
		}()
		synctest.Wait()
		cancel()
		synctest.Wait()
		if got := lim.Tokens(); got != -10 {
			t.Errorf("%v tokens while one waits, want -10", got)
		}
		if got := <-done; got != 10*time.Second {
			t.Errorf("the last waiter went on after %v, want 10s", got)
		}
		synctest.Wait()
		// Ten were earned and one was used; five fit.
		if got := lim.Tokens(); got != 4 {
			t.Errorf("%v tokens after the last waiter, want 4", got)
		}
	})
}

// Whoever is granted has paid, and who is canceled has not. When both happen
// at once it is granted.
func TestCancelAtTheGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := NewLimiter(1, 1)
		for i := range 10_000 {
			time.Sleep(10 * time.Second) // full
			if !lim.Allow() {
				t.Fatalf("round %d: the bucket is not full", i)
			}
			ctx, cancel := context.WithCancel(t.Context())
			off := time.Duration(i%3-1) * time.Duration(i%1000)
			time.AfterFunc(time.Second+off, cancel)
			err := lim.Wait(ctx)
			want := 1.0
			if off >= 0 {
				want = 0
			}
			if (err == nil) != (off >= 0) {
				t.Fatalf("round %d, cancel at %v from the grant: error %v", i, off, err)
			}
			time.Sleep(2*time.Microsecond - max(0, off)) // beyond either, by less than a token
			if got := lim.Tokens(); got < want || got > want+1e-5 {
				t.Fatalf("round %d, cancel at %v from the grant: error %v and %v tokens, want %v", i, off, err, got, want)
			}
			cancel()
		}
	})
}

func TestWaitWithoutALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		since := stopwatch()
		lim := NewLimiter(Inf, 0)
		for range 3 {
			if err := lim.WaitN(t.Context(), 1000); err != nil || since() != 0 {
				t.Errorf("error %v at %v", err, since())
			}
		}
	})
}

func TestWaitAfterTheLimitWasZero(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		since := stopwatch()
		lim := NewLimiter(0, 1)
		lim.Allow()
		time.Sleep(time.Hour)
		lim.SetLimit(10)
		if err := lim.Wait(t.Context()); err != nil || since() != time.Hour+100*time.Millisecond {
			t.Errorf("error %v after %v, want none after 1h0m0.1s", err, since())
		}
	})
}

// Whatever is canceled when: no stretch of time sees more than a burst and
// what it earns, and once nobody waits there is no debt.
func TestWaitersAndTheBurst(t *testing.T) {
	const burst, every = 5, 10 * time.Millisecond
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			since := stopwatch()
			rng := rand.New(rand.NewPCG(seed, 2))
			lim := NewLimiter(Every(every), burst)
			type grant struct {
				at time.Duration
				n  int
			}
			var mu sync.Mutex
			var grants []grant
			granted := func(at time.Duration, n int) {
				mu.Lock()
				defer mu.Unlock()
				grants = append(grants, grant{at, n})
			}
			reserves := seed%2 == 0 // who reserves always acts, at the time that was told
			var wg sync.WaitGroup
			for range 60 {
				n, patience := 1+rng.IntN(burst), time.Duration(rng.Int64N(int64(20*every)))
				wg.Go(func() {
					ctx, cancel := context.WithCancel(t.Context())
					defer time.AfterFunc(patience, cancel).Stop()
					if lim.WaitN(ctx, n) == nil {
						granted(since(), n)
					}
				})
				synctest.Wait()
				if rng.IntN(4) == 0 && lim.Allow() {
					granted(since(), 1)
				}
				if reserves && rng.IntN(6) == 0 {
					n := 1 + rng.IntN(burst)
					granted(since()+lim.ReserveN(time.Now(), n).Delay(), n)
				}
				time.Sleep(time.Duration(rng.Int64N(int64(6 * every))))
			}
			wg.Wait()
			if got := lim.Tokens(); got < 0 && !reserves || got > burst {
				t.Errorf("seed %d: %v tokens when nobody waits", seed, got)
			}
			slices.SortFunc(grants, func(a, b grant) int { return cmp.Compare(a.at, b.at) })
			for i := range grants {
				sum := 0
				for _, g := range grants[i:] {
					sum += g.n
					if time.Duration(sum-burst)*every > g.at-grants[i].at {
						t.Fatalf("seed %d: %d events from %v to %v", seed, sum, grants[i].at, g.at)
					}
				}
			}
		})
	}
}
