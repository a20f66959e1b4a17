package ratedropin

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillgate/spillgate/rate"
	theirrate "golang.org/x/time/rate"
)

// In scripts all limits are powers of two and all times whole eighths of a
// second, so that their floats are exact and answers have to be the same.

var start = time.Now()

func eighths(n int) time.Time { return start.Add(time.Duration(n) * time.Second / 8) }

// A pair is a limiter of each kind, which are told and asked the same.
type pair struct {
	ours    *rate.Limiter
	theirs  *theirrate.Limiter
	booked  []booking
	history []string
}

type booking struct {
	ours     *rate.Reservation
	theirs   *theirrate.Reservation
	canceled bool
}

func newPair(limit float64, burst int) *pair {
	return &pair{
		ours: rate.NewLimiter(rate.Limit(limit), burst), theirs: theirrate.NewLimiter(theirrate.Limit(limit), burst),
		history: []string{fmt.Sprintf("NewLimiter(%v, %d)", limit, burst)},
	}
}

func (p *pair) did(format string, args ...any) {
	p.history = append(p.history, fmt.Sprintf(format, args...))
}

func (p *pair) allow(at, n int) error {
	a, b := p.ours.AllowN(eighths(at), n), p.theirs.AllowN(eighths(at), n)
	p.did("AllowN(%d, %d) = %v", at, n, b)
	if a != b {
		return fmt.Errorf("ours is %v", a)
	}
	return p.same(at)
}

func (p *pair) reserve(at, n int) error {
	b := booking{ours: p.ours.ReserveN(eighths(at), n), theirs: p.theirs.ReserveN(eighths(at), n)}
	told := b.theirs.DelayFrom(eighths(at))
	p.did("ReserveN(%d, %d) = %v, %v", at, n, b.theirs.OK(), told)
	// Theirs is cut to whole nanoseconds, ours is the next one.
	if got := b.ours.DelayFrom(eighths(at)); b.ours.OK() != b.theirs.OK() || got != told && got != told+1 {
		return fmt.Errorf("ours is %v, %v", b.ours.OK(), got)
	}
	p.booked = append(p.booked, b)
	return p.same(at)
}

func (p *pair) cancel(at, i int) error {
	b := &p.booked[i]
	if b.canceled {
		return nil
	}
	b.canceled = true
	b.ours.CancelAt(eighths(at))
	b.theirs.CancelAt(eighths(at))
	p.did("CancelAt(%d) of %d", at, i)
	return p.same(at)
}

func (p *pair) setLimit(at int, limit float64) error {
	p.ours.SetLimitAt(eighths(at), rate.Limit(limit))
	p.theirs.SetLimitAt(eighths(at), theirrate.Limit(limit))
	p.did("SetLimitAt(%d, %v)", at, limit)
	return p.same(at)
}

func (p *pair) setBurst(at, burst int) error {
	p.ours.SetBurstAt(eighths(at), burst)
	p.theirs.SetBurstAt(eighths(at), burst)
	p.did("SetBurstAt(%d, %d)", at, burst)
	return p.same(at)
}

func (p *pair) same(at int) error {
	for i := at - 2; i < at+3; i++ {
		if a, b := p.ours.TokensAt(eighths(i)), p.theirs.TokensAt(eighths(i)); a != b {
			return fmt.Errorf("TokensAt(%d) is %v, ours %v", i, b, a)
		}
	}
	if a, b := float64(p.ours.Limit()), float64(p.theirs.Limit()); a != b {
		return fmt.Errorf("Limit() is %v, ours %v", b, a)
	}
	if a, b := p.ours.Burst(), p.theirs.Burst(); a != b {
		return fmt.Errorf("Burst() is %v, ours %v", b, a)
	}
	return nil
}

func TestScriptsHaveTheSameAnswers(t *testing.T) {
	limits := []float64{0.5, 1, 2, 4, 8, 16, 64}
	for _, c := range []struct {
		name string
		step func(p *pair, rng *rand.Rand, now *int) error
	}{
		{"times and numbers change", func(p *pair, rng *rand.Rand, now *int) error {
			*now += rng.IntN(8) - 2 // also back
			switch op := rng.IntN(10); {
			case op < 4:
				return p.allow(*now, rng.IntN(6))
			case op < 7:
				return p.reserve(*now, rng.IntN(6))
			case op < 8:
				return p.setBurst(*now, rng.IntN(6)-1)
			case op < 9 && rng.IntN(4) == 0:
				return p.setLimit(*now, float64(rate.Inf))
			}
			return p.setLimit(*now, limits[rng.IntN(len(limits))])
		}},
		{"reservations are canceled", func(p *pair, rng *rand.Rand, now *int) error {
			*now += rng.IntN(3)
			switch op := rng.IntN(10); {
			case op < 2:
				return p.allow(*now, 2)
			case op < 6 || len(p.booked) == 0:
				return p.reserve(*now, 2)
			}
			return p.cancel(*now, max(len(p.booked)-1-rng.IntN(5), 0))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for seed := range uint64(20_000) {
				rng := rand.New(rand.NewPCG(seed, 0))
				p := newPair(limits[rng.IntN(len(limits))], 2+rng.IntN(4))
				now := 0
				for range 30 {
					if err := c.step(p, rng, &now); err != nil {
						t.Fatalf("seed %d: %q: %v", seed, p.history, err)
					}
				}
			}
		})
	}
}

func TestEveryIsTheSameNumber(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 0))
	for range 100_000 {
		d := time.Duration(rng.Int64N(1 << (1 + rng.IntN(62))))
		if rng.IntN(10) == 0 {
			d = -d
		}
		if a, b := float64(rate.Every(d)), float64(theirrate.Every(d)); a != b {
			t.Fatalf("Every(%d) is %v, ours %v", d, b, a)
		}
	}
	if float64(rate.Inf) != float64(theirrate.Inf) || rate.InfDuration != theirrate.InfDuration {
		t.Error("the constants differ")
	}
}
