package spillgate

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillgate/spillgate/internal/table"
)

// Memory is the [Store] of one machine. Each [Space] that is used with it gets
// a table of its own, bounded by the space's options. It takes 256 bytes for
// each 4,096 keys of its cap when it is first used, and 25 bytes a place (33
// with a TTL): 31 bytes a key at the cap (41), never more than 48 (64) while a
// large table grows. There is no goroutine and no timer.
//
// A key whose state is as new again is forgotten when its place is wanted,
// which no answer shows. Newcomers to a full table share one bucket of their
// limit, or take the place of the key that is nearest to new: see [AtCap]. A
// table gives memory back while it is used: at most once in 10 ms a call looks
// at one of its shards (4,096 keys) and moves what is left there.
//
// Its clock is the monotonic one, counted from the Unix epoch, so that setting
// the machine's time changes no rate; calendar windows follow the wall clock.
//
// Make one with [NewMemory]: a zero Memory has neither clock nor seed, and
// answers with an error that wraps [ErrCharge]. It is safe for concurrent use.
type Memory struct {
	base  time.Time
	epoch Instant // of base
	seed  Seed
	told  atomic.Bool // callers have given times of their own

	mu       sync.Mutex
	closed   atomic.Bool
	seen     bool // somebody digests keys under the seed
	tables   map[*Space]*binding
	restored map[string]*image // what was restored of spaces not used yet, by name
}

// NewMemory returns an empty store.
func NewMemory() *Memory {
	now := time.Now()
	return &Memory{base: now, epoch: instantOf(now), seed: NewSeed(), tables: map[*Space]*binding{}}
}

// now reads the store's clock.
func (m *Memory) now() Instant { return m.epoch + Instant(time.Since(m.base)) }

// The ends of a store's time, within those of [time.Time.UnixNano].
const (
	firstInstant = Instant(math.MinInt64) + Instant(maxPeriod)
	lastInstant  = Instant(math.MaxInt64) - Instant(maxPeriod)
)

func instantOf(t time.Time) Instant {
	switch s := t.Unix(); {
	case s <= int64(firstInstant/1e9):
		return firstInstant
	case s >= int64(lastInstant/1e9):
		return lastInstant
	}
	return Instant(t.UnixNano())
}

// instants returns the instant that at means for rates and for calendars.
func (m *Memory) instants(at time.Time) times {
	if at.IsZero() {
		return times{m.now(), unread}
	}
	if !m.told.Load() {
		m.told.Store(true)
	}
	now := instantOf(at)
	return times{now, now}
}

// times are the instant of a call on the monotonic clock and, for calendars,
// on the wall clock; both are the caller's if it gave one.
type times [2]Instant

// unread stands for a wall clock that nobody has asked for yet.
const unread = Instant(math.MinInt64)

// of returns which of the times a limit goes by.
func (t *times) of(m *Meter) int {
	if m.limit.Calendar == NoCalendar {
		return 0
	}
	if t[1] == unread {
		t[1] = instantOf(time.Now())
	}
	return 1
}

// MaxCharges is the most charges that [Memory] takes at once.
const MaxCharges = 256

// Take implements [Store]. It takes no more than [MaxCharges] charges. The
// same key charged twice under one limit counts as one charge of the sum;
// charged under two limits in one space, the second sees what the first took;
// trial charges come after all others. Up to eight charges allocate nothing.
//
// It doesn't wait: ctx is only asked whether it is over.
func (m *Memory) Take(ctx context.Context, at time.Time, cs []Charge, out []Decision) error {
	if err := CheckCharges(cs, out); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("spillgate: nothing charged: %w", err)
	}
	if len(cs) == 0 {
		return m.open()
	}
	if len(cs) != 1 {
		for i := range cs {
			if b := cs[i].Space.bound.Load(); b != nil {
				b.expect(table.Tag(cs[i].Key[0]))
			}
		}
		now := m.instants(at)
		if len(cs) <= plainMost && m.takePlain(now[0], cs, out) {
			return nil
		}
		return m.takeAll(now, cs, out)
	}
	c := &cs[0]
	b, err := m.bind(c.Space)
	if err != nil {
		return err
	}
	tag := table.Tag(c.Key[0])
	b.expect(tag)
	now := m.instants(at)
	b.take(tag, c.Meter, now[now.of(c.Meter)], c.Ask, &out[0])
	if out[0].Reason == Closed {
		return ErrClosed
	}
	return nil
}

// open returns [ErrClosed] if m is closed.
func (m *Memory) open() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.usable()
}

// usable says why m takes nothing. The caller holds m.mu.
func (m *Memory) usable() error {
	switch {
	case m.tables == nil:
		return fmt.Errorf("spillgate: %w: a zero Memory keeps nothing; make one with NewMemory", ErrCharge)
	case m.closed.Load():
		return ErrClosed
	}
	return nil
}

