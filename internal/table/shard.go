package table

import (
	"math"
	"math/bits"
	"sync"
)

const (
	setSize = 8
	// handStep is how many entries a newcomer to a full shard of a large
	// table looks at, beyond its own sixteen, for one that is as new.
	handStep = 32
)

// A Shard holds the keys of one part of the tags. Everything but Lock needs
// the lock.
type Shard struct {
	sync.Mutex
	latest   int64 // instant seen: time never flows back
	earliest int64 // of what the hand has seen and what was written since

	held, cap int32 // entries that count, and the most that may

	// A round of the hand over all entries finds the earliest instant at
	// which any of them is as new. Until then nobody need look.
	hand, left int32  // where it is, and how many entries are left
	version    uint32 // of the Due of the round
	index      uint32
	overflowed uint64

	// What is seldom written lies in a line of its own, so that it can be read
	// before the lock is there.
	entries []Entry  // whole sets, none before the first key
	marks   []uint64 // a byte of each entry's tag, a word a set: see mark
	table   *Table
	_       uint64
	stamps  []int64 // when each was last charged, if the table has a TTL

	evicted, probed uint64

	_ [96]byte // to 256 bytes: shards share no cache line, nor a pair of them
}

// Lock locks s. What is done under the lock takes a few nanoseconds, and the
// first pause of [sync.Mutex.Lock] is longer than that.
func (s *Shard) Lock() {
	if !s.Mutex.TryLock() {
		s.lockContended()
	}
}

func (s *Shard) lockContended() {
	for range 16 {
		if s.Mutex.TryLock() {
			return
		}
	}
	s.Mutex.Lock()
}

// Advance returns now, or the latest instant that s has seen if that is later.
func (s *Shard) Advance(now int64) int64 {
	if now <= s.latest {
		return s.latest
	}
	s.latest = now
	return now
}

// Latest returns the latest instant that s has seen.
func (s *Shard) Latest() int64 { return s.latest }

// Expect tells the processor to fetch what [Shard.Find] will look at, and does
// not wait for it. Called before the clock is read, it has half of the way to
// memory done by the time that the lock is there: reading the clock waits for
// all loads before it, but not for these. It needs no lock. On processors other
// than amd64 it does nothing.
func (s *Shard) Expect(tag, at uint64) { expect(s, at, tag) }

// Find returns the index of tag's entry, -1 if it has none; at is what
// [Table.Shard] gave. An index holds until the next Put or unlock.
func (s *Shard) Find(tag, at uint64) int {
	home, _ := bits.Mul64(at, uint64(len(s.entries)))
	if set := home / setSize; set < uint64(len(s.marks)) {
		if s.marks[set]>>(home%setSize*8)&0xff == mark(tag) && s.entries[home].Tag == tag {
			return int(home)
		}
		return s.search(tag, home)
	}
	return -1
}

// Lookup is Find for those who don't know where.
func (s *Shard) Lookup(tag uint64) int { return s.Find(tag, tag*s.table.n) }

// search looks a tag up in its two sets. Their marks tell which entries can
// be it: mostly none but itself, so that a tag that has no entry costs no look
// at those of others.
func (s *Shard) search(tag, home uint64) int {
	if len(s.entries) == 0 {
		return -1
	}
	if i := s.searchSet(tag, home/setSize); i >= 0 {
		return i
	}
	return s.searchSet(tag, s.other(tag, home)/setSize)
}

func (s *Shard) searchSet(tag, set uint64) int {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	for x := s.marks[set] ^ mark(tag)*ones; ; {
		// The lowest byte that is zero has its high bit set; others may too.
		zero := (x - ones) &^ x & highs
		if zero == 0 {
			return -1
		}
		k := bits.TrailingZeros64(zero) / 8
		if i := int(set)*setSize + k; s.entries[i].Tag == tag {
			return i
		}
		x |= 0xff << (8 * k)
	}
}

// mark returns the byte by which a tag is told from most others: of bits that
// say next to nothing of its place. No tag has the mark 0 of an unused entry.
func mark(tag uint64) uint64 { return tag&0xff | (tag&0xff-1)>>63 }

// put writes the entry at an index, with its mark.
func (s *Shard) put(i int, e Entry) {
	s.entries[i] = e
	m := uint64(0)
	if e.Tag != unused {
		m = mark(e.Tag)
	}
	shift := i % setSize * 8
	w := &s.marks[i/setSize]
	*w = *w&^(0xff<<shift) | m<<shift
}

// home returns where a tag is looked for first.
func (s *Shard) home(tag uint64) uint64 {
	i, _ := bits.Mul64(tag*s.table.n, uint64(len(s.entries)))
	return i
}

