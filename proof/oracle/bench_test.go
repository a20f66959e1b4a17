package oracle

import "testing"

// TestWalkAllocatesNothing keeps the walk able to make some hundred million
// moves: no move allocates.
func TestWalkAllocatesNothing(t *testing.T) {
	for _, algorithm := range Algorithms {
		l := mustNew(t, algorithm, 3, 4, 3)
		at := int64(0)
		if n := testing.AllocsPerRun(1000, func() {
			at++
			c := *l
			c.Step(at, 1)
			l.Step(at, at%5)
		}); n != 0 {
			t.Errorf("%s: %v allocations a step", algorithm, n)
		}
	}
}

func BenchmarkWalk(b *testing.B) {
	for _, algorithm := range Algorithms {
		b.Run(algorithm, func(b *testing.B) {
			moves := 0
			for b.Loop() {
				SmallScope(algorithm, 3).Walk(func(*Node) bool { moves++; return true })
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(moves), "ns/move")
		})
	}
}

func BenchmarkExact(b *testing.B) {
	for _, algorithm := range Algorithms {
		b.Run(algorithm, func(b *testing.B) {
			l := mustExact(b, algorithm, 100, 1_000_000_000, 50)
			at := int64(0)
			for b.Loop() {
				at += 7_000_000
				l.Step(at, 1)
			}
		})
	}
}
