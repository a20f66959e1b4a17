package spillgate

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// bubble runs f in a synctest bubble with a limiter of limit, closed after.
func bubble(t *testing.T, limit string, f func(t *testing.T, l *Limiter)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := Must(limit)
		defer l.Close()
		f(t, l)
	})
}

func TestWaitersAreServedInOrderAtTheEarliestInstant(t *testing.T) {
	for _, tt := range []struct {
		limit string
		costs []int64
		want  []time.Duration
	}{
		{"10/s burst 2", []int64{1, 1, 1, 2, 1}, []time.Duration{0, 0, 100 * time.Millisecond, 300 * time.Millisecond, 400 * time.Millisecond}},
		{"3/s burst 1", []int64{1, 1, 1, 1}, []time.Duration{0, 333333334, 666666668, 1000000002}}, // a full bucket of one can't save up
		{"3/s burst 2", []int64{2, 1, 1, 1}, []time.Duration{0, 333333334, 666666667, time.Second}},
		{"2/10s fixed", []int64{1, 1, 1, 1, 2}, []time.Duration{0, 0, 10 * time.Second, 10 * time.Second, 20 * time.Second}},
		{"2/10s log", []int64{2, 1, 1, 1}, []time.Duration{0, 10 * time.Second, 10 * time.Second, 20 * time.Second}},
		{"1/s queue 1", []int64{1, 1, 1, 1}, []time.Duration{0, time.Second, 2 * time.Second, 3 * time.Second}},
	} {
		t.Run(tt.limit, func(t *testing.T) {
			bubble(t, tt.limit, func(t *testing.T, l *Limiter) {
				start := time.Now()
				got := make([]time.Duration, len(tt.costs))
				var wg sync.WaitGroup
				for i, n := range tt.costs {
					wg.Go(func() {
						if _, err := l.Wait(context.Background(), "k", n); err != nil {
							t.Error(err)
						}
						got[i] = time.Since(start)
					})
					synctest.Wait() // so that they come in this order
				}
				wg.Wait()
				for i := range got {
					if got[i] != tt.want[i] {
						t.Errorf("waiter %d served after %s, want %s", i, got[i], tt.want[i])
					}
				}
			})
		})
	}
}

func TestB009DeadlineThatCantBeMet(t *testing.T) {
	bubble(t, "1/s burst 1", func(t *testing.T, l *Limiter) {
		l.Take("k", 1)
		start := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		_, err := l.Wait(ctx, "k", 1)
		var late *DeadlineError
		if !errors.As(err, &late) || !errors.Is(err, context.DeadlineExceeded) || late.Needed != time.Second || late.Left != 100*time.Millisecond {
			t.Errorf("error %v", err)
		}
		if since := time.Since(start); since != 0 {
			t.Errorf("it took %s to say so", since)
		}
		<-time.After(time.Second)
		if !l.Allow("k") {
			t.Error("the failed wait took something")
		}
	})
}

func TestDeadlineBehindOthers(t *testing.T) {
	for _, limit := range []string{"2/10s fixed", "2/10s log", "2/10s burst 2"} {
		bubble(t, limit, func(t *testing.T, l *Limiter) {
			<-time.After(time.Duration(10e9 - time.Now().UnixNano()%10e9)) // windows begin now
			l.Take("k", 2)
			go func() { _, _ = l.Wait(context.Background(), "k", 2) }()
			synctest.Wait()
			start := time.Now()
			ctx, cancel := context.WithTimeout(context.Background(), 14*time.Second)
			defer cancel()
			if _, err := l.Wait(ctx, "k", 1); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 0 {
				t.Errorf("%s: %v after %s", limit, err, time.Since(start))
			}
			r, err := l.Reserve("k", 1)
			want := 20 * time.Second
			if limit == "2/10s burst 2" {
				want = 15 * time.Second
			}
			if err != nil || r.Delay() != want {
				t.Errorf("%s: delay %s, %v; want %s", limit, r.Delay(), err, want)
			}
		})
	}
}

func TestB013WaitWithCancelledContext(t *testing.T) {
	bubble(t, "1/s burst 1", func(t *testing.T, l *Limiter) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if _, err := l.Wait(ctx, "k", 1); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
		if !l.Allow("k") {
			t.Error("it took something")
		}
	})
}

