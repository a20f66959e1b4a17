package redisstore

import (
	"context"
	"fmt"
	"math/rand/v2"
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

	mu     sync.Mutex
	queue  []*op
	flying int

	known   atomic.Value // a key of the lane, for probes
	latest  atomic.Int64 // the latest time of the server that was seen
	breaker breaker
}

func newLane(s *Store, name, key string) *lane {
	l := &lane{store: s, name: name}
	l.breaker = breaker{store: s, name: name, answers: l.answers}
	l.known.Store(key)
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
	given   bool   // request.now is the caller's

	letter byte
	raws   []any // of its roots, as they were
	fresh  bool  // raws is what the server has, as far as is known
	err    error

	phase  atomic.Int32
	flight *flight
	done   chan struct{}
}

// A flight is one call under way.
type flight struct {
	lane *lane
	lost atomic.Bool // it took too long, and is not waited for, or is over
}

// lose gives up waiting for a flight, so that others can start.
func (f *flight) lose() {
	if f.lost.CompareAndSwap(false, true) {
		f.lane.breaker.failed(TimedOut)
		f.lane.mu.Lock()
		f.lane.flying--
		f.lane.launch()
		f.lane.mu.Unlock()
	}
}

// submit sends ops together, and with others. Where the library keeps to time
// limits, one that finds nobody under way makes the call itself, which spares
// two changes of goroutine; otherwise submit returns at once.
func (l *lane) submit(ops ...*op) {
	l.mu.Lock()
	l.enqueue(ops)
	if l.flying > 0 || !l.store.punctual {
		l.launch()
		l.mu.Unlock()
		return
	}
	l.flying++
	l.mu.Unlock()
	var b batch
	if l.once(&b) {
		l.mu.Lock()
		l.flying--
		l.launch()
		l.mu.Unlock()
	}
}

// hand is submit for who has more to do meanwhile: it returns at once.
func (l *lane) hand(ops ...*op) {
	l.mu.Lock()
	l.enqueue(ops)
	l.launch()
	l.mu.Unlock()
}

// enqueue puts ops into the queue; l is locked.
func (l *lane) enqueue(ops []*op) {
	for _, o := range ops {
		o.done = make(chan struct{})
		o.phase.Store(opQueued)
	}
	l.queue = append(l.queue, ops...)
}

// launch starts a flight if there is something to send; l is locked.
func (l *lane) launch() {
	if len(l.queue) > 0 && l.flying < l.store.options.flights {
		l.flying++
		go l.fly()
	}
}

// fly sends what is queued until nothing is.
func (l *lane) fly() {
	var b batch
	for l.once(&b) {
		l.mu.Lock()
		if len(l.queue) == 0 {
			l.flying--
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
	}
}

// once makes one flight with what is queued. It reports false if it took so
// long that others do not wait for it any more.
func (l *lane) once(b *batch) bool {
	f := &flight{lane: l}
	l.mu.Lock()
	b.gather(l, f)
	l.mu.Unlock()
	if len(b.ops) > 0 {
		b.send(f)
	}
	return f.lost.CompareAndSwap(false, true) // over, so nobody loses it now
}

// maxBatch is how many requests one call carries at most, maxKeys how many
// keys.
const (
	maxBatch = 256
	maxKeys  = 1024
)

// A batch is what one flight carries.
type batch struct {
	ops    []*op
	groups []group
}

// A group is what one run of the script carries: all of one slot where there
// are slots.
type group struct {
	ops   []*op
	keys  []string
	plain int
	index map[string]int  // of the key, from 0
	kept  map[string]bool // of a log or slots, by key; nil if no op has any
	asks  map[ask]int
}

// gather takes from the queue what can go together; l is locked.
func (b *batch) gather(l *lane, f *flight) {
	b.ops, b.groups = b.ops[:0], b.groups[:0]
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
			b.ops = append(b.ops, o)
			keys += len(o.parts)
		}
	}
	clear(l.queue[len(rest):])
	l.queue = rest
}

