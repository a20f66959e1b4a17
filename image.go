package spillgate

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/spillgate/spillgate/internal/table"
)

// An image is what a snapshot holds of one space: frames that were read, found
// good, and are kept as they are until the space is used.
type image struct {
	name    string
	ttl     int64
	shards  uint64
	stamped bool
	frames  [][]byte // with room for the head: those of a snapshot
	kinds   []byte

	limits  []Limit
	meters  []*Meter // of limits, from 1 on
	limit   *Meter   // in force for all keys, if known
	changes []change
	latest  Instant // of all shards
	until   int64   // when all that it holds is as new
}

// space reads the beginning of a space.
func (img *image) space(body []byte) error {
	c := cursor{b: body}
	img.name = string(c.bytes(c.uvarint()))
	img.ttl = c.varint()
	img.shards = c.uvarint()
	img.stamped = c.byte() != 0
	if c.bad || len(c.b) > 0 || img.name == "" || img.ttl < 0 || img.stamped != (img.ttl > 0) || img.shards < 1 || img.shards > 1<<31/table.ShardKeys {
		return errStrange
	}
	img.latest = math.MinInt64
	return nil
}

// errStrange is why a frame whose checksum is right can't be used.
var errStrange = errors.New("it says what no snapshot says")

// finish takes the image apart for the first time, so that whatever is wrong
// with it is found before anything is restored.
func (img *image) finish() error {
	c := cursor{b: img.frames[len(img.frames)-1]}
	limit, changes := c.uvarint(), make([]wireChange, c.count(1+1+8+16))
	replaced := map[uint64]bool{}
	for i := range changes {
		w := wireChange{c.uvarint(), c.uvarint(), c.instant(), c.state()}
		if w.from == 0 || w.to == 0 || max(w.from, w.to) > uint64(len(img.limits)) || w.from == w.to || !usual(w.until) {
			return errStrange
		}
		changes[i] = w
		replaced[w.from] = true
	}
	if c.bad || limit > uint64(len(img.limits)) {
		return errStrange
	}
	img.meters = make([]*Meter, len(img.limits)+1)
	for i, l := range img.limits {
		m, err := l.Meter()
		if err == nil && replaced[uint64(i+1)] {
			// Whoever charges by the same limit from now on doesn't mean the one
			// that was replaced.
			m, err = m.renewed()
		}
		if err != nil {
			return err
		}
		img.meters[i+1] = m
	}
	img.limit = img.meters[limit]
	for _, w := range changes {
		fresh, ok := img.state(w.fresh)
		if !ok || keeps(fresh.B) {
			return errStrange
		}
		img.changes = append(img.changes, change{img.meters[w.from], w.until, img.meters[w.to], fresh})
	}
	return img.measure()
}

type wireChange struct {
	from, to uint64
	until    Instant
	fresh    State
}

// measure goes through all states and finds out when the last is as new.
func (img *image) measure() error {
	sp := &Space{name: img.name}
	img.changed(sp)
	b := &binding{space: sp}
	numbers := map[uint64]bool{}
	img.until = math.MinInt64
	now := Instant(math.MinInt64)
	for _, c := range img.changes {
		now = max(now, c.until)
	}
	saw := func(s State, stamp int64, o *kept) bool {
		if o != nil {
			if n := s.B & partMask; n == 0 || numbers[n] {
				return false
			}
			numbers[s.B&partMask] = true
			b.keeper.restore(s, o)
		}
		at := b.newAt(s.A, s.B, int64(now))
		if img.stamped {
			at = min(at, later(stamp, img.ttl))
		}
		img.until = max(img.until, at)
		if o != nil {
			b.keeper.clear()
		}
		return true
	}
	for _, k := range []byte{frameShard, frameTail} {
		for i, body := range img.frames {
			if img.kinds[i] == k && !img.each(k, body, visitor{
				shard: func(_ int, latest Instant) {
					img.latest = max(img.latest, latest)
					now = max(now, latest)
				},
				entry:  func(e table.Entry, stamp int64, o *kept) bool { return saw(State{e.A, e.B}, stamp, o) },
				bucket: func(u *spilled, o *kept) bool { return u.state.B == 0 || saw(u.state, u.stamp, o) },
			}) {
				return errStrange
			}
		}
	}
	return nil
}