func TestHopelessWaitsFailAtOnce(t *testing.T) {
	for _, tt := range []struct {
		limit string
		n     int64
		want  error
	}{
		{"1/s burst 5", 6, ErrNeverFits}, {"1/s burst 5", -1, ErrCost}, {"5/s fixed", 6, ErrNeverFits},
		{"2 at once", 3, ErrNeverFits}, {"1/s queue 3", 5, ErrNeverFits}, {"3/s log", 4, ErrNeverFits}, {"3/s sliding", 4, ErrNeverFits},
	} {
		bubble(t, tt.limit, func(t *testing.T, l *Limiter) {
			start := time.Now()
			if _, err := l.Wait(context.Background(), "k", tt.n); !errors.Is(err, tt.want) || time.Since(start) != 0 {
				t.Errorf("%s: a wait for %d: %v after %s", tt.limit, tt.n, err, time.Since(start))
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		l := Must("0/s burst 1", TTL(time.Hour))
		defer l.Close()
		l.Take("k", 1)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		start := time.Now()
		if _, err := l.Wait(ctx, "k", 1); err == nil || time.Since(start) != 0 {
			t.Errorf("nothing is ever earned: %v after %s", err, time.Since(start))
		}
	})
}

func TestB151WaitersThatGaveUpKeepNoPlace(t *testing.T) {
	bubble(t, "1/s burst 1", func(t *testing.T, l *Limiter) {
		l.Take("k", 1)
		start := time.Now()
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				ctx, cancel := context.WithCancel(context.Background())
				time.AfterFunc(10*time.Millisecond, cancel) // a deadline would fail at once
				if _, err := l.Wait(ctx, "k", 1); !errors.Is(err, context.Canceled) {
					t.Errorf("error %v", err)
				}
			})
		}
		wg.Wait()
		if _, err := l.Wait(context.Background(), "k", 1); err != nil || time.Since(start) != time.Second {
			t.Errorf("served after %s, %v; want 1s", time.Since(start), err)
		}
	})
}

func TestB153CancelAtTheInstantOfTheGrant(t *testing.T) {
	bubble(t, "1/s burst 1", func(t *testing.T, l *Limiter) {
		granted, cancelled := 0, 0
		for i := range 1000 {
			key := fmt.Sprint(i)
			l.Take(key, 1)
			ctx, cancel := context.WithCancel(context.Background())
			time.AfterFunc(time.Second+time.Duration(i%3-1), cancel)
			_, err := l.Wait(ctx, key, 1)
			switch d := l.Peek(key); {
			case err == nil && d.Remaining == 0:
				granted++
			case errors.Is(err, context.Canceled) && (d.Remaining == 1 || d.RetryAfter <= 1):
				cancelled++
			default:
				t.Fatalf("round %d: error %v with %d left", i, err, d.Remaining)
			}
			cancel()
		}
		if granted == 0 || cancelled == 0 {
			t.Errorf("%d granted, %d cancelled: the race was not run", granted, cancelled)
		}
	})
}

