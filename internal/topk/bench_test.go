package topk

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
)

// BenchmarkCount is what an event costs, making the text apart.
func BenchmarkCount(b *testing.B) {
	text := []byte("client.ip=2001:db8:1234:5678::/64 host=a.example")
	for _, k := range []int{1000, MaxKeys} {
		for _, stream := range []string{"one key", "zipf", "flood"} {
			keys := make([]Key, 1<<20)
			z := rand.NewZipf(rand.New(rand.NewPCG(1, 2)), 1.1, 1, 1<<20)
			for i := range keys {
				switch stream {
				case "one key":
					keys[i] = keyOf(1)
				case "zipf":
					keys[i] = keyOf(z.Uint64())
				default:
					keys[i] = keyOf(uint64(i))
				}
			}
			b.Run(fmt.Sprintf("%s/k=%d", stream, k), func(b *testing.B) {
				l := New(k)
				var worker, entered atomic.Uint64
				for i := range keys { // as after a while
					if !l.Count(keys[i], Event{}) {
						l.Enter(keys[i], Event{}, text)
					}
				}
				b.ReportAllocs()
				b.ResetTimer()
				b.RunParallel(func(pb *testing.PB) {
					i, in := int(worker.Add(1))*len(keys)/7, uint64(0)
					salt := uint64(0)
					for pb.Next() {
						i++
						key := keys[i&(len(keys)-1)]
						if stream == "flood" {
							salt += 0x9e3779b97f4a7c15 // nobody comes twice
							key[0], key[1] = key[0]+salt, key[1]^salt
						}
						ev := Event{Denied: true, At: int64(i)}
						if !l.Count(key, ev) {
							l.Enter(key, ev, text)
							in++
						}
					}
					entered.Add(in)
				})
				b.ReportMetric(float64(entered.Load())/float64(b.N), "texts/op")
			})
		}
	}
}

func BenchmarkTop(b *testing.B) {
	for _, k := range []int{1000, MaxKeys} {
		l := New(k)
		for n := range uint64(2 * k) {
			feed(l, keyOf(n), Event{Denied: true}, func() []byte { return textOf(n) })
		}
		b.Run(fmt.Sprint(k), func(b *testing.B) {
			for b.Loop() {
				l.Top(20)
			}
		})
	}
}