// other returns where a tag is looked for when the set of its home is full: a
// place in another set, if there is one, by bits of the tag that had no part
// in its home.
func (s *Shard) other(tag, home uint64) uint64 {
	n := uint64(len(s.entries))
	i, _ := bits.Mul64(bits.RotateLeft64(tag, 32), n)
	if i/setSize == home/setSize {
		if i += setSize; i >= n {
			i -= n
		}
	}
	return i
}

// At returns the state at an index.
func (s *Shard) At(i int) (a int64, b uint64) {
	e := &s.entries[i]
	return e.A, e.B
}

// Stamp returns when the entry at an index was last charged, in a table with
// a TTL.
func (s *Shard) Stamp(i int) int64 { return s.stamps[i] }

// Set writes the state at an index. due is the instant from which on it is as
// new, the TTL apart.
func (s *Shard) Set(i int, a int64, b uint64, due int64) {
	e := &s.entries[i]
	e.A, e.B = a, b
	if due < s.earliest {
		s.earliest = due
	}
	if s.stamps != nil {
		s.stamp(i)
	}
}

func (s *Shard) stamp(i int) {
	s.stamps[i] = s.latest
	s.earliest = min(s.earliest, add(s.latest, int64(s.table.options.TTL)))
}

func add(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// Drop forgets the entry at an index.
func (s *Shard) Drop(i int) {
	s.forgot(&s.entries[i])
	s.put(i, Entry{})
	s.held--
}

func (s *Shard) forgot(e *Entry) {
	if f := s.table.options.Forgot; f != nil && e.Tag != unused && e.B != 0 {
		f(e.B)
	}
}

// CountOverflow counts a decision on a key for which there was no room.
func (s *Shard) CountOverflow() { s.overflowed++ }

// Full reports whether no more entries can be put down, if so many are
// promised, unless room is made.
func (s *Shard) Full(promised int) bool { return int(s.held)+promised >= int(s.cap) }

// Room reports whether a tag that has no entry can be put down and promised
// others besides, none of which would be at the price of an entry that is not
// as new.
func (s *Shard) Room(tag uint64, now int64, promised int) bool {
	return !s.Full(promised) || s.makeRoom(tag, now, promised)
}

// makeRoom looks for entries that are as new, unless it is known that none can
// be: in the two sets of the tag, then in all of a small table, or in the next
// few of a large one.
func (s *Shard) makeRoom(tag uint64, now int64, promised int) bool {
	if len(s.entries) == 0 { // all that the cap allows is promised
		return false
	}
	due, version := s.due()
	switch {
	case version != s.version:
		s.begin(version)
	case s.left > 0 && s.table.n > 1:
	case s.left == 0 && now < s.earliest:
		return false
	default:
		s.begin(version)
	}
	home := s.home(tag)
	s.dropSet(due, home, now)
	s.dropSet(due, s.other(tag, home), now)
	if !s.Full(promised) {
		return true
	}
	if s.table.n > 1 {
		s.sweep(due, now, handStep)
	} else {
		s.sweep(due, now, len(s.entries))
	}
	return !s.Full(promised)
}

func (s *Shard) due() (Due, uint32) {
	if s.table.options.Due == nil {
		return nil, 0
	}
	return s.table.options.Due()
}

// newAt returns from which instant on the entry at i is as new.
func (s *Shard) newAt(due Due, i int, now int64) int64 {
	e := &s.entries[i]
	at := e.A
	if due != nil {
		at = due(e.A, e.B, now)
	}
	if s.stamps != nil {
		at = min(at, add(s.stamps[i], int64(s.table.options.TTL)))
	}
	return at
}

// New reports whether the entry at an index is as new.
func (s *Shard) New(i int, now int64) bool {
	due, _ := s.due()
	return s.newAt(due, i, now) <= now
}

func (s *Shard) dropSet(due Due, home uint64, now int64) {
	i := int(home &^ (setSize - 1))
	for end := i + setSize; i < end; i++ {
		if s.entries[i].Tag != unused && s.newAt(due, i, now) <= now {
			s.Drop(i)
		}
	}
}

// begin begins a round of the hand.
func (s *Shard) begin(version uint32) {
	s.left, s.earliest, s.version = int32(len(s.entries)), math.MaxInt64, version
}

// sweep moves the hand on by n entries, or to the end of its round, and drops
// what is as new.
func (s *Shard) sweep(due Due, now int64, n int) {
	n = min(n, int(s.left))
	earliest := s.earliest
	for range n {
		i := int(s.hand)
		if s.hand++; int(s.hand) >= len(s.entries) {
			s.hand = 0
		}
		if s.entries[i].Tag == unused {
			continue
		}
		if at := s.newAt(due, i, now); at <= now {
			s.Drop(i)
		} else if at < earliest {
			earliest = at
		}
	}
	s.left -= int32(n)
	s.earliest = earliest
	s.probed += uint64(n)
}
