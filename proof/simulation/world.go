package simulation

import (
	"container/heap"
	"fmt"
	"iter"
	"math/rand/v2"
	"time"
)

// A world is virtual time and what happens in it: events, one after the other,
// and processes, of which one runs at a time, until it sleeps. So one seed has
// one history.
type world struct {
	random  *rand.Rand
	now     time.Duration
	events  events
	made    int
	current *process
	trace   []string // the last of what happened
	digest  uint64   // of all of it
	failure error    // the first
}

func newWorld(seed uint64) *world {
	return &world{random: rand.New(rand.NewPCG(seed, 0x51317))}
}

// An event happens at a time; events of one time in the order in which they
// were made.
type event struct {
	at  time.Duration
	nth int
	do  func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].nth < e[j].nth
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

// after has something done a while from now.
func (w *world) after(d time.Duration, do func()) {
	w.made++
	heap.Push(&w.events, event{w.now + d, w.made, do})
}

// run goes on until nothing more happens.
func (w *world) run() {
	for len(w.events) > 0 {
		e := heap.Pop(&w.events).(event)
		w.now = e.at
		e.do()
	}
}

// A process does one thing after the other, and sleeps in between.
type process struct {
	next    func() (struct{}, bool)
	yield   func(struct{}) bool
	request *request // that it carries out
}

// spawn starts a process a while from now.
func (w *world) spawn(after time.Duration, do func()) {
	p := &process{}
	p.next, _ = iter.Pull(func(yield func(struct{}) bool) {
		p.yield = yield
		do()
	})
	w.after(after, func() { w.wake(p) })
}

// wake lets a process run until it sleeps or ends.
func (w *world) wake(p *process) {
	before := w.current
	w.current = p
	p.next()
	w.current = before
}

// pause suspends the process that runs, until somebody wakes it.
func (w *world) pause() { w.current.yield(struct{}{}) }

// sleep suspends the process that runs for a while.
func (w *world) sleep(d time.Duration) {
	p := w.current
	w.after(d, func() { w.wake(p) })
	w.pause()
}

// between returns a random time of that range.
func (w *world) between(least, most time.Duration) time.Duration {
	return least + time.Duration(w.random.Int64N(int64(most-least)+1))
}

// chance is true in so many of 1,000 cases.
func (w *world) chance(thousandths int) bool { return w.random.IntN(1000) < thousandths }

// kept is how much of what happened is kept for the report of a failure.
const kept = 25

func (w *world) note(format string, args ...any) {
	line := fmt.Sprintf("%12s  ", w.now) + fmt.Sprintf(format, args...)
	for _, c := range []byte(line) { // FNV-1a
		w.digest = (w.digest ^ uint64(c)) * 0x100000001b3
	}
	if w.trace = append(w.trace, line); len(w.trace) > 2*kept {
		w.trace = append(w.trace[:0], w.trace[kept:]...)
	}
}

// fail notes the first promise that is broken.
func (w *world) fail(format string, args ...any) {
	if w.failure == nil {
		w.failure = fmt.Errorf(format, args...)
		w.note("BROKEN: %v", w.failure)
		w.trace = append([]string(nil), w.trace...)
	}
}

// A clock is what one machine takes for the time.
type clock struct {
	world *world
	ahead time.Duration
}

// epoch is what all clocks show at first.
var epoch = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

func (c *clock) now() time.Time { return epoch.Add(c.world.now + c.ahead) }

func (c *clock) reads() int64 { return c.now().UnixNano() }
