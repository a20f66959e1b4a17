package policy

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillgate/spillgate"
)

// A Delay holds requests that a rule would refuse until they fit, in order of
// arrival. The zero Delay is none. Fronts that can hold a request ask
// [Engine.Await]; [Engine.Decide] refuses at once.
type Delay struct {
	// Most is the longest that a request is held, from 1 ms to [MaxDelay]. One
	// that would take longer is refused at once.
	Most time.Duration
	// Queue is how many may wait for one key, 1 to [MaxQueue]; 0 means 100.
	Queue int
}

// Bounds of a [Delay].
const (
	MaxDelay     = 5 * time.Minute
	MaxQueue     = 10_000
	defaultQueue = 100
)

// Filled returns d with its default filled in.
func (d Delay) Filled() Delay {
	if d.Queue == 0 {
		d.Queue = defaultQueue
	}
	return d
}

// check reports what is wrong with r's delay.
func (d Delay) check(r *Rule) error {
	switch {
	case r.Deny:
		return errors.New("a rule that denies refuses for ever, so waiting does not help; remove one of them")
	case r.Limit.Algorithm == spillgate.Unlimited:
		return errors.New("unlimited refuses nobody; remove one of them")
	case r.Limit.Algorithm == spillgate.Queue:
		return errors.New("a queue holds requests by itself; remove one of them")
	case d.Most < time.Millisecond || d.Most > MaxDelay:
		return fmt.Errorf("most %s: want from 1ms to %s", d.Most, period(MaxDelay))
	case d.Queue < 0 || d.Queue > MaxQueue:
		return fmt.Errorf("queue %d: want from 1 to %d", d.Queue, MaxQueue)
	}
	return nil
}

// slotPoll is how often the first in line for slots asks again. Nobody knows
// when one is given back elsewhere; here whoever gives one back says so.
const slotPoll = 50 * time.Millisecond

// lines are all who are held by an engine: a line a rule and key. Only the
// first in a line asks the store, so that nobody overtakes, and whoever leaves
// wakes the next one only.
type lines struct {
	any  bool         // a rule has a Delay
	busy atomic.Int32 // how many wait: looked at without the lock

	end   sync.Once
	ended chan struct{} // closed when nobody is held any more

	mu sync.Mutex
	of map[lineKey]*line
}

type lineKey struct {
	rule int32
	key  spillgate.Key
	// keep is that of a [Lane]: who may take of what is kept does not stand
	// behind who may not.
	keep int64
}

// A line is a list of those who wait, in order of arrival.
type line struct {
	key         lineKey
	first, last *place
	n           int
	units       int64     // of all but the first
	due         time.Time // when the first expects to pass; of slots, when it asks
}

// A place is one in a line.
type place struct {
	line       *line
	prev, next *place
	units      int64
	turn       chan struct{} // gets one when it is worth asking
}

// held is how one request is held.
type held struct {
	lines   *lines
	arrived time.Time
	ends    time.Time     // its context's deadline; zero if there is none
	place   *place        // while it waits
	wait    time.Duration // until the first in line asks again
	most    time.Duration
	over    bool // it may wait no longer
	told    bool // the front was
}

// OnHold has f called once if [Engine.Await] holds the request, before it waits:
// for fronts that only then look whether the client is still there.
func OnHold(f func()) Option { return Option{held: f} }

// tell tells the front that the request is held.
func (h *held) tell(opts []Option) {
	if h.told {
		return
	}
	h.told = true
	for i := range opts {
		if opts[i].held != nil {
			opts[i].held()
		}
	}
}

// Await is [Engine.DecideInto] for fronts that can hold a request: it returns
// when the request may pass, or is refused for good. A request that is refused
// only by rules that say [Rule.Delay] waits in line for its key, behind all who
// wait there, for as long as these rules allow, and each is let pass at the
// earliest instant that the limit permits. It is refused at once if the line is
// full, if spillgate.MaxWaiting others wait in all lines, or if by what is
// known it would have to wait too long, also for its context's deadline; then
// the wait it is told is such that those before it are served. Nobody knows when
// slots are given back, so there a deadline is found out only when it comes.
//
// A request whose context ends leaves the line, and so does each when e is
// closed ([Engine.Close]); it has paid nothing, and its verdict is the context's
// error, or [spillgate.ErrClosed]. Requests decided without Await don't stand in
// line. The time is this machine's: [At] does not go with Await.
func (e *Engine) Await(ctx context.Context, v *Verdict, attrs Attributes, opts ...Option) {
	if !e.lines.any {
		e.decide(ctx, v, attrs, opts, nil)
		return
	}
	h := held{lines: &e.lines}
	h.ends, _ = ctx.Deadline()
	for {
		e.decide(ctx, v, attrs, opts, &h)
		if h.place == nil {
			break
		}
		h.tell(opts)
		if err := h.await(ctx); err != nil {
			h.leave()
			v.begin(e)
			v.Allowed, v.err = false, fmt.Errorf("policy: %w", err)
			break
		}
	}
	if !h.arrived.IsZero() {
		v.Held = time.Since(h.arrived)
	}
}

