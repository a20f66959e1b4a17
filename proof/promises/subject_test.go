package promises

import (
	"context"
	"flag"
	"log"
	"math"
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/proof/exact"
)

func TestMain(m *testing.M) {
	// A failure prints its seed; files in the source tree are too much. The
	// command line has the last word.
	checks := "1000"
	if exact.Raced {
		checks = "200"
	}
	for name, value := range map[string]string{"rapid.nofailfile": "true", "rapid.checks": checks} {
		if err := flag.Set(name, value); err != nil {
			log.Fatal(err)
		}
	}
	m.Run()
}

// A key is one key under one limit in a memory, asked at given instants.
type key struct {
	memory *spillgate.Memory
	space  *spillgate.Space
	meter  *spillgate.Meter
	key    spillgate.Key

	nothing spillgate.Charge // that is always refused
}

func newKey(t testing.TB, l spillgate.Limit) *key {
	return &key{
		memory: spillgate.NewMemory(), space: newSpace(t, "space", spillgate.SpaceOptions{MaxKeys: 2}),
		meter: newMeter(t, l), key: spillgate.Key{1 << 63, 5},
		nothing: spillgate.Charge{
			Space: newSpace(t, "nothing", spillgate.SpaceOptions{}), Key: spillgate.Key{9, 9},
			Meter: newMeter(t, spillgate.Limit{Rate: 1, Period: 1}), Ask: spillgate.Ask{N: 1},
		},
	}
}

