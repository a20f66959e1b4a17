package main

import "fmt"

// A workload is one column of the tables of decisions.
type workload uint8

const (
	hot1    workload = iota // one key, one goroutine
	hot2                    // one key, both cores
	uniform                 // known keys, each as likely, both cores
	zipf                    // known keys by Zipf's law, both cores
	flood                   // keys never seen before, both cores
	workloads
)

func (w workload) String() string {
	return [...]string{"one hot key", "one hot key, 2", "uniform, 2", "Zipf 1.1, 2", "flood, 2"}[w]
}

// goroutines is how many goroutines w runs.
func (w workload) goroutines() int {
	if w == hot1 {
		return 1
	}
	return cores
}

// A cell is one contestant at one workload.
type cell struct {
	contestant string
	workload   workload
}

// A scale says how much is measured.
type scale struct {
	rounds   int // of every contestant, one after another
	hot      int // decisions on the hot key, each goroutine
	known    int // keys that are known
	draws    int // decisions on known keys, each goroutine
	fresh    int // keys never seen before, each goroutine
	tries    int // waits for a quiet machine before each measurement
	restless int // rounds of the slowest decision
	looks    int // at the memory in use while keys come
}

// A results holds all that a run measured.
type results struct {
	scale
	watch   *watch
	samples map[cell][]sample
	memory  map[string]footprint
	slowest map[string][]slow
	state   map[string]state
}

func (r *results) add(c contestant, w workload, s sample) {
	at := cell{c.name, w}
	r.samples[at] = append(r.samples[at], s)
}

// runHot measures the workloads of one key, all contestants round by round. It
// takes three times the rounds of the others: they are short, and a core that is
// taken away for a moment spoils one of them whole.
func (r *results) runHot(all []contestant, _ *streams) error {
	limiters := make([]limiter, len(all))
	for i, c := range all {
		l, err := c.open(steady(1024))
		if err != nil {
			return fmt.Errorf("bench: open %s: %w", c.name, err)
		}
		defer shut(l)
		limiters[i] = l
	}
	key := "198.51.100.7:443"
	for range 3 * r.rounds {
		for i, c := range all {
			for _, w := range []workload{hot1, hot2} {
				r.add(c, w, r.watch.measure(w.goroutines(), r.hot, func(int) int {
					return hammer(limiters[i], key, r.hot)
				}))
			}
		}
	}
	return nil
}

// runKeyed measures the workloads of many keys, all contestants round by
// round. A contestant is opened for its turn and gone after it, so that no
// one's heap weighs on another's garbage collections.
func (r *results) runKeyed(all []contestant, keys *streams) error {
	for range r.rounds {
		for _, c := range all {
			if !c.keyed {
				continue
			}
			if err := r.turn(c, keys); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *results) turn(c contestant, keys *streams) error {
	l, err := c.open(steady(keys.known.len()))
	if err != nil {
		return fmt.Errorf("bench: open %s: %w", c.name, err)
	}
	defer shut(l)
	walk(l, keys.known)
	r.add(c, uniform, r.watch.measure(cores, r.draws, func(g int) int { return walk(l, keys.uniform[g]) }))
	r.add(c, zipf, r.watch.measure(cores, r.draws, func(g int) int { return walk(l, keys.zipf[g]) }))

	// A fifth of the fresh keys goes first, so that a table with a cap is at it.
	first := keys.fresh[0].len() / 5 * keySize
	for _, s := range keys.fresh {
		walk(l, s[:first])
	}
	timed := keys.fresh[0][first:].len()
	r.add(c, flood, r.watch.measure(cores, timed, func(g int) int { return walk(l, keys.fresh[g][first:]) }))
	return nil
}