// await waits until it is worth asking, or for the end of ctx or of all holds.
func (h *held) await(ctx context.Context) error {
	left := h.most - time.Since(h.arrived)
	wait := left
	if h.first() {
		wait = min(left, h.wait)
	}
	timer := time.NewTimer(max(0, wait))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-h.lines.ended:
		return errHeld
	case <-h.place.turn:
	case <-timer.C:
		h.over = wait == left
	}
	return nil
}

func (h *held) first() bool {
	h.lines.mu.Lock()
	defer h.lines.mu.Unlock()
	return h.place.line.first == h.place
}

// takeInTurn takes the charges of s if it is h's turn, and otherwise, or if
// they are refused for a while, puts h in line.
func (e *Engine) takeInTurn(ctx context.Context, v *Verdict, s *scratch, h *held) {
	if i, wait, units, behind := e.standBehind(s, h); behind {
		if h.place == nil {
			e.refuseInLine(ctx, v, s, i, wait, units)
			e.conclude(ctx, v, s)
		}
		return
	}
	e.take(ctx, v, s)
	if o := e.delayed(v); o != nil && !h.over && e.stand(s, h, o, v.RetryAfter()) {
		return
	}
	h.leave()
	e.tellLines(v, s)
	e.conclude(ctx, v, s)
}

// standBehind puts h in the first line that is there for one of its charges, if
// it is not the first there already. It reports whether there is one: then h
// has a place, or none if it can't be served in time. i is the charge's, units
// are those of the line, and wait is how long it would take if that is known.
func (e *Engine) standBehind(s *scratch, h *held) (i int, wait time.Duration, units int64, behind bool) {
	if e.lines.busy.Load() == 0 {
		return 0, 0, 0, false
	}
	l := h.lines
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range s.charges {
		c := &s.charges[i]
		r := &e.policy.rules[s.index[i]]
		if r.Delay.Most == 0 || c.N == 0 || c.Trial || c.Need > 0 {
			continue
		}
		limit := c.Meter.Limit()
		if c.N > limit.Cap()-c.Keep { // it never fits, and is told so
			continue
		}
		q := l.of[lineKey{int32(s.index[i]), c.Key, c.Keep}]
		if q == nil || h.place != nil && q.first == h.place {
			continue
		}
		now := time.Now()
		if h.place != nil && h.place.line == q { // its time is up before its turn
			l.remove(h.place)
			h.place = nil
			return i, q.wait(now, limit, c.N), q.all(), true
		}
		h.begin(now, r.Delay.Most)
		wait = q.wait(now, limit, c.N)
		if wait > h.reach(now, c.Meter) || q.n >= r.Delay.Filled().Queue || !l.room() {
			if h.place != nil {
				l.remove(h.place)
				h.place = nil
			}
			return i, wait, q.all(), true
		}
		l.join(h, q, c.N)
		return i, wait, 0, true
	}
	return 0, 0, 0, false
}

// begin notes when h arrived and how long it may be held.
func (h *held) begin(now time.Time, most time.Duration) {
	if h.arrived.IsZero() {
		h.arrived = now
	}
	h.most = most
}

// reach returns how long h can be held from now on for a unit of m: as its rule
// allows, and so that it passes before its deadline.
func (h *held) reach(now time.Time, m *spillgate.Meter) time.Duration {
	left := h.most - now.Sub(h.arrived)
	if !h.ends.IsZero() && m.Limit().Algorithm != spillgate.Concurrency {
		left = min(left, h.ends.Sub(now)-1)
	}
	return left
}

// delayed returns the outcome whose line a request may stand in, the one with
// the longest wait, if each rule that refuses it may hold it.
func (e *Engine) delayed(v *Verdict) (longest *Outcome) {
	if v.Allowed || v.err != nil {
		return nil
	}
	for i := range v.Len() {
		o := v.Outcome(i)
		if !o.Refuses() {
			continue
		}
		if o.Rule.Delay.Most == 0 || o.Decision.Reason != spillgate.OverLimit || o.Decision.RetryAfter == spillgate.Never {
			return nil
		}
		if longest == nil || o.Decision.RetryAfter > longest.Decision.RetryAfter {
			longest = o
		}
	}
	return longest
}

// stand puts h in the line of o, or leaves it there. It reports false if it
// can't be served in time, or there is no room.
func (e *Engine) stand(s *scratch, h *held, o *Outcome, wait time.Duration) bool {
	l, now := h.lines, time.Now()
	h.begin(now, o.Rule.Delay.Most)
	limit := e.meter(o).Limit()
	left := h.reach(now, e.meter(o))
	if limit.Algorithm == spillgate.Concurrency {
		wait = max(1, min(slotPoll, wait, left)) // to ask again, which nobody is told
	}
	if wait > left {
		return false
	}
	h.wait = wait
	l.mu.Lock()
	defer l.mu.Unlock()
	key := lineKey{o.index, o.key, o.keep}
	q := l.of[key]
	if h.place != nil && h.place.line == q {
		q.due = now.Add(wait)
		return true
	}
	units := int64(1)
	for i := range s.charges {
		if c := &s.charges[i]; int32(s.index[i]) == o.index && c.Key == o.key && c.Need == 0 {
			units = c.N
		}
	}
	switch {
	case q == nil && l.room():
		q = &line{key: key, due: now.Add(wait)}
		if l.of == nil {
			l.of = make(map[lineKey]*line)
		}
		l.of[key] = q
	case q == nil, q.n >= o.Rule.Delay.Filled().Queue, !l.room(), q.wait(now, limit, units) > left:
		return false
	}
	l.join(h, q, units)
	return true
}

