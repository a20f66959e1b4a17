package main

import (
	"runtime"
	"sync"
	"time"

	"github.com/spillgate/spillgate/bench/internal/report"
)

// A sample is one measurement of one contestant in one round.
type sample struct {
	ns      float64 // a decision, over all goroutines
	refused float64 // share of the decisions that said no
	null    float64 // the dearer of the null rows before and after it, ns
}

// A watch measures, and measures the null row beside it.
type watch struct {
	tries int                // how often to wait for a quiet machine
	quiet [cores + 1]float64 // cheapest null row seen, by number of goroutines
}

// newWatch gets to know the quiet machine.
func newWatch(tries int) *watch {
	w := &watch{tries: tries}
	for range 20 {
		w.null(1)
		w.null(cores)
	}
	return w
}

// null returns what the null row costs now, in ns.
func (w *watch) null(goroutines int) float64 {
	const n = 1 << 21
	got := parallel(goroutines, n, func(int) int { return hammer(null{}, "0123456789abcdef", n) })
	if w.quiet[goroutines] == 0 || got.ns < w.quiet[goroutines] {
		w.quiet[goroutines] = got.ns
	}
	return got.ns
}

// settle returns the null row's cost once the machine is quiet, or the
// cheapest of all tries.
func (w *watch) settle(goroutines int) float64 {
	best := w.null(goroutines)
	for try := 1; try < w.tries && best > report.Stolen*w.quiet[goroutines]; try++ {
		time.Sleep(20 * time.Millisecond)
		best = min(best, w.null(goroutines))
	}
	return best
}

// void reports whether s was measured on a disturbed machine. Ask when all
// is measured: by then the quiet value is best known.
func (w *watch) void(goroutines int, s sample) bool {
	return s.null > report.Stolen*w.quiet[goroutines]
}

// measure runs n decisions on each of some goroutines, the null row first.
func (w *watch) measure(goroutines, n int, work func(g int) (refused int)) sample {
	runtime.GC() // nobody pays for another's garbage
	before := w.settle(goroutines)
	s := parallel(goroutines, n, work)
	s.null = max(before, w.null(goroutines)) // waiting now would only hide what was
	return s
}

// parallel runs work on some goroutines that start together, n decisions
// each, and returns the wall time over all decisions.
func parallel(goroutines, n int, work func(g int) (refused int)) sample {
	var refused [cores]int
	var ready, done sync.WaitGroup
	start := make(chan struct{})
	for g := range goroutines {
		ready.Add(1)
		done.Go(func() {
			ready.Done()
			<-start
			refused[g] = work(g)
		})
	}
	ready.Wait()
	began := time.Now()
	close(start)
	done.Wait()
	took := time.Since(began)

	all := float64(goroutines * n)
	var no int
	for _, r := range refused {
		no += r
	}
	return sample{ns: float64(took.Nanoseconds()) / all, refused: float64(no) / all}
}

// hammer asks l n times for the same key. Inlined, the compiler would see
// through the interface and nothing would be left of the null row.
//
//go:noinline
func hammer(l limiter, key string, n int) (refused int) {
	for range n {
		if !l.Allow(key) {
			refused++
		}
	}
	return refused
}

// walk asks l for each key of s.
//
//go:noinline
func walk(l limiter, s stream) (refused int) {
	for i := range s.len() {
		if !l.Allow(s.key(i)) {
			refused++
		}
	}
	return refused
}
