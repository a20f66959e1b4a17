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
	units       int64 // of all

	// How the key stood when the first one asked last, at asked here, and when all
	// in line are served, if that is known. Of slots nothing is.
	told, end spillgate.Forecast
	asked     time.Time
	known     bool
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
			h.leave(false)
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
	if i, wait, behind := e.standBehind(s, h); behind {
		if h.place == nil {
			e.refuseInLine(ctx, v, s, i, wait)
			e.conclude(ctx, v, s)
		}
		return
	}
	e.take(ctx, v, s)
	if o := e.delayed(v); o != nil {
		reaches := !h.over && e.reaches(h, o, v.RetryAfter())
		if reaches || h.place != nil {
			q := e.foresee(ctx, v, s, o)
			h.learn(&q)
			if reaches && e.stand(h, o, &q) {
				return
			}
		}
	}
	h.leave(v.Allowed)
	e.tellLines(v, s)
	e.conclude(ctx, v, s)
}

// standBehind puts h in the first line that is there for one of its charges, if
// it is not the first there already. It reports whether there is one: then h
// has a place, or none if it can't be served in time. i is the charge's, and wait
// what it is told then.
func (e *Engine) standBehind(s *scratch, h *held) (i int, wait time.Duration, behind bool) {
	if e.lines.busy.Load() == 0 {
		return 0, 0, false
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
		if c.N > c.Meter.Limit().Cap()-c.Keep { // it never fits, and is told so
			continue
		}
		q := l.of[lineKey{int32(s.index[i]), c.Key, c.Keep}]
		if q == nil || h.place != nil && q.first == h.place {
			continue
		}
		now := time.Now()
		late := h.place != nil && h.place.line == q // its time is up before its turn
		if !late {
			h.begin(now, r.Delay.Most)
			late = q.wait(now, c.N) > h.reach(now, c.Meter) || q.n >= r.Delay.Filled().Queue || !l.room()
		}
		if !late {
			l.join(h, q, c.N)
			return i, 0, true
		}
		if h.place != nil {
			l.remove(h.place, false)
			h.place = nil
		}
		return i, q.wait(now, c.N), true
	}
	return 0, 0, false
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

// reaches reports whether h can be held so long by the rule of o.
func (e *Engine) reaches(h *held, o *Outcome, wait time.Duration) bool {
	now, m := time.Now(), e.meter(o)
	h.begin(now, o.Rule.Delay.Most)
	left := h.reach(now, m)
	if m.Limit().Algorithm == spillgate.Concurrency {
		wait = max(1, min(slotPoll, wait, left)) // to ask again, which nobody is told
	}
	h.wait = wait
	return wait <= left
}

// stand puts h in the line of o, which is to be q if there is none, or leaves it
// there. It reports false if h can't be served in time, or there is no room.
func (e *Engine) stand(h *held, o *Outcome, q *line) bool {
	l, now, m := h.lines, time.Now(), e.meter(o)
	l.mu.Lock()
	defer l.mu.Unlock()
	units := q.units
	switch there := l.of[q.key]; {
	case h.place != nil && h.place.line == there:
		return true
	case !l.room():
		return false
	case there == nil:
		q.units = 0
		if l.of == nil {
			l.of = make(map[lineKey]*line)
		}
		l.of[q.key] = q
	default:
		if q = there; q.n >= o.Rule.Delay.Filled().Queue || q.wait(now, units) > h.reach(now, m) {
			return false
		}
	}
	l.join(h, q, units)
	return true
}

// refuseInLine refuses a request whose line takes no more, without asking for
// anything: it would overtake. All limits are only asked how they stand.
func (e *Engine) refuseInLine(ctx context.Context, v *Verdict, s *scratch, i int, wait time.Duration) {
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
		wait = max(1, d.ResetAfter)
		e.lines.mu.Lock()
		if q := e.lines.of[lineKey{int32(s.index[i]), c.Key, c.Keep}]; q != nil {
			wait = q.tells(e.policy.rules[s.index[i]].Rule, c, d)
		}
		e.lines.mu.Unlock()
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
		l.remove(h.place, false)
	}
	if q.known {
		q.end.Serve(q.ask(units))
	}
	p := &place{line: q, units: units, prev: q.last, turn: make(chan struct{}, 1)}
	if q.last == nil {
		q.first = p
	} else {
		q.last.next = p
	}
	q.last = p
	q.units += units
	q.n++
	l.busy.Add(1)
	h.place = p
}

// leave takes h out of its line; it has passed, or not.
func (h *held) leave(passed bool) {
	if h.place == nil {
		return
	}
	h.lines.mu.Lock()
	defer h.lines.mu.Unlock()
	h.lines.remove(h.place, passed)
	h.place = nil
}

// remove takes p out, and wakes the next one if it was the first.
func (l *lines) remove(p *place, passed bool) {
	q := p.line
	if passed && p == q.first && q.told.Known() {
		q.told.Serve(q.ask(p.units)) // as was foreseen of those behind
	} else {
		q.known = false
	}
	if p.next != nil {
		p.next.prev = p.prev
	} else {
		q.last = p.prev
	}
	if p.prev != nil {
		p.prev.next = p.next
	} else if q.first = p.next; q.first != nil {
		q.first.wake()
	}
	q.units -= p.units
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