// send makes the calls of a batch and hands the answers out.
func (b *batch) send(f *flight) {
	l := f.lane
	s := l.store
	b.group(s.conn.Slots())
	given := b.ops[0].given
	floor := l.latest.Load()
	if given {
		floor = int64(b.ops[0].now)
	}
	calls := make([]Call, len(b.groups))
	for i := range b.groups {
		g := &b.groups[i]
		args := g.encode(given, floor, s)
		script := g.script()
		calls[i] = Call{SHA: script.sha, Source: script.source, Keys: g.keys, Args: args}
	}
	ctx, cancel := context.WithTimeout(background, s.patience)
	defer cancel()
	sent := time.Now()
	s.stats.calls.Add(uint64(len(calls)))
	s.stats.gathered.Add(uint64(len(b.ops)))
	s.conn.Eval(ctx, calls)
	again(ctx, s.conn, calls)
	failed := NoFault
	for i := range b.groups {
		if err := b.groups[i].answer(&calls[i], l, sent, given); err != NoFault {
			failed = err
		}
	}
	switch {
	case f.lost.Load():
	case failed == NoFault:
		l.breaker.worked()
	default:
		l.breaker.failed(failed)
	}
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

// group lays out which op goes in which run of the script, takes before settles,
// and numbers keys and asks.
func (b *batch) group(slots bool) {
	kept := slices.ContainsFunc(b.ops, (*op).kept)
	for _, settles := range [2]bool{false, true} {
		for _, o := range b.ops {
			if (o.fix != nil) != settles {
				continue
			}
			b.place(o, slots, kept)
		}
	}
}

// kept reports whether o has a log or slots.
func (o *op) kept() bool {
	for i := range o.parts {
		if o.parts[i].kind.kept() {
			return true
		}
	}
	return false
}

func (b *batch) place(o *op, slots, kept bool) {
	at := -1
	for i := range b.groups {
		if slots && b.groups[i].ops[0].slot != o.slot || b.groups[i].clashes(o) {
			continue
		}
		at = i
		break
	}
	if at < 0 {
		at = len(b.groups)
		g := group{index: make(map[string]int, len(b.ops)), asks: map[ask]int{}}
		if kept {
			g.kept = map[string]bool{}
		}
		b.groups = append(b.groups, g)
	}
	g := &b.groups[at]
	g.ops = append(g.ops, o)
	if !kept {
		return
	}
	for i := range o.parts {
		if p := &o.parts[i]; p.kind != kindNone {
			g.kept[p.key] = p.kind.kept()
		}
	}
}

// clashes reports whether g knows a key of o as one of the other kind: numbers
// where o has a log or slots, or the other way round.
func (g *group) clashes(o *op) bool {
	if g.kept == nil {
		return false
	}
	for i := range o.parts {
		p := &o.parts[i]
		if kept, known := g.kept[p.key]; known && kept != p.kind.kept() {
			return true
		}
	}
	return false
}

// encode writes what the script is given.
func (g *group) encode(given bool, floor int64, s *Store) []string {
	for _, kept := range [2]bool{false, true} {
		for _, o := range g.ops {
			for i := range o.parts {
				p := &o.parts[i]
				if p.kind == kindNone || p.kind.kept() != kept {
					continue
				}
				if _, ok := g.index[p.key]; !ok {
					g.index[p.key] = len(g.keys)
					g.keys = append(g.keys, p.key)
				}
			}
		}
		if !kept {
			g.plain = len(g.keys)
		}
	}
	head := encoder{b: make([]byte, 0, 40)}
	head.raw(flag(given))
	sec, nanos := split(floor)
	head.raw(float64(sec), float64(nanos), float64(g.plain), float64(rand.Uint64N(most)))
	args := make([]string, 2, 8)
	args[0] = string(head.b)
	program := make([]byte, 0, 8*len(g.ops))
	refuse := 0    // the ask that refuses what is not to be taken
	var last *part // whose ask is the one before
	same := 0
	for _, o := range g.ops {
		n := len(program)
		program = append(program, 0)
		for i := range o.parts {
			p := &o.parts[i]
			if p.kind == kindNone {
				continue
			}
			var a int
			switch {
			case o.replace != nil && !p.kind.kept():
				if p.root != i {
					continue
				}
				args = append(args, o.replace[i].encode())
				a = len(args) - 2
			case last != nil && last.ask == p.ask:
				a = same
			default:
				var ok bool
				if a, ok = g.asks[p.ask]; !ok {
					args = append(args, s.encoded(&p.ask))
					a = len(args) - 2
					g.asks[p.ask] = a
				}
				last, same = p, a
			}
			k := g.index[p.key] + 1
			program[n]++
			program = append(program, byte(k>>8), byte(k), byte(a>>8), byte(a))
		}
		if o.dry {
			if refuse == 0 {
				args = append(args, string([]byte{byte(kindRefuse), 0, 0, 0}))
				refuse = len(args) - 2
			}
			program[n]++
			program = append(program, 0, 1, byte(refuse>>8), byte(refuse))
		}
	}
	args[1] = string(program)
	return args
}

// answer hands the answers of one run out.
func (g *group) answer(c *Call, l *lane, sent time.Time, given bool) Fault {
	fault := KindOf(c.Err)
	var reply scriptReply
	err := c.Err
	if err == nil {
		if err = reply.read(c.Reply, len(g.ops), g.plain); err != nil {
			fault = Broken
		}
	}
	if err != nil {
		l.store.stats.faults[fault].Add(1)
		err = fmt.Errorf("redisstore: %w: %s: %w", spillgate.ErrUnavailable, fault, err)
		for _, o := range g.ops {
			o.finish(err)
		}
		return fault
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
	states := make([]state, g.plain)
	for i, o := range g.ops {
		o.now, o.letter = now, reply.letters[i]
		o.read(g, &reply, states)
	}
	return NoFault
}

// A state is what a key holds in the course of a batch.
type state struct {
	held
	read  bool
	moved bool // it is not any more what the reply says that it was
}

// read takes o's answer from the reply of the batch, whose earlier ops have
// left states.
func (o *op) read(g *group, reply *scriptReply, states []state) {
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
					return
				}
				if p.tell.used < 0 {
					o.raws[i] = int64(1)
				}
			}
			continue
		}
		k := g.index[p.key]
		raw := reply.raws[k]
		o.raws = append(o.raws, raw)
		st := &states[k]
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
		return
	case o.fix != nil || o.replace != nil || o.letter != 'A' && o.letter != 'D':
		if o.letter == 'A' { // what it left is not known here
			for i := range o.parts {
				if p := &o.parts[i]; p.kind != kindNone && !p.kind.kept() {
					states[g.index[p.key]].moved = true
				}
			}
		}
		o.finish(nil)
		return
	}
	o.judge()
	if o.dry {
		o.finish(nil)
		return
	}
	if o.passes != (o.letter == 'A') {
		o.finish(fmt.Errorf("redisstore: %w: the script and the library disagree on %v: please report this", spillgate.ErrUnavailable, o.charges))
		return
	}
	if o.passes {
		for i := range o.parts {
			if p := &o.parts[i]; p.root == i && p.charged && !p.kind.kept() {
				st := &states[g.index[p.key]]
				st.held, st.moved = p.after, true
			}
		}
	}
	o.finish(nil)
}

// ErrType is wrapped by the error about a key in Redis that holds something
// else than a state of this package.
var ErrType = fmt.Errorf("wrong type at a key")

// wrong names the key of o that is not a state of ours.
func (o *op) wrong() error {
	var keys []string
	for i := range o.parts {
		keys = append(keys, fmt.Sprintf("%q", o.parts[i].key))
	}
	for i, raw := range o.raws {
		if _, ok := raw.(int64); ok {
			keys = []string{fmt.Sprintf("%q", o.parts[i].key)}
		}
	}
	return fmt.Errorf("redisstore: %w: %w: %s: something else writes under this prefix; delete it, or choose another prefix",
		spillgate.ErrUnavailable, ErrType, strings.Join(keys, " or "))
}

func (o *op) finish(err error) {
	o.err = err
	o.phase.Store(opDone)
	close(o.done)
}