// A visitor is shown what an image holds, and reports whether it can be.
type visitor struct {
	shard  func(index int, latest Instant)
	entry  func(e table.Entry, stamp int64, o *kept) bool
	bucket func(u *spilled, o *kept) bool
}

// each shows v what is in one frame, and reports whether all of it can be.
func (img *image) each(kind byte, body []byte, v visitor) bool {
	c := cursor{b: body}
	if kind == frameTail {
		return img.eachBucket(&c, v)
	}
	index, latest := c.uvarint(), c.instant()
	if c.bad || index >= img.shards || !usual(latest) {
		return false
	}
	v.shard(int(index), latest)
	for len(c.b) > 0 {
		e := table.Entry{Tag: c.uint64()}
		s, ok := img.state(c.state())
		if !ok || s.B == 0 || table.Tag(e.Tag) != e.Tag {
			return false
		}
		stamp := int64(latest)
		if img.stamped {
			stamp = int64(c.instant())
		}
		o, ok := img.kept(&c, s)
		if e.A, e.B = s.A, s.B; !ok || c.bad || !usual(Instant(stamp)) || !v.entry(e, stamp, o) {
			return false
		}
	}
	return true
}

func (img *image) eachBucket(c *cursor, v visitor) bool {
	c.uvarint()
	for range c.count(1 + 1 + 8 + 16) {
		c.uvarint()
		c.uvarint()
		c.bytes(24)
	}
	n := c.count(1 + 8 + 16)
	if c.bad || n > maxSpills {
		return false
	}
	for range n {
		number, stamp := c.uvarint(), c.instant()
		s, ok := img.state(c.state())
		if !ok || c.bad || number == 0 || number >= uint64(len(img.meters)) || !usual(stamp) {
			return false
		}
		u := &spilled{m: img.meters[number], state: s, stamp: int64(stamp)}
		u.until.Store(math.MinInt64)
		o, ok := img.kept(c, s)
		if !ok || c.bad || !v.bucket(u, o) {
			return false
		}
	}
	return len(c.b) == 0
}

// state gives a state the id of a meter in place of its limit's number, and
// reports whether it can be one of that limit.
func (img *image) state(s State) (State, bool) {
	n := s.B >> partBits
	if n == 0 {
		return State{}, s == State{}
	}
	if n >= uint64(len(img.meters)) {
		return s, false
	}
	m := img.meters[n]
	s.B = uint64(m.id)<<partBits | s.B&partMask
	switch m.limit.Algorithm {
	case Bucket, Queue:
		return s, m.den == 0 || s.B&partMask < m.den
	case FixedWindow:
		return s, usual(Instant(s.A))
	}
	return s, m.limit.Algorithm != Unlimited
}

// kept reads what a state stands for, nil if it stands for itself.
func (img *image) kept(c *cursor, s State) (*kept, bool) {
	m := s.meter()
	if m == nil || !m.keeps {
		return nil, true
	}
	n := c.uvarint()
	if n == 0 || n >= uint64(len(img.meters)) || img.meters[n].limit.Algorithm != m.limit.Algorithm {
		return nil, false
	}
	m = img.meters[n]
	if m.limit.Algorithm == SlidingLog {
		l, ok := c.log(m)
		return &kept{log: l}, ok
	}
	l, ok := c.slots(m)
	return &kept{slots: l}, ok
}

