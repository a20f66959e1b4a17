package spillgate_test

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillgate/spillgate"
)

// The floor under a decision: read the clock, hash the key.
func BenchmarkFloor(b *testing.B) {
	base := time.Now()
	seed := spillgate.NewSeed()
	key := []byte("203.0.113.9:4567")
	var sum uint64
	for b.Loop() {
		sum += uint64(time.Since(base)) + seed.Key(key)[0]
	}
	_ = sum
}

const generous = "1000000000/1s burst 1000000000"

func BenchmarkLimiter(b *testing.B) {
	const key = "203.0.113.9:4567"
	for _, c := range []struct{ name, limit string }{{"", generous}, {" over", "1/1h burst 1"}} {
		b.Run("Allow"+c.name, func(b *testing.B) {
			l := spillgate.Must(c.limit)
			defer l.Close()
			for b.Loop() {
				l.Allow(key)
			}
		})
		b.Run("Take"+c.name, func(b *testing.B) {
			l := spillgate.Must(c.limit)
			defer l.Close()
			for b.Loop() {
				l.Take(key, 1)
			}
		})
	}
	b.Run("Allow on all cores", func(b *testing.B) {
		l := spillgate.Must(generous)
		defer l.Close()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				l.Allow(key)
			}
		})
	})
}

// randomKeys calls f with keys drawn from n, on all cores.
func randomKeys(b *testing.B, n uint64, f func(key string)) {
	b.RunParallel(func(pb *testing.PB) {
		r := rand.New(rand.NewPCG(rand.Uint64(), 1))
		buf := make([]byte, 16)
		for pb.Next() {
			binary.LittleEndian.PutUint64(buf, r.Uint64N(n))
			f(string(buf))
		}
	})
}

func BenchmarkMillionKeys(b *testing.B) {
	const n = 1 << 20
	warm := func(b *testing.B, l *spillgate.Limiter) {
		buf := make([]byte, 16)
		for k := range uint64(n) {
			binary.LittleEndian.PutUint64(buf, k)
			l.Allow(string(buf))
		}
		b.ResetTimer()
	}
	b.Run("uniform", func(b *testing.B) {
		l := spillgate.Must("1/1s burst 1000000000", spillgate.MaxKeys(n+n/8))
		defer l.Close()
		warm(b, l)
		randomKeys(b, n, func(key string) { l.Allow(key) })
	})
	b.Run("flood at the cap", func(b *testing.B) {
		l := spillgate.Must("1/1h burst 2", spillgate.MaxKeys(n/2))
		defer l.Close()
		warm(b, l)
		randomKeys(b, 1<<62, func(key string) { l.Allow(key) })
	})
	b.Run("flood that passes", func(b *testing.B) {
		l := spillgate.Must("1000000/1s burst 1", spillgate.MaxKeys(n))
		defer l.Close()
		randomKeys(b, 1<<62, func(key string) { l.Allow(key) })
	})
}

func BenchmarkMemoryTake(b *testing.B) {
	for _, n := range []int{1, 3, 8} {
		b.Run(map[int]string{1: "1 charge", 3: "3 charges", 8: "8 charges"}[n], func(b *testing.B) {
			mem := spillgate.NewMemory()
			cs := make([]spillgate.Charge, n)
			for i := range cs {
				r := newRig(b, generous, spillgate.SpaceOptions{})
				cs[i] = spillgate.Charge{Space: r.space, Key: key(uint64(i)), Meter: r.meter, Ask: spillgate.Ask{N: 1}}
			}
			out := make([]spillgate.Decision, n)
			ctx := context.Background()
			for b.Loop() {
				if err := mem.Take(ctx, time.Time{}, cs, out); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
