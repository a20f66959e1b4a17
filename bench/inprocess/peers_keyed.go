package main

import (
	"context"
	"math"
	"time"

	"github.com/didip/tollbooth/v8"
	tollboothlimiter "github.com/didip/tollbooth/v8/limiter"
	"github.com/go-chi/httprate"
	golimiter "github.com/sethvargo/go-limiter"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	ulule "github.com/ulule/limiter/v3"
	ululememory "github.com/ulule/limiter/v3/drivers/store/memory"
)

const sethvargo = "sethvargo/go-limiter"

// keyedPeers lists the libraries that tell keys apart by themselves, each
// asked for a plain yes or no, without the headers of its middleware.
func keyedPeers() []contestant {
	library := func(name, module, note string, open func(setup) (limiter, error)) contestant {
		return contestant{
			name: name, module: module, kind: peer, note: note,
			keyed: true, exact: true, stores: true, open: open,
		}
	}
	return []contestant{
		library(sethvargo, "github.com/sethvargo/go-limiter", "a fixed window from each key's first request", openSethvargo),
		library("throttled, GCRA in memory", "github.com/throttled/throttled/v2", "fails after 10 lost compare-and-swaps", openThrottled),
		library("go-chi/httprate, local counter", "github.com/go-chi/httprate",
			"two fixed windows, weighed; keys by a 64-bit hash without a secret; without the mutex of its middleware, so a race may pass too many", openHTTPRate),
		library("ulule/limiter, memory", "github.com/ulule/limiter/v3", "a fixed window from each key's first request", openUlule),
		library("didip/tollbooth, by keys", "github.com/didip/tollbooth/v8", "x/time/rate inside", openTollbooth),
	}
}

type sethvargoStore struct{ store golimiter.Store }

func openSethvargo(s setup) (limiter, error) {
	store, err := memorystore.New(&memorystore.Config{
		Tokens: uint64(s.burst), Interval: s.window, SweepInterval: s.sweep, SweepMinTTL: s.idle,
	})
	return sethvargoStore{store}, err
}

func (p sethvargoStore) Allow(key string) bool {
	_, _, _, ok, err := p.store.Take(context.Background(), key)
	return ok && err == nil
}

// Close ends the sweeper.
func (p sethvargoStore) Close() error { return p.store.Close(context.Background()) }

type throttledGCRA struct{ lim *throttled.GCRARateLimiterCtx }

func openThrottled(s setup) (limiter, error) {
	store, err := memstore.NewCtx(0) // a plain map; with a cap it is an LRU
	if err != nil {
		return nil, err
	}
	lim, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{
		MaxRate: throttled.PerDuration(1, s.every), MaxBurst: int(s.burst) - 1,
	})
	return throttledGCRA{lim}, err
}

func (p throttledGCRA) Allow(key string) bool {
	limited, _, err := p.lim.RateLimitCtx(context.Background(), key, 1)
	return !limited && err == nil
}

// httprateCounter asks the counter what httprate's middleware asks it.
type httprateCounter struct {
	counter httprate.LimitCounter
	limit   int
	window  time.Duration
}

func openHTTPRate(s setup) (limiter, error) {
	counter := httprate.NewLocalLimitCounter(s.window)
	counter.Config(int(s.burst), s.window)
	return httprateCounter{counter, int(s.burst), s.window}, nil
}

func (p httprateCounter) Allow(key string) bool {
	now := time.Now().UTC()
	current := now.Truncate(p.window)
	n, before, err := p.counter.Get(key, current, current.Add(-p.window))
	if err != nil {
		return false
	}
	left := float64(p.window-now.Sub(current)) / float64(p.window)
	if int(math.Round(float64(before)*left+float64(n)))+1 > p.limit {
		return false
	}
	return p.counter.IncrementBy(key, current, 1) == nil
}

type ululeStore struct{ lim *ulule.Limiter }

func openUlule(s setup) (limiter, error) {
	store := ululememory.NewStoreWithOptions(ulule.StoreOptions{Prefix: ulule.DefaultPrefix, CleanUpInterval: s.sweep})
	return ululeStore{ulule.New(store, ulule.Rate{Period: s.window, Limit: s.burst})}, nil
}

func (p ululeStore) Allow(key string) bool {
	got, err := p.lim.Get(context.Background(), key)
	return err == nil && !got.Reached
}

type tollboothKeys struct{ lim *tollboothlimiter.Limiter }

func openTollbooth(s setup) (limiter, error) {
	lim := tollbooth.NewLimiter(1/s.every.Seconds(), &tollboothlimiter.ExpirableOptions{DefaultExpirationTTL: s.idle})
	lim.SetBurst(int(s.burst)).SetTokenBucketExpirationTTL(s.idle)
	return tollboothKeys{lim}, nil
}

func (p tollboothKeys) Allow(key string) bool {
	return tollbooth.LimitByKeys(p.lim, []string{key}) == nil
}
