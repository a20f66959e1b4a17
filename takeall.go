package spillgate

import (
	"fmt"

	"github.com/spillgate/spillgate/internal/table"
)

// inline is how many charges a call can make without allocating.
const inline = 8

// A part is what one call asks of one key under one limit: the sum of its
// charges. Parts of one key under several limits work on one state, that of
// the first of them, their root; so do parts that share an overflow bucket.
type part struct {
	b     *binding
	m     *Meter
	sh    *table.Shard
	tag   uint64
	ask   Ask
	trial bool
	clock uint8 // which of the call's times it goes by
	kind  uint8
	first uint16 // charge, whose decision is also that of the sum
	root  uint16

	index int   // of its entry
	left  int64 // of what was granted, beyond what each charge has to have
	took  bool

	// Of roots only: the state, as it was and as the call leaves it, and the
	// part that was the last to take from it, less one.
	before, after State
	taker         uint16
	wants         bool // more than to look
}

// Where the state of a part is.
const (
	inNone  uint8 = iota // nowhere: the limit is [Unlimited]
	inEntry              // in the entry at index
	inNew                // in an entry that is yet to be made
	inSpill              // in the bucket that newcomers share
)

// A call is the work of one [Memory.Take].
type call struct {
	parts []part
	of    []uint16 // the part of each charge
	order []uint16 // of the parts: that of their locks
	times times
}

// takeAll takes all charges or none. The memory of a call is on the stack, and
// as small as will do, since all of it has to be cleared.
func (m *Memory) takeAll(now times, cs []Charge, out []Decision) error {
	switch n := len(cs); {
	case n <= inline/2:
		return m.takeFew(now, cs, out)
	case n <= inline:
		var parts [inline]part
		var index [2 * inline]uint16
		c := call{parts[:0], index[:n:inline], index[inline:inline], now}
		return m.run(&c, cs, out)
	case n <= MaxCharges:
		c := call{make([]part, 0, n), make([]uint16, n), make([]uint16, 0, n), now}
		return m.run(&c, cs, out)
	default:
		return fmt.Errorf("spillgate: %w: %d charges at once: at most %d", ErrCharge, n, MaxCharges)
	}
}

func (m *Memory) takeFew(now times, cs []Charge, out []Decision) error {
	const few = inline / 2
	var parts [few]part
	var index [2 * few]uint16
	c := call{parts[:0], index[:len(cs):few], index[few:few], now}
	return m.run(&c, cs, out)
}

// run carries a call out. Every shard in question is locked, in one order
// everywhere, then what newcomers share; every part is decided at one instant
// on the state that earlier parts left; then all is written or nothing.
func (m *Memory) run(c *call, cs []Charge, out []Decision) error {
	for _, trial := range [2]bool{false, true} {
		for i := range cs {
			if cs[i].Trial == trial {
				if err := m.add(c, cs, i); err != nil {
					return err
				}
			}
		}
	}
	c.lock()
	if m.closed.Load() { // since its charges were bound
		c.unlock()
		return ErrClosed
	}
	c.locate()
	if c.decide(out) {
		c.write(out)
	} else {
		c.withdraw(out)
	}
	c.unlock()
	if len(c.parts) < len(cs) {
		c.share(cs, out)
	}
	for i := range c.parts {
		p := &c.parts[i]
		if p.b.table.Look(int64(c.times[p.clock])) {
			break // once a call
		}
	}
	return nil
}

// add adds charge i to the part it belongs to.
func (m *Memory) add(c *call, cs []Charge, i int) error {
	g := &cs[i]
	b, err := m.bind(g.Space)
	if err != nil {
		return err
	}
	tag := table.Tag(g.Key[0])
	root := uint16(len(c.parts))
	for j := range c.parts {
		p := &c.parts[j]
		if p.tag != tag || p.b != b || p.kind == inNone {
			continue
		}
		if a := g.Meter.limit.Algorithm; a != p.m.limit.Algorithm && a != Unlimited && (p.m.keeps || g.Meter.keeps) {
			return fmt.Errorf("spillgate: %w: charge %d of %q: one key counted as a %s and as a %s in one space: give each a space of its own",
				ErrCharge, i, g.Space.name, p.m.limit.Algorithm, a)
		}
		if p.m == g.Meter && p.trial == g.Trial {
			p.ask = p.ask.plus(g.Ask)
			c.parts[p.root].wants = c.parts[p.root].wants || g.N > 0
			c.of[i] = uint16(j)
			return nil
		}
		root = min(root, p.root)
	}
	n := len(c.parts)
	c.of[i] = uint16(n)
	c.parts = c.parts[:n+1] // an append would move it to the heap
	p := &c.parts[n]
	p.b, p.m, p.tag, p.ask, p.trial = b, g.Meter, tag, g.Ask, g.Trial
	p.first, p.root, p.kind = uint16(i), root, inEntry
	if g.Meter.limit.Algorithm == Unlimited {
		root = uint16(n)
		p.kind, p.root = inNone, root
	}
	if p.kind != inNone {
		p.sh, _ = b.table.Shard(tag)
		p.clock = uint8(c.times.of(g.Meter))
		c.insert(p.sh, uint16(n))
	}
	c.parts[root].wants = c.parts[root].wants || g.N > 0
	return nil
}

