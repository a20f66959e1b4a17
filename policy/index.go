package policy

import (
	"bytes"
	"math"
	"math/bits"
	"slices"
	"strings"
)

// An index finds the rules that may apply to a request without asking each of
// them. A rule that applies only to requests with one of a few literal values
// (or paths under one of a few literal folders, or hosts under one of a few
// literal domains) is found by these. All others, which a negated value, an
// address or another glob decides on, are asked always. Whoever is found is
// still asked for all that the index has not proved: see rule.rest.
//
// It is made by [Compile] and never changed. What a request makes it do is
// bounded by what the policy holds: nothing is looked up that is longer than
// the longest literal.
type index struct {
	words  int // of a set of rules
	always []uint64
	probes []probe
}

// A probe looks for one attribute's literals.
type probe struct {
	slot   int
	path   bool // has segments
	reads  bool // has readings
	many   bool // may have several values
	exact  literals
	within literals // whole segments of a path from its front, or labels of a host from its end
	all    []uint64 // the rules that are found by any literal
}

// literals are the rules by literal.
type literals struct {
	rules   map[string][]int32
	longest int
	lengths uint64 // that there are, those from 63 on as one
}

func (l *literals) add(text string, rule int32) {
	if l.rules == nil {
		l.rules = make(map[string][]int32)
	}
	l.rules[text] = append(l.rules[text], rule)
	l.longest = max(l.longest, len(text))
	l.lengths |= 1 << min(len(text), 63)
}

// find adds the rules of v to found.
func (l *literals) find(v []byte, found []uint64) {
	if l.lengths&(1<<min(len(v), 63)) == 0 || len(v) > l.longest {
		return
	}
	for _, i := range l.rules[string(v)] {
		found[i>>6] |= 1 << (i & 63)
	}
}

// A literal is a value that a condition can be found by.
type literal struct {
	attr   Attribute
	within bool
	text   string
}

// literals returns what c can be found by: every request that meets c has one
// of them. It is nil if c can be met in other ways too. Whether, the other way
// round, every request that has one of them meets c, is what proves says.
func (c *condition) literals() (out []literal, proves bool) {
	if c.attr.Kind == ClientIP {
		return nil, false
	}
	proves = len(c.unwanted) == 0
	for i := range c.want {
		p := &c.want[i]
		l := literal{attr: c.attr, text: p.text}
		switch star := strings.IndexByte(p.text, '*'); {
		case !p.globs:
		case p.under:
			l.within = true
		case c.attr.Kind == Path:
			l.within, l.text = true, p.text[:strings.LastIndexByte(p.text[:star], '/')]
			proves = false
		case c.attr.Kind == Host && star == 0 && strings.HasPrefix(p.text, "*.") && strings.IndexByte(p.text[1:], '*') < 0:
			l.within, l.text = true, p.text[1:]
		default:
			return nil, false
		}
		if l.within && l.text == "" {
			return nil, false
		}
		out = append(out, l)
	}
	return out, proves
}

// newIndex makes the index of rules.
func newIndex(rules []rule) index {
	x := index{words: (len(rules) + 63) / 64}
	x.always = make([]uint64, x.words)
	// A literal that many rules share finds many that do not apply, so each
	// rule is found by the condition whose literals it shares with the
	// fewest, and, among those, by the attribute that most rules speak of.
	shared, spoken := make(map[literal]int), make(map[Attribute]int)
	for i := range rules {
		for _, m := range rules[i].when() {
			for j := range m {
				ls, _ := m[j].literals()
				for _, l := range ls {
					shared[l]++
				}
				spoken[m[j].attr]++
			}
		}
	}
	probes := make(map[Attribute]int)
	for i := range rules {
		rules[i].rest = rules[i].match
		for _, m := range rules[i].when() {
			best, slot, most, proved := []literal(nil), 0, 0, -1
			for j := range m {
				ls, proves := m[j].literals()
				n := 0
				for _, l := range ls {
					n = max(n, shared[l])
				}
				if ls != nil && (best == nil || n < most || n == most && spoken[m[j].attr] > spoken[best[0].attr]) {
					best, slot, most, proved = ls, m[j].slot, n, -1
					if proves {
						proved = j
					}
				}
			}
			if proved >= 0 && len(rules[i].peek) == 0 {
				rules[i].rest = slices.Concat(m[:proved], m[proved+1:])
			}
			if best == nil {
				x.always[i>>6] |= 1 << (i & 63)
				continue
			}
			at, ok := probes[best[0].attr]
			if !ok {
				at = len(x.probes)
				probes[best[0].attr] = at
				x.probes = append(x.probes, probe{slot: slot, path: best[0].attr.Kind == Path, reads: best[0].attr.Kind.read(), many: best[0].attr.Kind.repeats(), all: make([]uint64, x.words)})
			}
			x.probes[at].all[i>>6] |= 1 << (i & 63)
			for _, l := range best {
				if l.within {
					x.probes[at].within.add(l.text, int32(i))
				} else {
					x.probes[at].exact.add(l.text, int32(i))
				}
			}
		}
	}
	return x
}

// when returns the ways in which a request comes to be one of r's.
func (r *rule) when() [][]condition {
	if r.Disabled {
		return nil
	}
	if len(r.peek) > 0 {
		return [][]condition{r.match, r.peek}
	}
	return [][]condition{r.match}
}

// find returns the set of rules that may apply, good until the next call.
func (x *index) find(r *request) []uint64 {
	r.found = append(r.found[:0], x.always...)
	for i := range x.probes {
		p := &x.probes[i]
		v, ok := r.read(p.slot)
		if !ok {
			continue
		}
		for p.reads { // every reading but the last
			end := bytes.IndexByte(v, readingsEnd)
			if end < 0 {
				break
			}
			p.find(v[:end], r.found)
			v = v[end+1:]
		}
		if p.path && string(v) == anyReading {
			for w := range r.found {
				r.found[w] |= p.all[w]
			}
			continue
		}
		p.find(v, r.found)
		if at := &r.cache.reads[p.slot-1]; p.many && at.more > at.to {
			for each := r.cache.text[at.to:at.more]; len(each) > 0; {
				v, each = cutRepeat(each)
				p.find(v, r.found)
			}
		}
	}
	return r.found
}

// find adds the rules of a value to found.
func (p *probe) find(v []byte, found []uint64) {
	p.exact.find(v, found)
	switch {
	case p.within.rules == nil:
	case p.path:
		for n := p.within.length(1); n <= len(v); n = p.within.length(n + 1) {
			if n == len(v) || v[n] == '/' {
				p.within.find(v[:n], found)
			}
		}
	default:
		for n := p.within.length(1); n <= len(v); n = p.within.length(n + 1) {
			if end := v[len(v)-n:]; end[0] == '.' {
				p.within.find(end, found)
			}
		}
	}
}

// length returns the least length that a literal may have, from n on.
func (l *literals) length(n int) int {
	switch {
	case n > l.longest:
		return math.MaxInt
	case n >= 63:
		return n
	}
	return bits.TrailingZeros64(l.lengths &^ (1<<n - 1))
}

// nextRule returns the least rule of a set from i on, and -1 if there is none.
func nextRule(set []uint64, i int) int {
	for w := i >> 6; w < len(set); w++ {
		word := set[w]
		if w == i>>6 {
			word &= ^uint64(0) << (i & 63)
		}
		if word != 0 {
			return w<<6 + bits.TrailingZeros64(word)
		}
	}
	return -1
}
