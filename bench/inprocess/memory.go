package main

import (
	"fmt"
	"runtime"
	"strings"
	"time"
)

// A footprint is what a contestant's keys weigh: live heap and stacks after a
// garbage collection, the keys' own bytes included where they are kept.
type footprint struct {
	full    float64       // bytes a key when all known keys are stored, at the cap for those that have one
	growing float64       // the worst bytes a key on the way there, far from the cap
	more    float64       // bytes for each of twice as many keys that come after
	collect time.Duration // one garbage collection at all known keys
}

// runMemory weighs every contestant that stores keys, once: it is no matter
// of luck.
func (r *results) runMemory(all []contestant, keys *streams) error {
	known := keys.known
	for _, c := range all {
		if !c.stores {
			continue
		}
		f, err := r.weigh(c, known, known.len())
		if err != nil {
			return err
		}
		if c.grows {
			roomy, err := r.weigh(c, known, 16*known.len())
			if err != nil {
				return err
			}
			f.growing = roomy.growing
		}
		r.memory[c.name] = f
	}
	return nil
}

// weigh stores all known keys in c, opened for at most limit keys, and then
// twice as many others if they are beyond the limit.
func (r *results) weigh(c contestant, known stream, limit int) (footprint, error) {
	before := live()
	l, err := c.open(steady(limit))
	if err != nil {
		return footprint{}, fmt.Errorf("bench: open %s: %w", c.name, err)
	}
	defer shut(l)

	// A server's keys are strings of their own: whoever keeps one keeps its bytes.
	var f footprint
	n := known.len()
	step := n / 2 / r.looks // in the second half a table that grows by steps grows at least once
	for i := range n {
		l.Allow(strings.Clone(known.key(i)))
		if done := i + 1; done > n/2 && done%step == 0 {
			f.full = float64(live()-before) / float64(done)
			f.growing = max(f.growing, f.full)
		}
	}
	began := time.Now()
	runtime.GC()
	f.collect = time.Since(began)
	if limit > n {
		return f, nil
	}
	at := live()
	for i := range 2 * n {
		k := []byte(known.key(i % n))
		k[0] ^= byte(1 + i/n) // the odds that this makes a known key are nil: 2^-100
		l.Allow(string(k))
	}
	f.more = float64(live()-at) / float64(2*n)
	return f, nil
}

// live returns the bytes of live heap and of stacks.
func live() int64 {
	runtime.GC()
	runtime.GC() // what the first one's finalizers and pools let go
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}
