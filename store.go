package spillgate

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// A Store keeps the states of keys and decides charges on them. [Memory] is
// the one of this package; package storetest is the suite that every Store
// passes. Stores see digests, never a key's text, and no policy.
//
// A Store is safe for concurrent use.
type Store interface {
	// Take takes all charges or none, at one instant: if a charge that is
	// not a trial is refused, no charge takes anything. out has the length
	// of cs and receives one decision a charge, in order, also for charges
	// that would have passed alone. A zero time means the store's own clock;
	// other times come from one clock of the caller's, and never flow back:
	// an earlier time counts as the latest one seen.
	//
	// An error means that nothing was decided: [ErrUnavailable] for a fault
	// of the store, [ErrCost] or [ErrCharge] for a charge that can't be
	// carried out, ctx's error.
	Take(ctx context.Context, at time.Time, cs []Charge, out []Decision) error
	// Settle corrects charges that were taken. It is never refused.
	Settle(ctx context.Context, at time.Time, cs []Correction) error
}

// ErrCharge is wrapped by a Store's error about a charge that it can't carry
// out: no space, no meter, an algorithm that it does not know.
var ErrCharge = errors.New("bad charge")

// A Charge is what one rule asks of one key.
type Charge struct {
	Space *Space
	Key   Key
	Meter *Meter
	Ask
	// Trial makes the charge one of a shadow rule: it is judged, counted and
	// reported, but never refuses, and takes only when the request passes.
	Trial bool
}

// A Correction settles one charge that was taken.
type Correction struct {
	Space *Space
	Key   Key
	Meter *Meter
	// Delta is how many units more (above 0) or fewer (below 0) were used
	// than charged.
	Delta int64
	// At and Slot are those of the charge's [Decision]. A window is
	// corrected only if it is still the one that was charged; a slot is
	// freed by a Delta of -1.
	At   Instant
	Slot uint64
	// Until is the instant at which the charge alone would have been earned
	// back: At + ResetAfter of its decision. A bucket gives back no more than is
	// missing of that, since what was earned meanwhile is there already: a
	// charge that is given back late must not fill a bucket a second time. Zero
	// means that it is not known, and all is given back; so it is in a space
	// whose limit was changed.
	Until Instant
	// Overflow is that of the charge's [Decision].
	Overflow bool
}

// AtCap says what happens to a new key when a table is at its cap and
// everything in it still limits somebody.
type AtCap uint8

const (
	// Overflow makes all newcomers share one bucket of their limit: nobody
	// who is limited is forgotten, and in any time t a limit admits at most
	// MaxKeys + 1 times its burst + rate·t. It is the default, and right for
	// logins.
	Overflow AtCap = iota
	// MakeRoom drops the entry that is nearest to new: right for public
	// interfaces, where whoever fills the table would push every newcomer
	// into one bucket. Each dropped key may gain up to what it had used.
	MakeRoom
)

// DefaultMaxKeys is the cap of a space that names none: 1,048,576 keys.
const DefaultMaxKeys = 1 << 20

// SpaceOptions shape a [Space]. The zero value is usable.
type SpaceOptions struct {
	// MaxKeys is how many keys are told apart, 1 to 2^31; 0 means
	// [DefaultMaxKeys]. Up to 4,096 the cap is exact to the key; larger ones
	// hold per shard.
	MaxKeys int
	// AtCap says what happens to newcomers beyond MaxKeys.
	AtCap AtCap
	// TTL above 0 forgets a key so long after it was last charged, whatever
	// its limit says. Limits that never return to new by themselves (a rate
	// of 0) need one.
	TTL time.Duration
}

// A Space is a rule's own world: keys of different spaces never meet. It has
// a table of its own in memory and a prefix of its own in a shared store.
type Space struct {
	name    string
	options SpaceOptions
	mu      sync.Mutex // held by Change
	changes atomic.Pointer[[]change]
	changed atomic.Uint32           // how often
	limit   atomic.Pointer[Meter]   // in force, if there is one for all keys and who has it said so
	salt    uint64                  // spreads the keys of many spaces over one table of leases
	bound   atomic.Pointer[binding] // Memory's table, cached
}

// NewSpace makes a space. The name identifies it in a shared store: processes
// that use the same name (and prefix) share what is counted. Errors wrap
// [ErrLimit].
func NewSpace(name string, o SpaceOptions) (*Space, error) {
	if name == "" {
		return nil, fmt.Errorf("spillgate: %w: a space needs a name", ErrLimit)
	}
	if o.MaxKeys < 0 || int64(o.MaxKeys) > 1<<31 {
		return nil, fmt.Errorf("spillgate: %w: max keys %d: must be from 1 to 2^31, or 0 for %d", ErrLimit, o.MaxKeys, DefaultMaxKeys)
	}
	if o.AtCap > MakeRoom {
		return nil, fmt.Errorf("spillgate: %w: at cap %d: must be Overflow or MakeRoom", ErrLimit, o.AtCap)
	}
	if o.TTL < 0 {
		return nil, fmt.Errorf("spillgate: %w: ttl %s: must not be negative", ErrLimit, o.TTL)
	}
	if o.MaxKeys == 0 {
		o.MaxKeys = DefaultMaxKeys
	}
	return &Space{name: name, options: o, salt: spacesMade.Add(1) * 0x9e3779b97f4a7c15}, nil
}

var spacesMade atomic.Uint64

// Name returns the space's name.
func (sp *Space) Name() string { return sp.name }

// Options returns the options that sp was made with, defaults filled in.
func (sp *Space) Options() SpaceOptions { return sp.options }

// A change records that a limit was in force in a space until an instant.
type change struct {
	from  *Meter
	until Instant
	to    *Meter
	// fresh is the state that a key never seen had then: full under the old
	// limit, and so, after a raised burst, not full under the new one.
	fresh State
}

