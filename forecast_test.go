package spillgate_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate"
)

// A forecast serves those in line as the limit would, and asking it changes nothing.
func TestForecast(t *testing.T) {
	for limit, want := range map[string][3]time.Duration{ // when 2, 3 and 4 more are served
		"1/s burst 4":       {2 * time.Second, 5 * time.Second, 9 * time.Second},
		"4/10s fixed":       {10 * time.Second, 20 * time.Second, 30 * time.Second},
		"4/calendar minute": {time.Minute, 2 * time.Minute, 3 * time.Minute},
		"4/10s sliding":     {15 * time.Second, 25 * time.Second, 40 * time.Second},
		"4/10s log":         {10 * time.Second, 20 * time.Second, 30 * time.Second},
	} {
		t.Run(limit, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, err := spillgate.ParseLimit(limit)
				if err != nil {
					t.Fatal(err)
				}
				m, err := l.Meter()
				if err != nil {
					t.Fatal(err)
				}
				space, err := spillgate.NewSpace("s", spillgate.SpaceOptions{})
				if err != nil {
					t.Fatal(err)
				}
				memory := spillgate.NewMemory()
				c := spillgate.Charge{Space: space, Meter: m, Ask: spillgate.Ask{N: 4}}
				take := func(n int64) spillgate.Decision {
					var out [1]spillgate.Decision
					c.N = n
					if err := memory.Take(context.Background(), time.Time{}, []spillgate.Charge{c}, out[:]); err != nil {
						t.Fatal(err)
					}
					return out[0]
				}
				take(4)
				f, err := memory.Forecast(context.Background(), &c)
				if err != nil || !f.Known() {
					t.Fatal(err)
				}
				leased, err := spillgate.NewLeased(memory, spillgate.LeaseOptions{Nodes: 1})
				if err != nil {
					t.Fatal(err)
				}
				g, err := leased.Forecast(context.Background(), &c)
				if here := l.Algorithm == spillgate.Bucket || l.Algorithm == spillgate.FixedWindow; err != nil || g.Known() == here {
					t.Errorf("leased: %t, %v", g.Known(), err)
				}
				if f.Wait(spillgate.Ask{N: 5}) != spillgate.Never {
					t.Error("what never fits is served")
				}
				start := time.Now()
				for i, n := range []int64{2, 3, 4} {
					before := f.Clone()
					for range 2 {
						if got := f.Wait(spillgate.Ask{N: n}); got != want[i] {
							t.Errorf("%d more are served after %s, want %s", n, got, want[i])
						}
					}
					f.Serve(spillgate.Ask{N: n})
					if got := before.Wait(spillgate.Ask{N: n}); got != want[i] {
						t.Errorf("a copy says %s", got)
					}
				}
				for i, n := range []int64{2, 3, 4} { // and so it comes to pass
					if d := take(n); d.Allowed || d.RetryAfter != want[i]-time.Since(start) {
						t.Errorf("%d are told to wait %s", n, d.RetryAfter)
					}
					time.Sleep(want[i] - time.Since(start))
					if d := take(n); !d.Allowed {
						t.Errorf("%d are refused after %s", n, time.Since(start))
					}
				}
			})
		})
	}
}
