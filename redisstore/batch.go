package redisstore

import (
	"math/rand/v2"
	"slices"
	"sync"
)

// maxBatch is how many requests one call carries at most, maxKeys how many
// keys.
const (
	maxBatch = 256
	maxKeys  = 1024
)

// A batch is what one flight carries.
type batch struct {
	ops    []*op
	groups []group
	calls  []Call
	lone   bool // each op has a run of its own
}

var batches = sync.Pool{New: func() any { return new(batch) }}

// free gives b back, whose flight is over.
func (b *batch) free() {
	b.clear()
	batches.Put(b)
}

// clear makes b one of nothing, which keeps its memory.
func (b *batch) clear() {
	for i := range b.groups {
		b.groups[i].clear()
	}
	clear(b.ops)
	clear(b.calls)
	b.ops, b.groups, b.calls, b.lone = b.ops[:0], b.groups[:0], b.calls[:0], false
}

// A group is what one run of the script carries: all of one slot where there
// are slots, but for shapes that are kept apart.
type group struct {
	ops    []*op // in the order of the answers
	keys   []string
	plain  int
	index  map[string]int // of the key, from 0
	asks   map[ask]int
	states []state
	many   layout // for the script for most calls
}

func (g *group) clear() {
	clear(g.ops)
	clear(g.index)
	clear(g.asks)
	clear(g.states)
	g.many.clear()
	// The library may still have the keys of a call that it gave up.
	g.ops, g.keys, g.plain, g.states = g.ops[:0], nil, 0, g.states[:0]
}

// add returns another group of b.
func (b *batch) add() *group {
	n := len(b.groups)
	b.groups = slices.Grow(b.groups, 1)[:n+1]
	g := &b.groups[n]
	if g.index == nil {
		g.index, g.asks = map[string]int{}, map[ask]int{}
	}
	return g
}

// group lays out which op goes in which run of the script, in turn,
// and numbers keys and asks.
func (b *batch) group(slots bool) {
	for turn := range 3 {
		for _, o := range b.ops {
			if o.turn() == turn {
				b.place(o, slots)
			}
		}
	}
}

// turn is when it is o's, of all in a run: what replaces a state is first, so that the
// others find it, and what corrects one last.
func (o *op) turn() int {
	switch {
	case o.fix != nil:
		return 2
	case o.replace != nil:
		return 0
	}
	return 1
}

func (b *batch) place(o *op, slots bool) {
	at := 0
	if b.lone {
		at = len(b.groups)
	}
	for ; at < len(b.groups); at++ {
		if first := b.groups[at].ops[0]; first.apart == o.apart && (!slots || first.slot == o.slot) {
			break
		}
	}
	if at == len(b.groups) {
		b.add()
	}
	b.groups[at].ops = append(b.groups[at].ops, o)
}

// number gives a key of o its place in the call.
func (g *group) number(p *part) {
	at, ok := g.index[p.key]
	if !ok {
		at = len(g.keys)
		g.index[p.key] = at
		g.keys = append(g.keys, p.key)
	}
	p.place = at
}

// head writes what the script is told of the whole call.
func (g *group) head(given bool, floor int64) string {
	head := encoder{b: make([]byte, 0, 40)}
	head.raw(flag(given))
	sec, nanos := split(floor)
	head.raw(float64(sec), float64(nanos), float64(g.plain), float64(rand.Uint64N(most)))
	return string(head.b)
}

// encode writes what the script is given.
func (g *group) encode(given bool, floor int64, s *Store) []string {
	for _, kept := range [2]bool{false, true} {
		for _, o := range g.ops {
			for i := range o.parts {
				if p := &o.parts[i]; p.kind != kindNone && p.kind.kept() == kept {
					g.number(p)
				}
			}
		}
		if !kept {
			g.plain = len(g.keys)
		}
	}
	args := make([]string, 2, 8)
	args[0] = g.head(given, floor)
	program := make([]byte, 0, 8*len(g.ops))
	refuse := 0    // the ask that refuses what is not to be taken
	var last *part // whose ask is the one before
	same := 0
	for _, o := range g.ops {
		n := len(program)
		program = append(program, 0)
		for i := range o.parts {
			p := &o.parts[i]
			if p.kind == kindNone {
				continue
			}
			var a int
			switch {
			case o.replace != nil && !p.kind.kept():
				if p.root != i {
					continue
				}
				args = append(args, o.replace[i].encode())
				a = len(args) - 2
			case last != nil && last.ask == p.ask:
				a = same
			default:
				var ok bool
				if a, ok = g.asks[p.ask]; !ok {
					args = append(args, s.encoded(&p.ask))
					a = len(args) - 2
					g.asks[p.ask] = a
				}
				last, same = p, a
			}
			k := p.place + 1
			program[n]++
			program = append(program, byte(k>>8), byte(k), byte(a>>8), byte(a))
		}
		if o.dry {
			if refuse == 0 {
				args = append(args, string([]byte{byte(kindRefuse), 0, 0, 0}))
				refuse = len(args) - 2
			}
			program[n]++
			program = append(program, 0, 1, byte(refuse>>8), byte(refuse))
		}
	}
	args[1] = string(program)
	return args
}
