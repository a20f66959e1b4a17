package policy

import "iter"

// slots are the attributes that the rules of a policy speak of, in conditions
// and keys. An attribute's slot is its place among them, from 1 on; a condition
// or a part without a slot reads its attribute anew each time.
type slots []Attribute

// newSlots gives the conditions and keys of all rules their slots.
func newSlots(rules []rule) slots {
	var s slots
	at := make(map[Attribute]int)
	slot := func(a Attribute) int {
		if at[a] == 0 {
			s = append(s, a)
			at[a] = len(s)
		}
		return at[a]
	}
	for i := range rules {
		r := &rules[i]
		for j := range r.Key {
			p := &r.Key[j]
			p.slots = make([]int, len(p.Attributes))
			for k, a := range p.Attributes {
				p.slots[k] = slot(a)
			}
		}
	}
	for c := range conditionsOf(rules) {
		c.slot = slot(c.attr)
	}
	boundLooks(conditionsOf(rules))
	return s
}

// conditionsOf returns the conditions of all rules.
func conditionsOf(rules []rule) iter.Seq[*condition] {
	return func(yield func(*condition) bool) {
		each := func(cs []condition) bool {
			for i := range cs {
				if !yield(&cs[i]) {
					return false
				}
			}
			return true
		}
		for i := range rules {
			r := &rules[i]
			for _, cs := range r.when() {
				if !each(cs) {
					return
				}
			}
			if !each(r.backup) {
				return
			}
			for j := range r.lanes {
				if !each(r.lanes[j].match) {
					return
				}
			}
			for j := range r.prices {
				if !each(r.prices[j].match) || !each(r.prices[j].from) {
					return
				}
			}
		}
	}
}

// A cache holds what was read of a request: many rules ask for the same
// attribute, and a front may have to search for it.
type cache struct {
	slots slots
	round uint64 // of the request at hand
	reads []reads
	text  []byte

	anyCase bool // paths are folded
}

// reads is what was read of one attribute in a round.
type reads struct {
	round    uint64
	from, to int
	more     int // where its repeats end, which begin at to
	ok       bool
	any      bool // it was too long for some patterns
}

// begin makes c ready for another request, under a policy with these slots.
func (c *cache) begin(s slots) {
	c.slots, c.text = s, c.text[:0]
	c.round++
	for len(c.reads) < len(s) {
		c.reads = append(c.reads, reads{})
	}
}

// known returns the value of an attribute that has that slot, or none if it is
// 0. It is good until the next call, and must not be changed.
func (r *request) known(a Attribute, slot int) ([]byte, bool) {
	if slot == 0 {
		return r.value(a)
	}
	return r.read(slot)
}

// read is known for a slot.
func (r *request) read(slot int) ([]byte, bool) {
	c := &r.cache
	at := &c.reads[slot-1]
	if at.round != c.round {
		c.fetch(r.attrs, slot)
	}
	return c.text[at.from:at.to], at.ok
}

func (c *cache) fetch(attrs Attributes, slot int) {
	at := &c.reads[slot-1]
	at.round, at.from, at.any = c.round, len(c.text), false
	c.text, at.ok = attrs.AppendAttr(c.text, c.slots[slot-1])
	if c.anyCase && c.slots[slot-1].Kind == Path {
		c.text = foldCase(c.text, at.from)
	}
	if c.slots[slot-1].Kind.field() {
		v := c.text[at.from:]
		n := normalHeader(c.slots[slot-1], v)
		c.text = c.text[:at.from+copy(v, n)]
	}
	at.to = len(c.text)
	if at.ok && c.slots[slot-1].Kind.repeats() {
		if s, ok := attrs.(Repeating); ok {
			c.text = s.AppendRepeats(c.text, c.slots[slot-1])
			c.text = c.text[:at.to+len(normalRepeats(c.slots[slot-1], c.text[at.to:]))]
		}
	}
	at.more = len(c.text)
	at.ok = at.ok && (at.more > at.to || !empty(c.text[at.from:at.to]))
}
