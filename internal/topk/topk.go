// Package topk keeps, in bounded memory, who was limited most: the keys with
// the most events of a stream, and how often each came at least and at most.
//
// It is Space-Saving (Metwally, Agrawal and El Abbadi, "Efficient Computation
// of Frequent and Top-k Elements in Data Streams", ICDT 2005) behind the
// filter of Homem and Carvalho ("Finding top-k elements in data streams",
// Information Sciences 180, 2010): keys that are not in the list are counted
// in a small array of cells, together with whoever shares their cell, and a
// key enters in place of the least one only when its cell says that it might
// have come more often. So a flood of keys that come once each stays outside,
// and neither turns the list over nor has its texts made.
//
// After N events a list of k keys promises, whatever the order:
//
//   - a key that came more than N/k times is in it;
//   - a key in it came at least Denied+Near times, and at most Error more;
//   - a key that is not in it came at most [List.Floor] times, which is at
//     most N/k.
//
// Keys are digests that nobody outside can aim, taken under a secret: their
// bits choose places and cells as they are.
package topk

import (
	"sync"
	"unicode/utf8"
	"unsafe"
)

const (
	// MaxKeys is the most keys that a list holds.
	MaxKeys = 100_000
	// MaxText is how many bytes of a key's text are kept, the mark of a cut
	// included.
	MaxText = 256
)

// cut stands at the end of a text that was longer.
const cut = "…"

// A Key is the digest of what tells a caller apart.
type Key [2]uint64

// An Event is something that happened to a key. Instants are nanoseconds of
// one clock.
type Event struct {
	Denied bool  // refused; otherwise nearly so
	Trial  bool  // by a rule that only would have
	At     int64 // when
	Free   int64 // from when on the like of it passes
}

// A Row is what a list knows of a key.
type Row struct {
	Key  Key
	Text string // at most [MaxText] bytes
	// Denied and Near are how many events of either kind were counted since
	// the key entered the list; Error is how many of both it may have had
	// before.
	Denied, Near, Error uint64
	// First and Last are when it entered and when it last came; Free and
	// Trial are those of its last event.
	First, Last, Free int64
	Trial             bool
}

// entry is a row in place.
type entry struct {
	key                 Key
	text                []byte
	denied, near, error uint64
	first, last, free   int64
	pos                 int32 // in heap
	trial               bool
}

// node is an entry's place in the heap: those with the least count come first.
type node struct {
	count uint64 // denied + near + error
	entry int32
}

// slot leads to an entry, and says enough of its key that others need not be
// looked at, and that slots move without looking at all.
type slot struct {
	tag   uint32 // of the key; where it belongs
	entry int32  // its number plus 1; 0 if the slot is free
}

func tag(key Key) uint32 { return uint32(key[0] >> 32) }

// A List keeps the keys that came most. It is safe for concurrent use.
type List struct {
	k int

	mu      sync.Mutex
	total   uint64
	turns   uint64 // how often an entry changed hands
	entries []entry
	heap    []node   // four children a node: those of i begin at 4i+1
	index   []slot   // by key, linear probing
	cells   []uint64 // how often any key outside the list may have come; nil until the list is full
}

// New returns a list of k keys, from 1 to [MaxKeys]; other numbers count as
// the nearer of the two. It takes next to no memory before it is used.
func New(k int) *List { return &List{k: min(max(k, 1), MaxKeys)} }

// Sizes of the parts for n entries: both powers of two, so that a digest's
// bits are a place, and the index at most half full.
func indexSize(n int) int { return ceil2(2 * n) }
func cellsSize(k int) int { return ceil2(4 * k) }

func ceil2(n int) int {
	c := 1
	for c < n {
		c *= 2
	}
	return c
}

const (
	entryBytes = int64(unsafe.Sizeof(entry{}))
	nodeBytes  = int64(unsafe.Sizeof(node{}))
	slotBytes  = int64(unsafe.Sizeof(slot{}))
)

// MaxBytes returns the most memory that a list of k keys holds: 368 bytes a
// key, of which 256 are text, and at most 96 for places and cells. That is 408
// KiB for 1,000 keys and 42 MiB for 100,000; with texts of 32 bytes, 188 KiB
// and 20 MiB. What a growing list has grown out of, less than half of that, is
// held until it is collected.
func MaxBytes(k int) int64 {
	k = min(max(k, 1), MaxKeys)
	return int64(k)*(entryBytes+nodeBytes+MaxText) + int64(indexSize(k))*slotBytes + int64(cellsSize(k))*8
}

// Bytes returns how much memory l holds now.
func (l *List) Bytes() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := int64(cap(l.entries))*entryBytes + int64(cap(l.heap))*nodeBytes + int64(len(l.index))*slotBytes + int64(len(l.cells))*8
	for i := range l.entries {
		n += int64(cap(l.entries[i].text))
	}
	return n
}

// Total returns how many events l has counted.
func (l *List) Total() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total
}

// Floor returns the most events that a key which is not in l can have had.
func (l *List) Floor() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.floor()
}

func (l *List) floor() uint64 {
	if len(l.entries) < l.k {
		return 0
	}
	return l.heap[0].count
}

// Count counts an event of key. It returns false, and has counted nothing, if
// the key is about to enter the list: then make its text and call [List.Enter].
func (l *List) Count(key Key, ev Event) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count(key, ev)
}

func (l *List) count(key Key, ev Event) bool {
	if at := l.find(key); at >= 0 {
		l.total++
		e := &l.entries[l.index[at].entry-1]
		e.add(ev)
		l.heap[e.pos].count++
		l.down(e.pos)
		return true
	}
	if len(l.entries) < l.k {
		return false
	}
	cell := l.cell(key)
	if *cell >= l.heap[0].count {
		return false
	}
	l.total++
	*cell++
	return true
}

