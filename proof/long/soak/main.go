// Command soak asks a memory for a million keys on all cores at once, lets all
// of them become new, and does it again; then it floods a full table with ten
// million keys that were never seen. It fails if the heap grows from one round
// to the next, if a key takes more memory than is promised, if memory is not
// given back, if a call takes too long, or if a key that is limited is let go.
package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/spillgate/spillgate"
)

const (
	keys   = 1_000_000
	rounds = 5
	perKey = 64 // bytes of heap at most, while the table grows
	left   = 4 << 20
	// A call that the scheduler puts aside is slow through no fault of the
	// memory's, so there are no more askers than cores.
	longest    = 200 * time.Millisecond // of any call
	longestFew = 5 * time.Millisecond   // of all but one in 1,000
	floods     = 10_000_000
	floodCap   = 1 << 18
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}

func run() error {
	if err := comeAndGo(); err != nil {
		return err
	}
	return flood()
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func keyOf(i uint64) spillgate.Key { return spillgate.Key{(i + 1) * 0x9e3779b97f4a7c15, i} }

// An asker charges one unit of keys and keeps the times that took longest.
type asker struct {
	memory *spillgate.Memory
	charge [1]spillgate.Charge
	out    [1]spillgate.Decision
	slow   []time.Duration
}

func (a *asker) ask(now time.Time, i uint64) (spillgate.Decision, error) {
	a.charge[0].Key = keyOf(i)
	began := time.Now()
	err := a.memory.Take(context.Background(), now, a.charge[:], a.out[:])
	if took := time.Since(began); took > longestFew {
		a.slow = append(a.slow, took)
	}
	return a.out[0], err
}

func newAsker(m *spillgate.Memory, sp *spillgate.Space, meter *spillgate.Meter) *asker {
	a := &asker{memory: m}
	a.charge[0] = spillgate.Charge{Space: sp, Meter: meter, Ask: spillgate.Ask{N: 1}}
	return a
}

func comeAndGo() error {
	meter, err := spillgate.Limit{Rate: 1, Period: time.Second, Burst: 5}.Meter()
	if err != nil {
		return err
	}
	sp, err := spillgate.NewSpace("soak", spillgate.SpaceOptions{MaxKeys: 2 * keys})
	if err != nil {
		return err
	}
	memory := spillgate.NewMemory()
	before, goroutines := heap(), runtime.NumGoroutine()
	now := time.Unix(1_000_000, 0)
	fmt.Println("round  heap full     bytes a key  heap empty    live  longest call")
	for round := range rounds {
		askers := runtime.GOMAXPROCS(0)
		list := make([]*asker, askers)
		errs := make([]error, askers)
		var group sync.WaitGroup
		for g := range askers {
			list[g] = newAsker(memory, sp, meter)
			group.Go(func() {
				for i := uint64(g); i < keys; i += uint64(askers) {
					if _, err := list[g].ask(now, i); err != nil {
						errs[g] = err
					}
				}
			})
		}
		group.Wait()
		full := heap() - before
		if st := memory.Stats(sp); st.Live != keys || st.Overflowed > 0 {
			return fmt.Errorf("%d keys asked: %+v", keys, st)
		}
		// All are as new; one key has light traffic, and the others' memory
		// goes as it comes by.
		now = now.Add(time.Minute)
		light := newAsker(memory, sp, meter)
		for range 2000 {
			now = now.Add(20 * time.Millisecond)
			if _, err := light.ask(now, 1); err != nil {
				return err
			}
		}
		empty, live := heap()-before, memory.Stats(sp).Live
		var slow []time.Duration
		for _, a := range append(list, light) {
			slow = append(slow, a.slow...)
		}
		for _, err := range errs {
			if err != nil {
				return err
			}
		}
		worst := time.Duration(0)
		if len(slow) > 0 {
			worst = slices.Max(slow)
		}
		fmt.Printf("%5d  %9d B  %11.1f  %9d B  %6d  %s (%d above %s)\n", round, full, float64(full)/keys, empty, live, worst, len(slow), longestFew)
		switch {
		case full > perKey*keys:
			return fmt.Errorf("a key takes %.1f bytes, more than %d", float64(full)/keys, perKey)
		case empty > left || live > 1000:
			return fmt.Errorf("%d keys and %d bytes are left when all is as new", live, empty)
		case worst > longest:
			return fmt.Errorf("a call took %s", worst)
		case len(slow) > keys/1000:
			return fmt.Errorf("%d calls took over %s", len(slow), longestFew)
		case runtime.NumGoroutine() > goroutines:
			return fmt.Errorf("%d goroutines, %d at the start", runtime.NumGoroutine(), goroutines)
		}
	}
	if err := memory.Close(); err != nil {
		return err
	}
	runtime.KeepAlive(memory)
	if rest := heap() - before; rest > left {
		return fmt.Errorf("%d bytes are left after Close", rest)
	}
	return nil
}

func flood() error {
	meter, err := spillgate.Limit{Rate: 5, Period: time.Hour, Burst: 5}.Meter()
	if err != nil {
		return err
	}
	sp, err := spillgate.NewSpace("flood", spillgate.SpaceOptions{MaxKeys: floodCap})
	if err != nil {
		return err
	}
	memory := spillgate.NewMemory()
	a := newAsker(memory, sp, meter)
	now := time.Unix(1_000_000, 0)
	const victim = 1 << 40
	for range 5 {
		if d, err := a.ask(now, victim); err != nil || !d.Allowed {
			return fmt.Errorf("the victim before the flood: %+v, %w", d, err)
		}
	}
	bytes, admitted := int64(0), int64(0)
	for i := range uint64(floods) {
		d, err := a.ask(now, i)
		if err != nil {
			return err
		}
		admitted += d.Taken
		if i%100_000 != 0 {
			continue
		}
		if d, err := a.ask(now, victim); err != nil || d.Allowed || d.Overflow {
			return fmt.Errorf("after %d keys the victim is let go: %+v, %w", i, d, err)
		}
		st := memory.Stats(sp)
		if i > 4*floodCap && bytes != 0 && st.Bytes != bytes {
			return fmt.Errorf("after %d keys the table takes %d bytes, before %d", i, st.Bytes, bytes)
		}
		if i > 4*floodCap {
			bytes = st.Bytes
		}
	}
	st := memory.Stats(sp)
	fmt.Printf("flood of %d keys over %d places: %+v, admitted %d\n", floods, floodCap, st, admitted)
	if bound := int64(floodCap+1) * 5; admitted > bound || st.Live > floodCap {
		return fmt.Errorf("admitted %d, more than %d, or too many entries", admitted, bound)
	}
	return nil
}
