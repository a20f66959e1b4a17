package spillgate

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/spillgate/spillgate/internal/table"
)

// A dump writes the spaces of a memory as frames. Its buffers are those of one
// shard.
type dump struct {
	frameWriter
	memory *Memory
	clock  Instant // what is as new at this instant of both clocks is left out

	body    []byte
	entries []table.Entry // what is left of those of a shard
	stamps  []int64
	kept    []keptDump
	bytes   []byte

	entriesBuf []table.Entry
	stampsBuf  []int64

	limits   int
	numbers  map[uint32]uint64 // of the space's limits, by the id of the meter
	last     uint32            // a meter's id, and the number of its limit
	lastIs   uint64
	limitBuf []byte
}

// A keptDump is what a shard's entry stands for: its limit, and bytes.
type keptDump struct {
	m        *Meter
	from, to int
}

// past returns the instant at which the states of a shard or a bucket are
// judged that saw latest. A memory that is given times knows no other.
func (d *dump) past(latest Instant) Instant {
	if d.memory.told.Load() {
		return latest
	}
	return max(latest, d.clock)
}

// start writes the clock of the memory.
func (d *dump) start() {
	d.begin()
	wall := instantOf(time.Now())
	now := max(firstInstant, min(d.memory.now(), lastInstant))
	d.clock = min(now, wall)
	b := frame(d.body, frameClock)
	seed := d.memory.seed.Bytes()
	b = append(b, seed[:]...)
	b = appendInstant(b, now)
	b = appendInstant(b, wall)
	d.body = append(b, oneIf(d.memory.told.Load()))
	d.send(d.body)
}

func appendInstant(b []byte, at Instant) []byte {
	return binary.LittleEndian.AppendUint64(b, uint64(at))
}

func oneIf(x bool) byte {
	if x {
		return 1
	}
	return 0
}

// end writes that so many spaces were all.
func (d *dump) end(spaces int) {
	d.send(binary.AppendUvarint(frame(d.body, frameEnd), uint64(spaces)))
}

// space writes what b holds. Each shard is locked while it is copied, and no
// longer.
func (d *dump) space(b *binding) {
	d.numbers, d.last, d.lastIs = map[uint32]uint64{}, 0, 0
	f := frame(d.body, frameSpace)
	f = binary.AppendUvarint(f, uint64(len(b.space.name)))
	f = append(f, b.space.name...)
	f = binary.AppendVarint(f, b.ttl)
	f = binary.AppendUvarint(f, uint64(b.table.Len()))
	d.body = append(f, oneIf(b.ttl > 0))
	d.send(d.body)
	for i := range b.table.Len() {
		if d.err != nil {
			return
		}
		d.shard(b, i)
	}
	d.tail(b)
}

// shard writes one shard.
func (d *dump) shard(b *binding, i int) {
	sh := b.table.At(i)
	sh.Lock()
	latest := Instant(sh.Latest())
	entries, stamps := sh.AppendTo(d.entriesBuf[:0], d.stampsBuf[:0])
	d.entriesBuf, d.stampsBuf, d.entries, d.stamps = entries, stamps, entries, stamps
	d.kept, d.bytes = d.kept[:0], d.bytes[:0]
	if b.keeper.inUse.Load() {
		for i := range d.entries {
			d.keep(b, &d.entries[i], d.past(latest))
		}
	}
	sh.Unlock()
	if latest == math.MinInt64 {
		return
	}
	f := d.shardFrame(i, latest)
	due, _ := b.dues()
	past, kept := int64(d.past(latest)), d.kept
	for more := true; more; {
		switch {
		case len(d.entries) == 0: // but the latest instant is worth a frame
		case len(kept) == 0 && due == nil && b.ttl == 0:
			f = d.plain(f, past)
		default:
			f, kept = d.entry(f, b, due, past, kept)
		}
		if more = len(d.entries) > 0; !more || len(f) >= frameFull {
			d.send(f)
			d.body = f
			f = d.shardFrame(i, latest)
		}
	}
}

// plain appends entries up to a full frame, of those that stand for themselves
// and are as new when their first word says so.
func (d *dump) plain(f []byte, past int64) []byte {
	n, most := len(f), min(len(d.entries), frameFull/24)
	f = slices.Grow(f, most*24)[:n+most*24]
	for i := range d.entries[:most] {
		e := &d.entries[i]
		if e.A <= past {
			continue
		}
		if id := uint32(e.B >> partBits); id != d.last {
			d.number(id)
		}
		p := f[n : n+24 : n+24]
		binary.LittleEndian.PutUint64(p, e.Tag)
		binary.LittleEndian.PutUint64(p[8:], uint64(e.A))
		binary.LittleEndian.PutUint64(p[16:], d.lastIs<<partBits|e.B&partMask)
		n += 24
	}
	d.entries = d.entries[most:]
	return f[:n]
}

// entry appends the first entry, unless it is as new.
func (d *dump) entry(f []byte, b *binding, due table.Due, past int64, kept []keptDump) ([]byte, []keptDump) {
	e := d.entries[0]
	d.entries = d.entries[1:]
	stamp := int64(math.MaxInt64)
	if b.ttl > 0 {
		stamp, d.stamps = d.stamps[0], d.stamps[1:]
	}
	var k *keptDump
	if len(kept) > 0 && keeps(e.B) {
		k, kept = &kept[0], kept[1:]
		if e.A == math.MinInt64 {
			return f, kept
		}
	} else if at := dueAt(due, &e, past); at <= past {
		return f, kept
	}
	if b.ttl > 0 && later(stamp, b.ttl) <= past {
		return f, kept
	}
	f = d.state(binary.LittleEndian.AppendUint64(f, e.Tag), State{e.A, e.B})
	if b.ttl > 0 {
		f = binary.LittleEndian.AppendUint64(f, uint64(stamp))
	}
	if k != nil {
		f = d.keptState(f, k)
	}
	return f, kept
}

