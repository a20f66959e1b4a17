package spillgate

import (
	"context"
	"testing"
	"time"
)

// BenchmarkLeased compares a hot key that is leased, and one that is refused,
// with the same in memory.
func BenchmarkLeased(b *testing.B) {
	for _, limit := range []struct {
		name string
		Limit
	}{
		{"allowed", Limit{Rate: 1 << 40, Period: time.Second, Burst: 1 << 40}},
		{"refused", Limit{Rate: 1, Period: time.Hour, Burst: 1}},
	} {
		m, err := limit.Meter()
		if err != nil {
			b.Fatal(err)
		}
		leased, err := NewLeased(NewMemory(), LeaseOptions{Nodes: 4})
		if err != nil {
			b.Fatal(err)
		}
		for _, store := range []struct {
			name string
			Store
		}{{"memory", NewMemory()}, {"leased", leased}} {
			b.Run(limit.name+"/"+store.name, func(b *testing.B) {
				sp, _ := NewSpace("bench", SpaceOptions{})
				cs := []Charge{{Space: sp, Key: Key{1, 2}, Meter: m, Ask: Ask{N: 1}}}
				out := make([]Decision, 1)
				for b.Loop() {
					if err := store.Take(context.Background(), time.Time{}, cs, out); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		if err := leased.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
