package policy

import (
	"bytes"
	"iter"
	"strings"
)

// A glob is a text with stars, each of which stands for any run: what a value begins
// with, what stands in it after that, in this order, and what it ends with.
type glob struct {
	head, tail string
	between    [][]byte // none is empty
	star       bool     // if not, head is all
}

func globOf(text string) glob {
	pieces := strings.Split(text, "*")
	last := len(pieces) - 1
	g := glob{head: pieces[0], star: last > 0}
	if !g.star {
		return g
	}
	for _, piece := range pieces[1:last] {
		if piece != "" {
			g.between = append(g.between, []byte(piece))
		}
	}
	g.tail = pieces[last]
	return g
}

// matches reports whether v is what g says. It looks through v once.
func (g *glob) matches(v []byte) bool {
	if !g.star {
		return string(v) == g.head
	}
	if len(v) < len(g.head)+len(g.tail) || string(v[:len(g.head)]) != g.head || string(v[len(v)-len(g.tail):]) != g.tail {
		return false
	}
	v = v[len(g.head) : len(v)-len(g.tail)]
	for _, piece := range g.between {
		i := bytes.Index(v, piece)
		if i < 0 {
			return false
		}
		v = v[i+len(piece):]
	}
	return true
}

// split makes the parts of p, a pattern with stars.
func (p *pattern) split(k Kind) {
	text := p.text
	if k != Path {
		p.parts = []glob{globOf(text)}
		p.looks = p.parts[0].between != nil
		return
	}
	text, p.rest = strings.CutSuffix(text, "/**")
	if text == "" {
		return
	}
	p.looks = true // for slashes
	for segment := range strings.SplitSeq(text[1:], "/") {
		p.parts = append(p.parts, globOf(segment))
	}
}

// meetsPath matches segment by segment; a last segment ** stands for any rest,
// also for none.
func (p *pattern) meetsPath(v []byte) bool {
	for i := range p.parts {
		if len(v) == 0 || v[0] != '/' {
			return false
		}
		segment := v[1:]
		if end := bytes.IndexByte(segment, '/'); end >= 0 {
			segment, v = segment[:end], segment[end:]
		} else {
			v = nil
		}
		if !p.parts[i].matches(segment) {
			return false
		}
	}
	return p.rest || len(v) == 0
}

// What a request can make patterns look through is bounded: their number times the
// length of the values of one attribute. Most patterns look at the ends of a value
// only, and are not counted.
const (
	mostLooked = 2 << 20
	freeLength = 1 << 10 // that all patterns look through, however many there are
)

// longestLooked returns how long the values of an attribute may be that so many patterns
// look through. A longer one is taken for any.
func longestLooked(looking int) int { return max(freeLength, mostLooked/max(1, looking)) }

// boundLooks says to conditions, all of which one request may be asked for, how
// long values may be.
func boundLooks(all iter.Seq[*condition]) {
	looking := map[Attribute]int{}
	for c := range all {
		looking[c.attr] += c.looking
	}
	for c := range all {
		c.longest = longestLooked(looking[c.attr])
	}
}

// tooLong reports whether the values that were read of c's attribute are together
// longer than its patterns look through.
func (c *condition) tooLong(r *request, length int) bool {
	if c.looking == 0 || length <= c.longest {
		return false
	}
	if c.slot > 0 {
		r.cache.reads[c.slot-1].any = true
	}
	return true
}
