package main

import (
	"hash/maphash"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	mutexMap   = "x/time/rate, mutex map"
	mutexSweep = "x/time/rate, mutex map, cleanup loop"
)

// recipePeers lists the ways in which programs make golang.org/x/time/rate
// keyed by hand.
func recipePeers() []contestant {
	recipe := func(name, note string, open func(setup) (limiter, error)) contestant {
		return contestant{
			name: name, module: "golang.org/x/time", kind: peer, note: note,
			keyed: true, exact: true, stores: true, open: open,
		}
	}
	return []contestant{
		recipe(mutexMap, "forgets nothing", func(s setup) (limiter, error) {
			return &rateMap{setup: s, m: map[string]*rate.Limiter{}}, nil
		}),
		recipe(mutexSweep, "every visitor's last visit is kept", func(s setup) (limiter, error) {
			return newVisitors(s), nil
		}),
		recipe("x/time/rate, sync.Map", "forgets nothing", func(s setup) (limiter, error) {
			return &rateSyncMap{setup: s}, nil
		}),
		recipe("x/time/rate, 64 sharded maps", "forgets nothing", func(s setup) (limiter, error) {
			return newRateShards(s), nil
		}),
	}
}

// rateMap is a map under one mutex.
type rateMap struct {
	setup
	mu sync.Mutex
	m  map[string]*rate.Limiter
}

func (p *rateMap) Allow(key string) bool {
	p.mu.Lock()
	lim, ok := p.m[key]
	if !ok {
		lim = newRate(p.setup)
		p.m[key] = lim
	}
	p.mu.Unlock()
	return lim.Allow()
}

// visitors is a map under one mutex that a loop cleans of idle keys.
type visitors struct {
	setup
	mu   sync.Mutex
	m    map[string]*visitor
	done chan struct{}
}

type visitor struct {
	lim  *rate.Limiter
	seen time.Time
}

func newVisitors(s setup) *visitors {
	p := &visitors{setup: s, m: map[string]*visitor{}, done: make(chan struct{})}
	go p.clean()
	return p
}

func (p *visitors) Allow(key string) bool {
	p.mu.Lock()
	v, ok := p.m[key]
	if !ok {
		v = &visitor{lim: newRate(p.setup)}
		p.m[key] = v
	}
	v.seen = time.Now()
	p.mu.Unlock()
	return v.lim.Allow()
}

func (p *visitors) clean() {
	tick := time.NewTicker(p.sweep)
	defer tick.Stop()
	for {
		select {
		case <-p.done:
			return
		case <-tick.C:
		}
		p.mu.Lock()
		for key, v := range p.m {
			if time.Since(v.seen) > p.idle {
				delete(p.m, key)
			}
		}
		p.mu.Unlock()
	}
}

// Close ends the cleanup loop.
func (p *visitors) Close() error {
	close(p.done)
	return nil
}

// rateSyncMap is a sync.Map.
type rateSyncMap struct {
	setup
	m sync.Map
}

func (p *rateSyncMap) Allow(key string) bool {
	v, ok := p.m.Load(key)
	if !ok {
		v, _ = p.m.LoadOrStore(key, newRate(p.setup))
	}
	return v.(*rate.Limiter).Allow()
}

// rateShards is many maps, each under a mutex of its own.
type rateShards struct {
	seed   maphash.Seed
	shards [64]struct {
		rateMap
		_ [64]byte // no two mutexes on one cache line
	}
}

func newRateShards(s setup) *rateShards {
	p := &rateShards{seed: maphash.MakeSeed()}
	for i := range p.shards {
		p.shards[i].setup = s
		p.shards[i].m = map[string]*rate.Limiter{}
	}
	return p
}

func (p *rateShards) Allow(key string) bool {
	return p.shards[maphash.String(p.seed, key)%64].Allow(key)
}