// insert puts part i, whose shard is sh, in the order of locks.
func (c *call) insert(sh *table.Shard, i uint16) {
	k := len(c.order)
	c.order = c.order[:k+1]
	c.order[k] = i
	for ; k > 0 && sh.Before(c.parts[c.order[k-1]].sh); k-- {
		c.order[k], c.order[k-1] = c.order[k-1], i
	}
}

// plus returns the ask for q and r at once.
func (q Ask) plus(r Ask) Ask {
	sum := Ask{N: later(q.N, r.N), Keep: max(q.Keep, r.Keep), Need: max(q.Need, r.Need)}
	if q.Min > 0 || r.Min > 0 {
		sum.Min = later(q.least(), r.least())
	}
	return sum
}

// least returns the least that q can be granted.
func (q Ask) least() int64 {
	if q.Min > 0 {
		return q.Min
	}
	return q.N
}

// lock locks the shards and finds the call's instants: not before any that a
// shard has seen.
func (c *call) lock() {
	var last *table.Shard
	for _, i := range c.order {
		p := &c.parts[i]
		if p.sh != last {
			p.sh.Lock()
			last = p.sh
		}
		if m := p.b.current(p.m); m != p.m {
			p.m, p.clock = m, uint8(c.times.of(m))
		}
		c.times[p.clock] = max(c.times[p.clock], Instant(p.sh.Latest()))
	}
	for _, i := range c.order {
		p := &c.parts[i]
		p.sh.Advance(int64(c.times[p.clock]))
	}
}

// locate finds the state of every root, and locks the spills that are needed.
func (c *call) locate() {
	spills := false
	for i := range c.parts {
		p := &c.parts[i]
		if p.kind == inNone || int(p.root) != i {
			continue
		}
		now := c.times[p.clock]
		if p.index = p.sh.Lookup(p.tag); p.index >= 0 {
			p.before.A, p.before.B = p.sh.At(p.index)
			if p.b.ttl > 0 && int64(now) >= later(p.sh.Stamp(p.index), p.b.ttl) {
				p.before = State{}
			}
			continue
		}
		promised := c.promised(i)
		if p.sh.Full(promised) {
			c.yield(i)
			promised = c.promised(i)
		}
		if p.kind = inNew; !p.b.room(p.sh, p.tag, now, promised) {
			p.kind, spills = inSpill, true
		}
	}
	if !spills {
		return
	}
	var last *binding
	for _, i := range c.order {
		if p := &c.parts[i]; c.parts[p.root].kind == inSpill && p.b != last {
			p.b.spill.Lock()
			last = p.b
		}
	}
	c.rootSpills()
}

// yield drops the entries that earlier parts found as new in the shard of part
// i, which looks for room there and might drop them itself: they are to get
// new ones.
func (c *call) yield(i int) {
	for j := range c.parts[:i] {
		p := &c.parts[j]
		if int(p.root) == j && p.kind == inEntry && p.sh == c.parts[i].sh && p.sh.New(p.index, int64(c.times[p.clock])) {
			p.sh.Drop(p.index)
			p.kind, p.before = inNew, State{}
		}
	}
}

// promised counts the entries that earlier parts are to get in the shard of
// part i.
func (c *call) promised(i int) (n int) {
	for j := range c.parts[:i] {
		if p := &c.parts[j]; p.kind == inNew && p.wants && p.sh == c.parts[i].sh {
			n++
		}
	}
	return n
}

// rootSpills gives all parts that share a bucket one root.
func (c *call) rootSpills() {
	for i := range c.parts {
		p := &c.parts[i]
		if c.parts[p.root].kind != inSpill {
			continue
		}
		p.kind, p.root = inSpill, uint16(i)
		for j := range c.parts[:i] {
			if q := &c.parts[j]; q.kind == inSpill && q.b == p.b && q.m == p.m {
				p.root = q.root
				break
			}
		}
		if int(p.root) == i {
			p.before = p.b.loadSpilled(p.m, c.times[p.clock])
		}
	}
}

