package redisstore

import (
	"context"
	"crypto/sha1"
	_ "embed"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillgate/spillgate"
)

//go:embed take.lua
var takeSource string

var takeSHA = func() string {
	sum := sha1.Sum([]byte(takeSource)) // what EVALSHA goes by
	return hex.EncodeToString(sum[:])
}()

// ErrClient is wrapped by the error about a client that the store can't use.
var ErrClient = errors.New("unfit client")

// ErrOption is wrapped by the error about an option that can't be.
var ErrOption = errors.New("impossible option")

// DefaultBudget is how long a call may take: 20 ms.
const DefaultBudget = 20 * time.Millisecond

// DefaultPrefix begins every key. The number is that of the layout of keys and
// values, which another one would have to change.
const DefaultPrefix = "sg1:"

// DefaultFlights is how many calls to one server are under way at once.
const DefaultFlights = 2

type options struct {
	prefix   string
	budget   time.Duration
	flights  int
	remember time.Duration
}

// An Option shapes a [Store].
type Option func(*options)

// Prefix begins every key in place of [DefaultPrefix]. A part in braces, as in
// "{shop}:", is a hash tag: all keys are in one slot of a cluster, and so every
// request is one call, at the price that one server has all the work.
func Prefix(p string) Option { return func(o *options) { o.prefix = p } }

// Budget is how long a call may take, above 0, in place of [DefaultBudget].
// After that the answer is an error that wraps [spillgate.ErrUnavailable].
func Budget(d time.Duration) Option { return func(o *options) { o.budget = d } }

// Flights is how many calls to one server are under way at once, at least 1,
// in place of [DefaultFlights]. Requests that come meanwhile go together with
// the next one.
func Flights(n int) Option { return func(o *options) { o.flights = n } }

// A Store keeps the states of keys in Redis or Valkey: it is a
// [spillgate.Store]. Make one with [New]. It is safe for concurrent use.
type Store struct {
	conn    Conn
	options options
	stats   counters

	base   time.Time
	offset atomic.Int64 // of the server's clock, from the time since base

	mu    sync.RWMutex
	lanes map[string]*lane
	asks  map[ask]string

	told sync.Map // the latest instant that callers gave, by space: *atomic.Int64

	closed     atomic.Bool
	closing    chan struct{}
	background sync.WaitGroup
	late       backlog
	refusals   refusals
}

// New returns a store on a client of go-redis: a [redis.Client], also one for
// Sentinel, or a [redis.ClusterClient]. The store uses its connections and does
// not close it. Errors wrap [ErrClient] or [ErrOption].
func New(client redis.UniversalClient, opts ...Option) (*Store, error) {
	o, err := optionsOf(opts)
	if err != nil {
		return nil, err
	}
	conn, err := newGoRedis(client, o.budget)
	if err != nil {
		return nil, err
	}
	return open(conn, o), nil
}

// Open returns a store on any client library. Errors wrap [ErrOption].
func Open(conn Conn, opts ...Option) (*Store, error) {
	o, err := optionsOf(opts)
	if err != nil {
		return nil, err
	}
	return open(conn, o), nil
}

func optionsOf(opts []Option) (options, error) {
	o := options{prefix: DefaultPrefix, budget: DefaultBudget, flights: DefaultFlights}
	for _, f := range opts {
		f(&o)
	}
	switch {
	case o.budget <= 0:
		return o, fmt.Errorf("redisstore: %w: budget %s: must be above 0", ErrOption, o.budget)
	case o.flights < 1:
		return o, fmt.Errorf("redisstore: %w: flights %d: must be at least 1", ErrOption, o.flights)
	case o.prefix == "":
		return o, fmt.Errorf("redisstore: %w: prefix %q: must not be empty, so that the keys can be told from others", ErrOption, o.prefix)
	}
	return o, nil
}

func open(conn Conn, o options) *Store {
	now := time.Now()
	s := &Store{
		conn: conn, options: o, base: now,
		lanes: map[string]*lane{}, asks: map[ask]string{}, closing: make(chan struct{}),
	}
	s.offset.Store(now.UnixNano())
	return s
}

// Close stops what runs in the background. The client stays open. What is
// asked afterwards is answered with [spillgate.ErrClosed]. It returns nil.
func (s *Store) Close() error {
	if s.closed.CompareAndSwap(false, true) {
		close(s.closing)
	}
	s.background.Wait()
	return nil
}

// now returns what the server's clock shows, as far as can be known here: not
// less, if it runs as this one does.
func (s *Store) now() spillgate.Instant {
	return spillgate.Instant(int64(time.Since(s.base)) + s.offset.Load())
}