func TestB143CloseFailsAllWhoWait(t *testing.T) {
	bubble(t, "1/min burst 1", func(t *testing.T, l *Limiter) {
		l.Take("k", 1)
		var wg sync.WaitGroup
		start := time.Now()
		for range 100 {
			wg.Go(func() {
				if _, err := l.Wait(context.Background(), "k", 1); !errors.Is(err, ErrClosed) || time.Since(start) != 0 {
					t.Errorf("error %v after %s", err, time.Since(start))
				}
			})
		}
		synctest.Wait()
		l.Close()
		wg.Wait()
		if _, err := l.Wait(context.Background(), "k", 1); !errors.Is(err, ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
		if _, err := l.Reserve("k", 1); !errors.Is(err, ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	})
}

func TestNobodyOvertakesThoseWhoWait(t *testing.T) {
	bubble(t, "1/s burst 1", func(t *testing.T, l *Limiter) {
		l.Take("k", 1)
		served := make(chan time.Duration)
		start := time.Now()
		go func() {
			_, _ = l.Wait(context.Background(), "k", 1)
			served <- time.Since(start)
		}()
		synctest.Wait()
		<-time.After(500 * time.Millisecond)
		if d := l.Take("k", 1); d.Allowed || d.RetryAfter != 1500*time.Millisecond || d.Remaining != 0 {
			t.Errorf("behind one who waits: %+v", d)
		}
		if l.Allow("k") {
			t.Error("Allow overtook")
		}
		if !l.Allow("other") {
			t.Error("another key was held up")
		}
		if got := <-served; got != time.Second {
			t.Errorf("served after %s", got)
		}
		<-time.After(time.Second)
		if !l.Allow("k") {
			t.Error("refused with nobody waiting")
		}
	})
}

func TestWaitersFeelChanges(t *testing.T) {
	t.Run("a raised rate", func(t *testing.T) {
		bubble(t, "1/min burst 1", func(t *testing.T, l *Limiter) {
			l.Take("k", 1)
			start := time.Now()
			time.AfterFunc(30*time.Second, func() {
				if err := l.SetLimit(Limit{Rate: 1, Period: time.Second, Burst: 1}); err != nil {
					t.Error(err)
				}
			})
			if _, err := l.Wait(context.Background(), "k", 1); err != nil || time.Since(start) != 30500*time.Millisecond {
				t.Errorf("served after %s, %v; want half a unit at the old rate and half at the new", time.Since(start), err)
			}
		})
	})
	t.Run("a burst that is too small now", func(t *testing.T) {
		bubble(t, "1/s burst 5", func(t *testing.T, l *Limiter) {
			l.Take("k", 5)
			time.AfterFunc(time.Second, func() { _ = l.SetLimit(Limit{Rate: 1, Period: time.Second, Burst: 1}) })
			start := time.Now()
			if _, err := l.Wait(context.Background(), "k", 5); !errors.Is(err, ErrNeverFits) || time.Since(start) != time.Second {
				t.Errorf("%v after %s", err, time.Since(start))
			}
		})
	})
	t.Run("something given back", func(t *testing.T) {
		bubble(t, "1/h burst 1", func(t *testing.T, l *Limiter) {
			d := l.Take("k", 1)
			time.AfterFunc(time.Second, func() { l.GiveBack("k", d) })
			start := time.Now()
			if _, err := l.Wait(context.Background(), "k", 1); err != nil || time.Since(start) != time.Second {
				t.Errorf("%v after %s", err, time.Since(start))
			}
		})
	})
	t.Run("a slot freed", func(t *testing.T) {
		bubble(t, "1 at once for 1h", func(t *testing.T, l *Limiter) {
			d, err := l.Wait(context.Background(), "k", 1)
			if err != nil || d.Slot == 0 {
				t.Fatal(d, err)
			}
			start := time.Now()
			time.AfterFunc(time.Second, func() { l.GiveBack("k", d) })
			if _, err := l.Wait(context.Background(), "k", 1); err != nil || time.Since(start) != time.Second {
				t.Errorf("%v after %s", err, time.Since(start))
			}
			if _, err := l.Wait(t.Context(), "other", 1); err != nil {
				t.Error(err)
			}
		})
	})
}

// Who takes a slot while others stand in line is told when all of these had
// theirs, also if nobody gives one back before it expires.
func TestWhoDoesNotStandInLineForSlotsIsToldItsEnd(t *testing.T) {
	bubble(t, "2 at once for 1h", func(t *testing.T, l *Limiter) {
		for range 2 {
			if d := l.Take("k", 1); !d.Allowed {
				t.Fatal(d)
			}
		}
		<-time.After(time.Minute)
		var wg sync.WaitGroup
		for i, want := range []time.Duration{59 * time.Minute, 59 * time.Minute, 119 * time.Minute, 119 * time.Minute} {
			if d := l.Take("k", 1); d.Allowed || d.RetryAfter != want || d.ResetAfter < want {
				t.Errorf("behind %d: retry %s, reset %s; want %s", i, d.RetryAfter, d.ResetAfter, want)
			}
			wg.Go(func() {
				if _, err := l.Wait(context.Background(), "k", 1); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		wg.Wait()
	})
}

func TestReservations(t *testing.T) {
	bubble(t, "1/s burst 1", func(t *testing.T, l *Limiter) {
		reserve := func() *Reservation {
			t.Helper()
			r, err := l.Reserve("k", 1)
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		first, second, third := reserve(), reserve(), reserve()
		for i, r := range []*Reservation{first, second, third} {
			if got := r.Delay(); got != time.Duration(i)*time.Second {
				t.Errorf("reservation %d: delay %s", i, got)
			}
		}
		second.Cancel()
		second.Cancel()
		if got := third.Delay(); got != time.Second {
			t.Errorf("delay %s after the one before was cancelled, want 1s", got)
		}
		if got := second.Delay(); got != Never {
			t.Errorf("a cancelled reservation's delay is %s", got)
		}
		<-time.After(time.Second)
		if got := third.Delay(); got != 0 {
			t.Errorf("delay %s when it is due", got)
		}
		third.Cancel() // too late: it may act
		if l.Allow("k") {
			t.Error("a reservation that was due was given back")
		}
		<-time.After(time.Second)
		if !l.Allow("k") || l.Allow("k") {
			t.Error("what was cancelled was charged, or given back twice")
		}
		if _, err := l.Reserve("k", 2); !errors.Is(err, ErrNeverFits) {
			t.Errorf("error %v", err)
		}
	})
	// What leaves a shaper stays even when a place in the middle is given up.
	bubble(t, "1/s queue 3", func(t *testing.T, l *Limiter) {
		var rs []*Reservation
		for range 3 {
			r, err := l.Reserve("k", 1)
			if err != nil {
				t.Fatal(err)
			}
			rs = append(rs, r)
		}
		rs[1].Cancel()
		last, err := l.Reserve("k", 1)
		if err != nil || rs[2].Delay() != time.Second || last.Delay() != 2*time.Second {
			t.Errorf("delays %s and %s, %v; want 1s and 2s", rs[2].Delay(), last.Delay(), err)
		}
	})
	bubble(t, "2/10s fixed", func(t *testing.T, l *Limiter) {
		for i := range 5 {
			r, err := l.Reserve("k", 1)
			if want := time.Duration(i/2) * 10 * time.Second; err != nil || r.Delay() != want {
				t.Errorf("reservation %d: delay %s, %v; want %s", i, r.Delay(), err, want)
			}
		}
	})
	bubble(t, "1 at once", func(t *testing.T, l *Limiter) {
		if _, err := l.Reserve("k", 1); !errors.Is(err, ErrCharge) {
			t.Errorf("error %v", err)
		}
	})
}

func TestManyWaitersShareOneTimer(t *testing.T) {
	bubble(t, "1000/s burst 1", func(t *testing.T, l *Limiter) {
		const n = 10_000
		start := time.Now()
		var wg sync.WaitGroup
		var mu sync.Mutex
		var order []int
		for i := range n {
			wg.Go(func() {
				if _, err := l.Wait(context.Background(), "k", 1); err != nil {
					t.Error(err)
				}
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
			})
		}
		wg.Wait()
		if got, want := time.Since(start), (n-1)*time.Millisecond; got != want || len(order) != n {
			t.Errorf("%d served after %s, want %s", len(order), got, want)
		}
		l.line.mu.Lock()
		defer l.line.mu.Unlock()
		if len(l.line.queues) != 0 || len(l.line.lulls) != 0 || l.line.busy.Load() != 0 {
			t.Error("something is left of those who waited")
		}
	})
}

func TestTooManyWaiting(t *testing.T) {
	bubble(t, "1/h burst 1", func(t *testing.T, l *Limiter) {
		l.Take("k", 1)
		for range MaxWaiting {
			if _, err := l.Reserve("k", 1); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := l.Reserve("k", 1); !errors.Is(err, ErrTooManyWaiting) {
			t.Errorf("error %v", err)
		}
	})
}

// Who gives up while its own units leave one by one has paid nothing.
func TestGivingUpInOnesOwnDelay(t *testing.T) {
	bubble(t, "1/s queue 3", func(t *testing.T, l *Limiter) {
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(time.Second, cancel)
		if _, err := l.Wait(ctx, "k", 3); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
		if left := l.Peek("k").Remaining; left != 4 {
			t.Errorf("%d left, want 4", left)
		}
	})
}

// A hold lasts as long as it was said, or ends with its context or the limiter;
// one that would end too late does not begin.
func TestHold(t *testing.T) {
	bubble(t, "1/s queue 9", func(t *testing.T, l *Limiter) {
		start := time.Now()
		if err := l.Hold(t.Context(), time.Second); err != nil || time.Since(start) != time.Second {
			t.Errorf("%v after %s", err, time.Since(start))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var late *DeadlineError
		if err := l.Hold(ctx, time.Second); !errors.As(err, &late) || late.Needed != time.Second || time.Since(start) != time.Second {
			t.Errorf("%v after %s", err, time.Since(start))
		}
		ctx, cancel = context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if err := l.Hold(ctx, time.Minute); !errors.Is(err, context.Canceled) || time.Since(start) != 2*time.Second {
			t.Errorf("%v after %s", err, time.Since(start))
		}
		if err := l.Hold(ctx, 0); !errors.Is(err, context.Canceled) {
			t.Errorf("of a context that is over: %v", err)
		}
		ends := make(chan error, 3)
		for range 3 {
			go func() { ends <- l.Hold(t.Context(), time.Minute) }()
		}
		<-time.After(time.Second)
		synctest.Wait()
		if n := len(l.line.held); n != 3 {
			t.Errorf("%d hold, want 3: those who are through are still kept", n)
		}
		l.Close()
		for range 3 {
			if err := <-ends; !errors.Is(err, ErrClosed) || time.Since(start) != 3*time.Second {
				t.Errorf("%v after %s", err, time.Since(start))
			}
		}
		if err := l.Hold(t.Context(), time.Minute); !errors.Is(err, ErrClosed) {
			t.Errorf("after the end: %v", err)
		}
	})
}
