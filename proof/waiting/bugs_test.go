package waiting

import (
	"context"
	"errors"
	"flag"
	"log"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/proof/exact"
)

func TestMain(m *testing.M) {
	checks := "600"
	if exact.Raced {
		checks = "100"
	}
	for name, value := range map[string]string{"rapid.nofailfile": "true", "rapid.checks": checks} {
		if err := flag.Set(name, value); err != nil {
			log.Fatal(err)
		}
	}
	goleak.VerifyTestMain(m)
}

// Callers that find a window used up are booked into the next ones, a window's
// worth each and no more.
func TestB039BookedByWholeWindows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := spillgate.Must("3/10s fixed")
		var at [3]atomic.Int32 // of each window
		var refused atomic.Int32
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 12*time.Second)
		defer cancel()
		var group sync.WaitGroup
		for range 30 {
			group.Go(func() {
				_, err := lim.Wait(ctx, "key", 1)
				switch {
				case err == nil:
					at[time.Since(start)/(10*time.Second)].Add(1)
				case errors.Is(err, context.DeadlineExceeded) && time.Since(start) == 0:
					refused.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		group.Wait()
		if at[0].Load() != 3 || at[1].Load() != 3 || at[2].Load() != 0 || refused.Load() != 24 {
			t.Errorf("granted %d, %d, %d, refused %d", at[0].Load(), at[1].Load(), at[2].Load(), refused.Load())
		}
	})
}

// One who waits again and again is served each time.
func TestB041WaitAgainAndAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := spillgate.Must("1/5s burst 1")
		start := time.Now()
		for i := range 10 {
			if _, err := lim.Wait(t.Context(), "key", 1); err != nil {
				t.Fatal(err)
			}
			if got, want := time.Since(start), time.Duration(i)*5*time.Second; got != want {
				t.Errorf("wait %d returned at %s, want %s", i, got, want)
			}
		}
	})
}

// A deadline farther than any clock goes is no deadline in the past.
func TestB040FarthestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := spillgate.Must("1/s burst 1")
		lim.Allow("key")
		start := time.Now()
		for _, years := range []int{200, 290, 500, 5000} {
			ctx, cancel := context.WithDeadline(t.Context(), start.AddDate(years, 0, 0))
			if _, err := lim.Wait(ctx, "key", 1); err != nil {
				t.Errorf("%d years: %v", years, err)
			}
			cancel()
		}
		if got := time.Since(start); got != 4*time.Second {
			t.Errorf("four waits took %s", got)
		}
	})
}

// However many ask in vain, what is refused touches no balance.
func TestB155RefusedTouchesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := spillgate.Must("100/s burst 1")
		var admitted atomic.Int64
		var group sync.WaitGroup
		for range 64 {
			group.Go(func() {
				for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
					if lim.Allow("key") {
						admitted.Add(1)
					}
				}
			})
		}
		group.Wait()
		if n := admitted.Load(); n < 999 || n > 1001 {
			t.Errorf("%d admitted, want 1000", n)
		}
	})
}

// Closing while others ask, wait, reserve and close: everyone is told, at
// once, and nothing is left behind, which the end of the tests checks.
func TestB141CloseInTheMiddle(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			lim := spillgate.Must("1/min burst 1")
			var group sync.WaitGroup
			var granted atomic.Int32
			start := time.Now()
			for i := range 40 {
				group.Go(func() {
					var err error
					switch i % 4 {
					case 0, 1:
						if _, err = lim.Wait(t.Context(), "key", 1); err == nil {
							granted.Add(1)
						}
					case 2:
						var r *spillgate.Reservation
						if r, err = lim.Reserve("other", 1); err == nil {
							r.Cancel()
						}
					case 3:
						if d := lim.Take("key", 1); d.Allowed {
							granted.Add(1)
						} else if d.Reason == spillgate.Closed {
							err = d.Err()
						}
					}
					if err != nil && !errors.Is(err, spillgate.ErrClosed) {
						t.Error(err)
					}
				})
			}
			for range 10 {
				group.Go(func() {
					if err := lim.Close(); err != nil {
						t.Error(err)
					}
				})
			}
			group.Wait()
			if time.Since(start) != 0 || granted.Load() > 1 {
				t.Errorf("closing took %s, granted %d", time.Since(start), granted.Load())
			}
			if _, err := lim.Wait(t.Context(), "key", 1); !errors.Is(err, spillgate.ErrClosed) {
				t.Errorf("a wait after the end: %v", err)
			}
			if lim.Allow("key") || !errors.Is(lim.Peek("key").Err(), spillgate.ErrClosed) {
				t.Error("the closed limiter admits")
			}
			if st := lim.Stats(); st.Live != 0 {
				t.Errorf("%+v", st)
			}
		})
	}
}

// The last in a queue gives up: the place is there for the next, at the time
// at which it would have been the last one's.
func TestAPlaceGivenUpIsTheNextOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := spillgate.Must("1/s queue 1")
		lim.Allow("key")
		for range 3 {
			ctx, cancel := context.WithCancel(t.Context())
			failed := make(chan error)
			go func() {
				_, err := lim.Wait(ctx, "key", 1)
				failed <- err
			}()
			time.Sleep(100 * time.Millisecond)
			if d := lim.Take("key", 1); d.Allowed {
				t.Fatalf("two in one place: %+v", d)
			}
			cancel()
			if err := <-failed; !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
		}
		if d := lim.Take("key", 1); !d.Allowed || d.Delay != 700*time.Millisecond {
			t.Errorf("%+v", d)
		}
	})
}
