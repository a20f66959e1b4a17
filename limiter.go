package spillgate

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillgate/spillgate/internal/siphash"
	"github.com/spillgate/spillgate/internal/table"
)

// A Limiter is one limit over many keys, in memory: the simplest use of this
// package. Make one with [New] or [Must]. It is safe for concurrent use, takes
// no memory before its first key, and has no goroutine; it sets one timer while
// somebody waits ([Limiter.Wait], [Limiter.Reserve]).
//
// Keys are any text. A Limiter keeps no key, only 64 bits of its digest under
// a secret seed: among n keys the odds that any two share a state are n²/2^65.
// What a key takes in memory is that of [Memory].
type Limiter struct {
	memory *Memory
	space  *Space
	meter  atomic.Pointer[Meter]
	line   *line
	change sync.Mutex
}

// An Option shapes a [Limiter].
type Option func(*limiterOptions)

type limiterOptions struct {
	space SpaceOptions
	seed  Seed
}

// MaxKeys sets how many keys are told apart, 1 to 2^31; without it, or with 0,
// [DefaultMaxKeys]. See [SpaceOptions].
func MaxKeys(n int) Option { return func(o *limiterOptions) { o.space.MaxKeys = n } }

// WhenFull says what happens to new keys beyond [MaxKeys]; without it
// [Overflow].
func WhenFull(a AtCap) Option { return func(o *limiterOptions) { o.space.AtCap = a } }

// TTL forgets a key so long after it was last charged, whatever the limit
// says. Limits of rate 0 need one.
func TTL(d time.Duration) Option { return func(o *limiterOptions) { o.space.TTL = d } }

// Seeded keys the digests of keys with seed; without it the seed is random.
func Seeded(seed Seed) Option { return func(o *limiterOptions) { o.seed = seed } }

// New returns a limiter of l. Errors wrap [ErrLimit] or, for a limit that it
// can't carry out with these options, [ErrCharge].
func New(l Limit, opts ...Option) (*Limiter, error) {
	var o limiterOptions
	for _, opt := range opts {
		opt(&o)
	}
	m, err := l.Meter()
	if err != nil {
		return nil, err
	}
	sp, err := NewSpace("limiter", o.space)
	if err != nil {
		return nil, err
	}
	if err := sp.check(m); err != nil {
		return nil, err
	}
	lim := &Limiter{memory: NewMemory(), space: sp, line: &line{}}
	if o.seed != (Seed{}) {
		lim.memory.seed = o.seed
	}
	lim.meter.Store(m)
	sp.limit.Store(m)
	return lim, nil
}

// Must is [New] of a limit as text, see [ParseLimit]. It panics if there is an
// error: it is for limits that stand in the program.
func Must(text string, opts ...Option) *Limiter {
	l, err := ParseLimit(text)
	if err != nil {
		panic(err)
	}
	lim, err := New(l, opts...)
	if err != nil {
		panic(err)
	}
	return lim
}

// check reports whether states under m can be kept in sp by a memory.
func (sp *Space) check(m *Meter) error {
	if sp.options.TTL == 0 && m.lasts() {
		return fmt.Errorf("spillgate: %w: %s never returns to new by itself: give it a ttl", ErrCharge, m.limit)
	}
	return nil
}

// With returns a limiter of the same keys under another limit, for callers of
// another class: what a key has used under one is carried over to the other.
// Both share the table, [Limiter.Stats] and [Limiter.Close]. Two of equal
// limits are one class to [Limiter.SetLimit].
func (l *Limiter) With(limit Limit) (*Limiter, error) {
	m, err := limit.Meter()
	if err != nil {
		return nil, err
	}
	if err := l.space.check(m); err != nil {
		return nil, err
	}
	if m, err = l.space.joining(m); err != nil {
		return nil, err
	}
	w := &Limiter{memory: l.memory, space: l.space, line: l.line}
	w.meter.Store(m)
	return w, nil
}

// Limit returns the limit in force.
func (l *Limiter) Limit() Limit { return l.meter.Load().limit }

// SetLimit changes the limit for all keys from now on. What a key earned up to
// now counts under the old numbers, whenever it comes back. A larger burst
// grants nothing by itself unless the limit says [Fill]; a smaller one clamps.
func (l *Limiter) SetLimit(limit Limit) error {
	m, err := limit.Meter()
	if err != nil {
		return err
	}
	if err := l.space.check(m); err != nil {
		return err
	}
	l.change.Lock()
	defer l.change.Unlock()
	old := l.meter.Load()
	if old.limit == limit {
		return nil
	}
	if m, err = l.space.Change(old, m, l.now(m)); err != nil {
		return err
	}
	l.meter.Store(m)
	l.line.changed(0, true)
	return nil
}

