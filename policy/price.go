package policy

import (
	"errors"
	"fmt"
	"math"
)

// A Price says what some requests cost. Of a rule's prices the first that
// matches decides; where none does, a request costs 1. An odd path that has one
// price by one reading and another by the next (see [AppendPath]) costs the
// greater one.
type Price struct {
	// Match says which requests cost this; empty means all that no price
	// before it matches.
	Match Match
	// Units is what each of them costs, unless From is given.
	Units int64
	// From is an attribute that holds a number: of items, or of bytes. The
	// zero Attribute stands for none.
	From Attribute
	// Per is how much of that number is one unit, begun units counting whole;
	// 0 means 1. A number of 0 costs one unit too.
	Per int64
	// Default is what a request without From costs; 0 means 1.
	Default int64
	// Most is what a request costs at most, and what one costs whose value is
	// not a whole number from 0 up in decimal digits. 0 means that there is no
	// such bound: a cost that never fits is refused, and so is such a value.
	Most int64
}

// price is a Price made ready.
type price struct {
	*Price
	match []condition
	from  []condition // one, of no value: it only names the attribute
}

// numeric reports whether an attribute of kind k may hold a number.
func (k Kind) numeric() bool {
	switch k {
	case Header, Cookie, Query, Claim, Own, ContentLength, Proxy:
		return true
	}
	return false
}

// compilePrices makes the prices of r ready, for a limit that fits most at once.
func (r *Rule) compilePrices(most int64, bad func(entry int, err error)) []price {
	switch {
	case len(r.Prices) == 0:
		return nil
	case r.Cost != 0:
		bad(0, errors.New("one cost for all and a list of costs; remove one of them"))
	case r.Deny:
		bad(0, errors.New("a rule that denies charges nothing; remove one of them"))
	}
	out := make([]price, len(r.Prices))
	for i := range r.Prices {
		p := &r.Prices[i]
		out[i].Price = p
		if p.From != (Attribute{}) {
			out[i].from = []condition{{attr: p.From}}
		}
		var err error
		if out[i].match, err = compileMatch(p.Match); err != nil {
			bad(i+1, fmt.Errorf("match: %w", err))
		}
		if len(p.Match) == 0 && i < len(r.Prices)-1 {
			bad(i+1, errors.New("this cost has no match, so it is that of every request, and those after it are never used; write it at the end"))
		}
		for _, of := range []struct {
			field string
			n     int64
		}{{"cost", p.Units}, {"per", p.Per}, {"default", p.Default}, {"most", p.Most}} {
			switch {
			case of.n < 0:
				bad(i+1, fmt.Errorf("%s: %d: must not be negative", of.field, of.n))
			case of.n > most && of.field != "per" && !r.Deny:
				bad(i+1, fmt.Errorf("%s: %d is more than ever fits at once (%d), so such requests would always be refused; write %[3]d, the most, or a larger limit", of.field, of.n, most))
			}
		}
		switch {
		case p.From == (Attribute{}) && p.Units == 0:
			bad(i+1, errors.New("says neither what a request costs nor by which attribute: write cost: 5, or from: query.n"))
		case p.From == (Attribute{}) && (p.Per != 0 || p.Default != 0 || p.Most != 0):
			bad(i+1, errors.New("per, default and most speak of an attribute: name it (from: query.n), or remove them"))
		case p.From == (Attribute{}):
		case p.Units != 0:
			bad(i+1, errors.New("cost is one number for all, and from says that it differs; remove one of them"))
		case !p.From.Kind.numeric():
			bad(i+1, fmt.Errorf("from: %s is no number; name content-length, or a header, cookie, query, claim, attr or proxy that holds one", p.From))
		case p.Most != 0 && p.Default > p.Most:
			bad(i+1, fmt.Errorf("default: %d is more than the most, %d", p.Default, p.Most))
		}
	}
	return out
}

// of returns what the request costs by p.
func (p *price) of(s *request) int64 {
	if p.Units > 0 {
		return p.Units
	}
	v, ok := s.known(p.from[0].attr, p.from[0].slot)
	if !ok {
		return max(1, p.Default)
	}
	n, per := number(v), max(1, p.Per)
	if len(s.repeats(p.from[0].attr, p.from[0].slot)) > 0 {
		n = math.MaxInt64 // nobody knows which of them the server takes
	}
	units := n / per
	if n%per != 0 {
		units++
	}
	if n == math.MaxInt64 {
		units = n // whatever it is, it is no few units
	}
	if p.Most > 0 {
		units = min(units, p.Most)
	}
	return max(1, units)
}

// number reads a whole number. What is none, or too large, counts as the
// greatest there is.
func number(v []byte) int64 {
	n := int64(0)
	for _, c := range v {
		if !isDigit(c) || n > (math.MaxInt64-9)/10 {
			return math.MaxInt64
		}
		n = 10*n + int64(c-'0')
	}
	if len(v) == 0 {
		return math.MaxInt64
	}
	return n
}

// cost returns what the request costs by r: what the front says, else what the
// rule does.
func (r *rule) cost(s *request, opts []Option) int64 {
	for i := range opts {
		if opts[i].unit != "" && opts[i].unit == r.unit() {
			return opts[i].cost
		}
	}
	if r.prices == nil {
		return max(1, r.Cost)
	}
	cost := int64(1)
	for i := range r.prices {
		p := &r.prices[i]
		if !s.meets(p.match, false) {
			continue
		}
		cost = max(cost, p.of(s))
		if s.meets(p.match, true) {
			break
		}
	}
	return cost
}

// Attributes returns all that r asks of a request, in any order, and each as
// often as r speaks of it.
func (r *Rule) Attributes() []Attribute {
	var out []Attribute
	for _, part := range r.Key {
		out = append(out, part.Attributes...)
	}
	of := func(m Match) {
		for _, c := range m {
			out = append(out, c.Attribute)
		}
	}
	of(r.Match)
	of(r.Peek)
	if r.Backup != nil {
		of(r.Backup.Match)
	}
	for i := range r.Lanes {
		of(r.Lanes[i].Match)
	}
	for i := range r.Prices {
		of(r.Prices[i].Match)
		if r.Prices[i].From != (Attribute{}) {
			out = append(out, r.Prices[i].From)
		}
	}
	return out
}

// leastCost returns what a request costs by r at least, if the front says
// nothing else.
func (r *Rule) leastCost() int64 {
	if n := len(r.Prices); n == 0 || len(r.Prices[n-1].Match) > 0 {
		return max(1, r.Cost)
	}
	least := int64(math.MaxInt64)
	for i := range r.Prices {
		least = min(least, max(1, r.Prices[i].Units))
	}
	return least
}

// mostCost returns the greatest cost that r names. One that is read from the
// request, without a most, may be greater.
func (r *Rule) mostCost() int64 {
	most := r.Cost
	for i := range r.Prices {
		p := &r.Prices[i]
		most = max(most, p.Units, p.Default, p.Most)
	}
	return most
}
