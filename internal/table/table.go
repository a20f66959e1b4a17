// Package table keeps two words of state for each of a bounded number of
// keys, in flat memory without pointers.
//
// A key is known by a tag, 64 bits of a keyed digest. An entry lies in one of
// two sets of eight that its tag names, so that finding it, or that it is not
// there, looks at sixteen entries at the most. A state that is as new as that
// of a key never seen is worth nothing: its entry is overwritten by whoever
// comes, and no sweeper, goroutine or timer is needed.
//
// A table starts with no entries at all and grows by half where it must, one
// shard at a time; [Table.Look] gives memory back, one shard at a time too. Up
// to [ShardKeys] keys one shard holds them all, and the cap is exact to the
// key; above, the cap is that of each shard.
//
// What the words mean is the owner's affair. Instants are int64 nanoseconds
// of one clock.
package table

import (
	"math/bits"
	"sync/atomic"
	"time"
	"unsafe"
)

// ShardKeys is the most keys that one shard holds.
const ShardKeys = 4096

// An Entry is the state of one key.
type Entry struct {
	Tag uint64
	// A is the instant from which on the state is as new, unless the table
	// was given a [Due].
	A int64
	B uint64
}

const entryBytes = int64(unsafe.Sizeof(Entry{}))

// unused is the tag of a place without an entry. Use [Tag] on a digest.
const unused = 0

// Tag returns the tag of a digest.
func Tag(digest uint64) uint64 {
	if digest == unused {
		return 2
	}
	return digest
}

// A Due says from which instant on a state is as new, asked at now.
type Due func(a int64, b uint64, now int64) int64

// Options shape a table.
type Options struct {
	// Cap is how many keys it holds, at least 1.
	Cap int
	// TTL above 0 makes every entry as new so long after its last stamp.
	TTL time.Duration
	// Due, if set, is asked before entries are judged. It returns nil if A
	// says it for all of them, and a version that differs whenever earlier
	// answers may no longer hold.
	Due func() (Due, uint32)
	// Forgot, if set, is told the second word of every entry that is
	// forgotten, those that [Table.Clear] forgets apart, under the lock of
	// its shard.
	Forgot func(b uint64)
}

// A Table is safe for concurrent use in that its shards are locked by their
// users.
type Table struct {
	id      uint64
	options Options
	n       uint64 // shards
	shards  []Shard

	nextLook atomic.Int64 // when one more shard may be looked at
	cursor   atomic.Uint64

	moves, moved atomic.Uint64
}

var ids atomic.Uint64

// New returns an empty table.
func New(o Options) *Table {
	n := (o.Cap + ShardKeys - 1) / ShardKeys
	t := &Table{id: ids.Add(1), options: o, n: uint64(n), shards: make([]Shard, n)}
	t.nextLook.Store(-1 << 63)
	for i := range t.shards {
		s := &t.shards[i]
		s.table, s.index = t, uint32(i)
		s.cap = int32(o.Cap / n)
		if i < o.Cap%n {
			s.cap++
		}
		s.earliest = -1 << 63
		s.latest = -1 << 63
	}
	return t
}

// Shard returns the shard that a tag belongs to, and where in it: shard and
// place are the parts of one fraction, tag/2^64, stretched over all entries.
func (t *Table) Shard(tag uint64) (*Shard, uint64) {
	i, at := bits.Mul64(tag, t.n)
	return &t.shards[i], at
}

// Lock locks every shard of t, in the order of [Shard.Before].
func (t *Table) Lock() {
	for i := range t.shards {
		t.shards[i].Lock()
	}
}

// Unlock unlocks every shard of t.
func (t *Table) Unlock() {
	for i := range t.shards {
		t.shards[i].Unlock()
	}
}

// Before reports whether s is locked before o wherever both are: the order of
// all shards of all tables that keeps callers from waiting for each other.
func (s *Shard) Before(o *Shard) bool {
	if s.table != o.table {
		return s.table.id < o.table.id
	}
	return s.index < o.index
}

// Before is that order among tables.
func (t *Table) Before(o *Table) bool { return t.id < o.id }

// Stats are the numbers of a table.
type Stats struct {
	// Held counts entries, also those that are as new and not yet reused.
	Held int
	// Cap is the most that can be held.
	Cap int
	// Bytes is the memory of the table.
	Bytes int64
	// Evicted counts entries that were dropped though not as new.
	Evicted uint64
	// Overflowed counts what [Shard.CountOverflow] was told.
	Overflowed uint64
	// Moves counts how often a shard was moved to grow or to shrink, Moved
	// how many entries that took, Probed how many entries were looked at
	// beyond the sixteen of a search.
	Moves, Moved, Probed uint64
}

// Stats returns the numbers of t, taken shard by shard.
func (t *Table) Stats() Stats {
	st := Stats{Cap: t.options.Cap, Bytes: int64(unsafe.Sizeof(*t)) + int64(t.n)*int64(unsafe.Sizeof(Shard{}))}
	st.Moves, st.Moved = t.moves.Load(), t.moved.Load()
	for i := range t.shards {
		s := &t.shards[i]
		s.Lock()
		st.Held += int(s.held)
		st.Bytes += int64(cap(s.entries))*entryBytes + int64(cap(s.marks))*8 + int64(cap(s.stamps))*8
		st.Evicted += s.evicted
		st.Overflowed += s.overflowed
		st.Probed += s.probed
		s.Unlock()
	}
	return st
}

// Clear forgets everything and gives all memory of entries back.
func (t *Table) Clear() {
	for i := range t.shards {
		s := &t.shards[i]
		s.Lock()
		s.entries, s.stamps, s.held = nil, nil, 0
		s.hand, s.left, s.earliest = 0, 0, -1<<63
		s.Unlock()
	}
}

// lookEvery is the least time between two looks of [Table.Look].
const lookEvery = int64(10 * time.Millisecond)

// Look gives memory back. It is called after a charge, with no lock held, and
// mostly returns at once: at most once in 10 ms of the caller's clock it looks
// at one more shard, if nobody holds that, drops the entries that are as new,
// and moves it to less memory if it is less than a third full. It reports
// whether it did look.
func (t *Table) Look(now int64) bool {
	next := t.nextLook.Load()
	if now < next {
		return false
	}
	t.look(now, next)
	return true
}

func (t *Table) look(now, next int64) {
	if !t.nextLook.CompareAndSwap(next, add(now, lookEvery)) {
		return // somebody else does
	}
	s := &t.shards[t.cursor.Add(1)%t.n]
	if !s.TryLock() {
		return
	}
	defer s.Unlock()
	if len(s.entries) == 0 {
		return
	}
	now = s.Advance(now)
	due, version := s.due()
	s.begin(version)
	s.sweep(due, now, len(s.entries))
	if n := s.sizeFor(int(s.held)); int(s.held) < len(s.entries)/3 && n < len(s.entries) {
		s.move(now, n)
	}
}