func (l *Limiter) now(m *Meter) Instant {
	if m.limit.Calendar == NoCalendar {
		return l.memory.now()
	}
	now := l.memory.instants(time.Time{})
	return now[now.of(m)]
}

func (l *Limiter) tag(key string) uint64 {
	return table.Tag(siphash.Sum64String(&l.memory.seed.key, key))
}

// Allow takes one unit of key's if it is there, and reports whether it was.
// It is [Limiter.Take] for those who want to know no more. After Close it
// reports false.
func (l *Limiter) Allow(key string) bool {
	m := l.meter.Load()
	b := l.space.bound.Load()
	if b == nil || b.ttl > 0 || m.den == 0 || l.line.busy.Load() > 0 {
		return l.Take(key, 1).Allowed
	}
	tag := table.Tag(siphash.Sum64String(&l.memory.seed.key, key))
	sh, at := b.table.Shard(tag)
	sh.Expect(tag, at)
	now := l.memory.now()
	sh.Lock()
	if b.space.inForce(m) != m || b.memory.closed.Load() {
		sh.Unlock()
		return l.Take(key, 1).Allowed
	}
	now = Instant(sh.Advance(int64(now)))
	var ok bool
	if i := sh.Find(tag, at); i >= 0 {
		var s State
		if s.A, s.B = sh.At(i); uint32(s.B>>partBits) != m.id {
			s = b.space.settled(s, m, now)
		}
		if s, ok = m.pass(s, now); ok {
			sh.Set(i, s.A, s.B, s.A)
		}
	} else {
		ok = b.passNew(sh, tag, m, now)
	}
	sh.Unlock()
	b.table.Look(int64(now))
	return ok
}

// Take takes n units of key's if all of them are there. n = 0 only looks. A
// negative n is denied with [BadCost], and everything after Close with
// [Closed].
func (l *Limiter) Take(key string, n int64) (d Decision) {
	b, err := l.memory.bind(l.space)
	m := l.meter.Load()
	if err != nil {
		return m.closed()
	}
	tag := l.tag(key)
	if l.line.busy.Load() > 0 {
		if d, ok := l.line.standing(l, b, tag, n); ok {
			return d
		}
	}
	b.expect(tag)
	b.take(tag, m, l.now(m), Ask{N: n}, &d)
	return d
}

// Peek returns what [Limiter.Take] of nothing would: how much of key's is
// left. It charges nothing and makes no entry.
func (l *Limiter) Peek(key string) Decision { return l.Take(key, 0) }

// Spent settles a charge: d is what Take returned, and actual how many units
// were used in the end, at least 0. It is never refused: more than was left
// puts the key into debt; what was not used is given back, never above what
// the limit holds, and in a window only while that is still the one charged.
func (l *Limiter) Spent(key string, d Decision, actual int64) {
	tag := l.tag(key)
	l.settle(tag, d, max(actual, 0)-d.Taken)
	l.line.changed(tag, false)
}

// settle corrects a charge by delta units.
func (l *Limiter) settle(tag uint64, d Decision, delta int64) {
	b, err := l.memory.bind(l.space)
	if err != nil || delta == 0 {
		return
	}
	m := l.meter.Load()
	b.settle(tag, &Correction{Meter: m, Delta: delta, At: d.At, Slot: d.Slot, Until: d.until(), Overflow: d.Overflow}, l.now(m))
}

// GiveBack gives a charge back, as when a password was right: [Limiter.Spent]
// of nothing. A Decision does not know that it was settled: give it back once.
// A place in a [Queue] that is given back goes to the next request, which may
// then leave together with one that was told its delay before.
func (l *Limiter) GiveBack(key string, d Decision) { l.Spent(key, d, 0) }

// Stats returns the numbers of the limiter's table.
func (l *Limiter) Stats() Stats { return l.memory.Stats(l.space) }

// Close forgets everything, gives all memory back and fails all who wait or
// hold, with [ErrClosed]. Closing again does nothing. It returns nil.
func (l *Limiter) Close() error {
	l.line.close()
	return l.memory.Close()
}
