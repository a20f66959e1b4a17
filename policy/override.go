package policy

import (
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spillgate/spillgate"
)

// An Override is an exception from rules for some callers: they are exempt,
// have another limit, or are blocked. It says one of these, of whom, and, if it
// is wise, why, who answers for it, and until when.
//
// Of several that hold for a request and a rule, one that blocks goes before
// one that exempts, and that before one with a limit. Of several that block,
// the one counts that ends last; of others the one that is listed first.
type Override struct {
	// Rules and Groups name the rules that it is an exception from; both empty
	// means all. One that blocks and names none also blocks requests that no
	// rule matches.
	Rules, Groups []string
	// Match says whom it is for, as a rule's does.
	Match Match
	// List, if not empty, names a list, and the override is for whom Match and
	// an entry of the list hold. Key is the attribute whose values the entries
	// are; without one, entries are addresses and networks of client.ip.
	List    string
	Key     Part
	Entries []Entry
	// Exempt takes requests out of the rules. Deny refuses what the rules
	// match, with [spillgate.Blocked]. A Limit takes the place of the rules':
	// it must be of the same kind, and keys keep what they have used.
	Exempt, Deny bool
	Limit        spillgate.Limit
	// Reason and Owner say why, and who answers for it, for people.
	Reason, Owner string
	// Until is when it ends: from that instant on it has no effect. The zero
	// Time means never.
	Until time.Time
	// Source says where it is written, "limits.yaml:12", for people.
	Source string
}

// String says where o is written, why, and until when.
func (o *Override) String() string {
	s := o.Source
	if s == "" {
		s = "of the program"
	}
	if o.Reason != "" {
		s += fmt.Sprintf(" (%s)", o.Reason)
	}
	if !o.Until.IsZero() {
		s += ", until " + o.Until.Format(time.RFC3339)
	}
	return s
}

// An Entry is one line of a list.
type Entry struct {
	// Network is for lists of client.ip, Value for all others.
	Network netip.Prefix
	Value   string
	// Reason and Owner, if not empty, take the place of the override's. An
	// entry ends at Until, at the latest when its override does.
	Reason, Owner string
	Until         time.Time
	// Line is where it is written, from 1.
	Line int
}

// Bounds of overrides.
const (
	MaxOverrides = 10_000
	// MaxEntries is how many addresses, networks and values all overrides name
	// together at most.
	MaxEntries = 1_000_000
	// MaxSearched is how many overrides may have only conditions that can't be
	// looked up (with a * or a !, or on the path or the method, which may have
	// several readings), and so are asked one by one.
	MaxSearched = 1000
)

// An OverrideError says what is wrong with an override, and where. It wraps
// [ErrRule].
type OverrideError struct {
	Index int    // of the override, from 0
	Field string // as written in a policy file: "limit", "match", ...
	Line  int    // of the list, 0 if it is not about one
	Err   error  // what is wrong and what to do
}

// Error names the override, the field and what to do.
func (e *OverrideError) Error() string {
	if e.Line > 0 {
		return fmt.Sprintf("policy: override %d: %s: line %d: %v", e.Index+1, e.Field, e.Line, e.Err)
	}
	return fmt.Sprintf("policy: override %d: %s: %v", e.Index+1, e.Field, e.Err)
}

// Unwrap returns [ErrRule] and the cause.
func (e *OverrideError) Unwrap() []error { return []error{ErrRule, e.Err} }

// Overrides are the overrides of a policy, compiled: found in well under a
// microsecond among [MaxEntries]. They are immutable and safe for concurrent
// use.
type Overrides struct {
	of    *Policy
	all   []override
	nodes []node
	owns  []*Override // what entries say of themselves

	v4, v6   networks
	values   []values
	searched []int32
}

// override is an Override made ready.
type override struct {
	*Override
	match []condition // besides what it is found by
	rules []uint64    // a set; nil for all
	until int64
}

// values finds callers by the value of one part.
type values struct {
	part  Part
	heads map[string]int32
}

// Overrides returns the overrides that p was given by [Policy.WithOverrides],
// nil if there are none.
func (p *Policy) Overrides() *Overrides { return p.overrides }

// All returns the overrides, in order and without their entries. They must not
// be changed.
func (o *Overrides) All() []*Override {
	if o == nil {
		return nil
	}
	out := make([]*Override, len(o.all))
	for i := range o.all {
		out[i] = o.all[i].Override
	}
	return out
}