// log reads a log.
func (c *cursor) log(m *Meter) (*logState, bool) {
	n := c.count(8 + 1)
	if n > maxLog+logDebt {
		return nil, false
	}
	l := &logState{m: m, ring: make([]logEntry, n), n: n}
	total := int64(0)
	for i := range l.ring {
		at, units := c.instant(), c.uvarint()
		if c.bad || !usual(at) || i > 0 && at <= l.ring[i-1].at || units < 1 || units > uint64(partMask-total) {
			return nil, false
		}
		total += int64(units)
		l.ring[i] = logEntry{at, total}
	}
	return l, true
}

// slots reads slots.
func (c *cursor) slots(m *Meter) (*slotState, bool) {
	n := c.count(1)
	if n > maxSlots {
		return nil, false
	}
	l := &slotState{m: m, places: make([]place, n)}
	var held []int32
	for i := range l.places {
		p := &l.places[i]
		units := c.uvarint()
		if units == 0 {
			p.next, l.unused = l.unused, int32(i)+1
			continue
		}
		p.since = c.instant()
		p.id = c.uvarint()<<placeBits | uint64(i)
		if c.bad || !usual(p.since) || units > uint64(partMask-l.used) {
			return nil, false
		}
		p.units = int64(units)
		l.used += p.units
		held = append(held, int32(i)+1)
	}
	slices.SortStableFunc(held, func(a, b int32) int { return int(max(-1, min(1, l.at(a).since-l.at(b).since))) })
	for _, i := range held {
		if l.at(i).prev = l.newest; l.newest != 0 {
			l.at(l.newest).next = i
		} else {
			l.oldest = i
		}
		l.newest = i
	}
	return l, !c.bad
}

// restore keeps o under the number that a state names.
func (k *keeper) restore(s State, o *kept) {
	k.inUse.Store(true)
	k.mu.Lock()
	if k.states == nil {
		k.states = map[uint64]*kept{}
		k.last = rand.Uint64N(1 << (partBits - 1))
	}
	k.states[s.B&partMask] = o
	k.mu.Unlock()
	k.measure(o)
}

// changed tells a space of the changes that it went through before.
func (img *image) changed(sp *Space) {
	if len(img.changes) == 0 {
		return
	}
	sp.mu.Lock()
	defer sp.mu.Unlock()
	all := slices.Clone(img.changes)
	if p := sp.changes.Load(); p != nil {
		all = append(all, *p...)
	}
	sp.changes.Store(&all)
	sp.changed.Add(uint32(len(img.changes)))
}

// load puts all states down in b, which nobody uses yet.
func (img *image) load(b *binding) {
	img.changed(b.space)
	for _, l := range img.limits {
		if l.Algorithm == SlidingCounter {
			b.countsSliding()
		}
	}
	same := uint64(b.table.Len()) == img.shards
	if !same && img.latest != math.MinInt64 {
		for i := range b.table.Len() {
			b.table.At(i).Advance(int64(img.latest))
		}
	}
	v := visitor{
		shard: func(i int, latest Instant) {
			if same {
				b.table.At(i).Advance(int64(latest))
			}
		},
		entry: func(e table.Entry, stamp int64, o *kept) bool {
			sh, _ := b.table.Shard(e.Tag)
			sh.Lock()
			defer sh.Unlock()
			if o != nil {
				b.keeper.restore(State{e.A, e.B}, o)
			}
			if !sh.Load(e, stamp) {
				b.keeper.forget(e.B)
			}
			return true
		},
		bucket: func(u *spilled, o *kept) bool {
			if o != nil {
				b.keeper.restore(u.state, o)
			}
			b.spill.buckets = append(b.spill.buckets, u)
			return true
		},
	}
	for i, body := range img.frames {
		if k := img.kinds[i]; k == frameShard || k == frameTail {
			img.each(k, body, v) // which finish found to be good
		}
	}
}

// dump writes the image as it was read.
func (img *image) dump(d *dump) {
	for i, body := range img.frames {
		d.limits += int(oneIf(img.kinds[i] == frameLimit))
		d.body = append(frame(d.body, img.kinds[i]), body...)
		d.send(d.body)
	}
}
