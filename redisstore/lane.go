package redisstore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillgate/spillgate"
)

// A lane leads to one server. Requests that come while as many calls are under
// way as may be are gathered, and go together with the next one: a lone request
// never waits for company.
type lane struct {
	store *Store
	name  string

	mu       sync.Mutex
	queue    []*op
	flying   int  // calls under way
	carried  int  // requests on them
	starting bool // a call that has not taken its requests yet

	latest  atomic.Int64 // the latest time of the server that was seen
	breaker breaker
	apart   map[string]bool // shapes that go by themselves
}

func newLane(s *Store, name string) *lane {
	l := &lane{store: s, name: name}
	l.breaker = breaker{store: s, name: name, answers: l.answers}
	return l
}

// Where an op is.
const (
	opQueued  int32 = iota
	opSent          // the server may carry it out
	opDone          // answered
	opDropped       // nobody waits any more, and it was never sent
)

// An op is one request, or one correction, on its way.
type op struct {
	request
	replace []replacement // of its roots, in order, if it is to replace what was read
	fix     *spillgate.Correction
	slot    uint16 // of all its keys
	dry     bool   // nothing is to be taken
	index   []int  // of its charges in the request that it is part of
	apart   string // its shape, if it goes with that alone
	given   bool   // request.now is the caller's

	letter byte
	raws   []any // of its roots, as they were
	fresh  bool  // raws is what the server has, as far as is known
	err    error

	phase  atomic.Int32
	flight *flight
	done   chan struct{} // holds one word when the answer is there
	next   *op           // that is asked like this one, in the same call
}

// newOp returns one of no charges yet.
func (s *Store) newOp() *op {
	if o, ok := s.ops.Get().(*op); ok {
		return o
	}
	return &op{done: make(chan struct{}, 1)}
}

// free keeps o for another request: its answer was read, so nobody else knows of it.
func (s *Store) free(o *op) {
	clear(o.charges)
	clear(o.out)
	clear(o.parts)
	clear(o.raws)
	*o = op{
		request: request{charges: o.charges[:0], out: o.out[:0], parts: o.parts[:0], of: o.of[:0]},
		raws:    o.raws[:0], done: o.done,
	}
	s.ops.Put(o)
}

// A flight is one call under way.
type flight struct {
	lane *lane
	size int         // in requests; guarded by the lane
	lost atomic.Bool // it took too long, and is not waited for, or is over
}

// lose gives up waiting for a flight, so that others can start; key is one that it
// carries.
func (f *flight) lose(key string) {
	if f.lost.CompareAndSwap(false, true) {
		f.lane.breaker.note(key)
		f.lane.breaker.failed(TimedOut)
		f.lane.mu.Lock()
		f.end()
		f.lane.launch()
		f.lane.mu.Unlock()
	}
}

// end takes f out of the lane, which is locked.
func (f *flight) end() {
	f.lane.flying--
	f.lane.carried -= f.size
}

// submit sends ops together, and with others. Where the library keeps to time
// limits, one that may carry them and finds nobody under way makes the call itself,
// which spares two changes of goroutine; otherwise, and if the last call failed, so
// that a connection may have to be made first, submit returns at once.
func (l *lane) submit(carry bool, ops ...*op) {
	l.mu.Lock()
	l.enqueue(ops)
	if !carry || l.flying > 0 || !l.store.punctual || !l.sure() {
		l.launch()
		l.mu.Unlock()
		return
	}
	l.begin()
	l.mu.Unlock()
	b := batches.Get().(*batch)
	defer b.free()
	if l.once(b, l.store.patience) {
		go l.fly()
	}
}

// enqueue puts ops into the queue; l is locked.
func (l *lane) enqueue(ops []*op) {
	for _, o := range ops {
		if o.done == nil {
			o.done = make(chan struct{}, 1)
		}
		o.phase.Store(opQueued)
	}
	l.queue = append(l.queue, ops...)
}

// launch starts a flight if one is due; l is locked.
func (l *lane) launch() {
	if l.due() {
		l.begin()
		go l.fly()
	}
}

// due reports whether it is time for another flight: if nothing is under way, and
// otherwise when there is as much to send as on one of those that are. So the calls
// of many callers are few and large, and those who ask and the server work at once;
// of two callers neither waits for the other. l is locked.
func (l *lane) due() bool {
	return len(l.queue) > 0 && !l.starting && l.flying < l.store.options.flights && len(l.queue)*l.flying >= l.carried
}

// begin counts a flight that is about to take what is queued; l is locked.
func (l *lane) begin() {
	l.flying++
	l.starting = true
}

// fly makes flights as long as they are due.
func (l *lane) fly() {
	b := batches.Get().(*batch)
	defer b.free()
	for l.once(b, l.store.connecting()) {
	}
}