func newMeter(t testing.TB, l spillgate.Limit) *spillgate.Meter {
	m, err := l.Meter()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func newSpace(t testing.TB, name string, o spillgate.SpaceOptions) *spillgate.Space {
	sp, err := spillgate.NewSpace(name, o)
	if err != nil {
		t.Fatal(err)
	}
	return sp
}

func at(ns int64) time.Time { return time.Unix(0, ns) }

// take asks at an instant, now in nanoseconds.
func (k *key) take(t testing.TB, now, n int64) spillgate.Decision {
	return takeAll(t, k.memory, now, k.charge(n))[0]
}

func (k *key) charge(n int64) spillgate.Charge {
	return spillgate.Charge{Space: k.space, Key: k.key, Meter: k.meter, Ask: spillgate.Ask{N: n}}
}

// would returns whether n would pass at now: it is asked for together with
// something that never passes.
func (k *key) would(t testing.TB, now, n int64) bool {
	return takeAll(t, k.memory, now, k.charge(n), k.nothing)[0].Allowed
}

func (k *key) settle(t testing.TB, now, taken, delta int64, slot uint64) {
	err := k.memory.Settle(context.Background(), at(now), []spillgate.Correction{
		{Space: k.space, Key: k.key, Meter: k.meter, Delta: delta, At: spillgate.Instant(taken), Slot: slot}})
	if err != nil {
		t.Fatal(err)
	}
}

func takeAll(t testing.TB, m *spillgate.Memory, now int64, cs ...spillgate.Charge) []spillgate.Decision {
	out := make([]spillgate.Decision, len(cs))
	if err := m.Take(context.Background(), at(now), cs, out); err != nil {
		t.Fatal(err)
	}
	return out
}

// drawLimit draws a limit of numbers that people use, and of tiny ones.
func drawLimit(t *rapid.T, algorithms ...spillgate.Algorithm) spillgate.Limit {
	l := spillgate.Limit{Algorithm: rapid.SampledFrom(algorithms).Draw(t, "algorithm")}
	l.Rate = rapid.OneOf(rapid.Int64Range(1, 4), rapid.Int64Range(1, 1000)).Draw(t, "rate")
	l.Period = time.Duration(rapid.OneOf(rapid.Int64Range(1, 12), rapid.Int64Range(1, int64(time.Hour))).Draw(t, "period"))
	switch l.Algorithm {
	case spillgate.Bucket, spillgate.Queue:
		l.Burst = rapid.OneOf(rapid.Int64Range(0, 4), rapid.Int64Range(0, 1000)).Draw(t, "burst")
	case spillgate.SlidingCounter:
		l.Period += time.Millisecond
	}
	return l
}

var windows = []spillgate.Algorithm{spillgate.FixedWindow, spillgate.SlidingCounter, spillgate.SlidingLog}
var exactOnes = append([]spillgate.Algorithm{spillgate.Bucket, spillgate.Queue}, windows...)

// drawGap draws a time to the next step: none, that to earn a unit, a period,
// long, or back; and the nanoseconds around those that answers named.
func drawGap(t *rapid.T, l spillgate.Limit, named ...time.Duration) int64 {
	gaps := []int64{0, 0, 1, int64(l.Period) / max(l.Rate, 1), int64(l.Period), 2 * int64(l.Period), -1, -int64(l.Period)}
	for _, d := range named {
		if d > 0 && d < math.MaxInt64/4 {
			gaps = append(gaps, int64(d)-1, int64(d), int64(d)+1)
		}
	}
	if rapid.IntRange(0, 3).Draw(t, "any gap") == 0 {
		return rapid.Int64Range(0, 3*int64(l.Period)).Draw(t, "gap")
	}
	return rapid.SampledFrom(gaps).Draw(t, "gap")
}

func drawCost(t *rapid.T, l spillgate.Limit, remaining int64) int64 {
	return rapid.OneOf(rapid.Int64Range(0, 3), rapid.Just(remaining), rapid.Just(remaining+1), rapid.Int64Range(0, l.Cap()+1)).Draw(t, "cost")
}

// A move is one step that was admitted.
type move struct{ at, cost int64 }

// conforms decides from nothing but what was admitted, as I1 and I2 say,
// whether cost may pass at now.
func conforms(l spillgate.Limit, admitted []move, now, cost int64) bool {
	switch rate, period := l.Rate, int64(l.Period); l.Algorithm {
	case spillgate.Bucket:
		sum, from := cost, now
		for i := len(admitted); ; i-- {
			// sum <= burst + rate/period*(now-from)
			if product(sum-l.Burst, period).Cmp(product(rate, now-from)) > 0 {
				return false
			}
			if i == 0 {
				break
			}
			sum, from = sum+admitted[i-1].cost, admitted[i-1].at
		}
		return true
	case spillgate.Queue:
		// The output: each unit leaves a period/rate after the one before.
		free := new(big.Rat) // when the next unit can leave
		for _, m := range admitted {
			free = leave(free, m.at, m.cost, l)
		}
		last := new(big.Rat).Sub(leave(free, now, cost, l), big.NewRat(period, rate))
		waits := last.Sub(last, new(big.Rat).SetInt64(now))
		return waits.Cmp(new(big.Rat).Mul(big.NewRat(period, rate), new(big.Rat).SetInt64(l.Burst))) <= 0
	case spillgate.FixedWindow:
		return counted(admitted, floorDiv(now, period)*period, now)+cost <= rate
	case spillgate.SlidingLog:
		return counted(admitted, now-period+1, now)+cost <= rate
	case spillgate.SlidingCounter:
		start := floorDiv(now, period) * period
		previous := counted(admitted, start-period, start-1)
		room := product(rate-counted(admitted, start, now)-cost, period)
		return product(previous, period-(now-start)).Cmp(room) <= 0
	}
	return false
}

func leave(free *big.Rat, at, cost int64, l spillgate.Limit) *big.Rat {
	from := new(big.Rat).SetInt64(at)
	if free.Cmp(from) > 0 {
		from = free
	}
	own := new(big.Rat).Mul(big.NewRat(int64(l.Period), l.Rate), new(big.Rat).SetInt64(cost))
	return own.Add(own, from)
}

func counted(admitted []move, from, to int64) (sum int64) {
	for _, m := range admitted {
		if from <= m.at && m.at <= to {
			sum += m.cost
		}
	}
	return sum
}

func product(a, b int64) *big.Int { return new(big.Int).Mul(big.NewInt(a), big.NewInt(b)) }

func floorDiv(a, b int64) int64 {
	if a%b < 0 {
		return a/b - 1
	}
	return a / b
}

// giveBack gives one unit of d back.
func giveBack(t testing.TB, k *key, now int64, d spillgate.Decision) {
	err := k.memory.Settle(context.Background(), at(now), []spillgate.Correction{
		{Space: k.space, Key: k.key, Meter: k.meter, Delta: -1, At: d.At, Slot: d.Slot, Overflow: d.Overflow}})
	if err != nil {
		t.Fatal(err)
	}
}
