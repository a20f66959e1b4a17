package storetest

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/spillgate/spillgate"
)

// pure takes random steps on a few keys of each kind of limit and holds every
// decision against [spillgate.Meter.Grant].
func (s *suite) pure() {
	for _, limit := range []string{"7/3s burst 5", "3/1s burst 1", "10/1m burst 100", "3/10s fixed", "5/7s sliding", "2/3s queue 4", "unlimited"} {
		c := s.charge(limit, "a", 0)
		r := rand.New(rand.NewPCG(1, uint64(len(limit))))
		states := map[spillgate.Key]spillgate.State{}
		keys := []spillgate.Key{s.key("a"), s.key("b"), s.key("c")}
		at := time.Duration(0)
		for range 300 {
			at += time.Duration(r.Int64N(int64(2*time.Second))) / time.Duration(1+r.IntN(4)*1000)
			now := spillgate.Instant(start.Add(at).UnixNano())
			c.Key = keys[r.IntN(len(keys))]
			if r.IntN(10) == 0 {
				delta := r.Int64N(9) - 4
				s.settle(at, c, spillgate.Decision{At: now}, delta)
				states[c.Key] = c.Meter.Settle(states[c.Key], now, now, delta)
				continue
			}
			c.N = r.Int64N(4)
			c.Min = r.Int64N(c.N+1) * r.Int64N(2)
			c.Keep = r.Int64N(3) * r.Int64N(2)
			out := make([]spillgate.Decision, 1)
			err := s.store.Take(context.Background(), start.Add(at), []spillgate.Charge{c}, out)
			if errors.Is(err, spillgate.ErrCharge) {
				s.Logf("%s is not kept by this store: %v", limit, err)
				break
			}
			if err != nil {
				s.Fatal(err)
			}
			state, want := c.Meter.Grant(states[c.Key], now, c.Ask)
			states[c.Key] = state
			if late := out[0].RetryAfter - want.RetryAfter; late > 0 && late <= s.late {
				out[0].RetryAfter = want.RetryAfter
			}
			if late := out[0].ResetAfter - want.ResetAfter; late > 0 && late <= s.late {
				out[0].ResetAfter = want.ResetAfter
			}
			if out[0] != want {
				s.Fatalf("%s, %+v at %s:\n got %+v\nwant %+v", limit, c.Ask, at, out[0], want)
			}
		}
	}
}