// Listed returns how many addresses, networks and values o names, which is one
// of All: by its list, or by the condition that it is looked up by. What it
// names again counts once.
func (o *Overrides) Listed(one *Override) (n int) {
	for i := range o.nodes {
		if o.all[o.nodes[i].over].Override == one {
			n++
		}
	}
	return n
}

// Len returns how many addresses, networks and values the lists and conditions
// name by which callers are looked up.
func (o *Overrides) Len() int {
	if o == nil {
		return 0
	}
	return len(o.nodes)
}

// WithOverrides returns p with these overrides in place of those that it had.
// The error joins one [*OverrideError] for everything that is wrong.
func (p *Policy) WithOverrides(list []Override) (*Policy, error) {
	q := *p
	if q.overrides = nil; len(list) == 0 {
		return &q, nil
	}
	if len(list) > MaxOverrides {
		return nil, fmt.Errorf("policy: %w: %d overrides; at most %d: put what differs by a value alone into a list", ErrRule, len(list), MaxOverrides)
	}
	c := overrideCompiler{o: &Overrides{of: p.base}, p: p, parts: make(map[valuesKey]int)}
	for i := range list {
		c.add(i, list[i])
	}
	c.checkExposed()
	boundLooks(c.o.searchedConditions())
	if n := len(c.v4) + len(c.v6) + len(c.o.nodes); n > MaxEntries {
		c.bad(len(list)-1, "list", 0, fmt.Errorf("%d addresses, networks and values in all overrides together; at most %d", n, MaxEntries))
	}
	if len(c.errs) > 0 {
		return nil, errors.Join(c.errs...)
	}
	c.o.v4, c.o.nodes = newNetworks(c.v4, c.o.nodes)
	c.o.v6, c.o.nodes = newNetworks(c.v6, c.o.nodes)
	q.overrides = c.o
	return &q, nil
}

// searchedConditions returns those of the overrides that are asked one by one.
func (o *Overrides) searchedConditions() iter.Seq[*condition] {
	return func(yield func(*condition) bool) {
		for _, n := range o.searched {
			for m := o.all[o.nodes[n].over].match; len(m) > 0; m = m[1:] {
				if !yield(&m[0]) {
					return
				}
			}
		}
	}
}

// valuesKey is what tells values apart.
type valuesKey struct {
	attr        Attribute
	lower, trim bool
}

// overrideCompiler makes overrides ready.
type overrideCompiler struct {
	o      *Overrides
	p      *Policy
	parts  map[valuesKey]int // of o.values
	v4, v6 []network
	errs   []error
}

// maxOverrideErrors is how many errors are told.
const maxOverrideErrors = 200

func (c *overrideCompiler) bad(i int, field string, line int, err error) {
	if len(c.errs) < maxOverrideErrors {
		c.errs = append(c.errs, &OverrideError{Index: i, Field: field, Line: line, Err: err})
	}
}

func (c *overrideCompiler) add(i int, v Override) {
	entries := v.Entries
	v.Entries = nil
	over := override{Override: &v, until: endOf(v.Until)}
	c.action(i, &over)
	var err error
	v.Match = c.p.paths.fold(v.Match)
	if err = c.p.paths.slashed(v.Match); err == nil {
		over.match, err = compileMatch(v.Match)
	}
	if err != nil {
		c.bad(i, "match", 0, err)
		return
	}
	for j := range over.match {
		m := &over.match[j]
		m.slot = slices.Index(c.p.slots, m.attr) + 1
	}
	for field, text := range map[string]string{"reason": v.Reason, "owner": v.Owner} {
		if len(text) > maxNote {
			c.bad(i, field, 0, fmt.Errorf("%d bytes; at most %d", len(text), maxNote))
		}
	}
	number := int32(len(c.o.all))
	switch {
	case v.List != "" || len(entries) > 0:
		c.listed(i, number, &over, entries)
	case len(v.Match) == 0:
		c.bad(i, "match", 0, errors.New("missing, and no list: it would be for everybody; say whom it is for, such as match: {client.ip: 203.0.113.0/24}"))
	default:
		c.matched(i, number, &over)
	}
	c.o.all = append(c.o.all, over)
}

// maxNote is how long a reason or an owner may be, in bytes.
const maxNote = 256