// Enter counts an event of key, as Count does, and takes key into the list if
// it is to be there. text is copied; beyond [MaxText] bytes it is cut and
// ends in "…".
func (l *List) Enter(key Key, ev Event, text []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.count(key, ev) {
		return // others were here since, and it entered or no longer has to
	}
	l.total++
	var e *entry
	if len(l.entries) < l.k {
		e = l.grow()
	} else {
		e = l.evict(key)
	}
	e.key, e.first, e.last = key, ev.At, ev.At
	e.setText(text)
	e.add(ev)
	l.place(key, l.heap[e.pos].entry)
	l.heap[e.pos].count++
	l.down(e.pos)
}

// grow returns a new entry, last in the heap and of count 0. It grows the
// parts by doubling, up to what k needs.
func (l *List) grow() *entry {
	n := len(l.entries)
	if n == cap(l.entries) {
		more := min(max(16, 2*n), l.k)
		l.entries = append(make([]entry, 0, more), l.entries...)
		l.heap = append(make([]node, 0, more), l.heap...)
		l.index = make([]slot, indexSize(more))
		for i := range l.entries {
			l.place(l.entries[i].key, int32(i))
		}
	}
	l.entries = append(l.entries, entry{pos: int32(n)})
	l.heap = append(l.heap, node{entry: int32(n)})
	l.up(int32(n))
	if n+1 == l.k {
		l.cells = make([]uint64, cellsSize(l.k))
	}
	return &l.entries[n]
}

// evict gives the place of the least entry to key and returns it, with what
// key's cell says as the count that it may have had before.
func (l *List) evict(key Key) *entry {
	least := &l.heap[0]
	e := &l.entries[least.entry]
	l.turns++
	l.remove(e.key)
	*l.cell(e.key) = least.count // no cell is above it
	least.count = *l.cell(key)
	*e = entry{text: e.text, error: least.count, pos: e.pos}
	return e
}

func (e *entry) add(ev Event) {
	if ev.Denied {
		e.denied++
	} else {
		e.near++
	}
	if ev.At >= e.last {
		e.last, e.free, e.trial = ev.At, ev.Free, ev.Trial
	}
}

// Cut returns text as a list keeps it: cut after [MaxText] bytes.
func Cut(text []byte) string {
	var e entry
	e.setText(text)
	return string(e.text)
}

// setText keeps text in the memory of the text before, if that is enough.
func (e *entry) setText(text []byte) {
	whole := len(text) <= MaxText
	if !whole {
		n := MaxText - len(cut)
		for n > MaxText-len(cut)-utf8.UTFMax && !utf8.RuneStart(text[n]) {
			n--
		}
		text = text[:n]
	}
	need := MaxText
	if whole {
		need = (len(text) + 15) &^ 15 // as much as the allocator would give anyway
	}
	if cap(e.text) < need {
		e.text = make([]byte, 0, need)
	}
	e.text = append(e.text[:0], text...)
	if !whole {
		e.text = append(e.text, cut...)
	}
}

// cell returns the cell of a key that is not in the list.
func (l *List) cell(key Key) *uint64 { return &l.cells[key[1]&uint64(len(l.cells)-1)] }

// find returns where in the index key is, or -1.
func (l *List) find(key Key) int {
	if len(l.index) == 0 {
		return -1
	}
	t, mask := tag(key), uint32(len(l.index)-1)
	for i := t & mask; l.index[i].entry != 0; i = (i + 1) & mask {
		if s := l.index[i]; s.tag == t && l.entries[s.entry-1].key == key {
			return int(i)
		}
	}
	return -1
}

// place notes in the index that key, which is not there, is in the entry.
func (l *List) place(key Key, entry int32) {
	t, mask := tag(key), uint32(len(l.index)-1)
	i := t & mask
	for l.index[i].entry != 0 {
		i = (i + 1) & mask
	}
	l.index[i] = slot{t, entry + 1}
}

// remove takes key, which is there, out of the index, and moves those that
// come after it into the gap if they may stand there (Knuth 6.4, algorithm R).
func (l *List) remove(key Key) {
	mask := uint32(len(l.index) - 1)
	gap := uint32(l.find(key))
	for i := (gap + 1) & mask; l.index[i].entry != 0; i = (i + 1) & mask {
		if (i-l.index[i].tag)&mask >= (i-gap)&mask {
			l.index[gap] = l.index[i]
			gap = i
		}
	}
	l.index[gap] = slot{}
}

// down moves a node whose count rose behind those with less.
func (l *List) down(i int32) {
	moved, n := l.heap[i], int32(len(l.heap))
	for {
		first := 4*i + 1
		if first >= n {
			break
		}
		least := first
		for c := first + 1; c < min(first+4, n); c++ {
			if l.heap[c].count < l.heap[least].count {
				least = c
			}
		}
		if l.heap[least].count >= moved.count {
			break
		}
		l.heap[i] = l.heap[least]
		l.entries[l.heap[i].entry].pos = i
		i = least
	}
	l.heap[i] = moved
	l.entries[moved.entry].pos = i
}

// up moves a node before those with more.
func (l *List) up(i int32) {
	moved := l.heap[i]
	for i > 0 {
		parent := (i - 1) / 4
		if l.heap[parent].count <= moved.count {
			break
		}
		l.heap[i] = l.heap[parent]
		l.entries[l.heap[i].entry].pos = i
		i = parent
	}
	l.heap[i] = moved
	l.entries[moved.entry].pos = i
}
