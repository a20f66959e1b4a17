package redisstore

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/spillgate/spillgate"
)

// A layout is how the requests of a call stand in what the script for most calls is
// given: those that ask the same of one key, and of no other, stand together, so that a
// key in demand costs the server little more than any other; and so do those that ask
// the same of a key that no other has.
type layout struct {
	entries []entry
	keys    []keyed
	asks    []*part // of which each has another ask
	program []byte
}

// An entry is one request, or several that ask the same of one key.
type entry struct {
	first, last *op
	times       int
	run         int // the number of the ask, from 1, if it may stand in a run; else 0
}

// A keyed is what a layout knows of a key.
type keyed struct {
	alone int // the number of the entry that asks it alone, from 1
	uses  int // how many entries name it
	place int // in the call, from 1
	size  int // of its state
	m     *spillgate.Meter
}

// maxTimes is how many requests an entry holds.
const maxTimes = 255

func (y *layout) clear() {
	clear(y.entries)
	clear(y.keys)
	clear(y.asks)
	*y = layout{y.entries[:0], y.keys[:0], y.asks[:0], y.program[:0]}
}

// encodeOne writes what one.lua is given.
func (g *group) encodeOne(given bool, floor int64, s *Store) []string {
	p := &g.ops[0].parts[0]
	g.number(p)
	g.plain = 1
	text := s.encoded(&p.ask)
	numbers := 4 + int(text[2])
	return []string{g.head(given, floor)[:24] + text[numbers:] + text[4:numbers]}
}

// encodeMany writes what many.lua is given, and puts the ops in the order of its
// answers.
func (g *group) encodeMany(given bool, floor int64, s *Store) []string {
	y := &g.many
	for _, o := range g.ops {
		for i := range o.parts {
			g.number(&o.parts[i])
		}
		y.keys = append(y.keys, make([]keyed, len(g.keys)-len(y.keys))...)
		y.enter(o)
	}
	g.plain = len(g.keys)
	y.sort()
	g.ops = g.ops[:0]
	keys := make([]string, 0, len(g.keys))
	for i := range y.entries {
		for o := y.entries[i].first; o != nil; o = o.next {
			g.ops = append(g.ops, o)
			for j := range o.parts {
				p := &o.parts[j]
				if k := &y.keys[p.place]; k.place == 0 {
					keys = append(keys, g.keys[p.place])
					k.place = len(keys)
				}
			}
		}
	}
	g.keys = keys
	y.write()
	args := append(make([]string, 0, 2+len(y.asks)), g.head(given, floor), string(y.program))
	for _, p := range y.asks {
		args = append(args, s.encoded(&p.ask))
	}
	for _, o := range g.ops {
		for i := range o.parts {
			k := &y.keys[o.parts[i].place]
			o.parts[i].place = k.place - 1
			k.m, k.size = o.parts[i].m, int(args[1+y.ask(&o.parts[i])][2])+14
		}
	}
	slices.SortFunc(y.keys, func(a, b keyed) int { return a.place - b.place })
	return args
}

// enter gives o an entry.
func (y *layout) enter(o *op) {
	o.next = nil
	p := &o.parts[0]
	if len(o.parts) == 1 {
		if at := y.keys[p.place].alone; at > 0 {
			if e := &y.entries[at-1]; e.times < maxTimes && e.first.parts[0].ask == p.ask {
				e.last.next, e.last = o, o
				e.times++
				return
			}
		}
		y.keys[p.place].alone = len(y.entries) + 1
	}
	for i := range o.parts {
		y.keys[o.parts[i].place].uses++
	}
	y.entries = append(y.entries, entry{first: o, last: o, times: 1})
}

// sort puts those first that stand in runs, by ask and how often they come.
func (y *layout) sort() {
	for i := range y.entries {
		if e := &y.entries[i]; len(e.first.parts) == 1 && y.keys[e.first.parts[0].place].uses == 1 {
			e.run = y.ask(&e.first.parts[0])
		}
	}
	slices.SortStableFunc(y.entries, func(a, b entry) int {
		if a.run == 0 || b.run == 0 {
			return b.run - a.run
		}
		return cmp.Or(a.run-b.run, a.times-b.times)
	})
}

// ask returns the number of p's ask, from 1.
func (y *layout) ask(p *part) int {
	for i, q := range y.asks {
		if q.ask == p.ask {
			return i + 1
		}
	}
	y.asks = append(y.asks, p)
	return len(y.asks)
}

// write writes the program.
func (y *layout) write() {
	two := func(n int) { y.program = append(y.program, byte(n>>8), byte(n)) }
	for i := 0; i < len(y.entries); {
		e := &y.entries[i]
		first := i
		for i++; e.run > 0 && i < len(y.entries) && y.entries[i].run == e.run && y.entries[i].times == e.times; i++ {
		}
		if e.run > 0 {
			from := y.keys[e.first.parts[0].place].place
			y.program = append(y.program, 0, byte(e.times))
			two(from)
			two(from + i - first - 1)
			two(e.run)
			continue
		}
		y.program = append(y.program, byte(len(e.first.parts)), byte(e.times))
		for j := range e.first.parts {
			p := &e.first.parts[j]
			k := y.keys[p.place].place
			if y.keys[p.place].uses > 1 {
				k |= 1 << 15
			}
			two(k)
			two(y.ask(p))
		}
	}
}

// gone stands in a reply for a key that is not there: no label begins with it.
const gone = '\xff'

// readMany is read for a reply of many.lua, whose states it reads, too, where all
// were written under the limits that were asked for.
func (r *scriptReply) readMany(words []any, g *group) error {
	if len(words) < 4 {
		return fmt.Errorf("a reply of %d words where there should be more", len(words))
	}
	text, ok := words[3].(string)
	if !ok {
		copy(words[1:], words[:3])
		return r.read(words[1:], len(g.ops), g.plain)
	}
	if err := r.read(words[:3], len(g.ops), 0); err != nil {
		return err
	}
	r.raws = nil
	for _, k := range g.many.keys {
		st := state{held: held{stamp: unstamped}, read: true}
		if text != "" && text[0] == gone {
			text = text[1:]
		} else {
			if len(text) < k.size {
				return fmt.Errorf("a reply of too few states")
			}
			var err error
			if st.s, _, err = readState(text[:k.size], k.m); err != nil {
				return err
			}
			text = text[k.size:]
		}
		g.states = append(g.states, st)
	}
	if text != "" {
		return fmt.Errorf("a reply of too many states")
	}
	return nil
}