// endOf returns an instant in nanoseconds, forever for the zero Time.
func endOf(t time.Time) int64 {
	if t.IsZero() {
		return forever
	}
	return nanoseconds(t)
}

// action checks what an override does, and of which rules.
func (c *overrideCompiler) action(i int, o *override) {
	n := 0
	for _, said := range []bool{o.Exempt, o.Deny, o.Limit != (spillgate.Limit{})} {
		if said {
			n++
		}
	}
	switch {
	case n == 0:
		c.bad(i, "", 0, errors.New("says nothing; add exempt: true, deny: true, or a limit"))
	case n > 1:
		c.bad(i, "", 0, errors.New("says more than one of exempt, deny and limit; write each as an override of its own"))
	}
	if len(o.Rules)+len(o.Groups) == 0 {
		if n == 1 && o.Limit != (spillgate.Limit{}) {
			c.bad(i, "limit", 0, errors.New("limits of different rules are different; say which rule's it is, such as rule: api"))
		}
		return
	}
	o.rules = make([]uint64, (len(c.p.plain)+63)/64)
	for _, name := range o.Rules {
		at := slices.IndexFunc(c.p.plain, func(r Rule) bool { return r.Name == name })
		if at < 0 {
			c.bad(i, "rule", 0, fmt.Errorf("there is no rule %q", name))
			continue
		}
		o.rules[at>>6] |= 1 << (at & 63)
	}
	for _, name := range o.Groups {
		found := false
		for at := range c.p.plain {
			if r := &c.p.plain[at]; r.Group == name && !r.Exempt { // an exempting rule speaks of the group, and is not of it
				o.rules[at>>6] |= 1 << (at & 63)
				found = true
			}
		}
		if !found {
			c.bad(i, "group", 0, fmt.Errorf("no rule is of the group %q", name))
		}
	}
	for at := nextRule(o.rules, 0); at >= 0; at = nextRule(o.rules, at+1) {
		r := &c.p.plain[at]
		if r.Exempt {
			c.bad(i, "rule", 0, fmt.Errorf("rule %q exempts, so there is nothing to except from it; name the rules that it exempts from", r.Name))
		} else if n == 1 && o.Limit != (spillgate.Limit{}) {
			if err := r.fits(o.Limit); err != nil {
				c.bad(i, "limit", 0, err)
			}
		}
	}
}

// fits reports why l can't take the place of r's limit for some keys.
func (r *Rule) fits(l spillgate.Limit) error {
	switch {
	case l.Algorithm == spillgate.Unlimited:
		return errors.New("unlimited counts nothing; write exempt: true in its place")
	case r.Deny:
		return fmt.Errorf("rule %q denies, and has no limit that could be another; write exempt: true to let requests pass", r.Name)
	case l.Algorithm != r.Limit.Algorithm || (l.Calendar == spillgate.NoCalendar) != (r.Limit.Calendar == spillgate.NoCalendar):
		return fmt.Errorf("%s is of another kind than that of rule %q (%s), so what keys have used could not be told; write one of that kind", l, r.Name, r.Limit)
	case l.Validate() != nil:
		return l.Validate()
	case l.Cap() == 0:
		return fmt.Errorf(`%s admits nothing; if that is meant, say "deny: true" instead`, l)
	case l.Algorithm == spillgate.Bucket && l.Rate == 0 && r.TTL == 0:
		return fmt.Errorf("%s never frees by itself, so rule %q needs a ttl", l, r.Name)
	case r.Cost > l.Cap():
		return fmt.Errorf("a request of rule %q costs %d, which is more than ever fits at once (%d)", r.Name, r.Cost, l.Cap())
	case r.mostCost() > l.Cap():
		return fmt.Errorf("a request of rule %q may cost %d, which is more than ever fits at once (%d)", r.Name, r.mostCost(), l.Cap())
	}
	_, err := l.Meter()
	return err
}