// saw takes note of the server's time in the reply to what was sent then.
func (s *Store) saw(now spillgate.Instant, sent time.Time) {
	s.offset.Store(int64(now) - int64(sent.Sub(s.base)))
}

// key names a key of sp: the prefix, the space's name, and 96 bits of the
// digest. Among n keys the odds that any two share one are n²/2^97.
func (s *Store) key(sp *spillgate.Space, k spillgate.Key) string {
	b := make([]byte, 0, 96)
	b = append(b, s.options.prefix...)
	b = append(b, sp.Name()...)
	b = append(b, ':')
	var d [12]byte
	binary.BigEndian.PutUint64(d[:], k[0])
	binary.BigEndian.PutUint32(d[8:], uint32(k[1]>>32))
	return string(base64.RawURLEncoding.AppendEncode(b, d[:]))
}

// maxAsks bounds the memory of encoded asks.
const maxAsks = 4096

// encoded returns a as the script reads it.
func (s *Store) encoded(a *ask) string {
	if a.settle {
		return a.encode()
	}
	s.mu.RLock()
	text, ok := s.asks[*a]
	s.mu.RUnlock()
	if ok {
		return text
	}
	text = a.encode()
	s.mu.Lock()
	if len(s.asks) >= maxAsks {
		clear(s.asks)
	}
	s.asks[*a] = text
	s.mu.Unlock()
	return text
}

