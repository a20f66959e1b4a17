package nemesis

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A decision may be late through no fault of its own: its thread had no processor.
// So what a process waited for processors is measured by itself, in two ways that
// together see every way to lose one. Where the machine as a whole, or a processor of
// it, is taken away, or the process has used up its share of it, a thread that is
// bound to that processor and only sleeps wakes up late. Where others of this machine
// are served first, which a thread that sleeps most of the time need not notice, the
// kernel counts how long each thread was ready to run and did not. Both are summed,
// over all processors and threads, and so are rather too much than too little: a
// decision that took longer than its budget, than all of this, and than [slack] was
// held up by itself.
type stalls struct {
	Late   [][]span  // by processor
	Queued []waiting // in time
}

// A span is a time on the clock that all processes have in common.
type span struct{ From, To int64 }

// A waiting is how long all threads of a process had waited until then, in ns.
type waiting struct{ At, Sum int64 }

// slack is what neither of both measures sees: a page that is read in again, the
// wait for a goroutine's turn. A call without a bound takes longer: a server stands
// still for a longer time.
const (
	slack = 600 * time.Millisecond
	still = 1500 * time.Millisecond
)

// watch measures until over is closed; its result is there when done returns.
func watch(over chan struct{}) (s *stalls, done func()) {
	s = &stalls{}
	var group sync.WaitGroup
	ended := func() bool {
		select {
		case <-over:
			return true
		default:
			return false
		}
	}
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) == nil {
		for cpu := range len(set) * 64 {
			if !set.IsSet(cpu) {
				continue
			}
			place := len(s.Late)
			s.Late = append(s.Late, nil)
			group.Go(func() {
				runtime.LockOSThread() // and never unlocked: the thread ends with its goroutine
				var one unix.CPUSet
				one.Set(cpu)
				_ = unix.SchedSetaffinity(0, &one) // else it watches where it is
				var late []span
				for !ended() {
					const nap = 20 * time.Millisecond
					due := clock() + int64(nap)
					ts := unix.NsecToTimespec(int64(nap))
					_ = unix.Nanosleep(&ts, nil)
					if now := clock(); now > due+int64(2*time.Millisecond) {
						late = append(late, span{due - int64(nap), now})
					}
				}
				s.Late[place] = late
			})
		}
	}
	group.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		waited := map[string]int64{} // by threads, also of those that are gone
		for {
			sum, last := int64(0), ended()
			at := clock()
			files, _ := filepath.Glob("/proc/self/task/*/schedstat")
			for _, name := range files {
				text, _ := os.ReadFile(name)
				if f := strings.Fields(string(text)); len(f) == 3 {
					n, _ := strconv.ParseInt(f[1], 10, 64)
					waited[name] = max(waited[name], n)
				}
			}
			for _, n := range waited {
				sum += n
			}
			if len(waited) > 0 {
				s.Queued = append(s.Queued, waiting{at, sum})
			}
			if last {
				return
			}
			<-tick.C
		}
	})
	return s, group.Wait
}

// within returns for how long the process waited for processors in a time, at most,
// and whether that is known.
func (s *stalls) within(d span) (time.Duration, bool) {
	sum := int64(0)
	for _, late := range s.Late {
		for _, l := range late {
			sum += max(0, min(l.To, d.To)-max(l.From, d.From))
		}
	}
	if len(s.Late) == 0 || len(s.Queued) < 2 {
		return time.Duration(sum), false
	}
	order := func(w waiting, at int64) int { return int(max(-1, min(w.At-at, 1))) }
	i, exact := slices.BinarySearchFunc(s.Queued, d.From, order)
	if !exact {
		i = max(0, i-1)
	}
	j, _ := slices.BinarySearchFunc(s.Queued, d.To, order)
	j = min(j+1, len(s.Queued)-1) // a look takes its time
	return time.Duration(sum + s.Queued[j].Sum - s.Queued[i].Sum), true
}

func TestStalls(t *testing.T) {
	s := stalls{
		Late:   [][]span{{{10, 20}, {40, 50}}, {{15, 30}}},
		Queued: []waiting{{0, 0}, {20, 3}, {40, 3}, {60, 8}, {80, 9}},
	}
	for _, tt := range []struct {
		in   span
		want time.Duration
	}{
		{span{0, 5}, 3}, {span{12, 18}, 6 + 3 + 3}, {span{21, 39}, 9 + 0 + 5}, {span{45, 90}, 5 + 6}, {span{60, 70}, 1}, {span{0, 100}, 10 + 10 + 15 + 9},
	} {
		if got, known := s.within(tt.in); got != tt.want || !known {
			t.Errorf("%v: %d, want %d", tt.in, got, tt.want)
		}
	}
	over := make(chan struct{})
	now, done := watch(over)
	began := clock()
	wait(60 * time.Millisecond)
	close(over)
	done()
	if _, known := now.within(span{began, clock()}); !known {
		t.Log("this machine does not tell for how long threads wait, so the longest decision is not held")
	}
}