// maxChanges bounds the memory of changes; older ones are settled as if they
// came at the request that finds them.
const maxChanges = 64

// Change records that the limit of sp is m from the instant at on, where it
// was old before, and returns the meter to charge with from now on: m, or a
// renewed one if m was in force here earlier. What was earned up to at counts
// under old, what follows under m, for every key, whenever it comes back; a
// key that comes for the first time counts as one that was full under old.
func (sp *Space) Change(old, m *Meter, at Instant) (*Meter, error) {
	if old == m {
		return m, nil
	}
	sp.mu.Lock()
	defer sp.mu.Unlock()
	var all []change
	if p := sp.changes.Load(); p != nil {
		all = *p
	}
	m, err := sp.joining(m)
	if err != nil {
		return nil, err
	}
	if len(all) >= maxChanges {
		all = all[1:]
	}
	fresh := m.succeed(sp.fresh(old, at), old, at)
	next := append(append([]change(nil), all...), change{old, at, m, fresh})
	if b := sp.bound.Load(); b != nil {
		b.table.Lock() // a request in the middle would see half of it
		defer b.table.Unlock()
	}
	sp.changes.Store(&next)
	sp.changed.Add(1)
	sp.limit.CompareAndSwap(old, m)
	return m, nil
}

// inForce returns the meter that a request which came with m is decided by:
// that which replaced it, if m was replaced since the request read it, so that
// no request is decided by numbers of the past and no change is made twice.
// Whoever decides asks for it under the lock of the state.
func (sp *Space) inForce(m *Meter) *Meter {
	if sp.changed.Load() == 0 {
		return m
	}
	for _, c := range *sp.changes.Load() {
		if c.from == m {
			m = c.to
		}
	}
	return m
}

// Joining returns the meter for callers who are charged in sp by the limit of m
// while others are by the limit that is in force for all: m, or a renewed one
// if m was in force here earlier, since its charges go by what came after it.
// A key that goes from one of the two limits to the other settles what it
// earned at the numbers under which it was earned; see [Meter.Adopt].
func (sp *Space) Joining(m *Meter) (*Meter, error) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	return sp.joining(m)
}

// joining returns the meter for a caller that begins to charge in sp by the
// limit of m: m, or a renewed one if m was in force here earlier.
func (sp *Space) joining(m *Meter) (*Meter, error) {
	if p := sp.changes.Load(); p != nil {
		for _, c := range *p {
			if c.from == m {
				return m.renewed()
			}
		}
	}
	return m, nil
}

// settled carries s through the changes of sp since it was written, up to m.
func (sp *Space) settled(s State, m *Meter, now Instant) State {
	if s == (State{}) {
		return sp.fresh(m, now)
	}
	return m.Adopt(sp.carried(s, m, now), now)
}

// carried carries s through the changes of sp since it was written, unless m
// wrote it.
func (sp *Space) carried(s State, m *Meter, now Instant) State {
	p := sp.changes.Load()
	if p == nil || s == (State{}) {
		return s
	}
	by := uint32(s.B >> partBits)
	for _, c := range *p {
		if by == c.from.id && c.from != m {
			s, by = c.to.succeed(s, c.from, min(c.until, now)), c.to.id
		}
	}
	return s
}

// fresh returns the state under m of a key that was never seen, or whose full
// state was forgotten. That is full, but for the time after a raised burst: a
// key that waited full under the old limit has what it held, and earns the
// rest, whether it is remembered or not.
func (sp *Space) fresh(m *Meter, now Instant) State {
	p := sp.changes.Load()
	if p == nil {
		return State{}
	}
	for i := len(*p) - 1; i >= 0; i-- {
		if c := &(*p)[i]; c.to == m {
			if c.fresh.A > int64(now) {
				return c.fresh
			}
			break
		}
	}
	return State{}
}

// replaced reports whether the limit of sp was from and came to be m.
func (sp *Space) replaced(from, m *Meter) bool {
	if p := sp.changes.Load(); p != nil {
		for _, c := range *p {
			if c.from == from {
				from = c.to
			}
		}
		return from == m
	}
	return false
}

// CheckCharges reports the first charge that can't be carried out, for the
// implementers of a [Store]. Errors wrap [ErrCost] or [ErrCharge].
func CheckCharges(cs []Charge, out []Decision) error {
	if len(out) != len(cs) {
		return fmt.Errorf("spillgate: %w: %d charges but room for %d decisions", ErrCharge, len(cs), len(out))
	}
	for i := range cs {
		c := &cs[i]
		switch {
		case c.Space == nil || c.Meter == nil:
			return fmt.Errorf("spillgate: %w: charge %d has no space or no meter", ErrCharge, i)
		case !c.Ask.valid():
			return fmt.Errorf("spillgate: %w: charge %d of %q: n %d, min %d, keep %d, need %d: none may be negative, nor min above n; to give units back, settle",
				ErrCost, i, c.Space.name, c.N, c.Min, c.Keep, c.Need)
		case c.Need > c.N && c.Meter.keeps:
			return fmt.Errorf("spillgate: %w: charge %d of %q: need %d: a %s can't be asked for more than it is to take", ErrCharge, i, c.Space.name, c.Need, c.Meter.limit.Algorithm)
		case c.Space.options.TTL == 0 && c.Meter.lasts():
			return fmt.Errorf("spillgate: %w: charge %d of %q: %s never returns to new by itself, so its space needs a ttl", ErrCharge, i, c.Space.name, c.Meter.limit)
		}
	}
	return nil
}

// lasts reports whether a state of m that was charged never returns to new.
func (m *Meter) lasts() bool {
	return m.limit.Algorithm == Bucket && m.limit.Rate == 0 && m.limit.Burst > 0
}