// laneOf returns the lane of o's slot.
func (s *Store) laneOf(ctx context.Context, o *op) (*lane, error) {
	key := ""
	for i := range o.parts {
		if o.parts[i].kind != kindNone {
			key = o.parts[i].key
			break
		}
	}
	name, err := s.conn.Lane(ctx, o.slot, key)
	if err != nil {
		s.stats.faults[KindOf(err)].Add(1)
		return nil, fmt.Errorf("redisstore: %w: no server for the slot: %w", spillgate.ErrUnavailable, err)
	}
	s.mu.RLock()
	l := s.lanes[name]
	s.mu.RUnlock()
	if l != nil {
		return l, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if l = s.lanes[name]; l == nil {
		l = &lane{store: s, name: name}
		l.breaker.lane = l
		l.known.Store(key)
		s.lanes[name] = l
	}
	return l, nil
}

// The ends of the times that callers may give: those beyond are taken as these.
var (
	firstGiven = time.Date(1900, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()
	lastGiven  = time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()
)

func instantOf(at time.Time) int64 {
	switch y := at.UTC().Year(); {
	case y < 1900:
		return firstGiven
	case y >= 2100:
		return lastGiven
	}
	return at.UnixNano()
}

// given returns the instant of a call at a time of the caller's: not before
// any that was given for these spaces.
func (s *Store) given(at time.Time, spaces func(yield func(*spillgate.Space) bool)) spillgate.Instant {
	now := instantOf(at)
	for range 2 { // find the latest, then tell all
		for sp := range spaces {
			v, ok := s.told.Load(sp)
			if !ok {
				first := new(atomic.Int64)
				first.Store(math.MinInt64)
				v, _ = s.told.LoadOrStore(sp, first)
			}
			latest := v.(*atomic.Int64)
			for was := latest.Load(); ; was = latest.Load() {
				if was >= now {
					now = was
					break
				}
				if latest.CompareAndSwap(was, now) {
					break
				}
			}
		}
	}
	return spillgate.Instant(now)
}

// Take implements [spillgate.Store]. It takes no more than
// [spillgate.MaxCharges] charges. Where all keys are in one slot it is one
// round trip. Errors wrap [spillgate.ErrUnavailable] if the server did not
// answer in time, and then say whether anything was sent; they wrap
// [spillgate.ErrCharge] or [spillgate.ErrCost] for charges that can't be.
func (s *Store) Take(ctx context.Context, at time.Time, cs []spillgate.Charge, out []spillgate.Decision) error {
	if err := spillgate.CheckCharges(cs, out); err != nil {
		return err
	}
	if len(cs) > spillgate.MaxCharges {
		return fmt.Errorf("redisstore: %w: %d charges at once: at most %d", spillgate.ErrCharge, len(cs), spillgate.MaxCharges)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("redisstore: nothing charged: %w", err)
	}
	if s.closed.Load() {
		return spillgate.ErrClosed
	}
	if len(cs) == 0 {
		return nil
	}
	r, err := newRequest(cs, s.key)
	if err != nil {
		return err
	}
	o := &op{request: *r}
	if !at.IsZero() {
		o.given = true
		o.now = s.given(at, func(yield func(*spillgate.Space) bool) {
			for i := range cs {
				if !yield(cs[i].Space) {
					return
				}
			}
		})
	} else {
		o.now = s.now()
	}
	if o.idle() {
		o.judge()
		copy(out, o.out)
		return nil
	}
	w := s.newWait(ctx)
	defer w.stop()
	if s.conn.Slots() && !o.oneSlot() {
		err = s.takeSlots(w, o)
	} else {
		err = s.take(w, o)
	}
	if err != nil {
		return err
	}
	copy(out, o.out)
	return nil
}

// take carries o out, all of whose keys are in one slot, and fills its
// decisions in.
func (s *Store) take(w *wait, o *op) error {
	for range maxRounds {
		o.expect(s)
		if err := s.do(w, o); err != nil {
			return err
		}
		switch {
		case o.letter == 'C':
			o.replace = nil
			if !o.fresh {
				continue
			}
			// Written under another limit, or several in turn: decided here,
			// and written if nobody was faster.
			now, given := o.now, o.given
			o.judge()
			if !o.passes || o.dry {
				return nil
			}
			o.replaced(now, given)
		case o.letter == 'W': // the server's clock is known better now
		case o.replace == nil:
			return nil
		case o.letter == 'A':
			for i := range o.parts {
				if p := &o.parts[i]; p.kind == kindSlots {
					o.out[p.first].Slot = p.tell.slot
				}
			}
			return nil
		default: // a log or slots refuse what they did not before
			o.replace = nil
		}
		if !o.given {
			o.now = s.now()
		}
	}
	s.stats.faults[Other].Add(1)
	return fmt.Errorf("redisstore: %w: %d rounds, and each time somebody was faster", spillgate.ErrUnavailable, maxRounds)
}

// maxRounds is how often one request is tried whose states were written under
// another limit. Nothing is taken by a try that fails.
const maxRounds = 16

// expect fills in what the script can't know: where the windows about now lie,
// and which keys that are not there are no new ones.
func (o *op) expect(s *Store) {
	for i := range o.parts {
		p := &o.parts[i]
		if p.kind == kindFixed || p.kind == kindSliding {
			if period := p.m.Limit().Period; o.given || period <= 0 || period >= shortPeriod {
				start, _ := p.m.Window(o.now)
				if p.near = start; start == 0 {
					p.near = 1
				}
			}
		}
		if _, changed := p.sp.Changed(); changed && !p.kind.kept() && p.kind != kindNone {
			p.strict = p.sp.Settled(spillgate.State{}, p.m, o.now) != spillgate.State{}
		}
	}
}

// replaced makes o one that replaces what was read by what judge left.
func (o *op) replaced(now spillgate.Instant, given bool) {
	o.replace = make([]replacement, len(o.parts))
	for i := range o.parts {
		p := &o.parts[i]
		if p.root != i || p.kind == kindNone || p.kind.kept() {
			continue
		}
		r := &o.replace[i]
		r.given, r.now = given, now
		r.from, _ = o.raws[i].(string)
		if r.same = !p.charged; r.same {
			continue
		}
		by := o.writer(i)
		if p.after.s != (spillgate.State{}) {
			var b []byte
			b, r.until = appendState(nil, p.after.s, by.m, now, int64(by.ttl))
			r.to = string(b)
		}
	}
}

// writer returns the part that was the last to take from root i.
func (o *op) writer(i int) *part {
	by := &o.parts[i]
	for j := range o.parts {
		if p := &o.parts[j]; p.root == i && o.out[p.first].Taken > 0 {
			by = p
		}
	}
	return by
}

// do sends o and waits for the answer.
func (s *Store) do(w *wait, o *op) error {
	l, err := s.laneOf(w.ctx, o)
	if err != nil {
		return err
	}
	if l.breaker.open.Load() {
		s.stats.shut.Add(1)
		return errOpen
	}
	l.submit(o)
	return w.for1(o)
}

// errOpen is what is said without asking.
var errOpen = fmt.Errorf("redisstore: %w: the last calls failed, and none has been answered since", spillgate.ErrUnavailable)

// A wait bounds all the waiting of one call.
type wait struct {
	ctx   context.Context
	timer *time.Timer
	store *Store
	late  bool
}

func (s *Store) newWait(ctx context.Context) *wait {
	return &wait{ctx: ctx, timer: time.NewTimer(s.options.budget), store: s}
}

func (w *wait) stop() { w.timer.Stop() }

// for1 waits for the answer to o. If it does not come in time, o is left to
// whoever carries it, and must not be touched any more.
func (w *wait) for1(o *op) error {
	if !w.late {
		select {
		case <-o.done:
			return o.err
		case <-w.timer.C:
			w.late = true
		case <-w.ctx.Done():
		}
	}
	select {
	case <-o.done:
		return o.err
	default:
	}
	cause, over := context.Cause(w.ctx), w.ctx.Err()
	if o.phase.CompareAndSwap(opQueued, opDropped) {
		if over != nil && !w.late {
			return fmt.Errorf("redisstore: nothing charged: %w", cause)
		}
		w.store.stats.faults[TimedOut].Add(1)
		return fmt.Errorf("redisstore: %w: %s: not sent within %s, nothing charged", spillgate.ErrUnavailable, TimedOut, w.store.options.budget)
	}
	if over != nil && !w.late {
		return fmt.Errorf("redisstore: sent, and may be charged: %w", cause)
	}
	w.store.stats.faults[TimedOut].Add(1)
	o.flight.lose()
	return fmt.Errorf("redisstore: %w: %s: no answer within %s; it may be charged", spillgate.ErrUnavailable, TimedOut, w.store.options.budget)
}

// oneSlot reports whether all keys of o are in one slot, which it then knows.
func (o *op) oneSlot() bool {
	first := true
	for i := range o.parts {
		p := &o.parts[i]
		if p.kind == kindNone {
			continue
		}
		at := slotOf(p.key)
		if !first && at != o.slot {
			return false
		}
		o.slot, first = at, false
	}
	return true
}

// Settle implements [spillgate.Store]. What can't be sent while the server does
// not answer is kept, up to 1,024 corrections, and sent when it does; what finds
// no room is counted, and an error that wraps [spillgate.ErrUnavailable]. What
// was sent and not answered is never sent again.
func (s *Store) Settle(ctx context.Context, at time.Time, cs []spillgate.Correction) error {
	for i := range cs {
		if cs[i].Space == nil || cs[i].Meter == nil {
			return fmt.Errorf("redisstore: %w: correction %d has no space or no meter", spillgate.ErrCharge, i)
		}
	}
	if s.closed.Load() {
		return spillgate.ErrClosed
	}
	w := s.newWait(ctx)
	defer w.stop()
	ops := make([]*op, 0, len(cs))
	var failed error
	for i := range cs {
		o := s.correction(at, cs[i])
		if o == nil {
			continue
		}
		l, err := s.laneOf(ctx, o)
		if err == nil && l.breaker.open.Load() {
			err = errOpen
		}
		if err != nil {
			if !s.late.keep(o) {
				s.stats.dropped.Add(1)
				failed = err
			}
			continue
		}
		o.expect(s)
		l.submit(o)
		ops = append(ops, o)
	}
	for _, o := range ops {
		if err := s.settled(w, o); err != nil {
			failed = err
		}
	}
	return failed
}

// correction returns c as an op, nil if it corrects nothing.
func (s *Store) correction(at time.Time, c spillgate.Correction) *op {
	c.Meter = c.Space.InForce(c.Meter)
	k := kindOf(c.Meter)
	if k == kindNone || c.Delta == 0 {
		return nil
	}
	o := &op{fix: &c}
	p := part{sp: c.Space, id: c.Key, kind: k, key: s.key(c.Space, c.Key)}
	p.m, p.ttl, p.settle, p.delta, p.at, p.slot, p.until = c.Meter, c.Space.Options().TTL, true, c.Delta, c.At, c.Slot, c.Until
	if _, changed := c.Space.Changed(); changed {
		p.until = 0
	}
	if k.kept() {
		p.changed = math.MaxInt64
		if at, ok := c.Space.Changed(); ok {
			p.changed = at
		}
	}
	o.parts = []part{p}
	o.slot = slotOf(p.key)
	if o.given = !at.IsZero(); o.given {
		o.now = s.given(at, slices.Values([]*spillgate.Space{c.Space}))
	} else {
		o.now = s.now()
	}
	return o
}

// settled waits for a correction that was sent, and carries it out here if its
// state was written under another limit.
func (s *Store) settled(w *wait, o *op) error {
	for range maxRounds {
		if err := w.for1(o); err != nil {
			return err
		}
		if o.letter == 'A' {
			return nil
		}
		if o.letter == 'C' && o.fresh {
			p := &o.parts[0]
			from, _ := o.raws[0].(string)
			after := o.fix.Apply(p.sp.Settled(p.before.s, p.m, o.now), o.now)
			r := replacement{from: from, given: o.given, now: o.now}
			if after != (spillgate.State{}) {
				var b []byte
				b, r.until = appendState(nil, after, p.m, o.now, int64(p.ttl))
				r.to = string(b)
			}
			if r.to == r.from {
				return nil
			}
			o.replace = []replacement{r}
		} else {
			o.replace = nil
		}
		l, err := s.laneOf(w.ctx, o)
		if err != nil {
			return err
		}
		if !o.given {
			o.now = s.now()
		}
		o.expect(s)
		l.submit(o)
	}
	return fmt.Errorf("redisstore: %w: %d rounds, and each time somebody was faster", spillgate.ErrUnavailable, maxRounds)
}
