package main

import (
	"time"

	"github.com/failsafe-go/failsafe-go/ratelimiter"
	juju "github.com/juju/ratelimit"
	uber "go.uber.org/ratelimit"
	"golang.org/x/time/rate"
)

const xtimeSingle = "x/time/rate, one limiter"

// singlePeers lists the libraries that are one limiter for all: no keys.
func singlePeers() []contestant {
	return []contestant{{
		name: xtimeSingle, module: "golang.org/x/time", kind: peer,
		open: func(s setup) (limiter, error) { return oneRate{newRate(s)}, nil },
	}, {
		name: "juju/ratelimit", module: "github.com/juju/ratelimit", kind: peer,
		open: func(s setup) (limiter, error) { return jujuBucket{juju.NewBucket(s.every, s.burst)}, nil },
	}, {
		name: "uber-go/ratelimit", module: "go.uber.org/ratelimit", kind: peer, even: true,
		note: "shapes: Take sleeps instead of refusing; here one each nanosecond, so it never has to",
		open: func(setup) (limiter, error) { return uberPacer{uber.New(1e9)}, nil },
	}, {
		name: "failsafe-go, smooth", module: "github.com/failsafe-go/failsafe-go", kind: peer, even: true,
		note: "no burst: one each nanosecond",
		open: func(setup) (limiter, error) {
			return failsafe{ratelimiter.NewSmoothWithMaxRate[any](time.Nanosecond)}, nil
		},
	}, {
		name: "failsafe-go, bursty", module: "github.com/failsafe-go/failsafe-go", kind: peer,
		note: "a fixed window",
		open: func(s setup) (limiter, error) {
			return failsafe{ratelimiter.NewBursty[any](uint(s.burst), s.window)}, nil
		},
	}}
}

// newRate is the limit of s as golang.org/x/time/rate writes it.
func newRate(s setup) *rate.Limiter { return rate.NewLimiter(rate.Every(s.every), int(s.burst)) }

type oneRate struct{ lim *rate.Limiter }

func (p oneRate) Allow(string) bool { return p.lim.Allow() }

type jujuBucket struct{ b *juju.Bucket }

func (p jujuBucket) Allow(string) bool { return p.b.TakeAvailable(1) == 1 }

type uberPacer struct{ lim uber.Limiter }

func (p uberPacer) Allow(string) bool { return !p.lim.Take().IsZero() }

type failsafe struct{ lim ratelimiter.RateLimiter[any] }

func (p failsafe) Allow(string) bool { return p.lim.TryAcquirePermit() }