// once makes one flight with what is queued, within a time, and reports whether another one is due
// then, which it has begun. If it took so long that others do not wait for it any more,
// none is.
func (l *lane) once(b *batch, within time.Duration) bool {
	f := &flight{lane: l}
	l.mu.Lock()
	b.gather(l, f)
	l.mu.Unlock()
	if len(b.ops) > 0 {
		b.send(f, within)
	}
	if !f.lost.CompareAndSwap(false, true) { // over, so nobody loses it now
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	f.end()
	if !l.due() {
		return false
	}
	l.begin()
	return true
}

// gather takes from the queue what can go together; l is locked.
func (b *batch) gather(l *lane, f *flight) {
	b.clear()
	keys := 0
	rest := l.queue[:0]
	for i, o := range l.queue {
		if len(b.ops) >= maxBatch || keys >= maxKeys {
			rest = append(rest, l.queue[i:]...)
			break
		}
		if len(b.ops) > 0 && (o.given != b.ops[0].given || o.given && o.now != b.ops[0].now) {
			rest = append(rest, o)
			continue
		}
		o.flight = f
		if o.phase.CompareAndSwap(opQueued, opSent) {
			o.apart = l.apartOf(o)
			b.ops = append(b.ops, o)
			keys += len(o.parts)
		}
	}
	clear(l.queue[len(rest):])
	l.queue = rest
	l.starting, f.size = false, len(b.ops)
	l.carried += f.size
}

// send makes the calls of a batch and hands the answers out.
func (b *batch) send(f *flight, within time.Duration) {
	l := f.lane
	s := l.store
	given := b.ops[0].given
	floor := l.latest.Load()
	if given {
		floor = int64(b.ops[0].now)
	}
	ctx, cancel := context.WithTimeout(background, within)
	defer cancel()
	s.stats.gathered.Add(uint64(len(b.ops)))
	failed := b.ask(ctx, l, given, floor)
	switch {
	case f.lost.Load():
	case failed == NoFault:
		l.breaker.worked()
	default:
		l.breaker.failed(failed)
	}
}

// ask makes the calls of b and hands the answers out. It returns in which way the
// server failed.
func (b *batch) ask(ctx context.Context, l *lane, given bool, floor int64) Fault {
	s := l.store
	b.group(s.conn.Slots())
	for i := range b.groups {
		b.calls = append(b.calls, b.groups[i].call(given, floor, s))
	}
	calls := b.calls
	sent := time.Now()
	s.stats.calls.Add(uint64(len(calls)))
	s.conn.Eval(ctx, calls)
	again(ctx, s.conn, calls)
	failed := NoFault
	for i := range b.groups {
		g, c := &b.groups[i], &calls[i]
		var err Fault
		switch about := scopeOf(c.Err); {
		case about == ofServer:
			err = g.answer(c, l, sent, given)
		case l.part(g) && about == ofKeys:
			s.stats.faults[KindOf(c.Err)].Add(1)
			err = g.askAgain(ctx, l, false, given, floor)
		case about == ofSlot && len(g.ops) > 1: // a lone key is found, wherever it is
			err = g.askAgain(ctx, l, true, given, floor)
		default:
			g.answer(c, l, sent, given) // which is no fault of the server
		}
		if err != NoFault {
			l.breaker.note(c.Keys[0])
			failed = err
		}
	}
	return failed
}

// again sends the whole script where the server did not know it: surely those
// calls were not carried out.
func again(ctx context.Context, conn Conn, calls []Call) {
	for i := range calls {
		if calls[i].Err == nil || KindOf(calls[i].Err) != NoScript {
			continue
		}
		c := calls[i : i+1]
		c[0].SHA, c[0].Err = "", nil
		conn.Eval(ctx, c)
	}
}

// answer hands the answers of one run out.
func (g *group) answer(c *Call, l *lane, sent time.Time, given bool) Fault {
	fault := KindOf(c.Err)
	var reply scriptReply
	err := c.Err
	if err == nil {
		if c.Source == many.source {
			err = reply.readMany(c.Reply, g)
		} else {
			err = reply.read(c.Reply, len(g.ops), g.plain)
		}
		if err != nil {
			fault = Broken
		}
	}
	if err != nil {
		l.store.stats.faults[fault].Add(1)
		about := scopeOf(err)
		if about == ofSlot {
			err = fmt.Errorf("%w: %w", errMoving, err)
		}
		err = fmt.Errorf("redisstore: %w: %s: %w", spillgate.ErrUnavailable, fault, err)
		for _, o := range g.ops {
			if about != ofServer {
				o.finish(fmt.Errorf("%w: for %s", err, strings.Join(o.keys(), ", ")))
			} else {
				o.finish(err)
			}
		}
		return fault
	}
	if shape := g.ops[0].apart; shape != "" {
		l.join(shape)
	}
	now := reply.now
	if !given {
		l.store.saw(now, sent)
		for {
			was := l.latest.Load()
			if int64(now) <= was || l.latest.CompareAndSwap(was, int64(now)) {
				break
			}
		}
	}
	g.states = slices.Grow(g.states, g.plain-len(g.states))[:g.plain]
	for i, o := range g.ops {
		o.now, o.letter = now, reply.letters[i]
		if o.read(&reply, g.states) {
			l.store.stats.faults[WrongType].Add(1)
		}
	}
	return NoFault
}

// A state is what a key holds in the course of a batch, from what was read on.
type state struct {
	held
	read  bool
	moved bool // it is not any more what the reply says that it was
}

// read takes o's answer from the reply of the batch, whose earlier ops have
// left states, and reports whether something else is at a key. Then o is whose it was.
func (o *op) read(reply *scriptReply, states []state) (wrong bool) {
	o.fresh = true
	o.raws = o.raws[:0]
	for i := range o.parts {
		p := &o.parts[i]
		if p.kind == kindNone {
			o.raws = append(o.raws, nil)
			continue
		}
		if p.kind.kept() {
			o.raws = append(o.raws, nil)
			if o.fix == nil {
				if !reply.tally(&p.tell) {
					o.finish(fmt.Errorf("redisstore: %w: %s: reply too short", spillgate.ErrUnavailable, Broken))
					return false
				}
				if p.tell.used < 0 {
					o.raws[i] = int64(1)
				}
			}
			continue
		}
		var raw any
		if reply.raws != nil { // else states has all of them
			raw = reply.raws[p.place]
			o.raws = append(o.raws, raw)
		}
		st := &states[p.place]
		if st.moved {
			o.fresh = false
		}
		if p.root != i {
			continue
		}
		if !st.read {
			var err error
			st.stamp = unstamped
			if text, ok := raw.(string); ok {
				st.s, st.stamp, err = readState(text, p.m)
			}
			if err != nil {
				o.letter, o.raws[i] = 'X', int64(1)
			}
			st.read = err == nil // else whoever is next has to see it, too
		}
		p.before = st.held
		if p.ttl > 0 && p.before.stamp != unstamped && int64(o.now) >= later(p.before.stamp, p.ttl) {
			p.before = held{stamp: unstamped}
		}
	}
	switch {
	case o.letter == 'X':
		o.finish(o.wrong())
		return true
	case o.fix != nil || o.replace != nil || o.letter != 'A' && o.letter != 'D':
		o.moves(states)
		o.finish(nil)
		return false
	}
	o.judge()
	if o.dry {
		o.finish(nil)
		return false
	}
	if o.passes != (o.letter == 'A') {
		o.finish(fmt.Errorf("redisstore: %w: the script and the library disagree on %v: please report this", spillgate.ErrUnavailable, o.charges))
		return false
	}
	if o.passes {
		for i := range o.parts {
			if p := &o.parts[i]; p.root == i && p.charged && !p.kind.kept() {
				st := &states[p.place]
				st.held, st.moved = p.after, true
			}
		}
	}
	o.finish(nil)
	return false
}

// moves notes that a state is not any more what the reply says that it was. Of those
// who find one that another limit wrote the first settles it, and the others ask again.
func (o *op) moves(states []state) {
	for i := range o.parts {
		p := &o.parts[i]
		if o.letter != 'A' && o.letter != 'C' || p.root != i || p.kind == kindNone || p.kind.kept() {
			continue
		}
		st := &states[p.place]
		st.moved = true
		if o.letter == 'A' && o.fix == nil { // replaced by what is known here
			if st.held, st.read = p.before, true; p.charged {
				st.held = p.after
			}
		}
	}
}

// ErrType is wrapped by the error about a key in Redis that holds something
// else than a state of this package.
var ErrType = fmt.Errorf("wrong type at a key")

// wrong names the key of o that is not a state of ours.
func (o *op) wrong() error {
	keys := o.keys()
	for i, raw := range o.raws {
		if _, ok := raw.(int64); ok {
			keys = []string{fmt.Sprintf("%q", o.parts[i].key)}
		}
	}
	return fmt.Errorf("redisstore: %w: %w: %s: something else writes under this prefix; delete it, or choose another prefix",
		spillgate.ErrUnavailable, ErrType, strings.Join(keys, " or "))
}

// keys returns the keys of o, as errors have them.
func (o *op) keys() (keys []string) {
	for i := range o.parts {
		keys = append(keys, fmt.Sprintf("%q", o.parts[i].key))
	}
	return keys
}

// key returns the first of them, which a server is looked for by.
func (o *op) key() string {
	for i := range o.parts {
		if o.parts[i].kind != kindNone {
			return o.parts[i].key
		}
	}
	return ""
}

func (o *op) finish(err error) {
	o.err = err
	o.phase.Store(opDone)
	o.done <- struct{}{}
}
