package concurrent

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/spillgate/spillgate"
)

var histories = flag.Int("histories", 25, "histories of each kind")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestLimiterHistories is I11 for the limiter of one limit, with its own
// clock, which stands still in a bubble for as long as somebody runs: Allow,
// Take, Peek, settles and changes of the limit.
func TestLimiterHistories(t *testing.T) {
	s := setup{limits: [spaces][]spillgate.Limit{{bucket, upgrade}, {bucket}, {bucket}}, caps: [spaces]int{100, 100, 100}}
	s.init(t)
	for seed := range uint64(*histories) {
		synctest.Test(t, func(t *testing.T) {
			lim, err := spillgate.New(bucket)
			if err != nil {
				t.Fatal(err)
			}
			const clients = 4
			h := newHistory(clients)
			times := rand.New(rand.NewPCG(seed, 1))
			for range 6 {
				now := spillgate.Instant(time.Now().UnixNano())
				var group sync.WaitGroup
				for client := range clients {
					random := rand.New(rand.NewPCG(seed, times.Uint64()))
					group.Go(func() { limiterClient(h, lim, &s, client, now, random) })
				}
				group.Wait()
				time.Sleep(time.Duration(1 + times.Int64N(20)))
			}
			h.check(t, &s)
		})
	}
}

func limiterClient(h *history, lim *spillgate.Limiter, s *setup, client int, now spillgate.Instant, random *rand.Rand) {
	var past []spillgate.Decision
	var pastKeys []int
	for range 8 {
		c := charge{0, random.IntN(2), random.Int64N(4)}
		name := fmt.Sprint("key ", c.key)
		in := input{now: now}
		switch k := random.IntN(10); {
		case k == 0 && client == 0:
			to := random.IntN(2)
			in.change = &change{0, to}
			h.record(client, in, func() []spillgate.Decision {
				if err := lim.SetLimit(s.limits[0][to]); err != nil {
					panic(err)
				}
				return nil
			})
		case k < 3 && len(past) > 0:
			i := random.IntN(len(past))
			d, actual := past[i], random.Int64N(5)
			c.key = pastKeys[i]
			in.settle = &correction{charge: c, delta: actual - d.Taken, taken: d.At}
			h.record(client, in, func() []spillgate.Decision {
				lim.Spent(fmt.Sprint("key ", c.key), d, actual)
				return nil
			})
		case k < 6:
			c.n = 1
			in.charges, in.short = []charge{c}, true
			h.record(client, in, func() []spillgate.Decision {
				return []spillgate.Decision{{Allowed: lim.Allow(name)}}
			})
		default:
			in.charges = []charge{c}
			d := h.record(client, in, func() []spillgate.Decision { return []spillgate.Decision{lim.Take(name, c.n)} })[0]
			if d.Taken > 0 {
				past, pastKeys = append(past, d), append(pastKeys, c.key)
			}
		}
	}
}

// TestFirstCallsAtOnce: of many first calls for new keys at once, with entries
// being forgotten beside them, each key admits exactly its burst.
func TestFirstCallsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := spillgate.Must("10/h burst 10", spillgate.MaxKeys(1000))
		for range 3 {
			var admitted [100]atomic.Int64
			var group sync.WaitGroup
			for g := range 20 {
				group.Go(func() {
					for i := range admitted {
						k := (i + 7*g) % len(admitted)
						if lim.Allow(fmt.Sprint(k)) {
							admitted[k].Add(1)
						}
					}
				})
			}
			group.Wait()
			for k := range admitted {
				if n := admitted[k].Load(); n != 10 {
					t.Fatalf("key %d: %d admitted", k, n)
				}
			}
			time.Sleep(time.Hour)
		}
	})
}

// TestB002ReadTheClockWhereItCounts: however many goroutines read their
// clocks before they are let in, no more is admitted than time allows.
func TestB002ReadTheClockWhereItCounts(t *testing.T) {
	lim := spillgate.Must("1/1ms burst 1")
	var admitted atomic.Int64
	var group sync.WaitGroup
	start := make(chan struct{})
	began := time.Now()
	for range 5000 {
		group.Go(func() {
			<-start
			if lim.Allow("key") {
				admitted.Add(1)
			}
		})
	}
	close(start)
	group.Wait()
	if most := 1 + int64(time.Since(began)/time.Millisecond); admitted.Load() > most || admitted.Load() < 1 {
		t.Errorf("%d admitted, at most %d may be", admitted.Load(), most)
	}
}
