package main

import (
	"hash/maphash"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/spillgate/spillgate/internal/siphash"
)

// Names of floors that the ratios refer to.
const (
	clockSip  = "floor: clock + SipHash-1-3"
	allThree  = "floor: clock + SipHash-1-3 + atomic add"
	leastSip  = "least table, SipHash-1-3"
	leastHash = "least table, maphash"
)

// floors lists what a keyed limiter can't do without, one by one, together,
// and as the least table that decides anything.
func floors() []contestant {
	row := func(name, note string, open func(setup) (limiter, error)) contestant {
		return contestant{name: name, kind: floor, keyed: true, note: note, open: open}
	}
	table := func(name string, open func(setup) (limiter, error)) contestant {
		c := row(name, "fixed size, 16-byte entries, one compare-and-swap; no growth, no overflow, no fractions", open)
		c.stores = true
		return c
	}
	return []contestant{
		row("floor: time.Now", "wall and monotonic clock", func(setup) (limiter, error) { return wallClock{}, nil }),
		row("floor: time.Since", "monotonic clock alone", func(setup) (limiter, error) { return monotonic{time.Now()}, nil }),
		row("floor: maphash", "16 bytes; its key can't be saved", func(setup) (limiter, error) { return mapHash{maphash.MakeSeed()}, nil }),
		row("floor: SipHash-1-3", "16 bytes", func(setup) (limiter, error) { return &sipHash{siphash.NewKey()}, nil }),
		row(clockSip, "", func(setup) (limiter, error) { return &clockAndHash{time.Now(), siphash.NewKey()}, nil }),
		row("floor: atomic add", "at a random place of a table of the same size", func(s setup) (limiter, error) {
			return adder{make([]atomic.Int64, words(s.keys))}, nil
		}),
		row(allThree, "", func(s setup) (limiter, error) {
			return &together{clockAndHash{time.Now(), siphash.NewKey()}, make([]atomic.Int64, words(s.keys))}, nil
		}),
		table(leastHash, func(s setup) (limiter, error) { return &mapHashTable{newLeast(s), maphash.MakeSeed()}, nil }),
		table(leastSip, func(s setup) (limiter, error) { return &sipHashTable{newLeast(s), siphash.NewKey()}, nil }),
	}
}

type wallClock struct{}

func (wallClock) Allow(string) bool { return !time.Now().IsZero() }

type monotonic struct{ start time.Time }

func (f monotonic) Allow(string) bool { return time.Since(f.start) >= 0 }

type mapHash struct{ seed maphash.Seed }

func (f mapHash) Allow(key string) bool { return maphash.String(f.seed, key) != 0 }

type sipHash struct{ key siphash.Key }

func (f *sipHash) Allow(key string) bool { return siphash.Sum64String(&f.key, key) != 0 }

type clockAndHash struct {
	start time.Time
	key   siphash.Key
}

func (f *clockAndHash) Allow(key string) bool {
	return uint64(time.Since(f.start)) != siphash.Sum64String(&f.key, key)
}

// adder takes the place from the key's own first bytes: keys are random, so
// no hash is needed.
type adder struct{ words []atomic.Int64 }

func (f adder) Allow(key string) bool {
	var h uint64
	for i := range 8 {
		h |= uint64(key[i]) << (8 * i)
	}
	return f.words[h&uint64(len(f.words)-1)].Add(1) > 0
}

type together struct {
	clockAndHash
	words []atomic.Int64
}

func (f *together) Allow(key string) bool {
	h := siphash.Sum64String(&f.key, key)
	return f.words[h&uint64(len(f.words)-1)].Add(int64(time.Since(f.start))) > 0
}

// words is the size, in 8-byte words, of the least table for so many keys.
func words(keys int) int { return 2 * slots(keys) }

// slots is the number of entries of the least table: a power of two, between
// 1.5 and 3 times the keys.
func slots(keys int) int { return 1 << bits.Len(uint(max(keys, set)*3/2-1)) }
