package ratedropin

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/spillgate/spillgate/rate"
	theirrate "golang.org/x/time/rate"
)

// A limiter is what both packages have, but for the types of reservations.
type limiter interface {
	AllowN(time.Time, int) bool
	TokensAt(time.Time) float64
	WaitN(context.Context, int) error
}

type reservation interface {
	OK() bool
	CancelAt(time.Time)
	DelayFrom(time.Time) time.Duration
}

// A kind is one of the two packages.
type kind struct {
	name    string
	make    func(limit float64, burst int) limiter
	reserve func(limiter, time.Time, int) reservation
	change  func(limiter, time.Time, float64)
}

var (
	ourKind = kind{"ours",
		func(limit float64, burst int) limiter { return rate.NewLimiter(rate.Limit(limit), burst) },
		func(l limiter, at time.Time, n int) reservation { return l.(*rate.Limiter).ReserveN(at, n) },
		func(l limiter, at time.Time, limit float64) { l.(*rate.Limiter).SetLimitAt(at, rate.Limit(limit)) },
	}
	theirKind = kind{"theirs",
		func(limit float64, burst int) limiter { return theirrate.NewLimiter(theirrate.Limit(limit), burst) },
		func(l limiter, at time.Time, n int) reservation { return l.(*theirrate.Limiter).ReserveN(at, n) },
		func(l limiter, at time.Time, limit float64) {
			l.(*theirrate.Limiter).SetLimitAt(at, theirrate.Limit(limit))
		},
	}
)

// Each difference that the package comment of rate lists, as far as it can be
// shown with named times, is one: it holds there and not here.
func TestDifferences(t *testing.T) {
	after := func(d time.Duration) time.Time { return start.Add(d) }
	for _, c := range []struct {
		name  string
		there func(k kind) bool
	}{
		{"events pass early", func(k kind) bool {
			l := k.make(3, 1)
			l.AllowN(start, 1)
			r := k.reserve(l, start, 1)
			return r.DelayFrom(start) < time.Second/3+1
		}},
		{"a reservation at limit 0 is OK", func(k kind) bool {
			l := k.make(0, 1)
			l.AllowN(start, 1)
			return k.reserve(l, start, 1).OK() && l.TokensAt(start) == -1
		}},
		{"a negative n makes tokens", func(k kind) bool {
			l := k.make(1, 5)
			l.AllowN(start, 5)
			l.AllowN(start, -3)
			return l.TokensAt(start) == 3
		}},
		{"a second cancel gives back again", func(k kind) bool {
			l := k.make(1, 5)
			l.AllowN(start, 5)
			k.reserve(l, start, 3)
			r := k.reserve(l, start, 2)
			r.CancelAt(start)
			r.CancelAt(start)
			return l.TokensAt(start) > -3
		}},
		{"a cancel after a raised limit gives back too much", func(k kind) bool {
			l := k.make(1, 1)
			l.AllowN(start, 1)
			r := k.reserve(l, start, 1)
			k.change(l, start, 10)
			k.reserve(l, start, 1)
			r.CancelAt(start)
			return l.TokensAt(start) > -1
		}},
		{"a cancel gives back what was not taken", func(k kind) bool {
			l := k.make(math.MaxFloat64, 5)
			r := k.reserve(l, start, 3)
			k.change(l, start, 1)
			l.AllowN(start, 5)
			r.CancelAt(start)
			return l.TokensAt(start) > 0
		}},
		{"a missed deadline has no cause", func(k kind) bool {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			l := k.make(1.0/3600, 1)
			l.AllowN(time.Now(), 1)
			err := l.WaitN(ctx, 1)
			return err != nil && !errors.Is(err, context.DeadlineExceeded)
		}},
		{"+Inf has a burst", func(k kind) bool {
			return !k.make(math.Inf(1), 0).AllowN(start, 1)
		}},
		{"no number is no limit", func(k kind) bool {
			l := k.make(math.NaN(), 1)
			return l.AllowN(start, 1) && l.AllowN(after(time.Second), 1)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if !c.there(theirKind) {
				t.Error("it does not hold there: strike it from the list")
			}
			if c.there(ourKind) {
				t.Error("it holds here")
			}
		})
	}
}
