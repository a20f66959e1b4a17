package simulation

import (
	"flag"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/spillgate/spillgate/proof/exact"
)

var (
	seeds = flag.Uint64("seeds", 500, "how many seeds to simulate; a fifth of that under the race detector")
	first = flag.Uint64("first", 1, "the first of them")
	seed  = flag.Uint64("seed", 0, "simulate this seed alone, and print it")
)

// TestSeeds simulates many seeds. What a seed breaks is printed with what happened
// before.
func TestSeeds(t *testing.T) {
	if *seed != 0 {
		r, err := Run(*seed)
		t.Logf("%+v", r)
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	count := *seeds
	if exact.Raced { // each is played by one goroutine
		count = (count + 4) / 5
	}
	var all Report
	var mu sync.Mutex
	var next atomic.Uint64
	var group sync.WaitGroup
	leased, failed := 0, 0
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() {
			for {
				i := next.Add(1) - 1
				if i >= count {
					return
				}
				r, err := Run(*first + i)
				mu.Lock()
				if err != nil {
					if failed++; failed <= 3 {
						t.Errorf("%v\n\nsee it again: go test ./proof/simulation -run TestSeeds -v -seed %d", err, r.Seed)
					}
				} else {
					if r.Leased {
						leased++
					}
					all.add(&r)
				}
				mu.Unlock()
			}
		})
	}
	group.Wait()
	t.Logf("%d seeds, %d with leases: %s", count, leased, &all)
	if failed > 0 {
		t.Fatalf("%d of %d seeds break a promise", failed, count)
	}
	if count >= 100 && (all.Allowed == 0 || all.Denied == 0 || all.Faults == 0 || all.Here == 0 || all.Ahead == 0 || all.Restarts == 0 || all.Opened == 0 ||
		all.Jumped == 0 || all.Crashed == 0 || all.Partitions == 0) {
		t.Errorf("the seeds have not seen everything: %s", &all)
	}
}

// TestReplay: a seed has one history.
func TestReplay(t *testing.T) {
	count := uint64(20)
	if exact.Raced {
		count = 4
	}
	for seed := range count {
		a, err := Run(seed + 1000)
		if err != nil {
			t.Fatal(err)
		}
		b, err := Run(seed + 1000)
		if err != nil {
			t.Fatal(err)
		}
		if a != b {
			t.Errorf("seed %d has two histories:\n%+v\n%+v", seed+1000, a, b)
		}
	}
}

func (r *Report) add(o *Report) {
	r.Decisions += o.Decisions
	r.Allowed += o.Allowed
	r.Denied += o.Denied
	r.Faults += o.Faults
	r.Calls += o.Calls
	r.Here += o.Here
	r.Ahead += o.Ahead
	r.Restarts += o.Restarts
	r.Opened += o.Opened
	r.Jumped += o.Jumped
	r.Crashed += o.Crashed
	r.Partitions += o.Partitions
}

func (r *Report) String() string {
	return fmt.Sprintf("%d decisions (%d allowed, %d denied, %d while the store failed, %d without a call), %d calls and %d ahead of need; the store lost its state %d times, %d clock jumps, %d crashes, %d partitions, %d breakers opened",
		r.Decisions, r.Allowed, r.Denied, r.Faults, r.Here, r.Calls, r.Ahead, r.Restarts, r.Jumped, r.Crashed, r.Partitions, r.Opened)
}
