package rate

import (
	"context"
	"testing"
	"time"
)

func BenchmarkAllow(b *testing.B) {
	for _, c := range []struct {
		name string
		lim  *Limiter
	}{
		{"granted", NewLimiter(1e9, 1<<30)},
		{"denied", NewLimiter(1e-3, 1)},
		{"Inf", NewLimiter(Inf, 0)},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.lim.Allow()
			}
		})
		b.Run(c.name+"/parallel", func(b *testing.B) {
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					c.lim.Allow()
				}
			})
		})
	}
}

func BenchmarkAllowN(b *testing.B) {
	lim := NewLimiter(1e9, 1<<30)
	now := time.Now()
	b.ReportAllocs()
	for b.Loop() {
		lim.AllowN(now, 1)
	}
}

func BenchmarkReserve(b *testing.B) {
	lim := NewLimiter(1e9, 1<<30)
	b.ReportAllocs()
	for b.Loop() {
		lim.Reserve()
	}
}

func BenchmarkWaitOfNothing(b *testing.B) {
	lim := NewLimiter(1e9, 1<<30)
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		if err := lim.Wait(ctx); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkNewLimiter(b *testing.B) {
	for name, r := range map[string]Limit{"whole": 100, "Every": Every(7919 * time.Microsecond), "odd": 12.345678901234567} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				NewLimiter(r, 10)
			}
		})
	}
}

func BenchmarkSometimes(b *testing.B) {
	s := Sometimes{Every: 1000, Interval: time.Second}
	b.ReportAllocs()
	for b.Loop() {
		s.Do(func() {})
	}
}