// Settle implements [Store]. A key that was forgotten since has nothing to
// give back; one that owes gets an entry, or its debt goes to the bucket that
// newcomers share.
func (m *Memory) Settle(ctx context.Context, at time.Time, cs []Correction) error {
	for i := range cs {
		c := &cs[i]
		if c.Space == nil || c.Meter == nil {
			return fmt.Errorf("spillgate: %w: correction %d has no space or no meter", ErrCharge, i)
		}
	}
	now := m.instants(at)
	for i := range cs {
		b, err := m.bind(cs[i].Space)
		if err != nil {
			return err
		}
		b.settle(table.Tag(cs[i].Key[0]), &cs[i], now[now.of(cs[i].Meter)])
	}
	return nil
}

// Stats are the numbers of one space in a [Memory].
type Stats struct {
	// Live is how many keys have an entry, those included that are as new
	// and whose place nobody has wanted yet.
	Live int
	// Cap is the most keys that can have one.
	Cap int
	// Bytes is the memory of the space's table, and of its logs and slots.
	Bytes int64
	// Overflowed counts decisions that were made by the bucket which all
	// newcomers to a full table share.
	Overflowed uint64
	// Evicted counts keys that were forgotten before they were as new, to
	// make room.
	Evicted uint64
}

// Stats returns the numbers of sp in m, zero but for Cap if it was not used.
func (m *Memory) Stats(sp *Space) Stats {
	m.mu.Lock()
	b := m.tables[sp]
	m.mu.Unlock()
	if b == nil {
		return Stats{Cap: sp.options.MaxKeys}
	}
	t := b.table.Stats()
	return Stats{Live: t.Held, Cap: t.Cap, Bytes: t.Bytes + b.keeper.bytes.Load(), Overflowed: t.Overflowed, Evicted: t.Evicted}
}

// Drop forgets everything about sp and gives its memory back. A space that is
// used again starts anew.
func (m *Memory) Drop(sp *Space) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.restored, sp.name)
	if b := m.tables[sp]; b != nil {
		delete(m.tables, sp)
		b.release()
	}
}

// Close forgets everything and gives all memory back. What is asked afterwards
// is answered with [ErrClosed]. Closing again does nothing. It returns nil.
func (m *Memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed.Store(true)
	m.restored = nil
	for sp, b := range m.tables {
		delete(m.tables, sp)
		b.release()
	}
	return nil
}

// A binding is a space as a [Memory] keeps it.
type binding struct {
	memory *Memory
	space  *Space
	table  *table.Table
	ttl    int64
	evict  bool // [MakeRoom]
	due    table.Due

	sliding atomic.Bool // some states are those of sliding counters
	spill   spill
	keeper  keeper
}

func (b *binding) release() {
	b.space.bound.CompareAndSwap(b, nil)
	b.table.Clear()
	b.keeper.clear()
}

// bind returns what m keeps of sp.
func (m *Memory) bind(sp *Space) (*binding, error) {
	if b := sp.bound.Load(); b != nil && b.memory == m {
		return b, nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.usable(); err != nil {
		return nil, err
	}
	b := m.tables[sp]
	if b == nil {
		o := sp.options
		b = &binding{memory: m, space: sp, ttl: int64(o.TTL), evict: o.AtCap == MakeRoom}
		b.due = b.newAt
		b.table = table.New(table.Options{Cap: o.MaxKeys, TTL: o.TTL, Due: b.dues, Forgot: b.keeper.forget})
		if image := m.restored[sp.name]; image != nil {
			image.load(b)
			delete(m.restored, sp.name)
		}
		m.tables[sp] = b
	}
	sp.bound.Store(b)
	return b, nil
}

// dues tells the table how to judge states: by their first word, unless some
// are those of sliding counters or were written under a limit that has changed
// since.
func (b *binding) dues() (table.Due, uint32) {
	changed, sliding := b.space.changed.Load(), b.sliding.Load()
	if changed == 0 && !sliding {
		return nil, 0
	}
	version := changed << 1
	if sliding {
		version++
	}
	return b.due, version
}

// newAt returns from which instant on a state is as new, if nobody charges.
func (b *binding) newAt(a int64, w uint64, now int64) int64 {
	s := b.space.carried(State{a, w}, nil, Instant(now))
	m := s.meter()
	if m == nil || s == b.space.fresh(m, Instant(now)) {
		return math.MinInt64
	}
	if m.keeps {
		if o := b.keeper.of(b.space, s, nil, Instant(now)); o != nil {
			return int64(o.newAt())
		}
		return math.MinInt64
	}
	if m.limit.Algorithm != SlidingCounter {
		return s.A
	}
	_, d := m.Grant(s, Instant(now), Ask{})
	return later(now, int64(d.ResetAfter))
}

// later returns at+d, d not negative, saturated.
func later(at, d int64) int64 {
	if at > math.MaxInt64-d {
		return math.MaxInt64
	}
	return at + d
}