func dueAt(due table.Due, e *table.Entry, now int64) int64 {
	if due == nil {
		return e.A
	}
	return due(e.A, e.B, now)
}

func (d *dump) shardFrame(i int, latest Instant) []byte {
	f := binary.AppendUvarint(frame(d.body, frameShard), uint64(i))
	return appendInstant(f, latest)
}

// keep copies what an entry stands for, while its shard is locked. The instant
// of an entry that is as new is made the earliest there is.
func (d *dump) keep(b *binding, e *table.Entry, now Instant) {
	if !keeps(e.B) {
		return
	}
	k := keptDump{from: len(d.bytes), to: len(d.bytes)}
	if b.newAt(e.A, e.B, int64(now)) <= int64(now) {
		e.A = math.MinInt64
	} else if o := b.keeper.of(nil, State{e.A, e.B}, nil, now); o != nil {
		k.m = o.meter()
		d.bytes = o.append(d.bytes)
		k.to = len(d.bytes)
	}
	d.kept = append(d.kept, k)
}

// state appends a state.
func (d *dump) state(f []byte, s State) []byte {
	f = binary.LittleEndian.AppendUint64(f, uint64(s.A))
	return binary.LittleEndian.AppendUint64(f, d.number(uint32(s.B>>partBits))<<partBits|s.B&partMask)
}

// keptState appends what a state stands for.
func (d *dump) keptState(f []byte, k *keptDump) []byte {
	f = binary.AppendUvarint(f, d.numberOf(k.m))
	return append(f, d.bytes[k.from:k.to]...)
}

func (d *dump) numberOf(m *Meter) uint64 {
	if m == nil {
		return 0
	}
	return d.number(m.id)
}

// number returns the number of the limit with that id, which it writes if it
// is new.
func (d *dump) number(id uint32) uint64 {
	if id == d.last {
		return d.lastIs
	}
	n, ok := d.numbers[id]
	if m := meterOf(id); !ok && m != nil {
		n = uint64(len(d.numbers) + 1)
		d.numbers[id] = n
		if d.limits++; d.limits > maxSnapshotLimits && d.err == nil {
			d.err = fmt.Errorf("spillgate: writing a snapshot: more than %d different limits", maxSnapshotLimits)
		}
		d.limitBuf = append(frame(d.limitBuf, frameLimit), m.limit.String()...)
		d.send(d.limitBuf)
	}
	d.last, d.lastIs = id, n
	return n
}

// tail writes what a space has beside its entries. The changes come last, so
// that they tell of every limit that a state names.
func (d *dump) tail(b *binding) {
	d.kept, d.bytes = d.kept[:0], d.bytes[:0]
	var buckets []*spilled
	b.spill.Lock()
	for _, o := range b.spill.buckets {
		e := table.Entry{A: o.state.A, B: o.state.B}
		d.keep(b, &e, d.past(Instant(o.stamp)))
		buckets = append(buckets, &spilled{m: o.m, state: State{e.A, e.B}, stamp: o.stamp})
	}
	b.spill.Unlock()
	b.space.mu.Lock()
	limit, changes := b.space.limit.Load(), b.space.changes.Load()
	b.space.mu.Unlock()

	f := binary.AppendUvarint(frame(d.body, frameTail), d.numberOf(limit))
	if changes == nil {
		changes = new([]change)
	}
	f = binary.AppendUvarint(f, uint64(len(*changes)))
	for _, c := range *changes {
		f = binary.AppendUvarint(f, d.numberOf(c.from))
		f = binary.AppendUvarint(f, d.numberOf(c.to))
		f = d.state(appendInstant(f, c.until), c.fresh)
	}
	f = binary.AppendUvarint(f, uint64(len(buckets)))
	kept := d.kept
	for _, o := range buckets {
		f = binary.AppendUvarint(f, d.numberOf(o.m))
		f = binary.LittleEndian.AppendUint64(f, uint64(o.stamp))
		if !keeps(o.state.B) {
			f = d.state(f, o.state)
			continue
		}
		if o.state.A == math.MinInt64 || kept[0].m == nil {
			f = d.state(f, State{})
		} else {
			f = d.keptState(d.state(f, o.state), &kept[0])
		}
		kept = kept[1:]
	}
	d.body = f
	d.send(f)
}

// append appends the bytes of a kept state.
func (o *kept) append(b []byte) []byte {
	if l := o.log; l != nil {
		b = binary.AppendUvarint(b, uint64(l.n))
		before := l.base
		for i := range l.n {
			e := l.entry(i)
			b = appendInstant(b, e.at)
			b = binary.AppendUvarint(b, uint64(e.total-before))
			before = e.total
		}
		return b
	}
	b = binary.AppendUvarint(b, uint64(len(o.slots.places)))
	for i := range o.slots.places {
		p := &o.slots.places[i]
		if b = binary.AppendUvarint(b, uint64(p.units)); p.units > 0 {
			b = appendInstant(b, p.since)
			b = binary.AppendUvarint(b, p.id>>placeBits)
		}
	}
	return b
}
