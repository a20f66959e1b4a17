//go:build !race

package spillgate

import (
	"context"
	"testing"
	"time"
)

// TestAllocLeased: what is decided without a call allocates nothing, of one key
// or of several, allowed or refused, and neither do small corrections.
func TestAllocLeased(t *testing.T) {
	lt := newLeaseTest(t, 2, LeaseOptions{Share: 0.5})
	l := lt.nodes[0]
	m, few := lt.meter("1000000/s burst 1000000"), lt.meter("1/1h burst 1")
	a, b := lt.charge(m, 1), lt.charge(m, 1)
	b.Space = lt.newSpace("others")
	shut := lt.charge(few, 1)
	shut.Space = lt.newSpace("shut")
	ctx, at, out := context.Background(), leaseStart.Add(time.Second), make([]Decision, 2)
	ask := func(cs []Charge) {
		if err := l.Take(ctx, at, cs, out[:len(cs)]); err != nil {
			t.Fatal(err)
		}
	}
	correction := []Correction{{Space: a.Space, Key: a.Key, Meter: a.Meter}}
	one, two, refusal := []Charge{a}, []Charge{a, b}, []Charge{shut, a}
	for range 20000 {
		at = at.Add(time.Microsecond)
		ask(two)
	}
	ask(refusal)
	ask(refusal)
	for name, f := range map[string]func(){
		"one":     func() { ask(one) },
		"two":     func() { ask(two) },
		"refused": func() { ask(refusal[:1]) },
		"of two":  func() { ask(refusal) },
		"settle": func() {
			ask(one)
			correction[0].At, correction[0].Until = out[0].At, out[0].until()
			for _, delta := range []int64{1, -1} {
				correction[0].Delta = delta
				if err := l.Settle(ctx, at, correction); err != nil {
					t.Fatal(err)
				}
			}
		},
	} {
		calls := lt.inner.takes.Load() + lt.inner.settles.Load()
		if n := testing.AllocsPerRun(200, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
		if now := lt.inner.takes.Load() + lt.inner.settles.Load(); now != calls {
			t.Errorf("%s: %d calls", name, now-calls)
		}
	}
}
