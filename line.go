package spillgate

import (
	"container/heap"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A waiter is one who stands in line, or did.
type waiter struct {
	limiter    *Limiter
	tag        uint64
	n          int64
	patience   time.Duration
	expected   Instant // when it is served if all goes as it stands
	woken      chan struct{}
	err        error    // once woken
	decision   Decision // once paid
	state      waiterState
	prev, next *waiter // in its queue
	lull       *lull   // while it is paid and delayed
}

type waiterState uint8

const (
	standing waiterState = iota
	delayed              // paid; a queue limit makes it wait on
	served
	failed
)

// A line is all who wait at one limiter: a queue a key, one timer for all.
type line struct {
	busy atomic.Int32 // how many wait: looked at without the lock

	mu     sync.Mutex
	closed bool
	queues map[uint64]*queue
	lulls  lulls
	timer  *time.Timer
	armed  Instant // when the timer fires; 0 if it is not set

	held map[chan struct{}]struct{} // those who hold, to be told of the end
}

// A queue is all who wait for one key.
type queue struct {
	lull
	tag        uint64
	head, tail *waiter
	// What the state will be when all who stand here are served, if known.
	known bool
	after State
	at    Instant
}

// A lull is something that happens at an instant: a queue's head is served, or
// a waiter's delay is over.
type lull struct {
	due    Instant
	index  int // in the heap
	queue  *queue
	waiter *waiter
}

// join puts w in line, or serves it if there is none and the limit allows.
func (ln *line) join(w *waiter) error {
	if w.n < 0 {
		return Decision{Reason: BadCost}.Err()
	}
	ln.mu.Lock()
	defer ln.mu.Unlock()
	if ln.closed {
		return ErrClosed
	}
	m := w.limiter.meter.Load()
	b, err := w.limiter.memory.bind(w.limiter.space)
	if err != nil {
		return err
	}
	now := w.limiter.now(m)
	w.expected = now
	q := ln.queues[w.tag]
	if q == nil || w.n == 0 {
		d := b.takeFirst(w.tag, m, now, w.n)
		if d.Allowed && d.Delay > w.patience {
			w.limiter.settle(w.tag, d, -d.Taken)
			return &DeadlineError{d.Delay, w.patience}
		}
		if d.Allowed {
			ln.paid(w, d)
			ln.arm()
			return nil
		}
		if m.lasts() {
			d.RetryAfter = Never // forgetting is not earning: nobody waits for that
		}
		if d.RetryAfter == Never {
			return d.Err()
		}
		q = &queue{tag: w.tag}
		q.lull = lull{due: d.At + Instant(d.RetryAfter), queue: q}
	}
	if _, d := m.Grant(State{}, now, Ask{N: w.n}); !m.keeps && d.RetryAfter == Never && !d.Allowed {
		return d.Err()
	}
	if int(ln.busy.Load()) >= MaxWaiting {
		return fmt.Errorf("spillgate: %w", ErrTooManyWaiting)
	}
	after, at, expected := ln.project(q, b, m, now, w)
	if need := expected.sub(now); need > w.patience {
		return &DeadlineError{need, w.patience}
	}
	w.expected = expected
	q.push(w)
	q.known, q.after, q.at = !m.keeps, after, at
	if ln.queues[w.tag] == nil {
		if ln.queues == nil {
			ln.queues = map[uint64]*queue{}
		}
		ln.queues[w.tag] = q
		heap.Push(&ln.lulls, &q.lull)
	}
	ln.busy.Add(1)
	ln.arm()
	return nil
}

// project returns the state after w is served behind all who stand in q, the
// instant of that, and the one from which on w may act. It steps through the
// whole queue only when what it knew of its end is void.
func (ln *line) project(q *queue, b *binding, m *Meter, now Instant, w *waiter) (State, Instant, Instant) {
	switch m.limit.Algorithm {
	case SlidingLog:
		at := ln.throughLog(q, b, m, now, w)
		return State{}, at, at
	case Concurrency:
		return State{}, now, now // nobody knows
	}
	s, at := q.after, max(q.at, now)
	if !q.known {
		s, at = ln.through(q, b, m, now)
	}
	s, at, delay := m.serve(s, at, w.n)
	return s, at, Instant(later(int64(at), int64(delay)))
}

// through steps through q and writes down when each is expected to be served.
func (ln *line) through(q *queue, b *binding, m *Meter, now Instant) (State, Instant) {
	s, at := b.state(q.tag, m, now)
	for o := q.head; o != nil; o = o.next {
		var delay time.Duration
		s, at, delay = m.serve(s, at, o.n)
		o.expected = Instant(later(int64(at), int64(delay)))
	}
	return s, at
}

// throughLog is through for a log, on a copy of it; w, if not nil, comes last.
func (ln *line) throughLog(q *queue, b *binding, m *Meter, now Instant, w *waiter) Instant {
	var l logState
	b.with(q.tag, m, &now, func(s State, _ bool) {
		if o := b.keeper.of(b.space, s, m, now); o != nil && o.log != nil {
			l = *o.log
			l.ring = slices.Clone(l.ring)
		}
	})
	serve := func(o *waiter) {
		d := l.ask(m, now, Ask{N: o.n})
		if !d.Allowed && d.RetryAfter != Never {
			now = Instant(later(int64(d.At), int64(d.RetryAfter)))
			d = l.ask(m, now, Ask{N: o.n})
		}
		l.commit(m, d)
		o.expected = now
	}
	for o := q.head; o != nil; o = o.next {
		serve(o)
	}
	if w != nil {
		serve(w)
	}
	return now
}

// expect brings up to date when w, who stands in line, is expected to be
// served.
func (ln *line) expect(w *waiter, now Instant) {
	m := w.limiter.meter.Load()
	q := ln.queues[w.tag]
	b, err := w.limiter.memory.bind(w.limiter.space)
	if m.limit.Algorithm == SlidingLog && err == nil {
		ln.throughLog(q, b, m, now, nil)
	}
	if q.known || m.keeps || err != nil {
		return
	}
	q.after, q.at = ln.through(q, b, m, now)
	q.known = true
}

// serve returns the state after n units are taken at the earliest instant from
// at on, that instant, and the delay that comes with it.
func (m *Meter) serve(s State, at Instant, n int64) (State, Instant, time.Duration) {
	after, d := m.Grant(s, at, Ask{N: n})
	if !d.Allowed {
		if d.RetryAfter == Never {
			return s, at, 0 // it will fail, and cost nothing
		}
		at = Instant(later(int64(d.At), int64(d.RetryAfter)))
		after, d = m.Grant(s, at, Ask{N: n})
	}
	return after, at, d.Delay
}

// paid says that w has what it asked for, if only after a delay.
func (ln *line) paid(w *waiter, d Decision) {
	w.decision = d
	w.expected = d.At + Instant(d.Delay)
	if d.Delay == 0 {
		w.wake(served, nil)
		return
	}
	w.state = delayed
	w.lull = &lull{due: w.expected, waiter: w}
	ln.busy.Add(1)
	heap.Push(&ln.lulls, w.lull)
}

func (w *waiter) wake(s waiterState, err error) {
	w.state, w.err = s, err
	close(w.woken)
}

// leave takes w out of the line because its caller gave up, and returns why;
// or what it paid, if it was served before. The line is locked.
func (ln *line) leave(w *waiter, why error) (Decision, error) {
	q := ln.queues[w.tag]
	switch w.state {
	case served, failed:
		return w.decision, w.err
	case delayed:
		heap.Remove(&ln.lulls, w.lull.index)
		ln.busy.Add(-1)
		w.limiter.settle(w.tag, w.decision, -w.decision.Taken)
		if q != nil {
			ln.hasten(q)
		}
	case standing:
		first := q.head == w
		ln.drop(q, w)
		if first && q.head != nil {
			ln.hasten(q)
		}
	}
	w.decision = Decision{}
	w.wake(failed, why)
	ln.arm()
	return w.decision, why
}

// hasten looks at a queue again as soon as may be.
func (ln *line) hasten(q *queue) {
	q.due, q.known = firstInstant, false
	heap.Fix(&ln.lulls, q.index)
}

// drop takes w out of q, and q out of the line if it was the last.
func (ln *line) drop(q *queue, w *waiter) {
	q.remove(w)
	q.known = false
	ln.busy.Add(-1)
	if q.head == nil {
		heap.Remove(&ln.lulls, q.index)
		delete(ln.queues, w.tag)
	}
}

// arm sets the one timer to the next that is due.
func (ln *line) arm() {
	if len(ln.lulls) == 0 {
		if ln.timer != nil {
			ln.timer.Stop()
		}
		ln.armed = 0
		return
	}
	next := ln.lulls[0]
	if ln.armed == next.due {
		return
	}
	ln.armed = next.due
	wait := max(0, next.due.sub(next.now()))
	if ln.timer == nil {
		ln.timer = time.AfterFunc(wait, ln.run)
	} else {
		ln.timer.Reset(wait)
	}
}

// now reads the clock that the lull's instant is of.
func (u *lull) now() Instant {
	w := u.waiter
	if w == nil {
		w = u.queue.head
	}
	return w.limiter.now(w.limiter.meter.Load())
}

// run is what the timer does.
func (ln *line) run() {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	ln.armed = 0
	ln.serveDue()
}

// serveDue serves all who are due.
func (ln *line) serveDue() {
	for len(ln.lulls) > 0 {
		u := ln.lulls[0]
		if u.due > u.now() {
			break
		}
		if w := u.waiter; w != nil {
			heap.Pop(&ln.lulls)
			ln.busy.Add(-1)
			w.wake(served, nil)
			continue
		}
		ln.serve(u.queue)
	}
	ln.arm()
}

// serve tries the head of a queue.
func (ln *line) serve(q *queue) {
	w := q.head
	m := w.limiter.meter.Load()
	b, err := w.limiter.memory.bind(w.limiter.space)
	if err != nil {
		ln.drop(q, w)
		w.wake(failed, ErrClosed)
		return
	}
	d := b.takeFirst(w.tag, m, w.limiter.now(m), w.n)
	switch {
	case d.Allowed:
		known := q.known
		ln.drop(q, w)
		q.known = known // it was served as foreseen
		ln.paid(w, d)
	case d.RetryAfter == Never:
		ln.drop(q, w)
		w.wake(failed, d.Err())
	default:
		if due := Instant(later(int64(d.At), int64(d.RetryAfter))); due != q.due {
			q.due = due
			heap.Fix(&ln.lulls, q.index)
		}
	}
}

// standing reports whether anybody waits for the key of that tag, and when n
// units would be there behind all of them.
func (ln *line) standing(l *Limiter, b *binding, tag uint64, n int64) (Decision, bool) {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	q := ln.queues[tag]
	if q == nil {
		return Decision{}, false
	}
	m := l.meter.Load()
	now := l.now(m)
	d := b.look(tag, m, now, n)
	if d.RetryAfter == Never && !d.Allowed {
		return d, true
	}
	d.Remaining = 0
	if n == 0 {
		return d, true
	}
	_, _, at := ln.project(q, b, m, now, &waiter{limiter: l, tag: tag, n: n})
	if m.limit.Algorithm == Concurrency {
		at = q.turnover(m, d, n)
		d.ResetAfter = max(d.ResetAfter, at.sub(d.At))
	}
	d.Allowed, d.Reason = false, OverLimit
	d.RetryAfter = max(1, d.RetryAfter, at.sub(d.At))
	return d, true
}

// turnover returns an instant at which all who stand in q and n units more had
// their slots, also if none is given back before it expires. All that are held
// expire by the reset of d, and as many each time after.
func (q *queue) turnover(m *Meter, d Decision, n int64) Instant {
	for w := q.head; w != nil; w = w.next {
		n = later(n, w.n)
	}
	at, period := later(int64(d.At), int64(d.ResetAfter)), int64(m.limit.Period)
	times := (n - 1) / m.limit.Cap()
	if times > (math.MaxInt64-at)/period {
		return math.MaxInt64
	}
	return Instant(at + times*period)
}

// changed looks at everybody again, or at those who wait for one key: a limit
// or a balance is not what it was.
func (ln *line) changed(tag uint64, all bool) {
	if ln.busy.Load() == 0 {
		return
	}
	ln.mu.Lock()
	defer ln.mu.Unlock()
	if all {
		for _, q := range ln.queues {
			ln.hasten(q)
		}
	} else if q := ln.queues[tag]; q != nil {
		ln.hasten(q)
	}
	ln.arm()
}

// close fails all who wait.
func (ln *line) close() {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	ln.closed = true
	for _, u := range ln.lulls {
		if u.waiter != nil {
			u.waiter.wake(failed, ErrClosed)
			continue
		}
		for w := u.queue.head; w != nil; w = w.next {
			w.wake(failed, ErrClosed)
		}
	}
	for closed := range ln.held {
		close(closed)
	}
	ln.lulls, ln.queues, ln.held = nil, nil, nil
	ln.busy.Store(0)
	ln.arm()
}

// hold keeps the channel of one who holds, to close it with ln. It reports false
// if ln is closed already.
func (ln *line) hold(closed chan struct{}) bool {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	if ln.closed {
		return false
	}
	if ln.held == nil {
		ln.held = map[chan struct{}]struct{}{}
	}
	ln.held[closed] = struct{}{}
	return true
}

func (ln *line) release(closed chan struct{}) {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	delete(ln.held, closed)
}

// push puts w at the end of q.
func (q *queue) push(w *waiter) {
	w.prev, w.next = q.tail, nil
	if q.tail == nil {
		q.head = w
	} else {
		q.tail.next = w
	}
	q.tail = w
}

func (q *queue) remove(w *waiter) {
	if w.prev == nil {
		q.head = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		q.tail = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.prev, w.next = nil, nil
}

// lulls is a heap by the instant when each is due.
type lulls []*lull

func (h lulls) Len() int           { return len(h) }
func (h lulls) Less(i, j int) bool { return h[i].due < h[j].due }
func (h lulls) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push implements [heap.Interface].
func (h *lulls) Push(x any) {
	u := x.(*lull)
	u.index = len(*h)
	*h = append(*h, u)
}

// Pop implements [heap.Interface].
func (h *lulls) Pop() any {
	last := len(*h) - 1
	u := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return u
}

// takeFirst is take for the first in line. Where a queue limit would have it
// wait for others, it takes nothing yet and is told to come back: a place in
// line can be given up without a gap in what leaves, one in the queue can't.
func (b *binding) takeFirst(tag uint64, m *Meter, now Instant, n int64) (d Decision) {
	if m.limit.Algorithm == Queue && n > 0 {
		_, alone := m.Grant(State{}, now, Ask{N: n})
		d = b.look(tag, m, now, n)
		// Up to a nanosecond is the rounding of what comes before, which would
		// be lost if the queue ran empty.
		if lead := d.Delay - alone.Delay; d.Allowed && lead > 1 {
			d.Allowed, d.Reason, d.RetryAfter = false, OverLimit, lead-1
			return d
		}
	}
	b.take(tag, m, now, Ask{N: n}, &d)
	return d
}

// look is what take would say, and charges nothing.
func (b *binding) look(tag uint64, m *Meter, now Instant, n int64) (d Decision) {
	b.with(tag, m, &now, func(s State, overflow bool) {
		if m.keeps {
			d = b.keeper.of(b.space, s, m, now).ask(m, now, Ask{N: n})
		} else {
			_, d = m.Grant(s, now, Ask{N: n})
		}
		d.Taken, d.Overflow = 0, overflow
	})
	return d
}

// state returns the state of a tag and the instant at which it is that.
func (b *binding) state(tag uint64, m *Meter, now Instant) (s State, at Instant) {
	b.with(tag, m, &now, func(found State, _ bool) { s = found })
	return s, now
}

// with hands f the state of a tag under its lock.
func (b *binding) with(tag uint64, m *Meter, now *Instant, f func(s State, overflow bool)) {
	sh, place := b.table.Shard(tag)
	sh.Lock()
	defer sh.Unlock()
	*now = Instant(sh.Advance(int64(*now)))
	if i := sh.Find(tag, place); i >= 0 {
		f(b.load(sh, i, m, *now), false)
		return
	}
	if b.room(sh, tag, *now, 0) {
		f(b.space.fresh(m, *now), false)
		return
	}
	b.spill.Lock()
	defer b.spill.Unlock()
	f(b.loadSpilled(m, *now), true)
}