// refuseInLine refuses a request whose line takes no more, without asking for
// anything: it would overtake. The others are only asked how they stand, and so
// is its own of slots: when those expire that are held tells how long it waits
// behind so many units.
func (e *Engine) refuseInLine(ctx context.Context, v *Verdict, s *scratch, i int, wait time.Duration, units int64) {
	asked := make([]int64, len(s.charges))
	for j := range s.charges {
		asked[j], s.charges[j].N = s.charges[j].N, 0
	}
	before := v.Len()
	e.take(ctx, v, s)
	if v.err != nil {
		return
	}
	if v.Fault != nil { // nobody knows how the limits stand, so there is no line
		for j := range s.charges {
			s.charges[j].N = asked[j]
		}
		v.cut(before)
		e.take(ctx, v, s)
		return
	}
	d, c := &s.decisions[i], &s.charges[i]
	if c.N = asked[i]; c.Meter.Limit().Algorithm == spillgate.Concurrency {
		wait = e.policy.rules[s.index[i]].behind(c, d, units)
	}
	d.Allowed, d.Reason, d.RetryAfter, d.ResetAfter = false, spillgate.OverLimit, wait, max(wait, d.ResetAfter)
	for j := range s.charges {
		s.charges[j].N = asked[j]
		for k := range v.Len() {
			if o := v.Outcome(k); int(o.index) == s.index[j] && s.charges[j].Need == 0 {
				o.Peeked = asked[j] == 0
				if i == j {
					o.Decision, v.Allowed = *d, false
				}
			}
		}
	}
}

// conclude does what is done once about a request that is refused for good: it
// notes by whom, and counts it.
func (e *Engine) conclude(ctx context.Context, v *Verdict, s *scratch) {
	if v.Allowed || v.tentative {
		return
	}
	e.noteRefused(v, s)
	if v.err != nil {
		return
	}
	if e.penalties != nil && v.Fault == nil {
		e.penalise(ctx, v, s)
	}
	e.divert(ctx, v, s)
}

// noteRefused notes the rules that refuse a request, or would, of a verdict
// that said nothing of them yet.
func (e *Engine) noteRefused(v *Verdict, s *scratch) {
	for i := range v.Len() {
		if o := v.Outcome(i); !o.Decision.Allowed {
			e.note(v, &s.request, int(o.index), o.key, &o.Decision, o.Trial)
		}
	}
}

// room reports whether one more may wait. The lock is held.
func (l *lines) room() bool { return l.busy.Load() < spillgate.MaxWaiting }

// join puts h at the end of q, and out of the line where it stands.
func (l *lines) join(h *held, q *line, units int64) {
	if h.place != nil {
		l.remove(h.place)
	}
	p := &place{line: q, units: units, prev: q.last, turn: make(chan struct{}, 1)}
	if q.last == nil {
		q.first = p
	} else {
		q.last.next = p
		q.units += units
	}
	q.last = p
	q.n++
	l.busy.Add(1)
	h.place = p
}

// leave takes h out of its line.
func (h *held) leave() {
	if h.place == nil {
		return
	}
	h.lines.mu.Lock()
	defer h.lines.mu.Unlock()
	h.lines.remove(h.place)
	h.place = nil
}

// remove takes p out, and wakes the next one if it was the first.
func (l *lines) remove(p *place) {
	q := p.line
	if p.next != nil {
		p.next.prev = p.prev
	} else {
		q.last = p.prev
	}
	if p.prev != nil {
		p.prev.next = p.next
		q.units -= p.units
	} else if q.first = p.next; q.first != nil {
		q.units -= q.first.units
		q.due = time.Now() // it asks at once, and then says when
		q.first.wake()
	}
	q.n--
	l.busy.Add(-1)
	if q.first == nil {
		delete(l.of, q.key)
	}
}

func (p *place) wake() {
	select {
	case p.turn <- struct{}{}:
	default: // it is awake
	}
}

// returned wakes the first in line, of each lane, for what o gave back.
func (l *lines) returned(o *Outcome) {
	if l.busy.Load() == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	wake := func(keep int64) {
		if q := l.of[lineKey{o.index, o.key, keep}]; q != nil {
			q.first.wake()
		}
	}
	wake(0)
	for i := range o.Rule.Lanes {
		if kept := o.Rule.Lanes[i].Kept(o.Rule.Limit); kept > 0 {
			wake(kept)
		}
	}
}