// listed adds the entries of a list.
func (c *overrideCompiler) listed(i int, number int32, o *override, entries []Entry) {
	byAddress := len(o.Key.Attributes) == 0
	switch {
	case len(o.Key.Attributes) > 1:
		c.bad(i, "key", 0, errors.New("a list holds values of one attribute"))
		return
	case !byAddress && o.Key.Attributes[0].Kind.read():
		c.bad(i, "key", 0, fmt.Errorf("a list holds no paths and no methods, since a request may have several; write each %s under match", o.Key.Attributes[0]))
		return
	case !byAddress && o.Key.Attributes[0].Kind == ClientIP:
		if byAddress = true; o.Key.Prefix != 0 {
			c.bad(i, "key", 0, errors.New("a list of addresses holds networks of any size, so nothing is grouped; write client.ip"))
			return
		}
	}
	for j := range entries {
		e := &entries[j]
		n := node{over: number, own: -1, line: int32(e.Line), next: -1, until: min(o.until, endOf(e.Until))}
		if len(e.Reason) > maxNote || len(e.Owner) > maxNote {
			c.bad(i, "list", e.Line, fmt.Errorf("a reason or owner of more than %d bytes", maxNote))
		}
		if e.Reason != "" || e.Owner != "" || !e.Until.IsZero() {
			n.own = int32(len(c.o.owns))
			c.o.owns = append(c.o.owns, o.of(e))
		}
		switch {
		case !byAddress:
			if empty([]byte(e.Value)) {
				c.bad(i, "list", e.Line, errors.New("an empty value"))
			}
			c.value(o.Key, e.Value, n)
		case !e.Network.IsValid():
			c.bad(i, "list", e.Line, errors.New("no network"))
		default:
			c.network(e.Network, n)
		}
	}
}

// of returns what an override says of an entry that says something of itself.
func (o *override) of(e *Entry) *Override {
	own := *o.Override
	if e.Reason != "" {
		own.Reason = e.Reason
	}
	if e.Owner != "" {
		own.Owner = e.Owner
	}
	if !e.Until.IsZero() && (own.Until.IsZero() || e.Until.Before(own.Until)) {
		own.Until = e.Until
	}
	return &own
}

// matched finds what an override without a list is looked up by: one of its
// conditions, so that the number of overrides does not matter.
func (c *overrideCompiler) matched(i int, number int32, o *override) {
	n := node{over: number, own: -1, next: -1, until: o.until}
	for j := range o.match {
		m := &o.match[j]
		if len(m.unwanted) > 0 || m.attr.Kind.read() || slices.ContainsFunc(m.want, func(p pattern) bool { return p.globs }) {
			continue
		}
		for _, p := range m.want {
			if m.attr.Kind == ClientIP {
				c.network(p.prefix, n)
			} else {
				c.value(Part{Attributes: []Attribute{m.attr}}, p.text, n)
			}
		}
		o.match = slices.Delete(o.match, j, j+1)
		return
	}
	if len(c.o.searched) == MaxSearched {
		c.bad(i, "match", 0, fmt.Errorf("more than %d overrides can't be looked up, but are asked one by one; name an address, or a value without * and without ! of something else than the path or the method, instead", MaxSearched))
		return
	}
	c.o.searched = append(c.o.searched, int32(len(c.o.nodes)))
	c.o.nodes = append(c.o.nodes, n)
}

func (c *overrideCompiler) network(p netip.Prefix, n node) {
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	if p = p.Masked(); p.Addr().Is4() {
		c.v4 = append(c.v4, network{p, n})
	} else {
		c.v6 = append(c.v6, network{p, n})
	}
}

// value adds a value by which a part of a request is looked up.
func (c *overrideCompiler) value(part Part, text string, n node) {
	key := valuesKey{part.Attributes[0], part.Lower, part.Trim}
	at, ok := c.parts[key]
	if !ok {
		at = len(c.o.values)
		c.parts[key] = at
		c.o.values = append(c.o.values, values{part: part, heads: make(map[string]int32)})
	}
	text = normalText(part.Attributes[0], text)
	if part.Trim {
		text = strings.TrimFunc(text, blank)
	}
	if part.Lower {
		text = lowerASCII(text)
	}
	heads := c.o.values[at].heads
	if head, ok := heads[text]; ok {
		// Of one value that an override names again, the end that is last counts.
		if old := &c.o.nodes[head]; old.over == n.over {
			if n.until > old.until {
				n.next = old.next
				*old = n
			}
			return
		}
		n.next = head
	}
	heads[text] = int32(len(c.o.nodes))
	c.o.nodes = append(c.o.nodes, n)
}

func blank(c rune) bool { return c <= ' ' || c == 0x7f }

func lowerASCII(s string) string {
	return strings.Map(func(c rune) rune {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		return c
	}, s)
}