// decide decides every part, on what those before it have left, and reports
// whether the request passes.
func (c *call) decide(out []Decision) bool {
	passes := true
	for i := range c.parts {
		p := &c.parts[i]
		root, d := &c.parts[p.root], &out[p.first]
		if root == p {
			p.after = p.before
		}
		s := c.judge(p, p.ask, root.after, d)
		if d.Taken > 0 {
			root.after, root.taker = s, uint16(i)+1
		}
		if !d.Allowed && !p.trial {
			passes = false
		}
	}
	return passes
}

// judge decides a part on a state, into d, and returns the state after.
func (c *call) judge(p *part, q Ask, s State, d *Decision) State {
	now, root := c.times[p.clock], &c.parts[p.root]
	if uint32(s.B>>partBits) != p.m.id {
		s = p.b.space.settled(s, p.m, now)
	}
	s = p.b.grant(p.m, s, now, q, d)
	if p.b.ttl > 0 {
		switch {
		case root.kind == inSpill && root.taker == 0:
			p.b.clipSpilled(d, p.m, now)
		case root.kind == inEntry && root.taker == 0:
			p.b.clip(d, p.sh.Stamp(root.index), now)
		case root.kind != inNone:
			stamp := int64(now)
			if root.taker == 0 {
				stamp = uncharged
			}
			p.b.clip(d, stamp, now)
		}
	}
	d.Overflow = root.kind == inSpill
	return s
}

// withdraw makes the decisions those of a request that took nothing. A limit
// that refused still says so; the others say what they would have said to it
// alone, and what is left.
func (c *call) withdraw(out []Decision) {
	for i := range c.parts {
		c.parts[i].taker = 0
	}
	c.undo(out)
	for i := range c.parts {
		p := &c.parts[i]
		s, d := c.parts[p.root].before, &out[p.first]
		if p.trial {
			after := c.judge(p, p.ask, s, d)
			if p.m.keeps {
				p.b.keeper.undo(p.m, s, after, *d)
			}
		}
		if d.Taken > 0 {
			c.judge(p, Ask{Keep: p.ask.Keep}, s, d)
		}
	}
}

// undo gives back what was taken of states that are kept, which was at once.
func (c *call) undo(out []Decision) {
	for i := range c.parts {
		if p := &c.parts[len(c.parts)-1-i]; p.m.keeps {
			root := &c.parts[p.root]
			p.b.keeper.undo(p.m, root.before, root.after, out[p.first])
		}
	}
}

// write puts down what was taken: first what has an entry, whose index still
// holds, then what gets one.
func (c *call) write(out []Decision) {
	for i := range c.parts {
		if p := &c.parts[i]; p.taker > 0 && p.kind == inEntry {
			c.store(p, p.index, out)
		}
	}
	for i := range c.parts {
		p := &c.parts[i]
		switch {
		case p.taker == 0:
		case p.kind == inNew:
			c.store(p, p.sh.Put(p.tag, int64(c.times[p.clock])), out)
		case p.kind == inSpill:
			p.b.storeSpilled(p.m, p.after, c.times[p.clock])
		}
	}
}

// store writes the state of a root.
func (c *call) store(root *part, index int, out []Decision) {
	by := &c.parts[root.taker-1]
	root.b.store(root.sh, index, by.m, root.after, &out[by.first])
}

// unlock gives all locks back.
func (c *call) unlock() {
	var spill *binding
	for _, i := range c.order {
		p := &c.parts[i]
		if p.kind != inSpill {
			continue
		}
		if p.sh.CountOverflow(); spill != nil && p.b != spill {
			spill.spill.Unlock()
		}
		spill = p.b
	}
	if spill != nil {
		spill.spill.Unlock()
	}
	var last *table.Shard
	for _, i := range c.order {
		if sh := c.parts[i].sh; sh != last {
			sh.Unlock()
			last = sh
		}
	}
}

// share gives every charge the decision of its part, and its share of what
// that was granted: at least what it has to have, then what is left, in order.
func (c *call) share(cs []Charge, out []Decision) {
	for i := range cs {
		p := &c.parts[c.of[i]]
		if int(p.first) == i {
			p.left, p.took = out[i].Taken, out[i].Taken > 0
		}
		p.left -= cs[i].least()
	}
	for i := range cs {
		p := &c.parts[c.of[i]]
		if int(p.first) != i {
			out[i] = out[p.first]
		}
		if !p.took {
			continue
		}
		more := min(p.left, cs[i].N-cs[i].least())
		out[i].Taken, p.left = cs[i].least()+more, p.left-more
	}
}
