package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spillgate/spillgate"
)

// A Warning tells what a rule can hardly mean. Such a rule is carried out as it
// stands.
type Warning struct {
	Index int    // of the rule, from 0
	Entry int    // of a list in Field, from 1; 0 if it is none
	Name  string // of the rule
	Field string // as written in a policy file: "match", "key", ...
	// Attribute is that of the condition in Field which is odd, as written in a
	// policy; "" if it is none, or no single one.
	Attribute string
	// Code names the kind of warning, for programs: "unreachable", "burst",
	// "user-agent", "path-key", "asked-key", "penalty-key", "open-backup",
	// "claimed-exempt", "claimed-match", "claimed-peek", "claimed-cost",
	// "claimed-lane", "forgets", "repeated", "unlooked".
	Code string
	Text string // what is odd, and why
	Fix  string // what to write instead
}

// Warnings returns what is odd about p, in the order of the rules. Rules that
// are switched off are passed over.
func (p *Policy) Warnings() []Warning {
	w := &warner{p: p, near: newVicinity(p), budget: maxComparisons, said: make(map[string]int)}
	for i := range p.plain {
		if r := &p.rules[i]; !r.Disabled {
			w.at, w.r = i, r
			w.unreachable()
			w.burst()
			w.forgets()
			w.key()
			w.backup()
			w.onWord()
			w.entries()
			w.repeated()
		}
		if w.budget < 0 && !w.spent {
			w.spent = true
			w.warn("unlooked", "name", "write fewer rules and values, or lists of overrides in place of long matches",
				"there is too much to compare: from this rule on, rules were not looked at for what others leave them, and some may be called unlimited that are not")
		}
	}
	return w.out
}

// warner looks at one rule after the other.
type warner struct {
	p      *Policy
	at     int
	r      *rule
	near   vicinity
	budget int            // of comparisons of rules
	spent  bool           // it is, and that was told
	said   map[string]int // the rule that was the first to say so
	out    []Warning
}

func (w *warner) warn(code, field, fix, format string, args ...any) {
	w.out = append(w.out, Warning{Index: w.at, Name: w.r.Name, Field: field, Code: code, Text: fmt.Sprintf(format, args...), Fix: fix})
}

// warnOf is warn about a condition on a.
func (w *warner) warnOf(a Attribute, code, field, fix, format string, args ...any) {
	w.warn(code, field, fix, format, args...)
	w.out[len(w.out)-1].Attribute = a.String()
}

// unreachable warns of rules that can't match, can't charge, or never decide.
func (w *warner) unreachable() {
	const code = "unreachable"
	for i := range w.r.match {
		if c := &w.r.match[i]; c.impossible(&w.budget) {
			w.warnOf(c.attr, code, "match", "remove the value with ! or the one that it excludes", "no request fits: each %s that is wanted is also excluded", c.attr)
			return
		}
	}
	if len(w.r.Peek) > 0 && !w.r.Peek.odd() && w.r.Peek.covers(w.r.Match, &w.budget) {
		w.warn(code, "peek", "make peek narrower than match, or remove it", "every request that fits match fits peek too, so the rule charges nobody")
		return
	}
	w.near.each(w.at, func(i int) (found bool) {
		o := &w.p.rules[i]
		switch {
		case o.Exempt && (o.Group == "" && !w.r.Deny || o.Group != "" && o.Group == w.r.Group) && !w.r.Exempt &&
			!o.Match.odd() && covers(o.match, w.r.match, &w.budget):
			w.warn(code, "match", "narrow the match of "+o.Name+", or remove this rule", "every request that fits is exempt, by %s, so the rule charges nobody", o.Name)
			return true
		case o.deniesAll() && len(w.r.Peek) == 0 && !w.r.Exempt && (!w.r.Deny || i < w.at) && covers(o.match, w.r.match, &w.budget):
			w.warn(code, "match", "narrow the match of "+o.Name+", or remove this rule", "%s denies every request that fits, so this rule is never asked", o.Name)
			return true
		}
		return w.budget < 0
	})
}

// covers reports whether what meets all of the conditions o surely meets all of m:
// also where a network or a folder of m holds those of o.
func covers(m, o []condition, budget *int) bool {
	return *budget >= 0 && !slices.ContainsFunc(m, func(c condition) bool {
		return !slices.ContainsFunc(o, func(d condition) bool { return d.attr == c.attr && d.within(&c, budget) })
	}) && *budget >= 0
}

// within reports whether what meets d surely meets c, a condition on the same
// attribute.
func (d *condition) within(c *condition, budget *int) bool {
	*budget -= 1 + len(c.want)*len(d.want) + len(c.unwanted)*len(d.unwanted)
	if *budget < 0 || len(c.want) > 0 && len(d.want) == 0 {
		return false
	}
	in := func(all []pattern, q *pattern) bool {
		return slices.ContainsFunc(all, func(p pattern) bool { return p.includes(q, c.attr.Kind) })
	}
	for i := range d.want {
		if len(c.want) > 0 && !in(c.want, &d.want[i]) {
			return false
		}
	}
	for i := range c.unwanted {
		if !in(d.unwanted, &c.unwanted[i]) {
			return false
		}
	}
	return true
}

// deniesAll reports whether r refuses each request that matches, whoever it is:
// nobody is spared, or exempt.
func (r *rule) deniesAll() bool {
	return r.Deny && r.Spare == 0 && r.Group == "" && len(r.Peek) == 0 && (len(r.Key) == 0 || r.Missing != Skip)
}

// odd reports whether a request may have several readings under m: then what
// needs all of them and what needs one differ.
func (m Match) odd() bool {
	return slices.ContainsFunc(m, func(c Condition) bool { return c.Attribute.Kind == Path })
}

// impossible reports whether c can't hold.
func (c *condition) impossible(budget *int) bool {
	if *budget -= len(c.unwanted); len(c.want) == 0 || len(c.unwanted) == 0 || *budget < 0 {
		return false
	}
	if *budget -= len(c.want) * len(c.unwanted) / 100; *budget < 0 { // mostly the first ends it
		return false
	}
	for i := range c.want {
		if !slices.ContainsFunc(c.unwanted, func(u pattern) bool { return u.includes(&c.want[i], c.attr.Kind) }) {
			return false
		}
	}
	return true
}

// includes reports whether all that meets q surely meets p.
func (p *pattern) includes(q *pattern, k Kind) bool {
	switch {
	case k == ClientIP:
		return p.prefix.Bits() <= q.prefix.Bits() && p.prefix.Contains(q.prefix.Addr())
	case !q.globs:
		return meets([]pattern{*p}, k, []byte(q.text))
	case p.under:
		return q.under && (q.text == p.text || strings.HasPrefix(q.text, p.text+"/"))
	}
	return p.text == q.text && p.under == q.under || k != Path && p.text == "*"
}

// burst warns of bursts that are many times what the rate earns.
func (w *warner) burst() {
	l := w.r.Limit
	if w.r.Deny || w.r.Exempt || l.Algorithm != spillgate.Bucket || l.Rate == 0 || l.Burst/2 < l.Rate || l.Burst == 2*l.Rate {
		return
	}
	if l.Rate == 1 && l.Burst <= 10 {
		return // one each so long, and a few tries: as it is written
	}
	less := l
	less.Burst = 2 * l.Rate
	w.warn("burst", "limit", fmt.Sprintf("write %s, or make the period longer if so many are meant at once", less),
		"the burst is %d at once, which the rate earns in %s: a caller that was idle gets %d within the first %s, not %d",
		l.Burst, l.Earn(l.Burst).Round(time.Millisecond), l.Burst+l.Rate, period(l.Period), l.Rate)
}

// key warns of keys that hardly tell callers apart, or tell too many.
func (w *warner) key() {
	r := w.r
	if r.Deny || r.Exempt || r.Spare == 100 || r.Limit.Algorithm == spillgate.Unlimited {
		return
	}
	for i, p := range r.Key {
		if slices.ContainsFunc(r.Key[:i], func(q Part) bool { return slices.Equal(q.Attributes, p.Attributes) }) {
			w.warn("repeated", "key", "remove one of them, or name what else tells callers apart",
				"%s stands in it twice, and the two tell no more callers apart than the finer one", p.Attributes[0])
			break
		}
	}
	agent := func(a Attribute) bool { return a == Attribute{Kind: Header, Name: "user-agent"} }
	if len(r.Key) > 0 && !slices.ContainsFunc(r.Key, func(p Part) bool { return !only(p, agent) }) {
		w.warn("user-agent", "key", "write client.ip",
			"everybody with the same browser shares one limit, and whoever sends another text as User-Agent has a new one")
	}
	if _, ok := r.keyed(func(a Attribute) bool { return a.Kind == Path }); ok && !r.Match.fixes(Path) && !w.bounded(r.Match, Kind.loose) {
		w.warn("path-key", "key", "remove path and name the paths under match, use route, or add a rule without path in its key",
			"each path is a limit of its own, so whoever asks for another path has a new one, and paths that nobody serves fill the table")
	}
	if a, ok := r.asked(); ok && !w.bounded(r.Match, Kind.loose) {
		w.warn("asked-key", "key", fmt.Sprintf("name the values under match, remove %s, or add a rule keyed by client.ip that limits the same requests", a),
			"each %s is a limit of its own, and the client chooses it: whoever makes up another one has a new limit, if the server behind takes it", a)
	}
	if r.Penalty != (Penalty{}) {
		if claimed, ok := r.claimed(); ok {
			w.warn("penalty-key", "penalty", "key the rule by "+proven,
				"the rule has a penalty and is keyed by %s, which the client chooses: whoever sends another's value has the other blocked", claimed)
		}
	}
}

// entries warns of lanes and costs that are never the first that matches.
func (w *warner) entries() {
	check := func(field string, n int, match func(i int) []condition) {
		for i := range n {
			if before := behind(i, match, &w.budget); before >= 0 {
				w.warn("unreachable", field, "write the narrower one first, or remove one of them",
					"entry %d matches all that this one does, and the first that matches decides, so this one is never used", before+1)
				w.out[len(w.out)-1].Entry = i + 1
			}
		}
	}
	check("lanes", len(w.r.lanes), func(i int) []condition { return w.r.lanes[i].match })
	check("cost", len(w.r.prices), func(i int) []condition { return w.r.prices[i].match })
}

// behind returns the first entry before the i-th that matches all that it does,
// below 0 if there is none.
func behind(i int, match func(i int) []condition, budget *int) int {
	for before := range i {
		if covers(match(before), match(i), budget) {
			return before
		}
	}
	return -1
}

// only reports whether all attributes of p are such.
func only(p Part, such func(Attribute) bool) bool {
	return !slices.ContainsFunc(p.Attributes, func(a Attribute) bool { return !such(a) })
}

// fixes reports whether m leaves a few values of an attribute only.
func (m Match) fixes(k Kind) bool {
	return slices.ContainsFunc(m, func(c Condition) bool { return c.Attribute.Kind == k && c.literal() })
}

// literal reports whether c names its values one by one.
func (c *Condition) literal() bool {
	return !slices.ContainsFunc(c.Values, func(v string) bool { return strings.ContainsAny(v, "*!") })
}

// bounded reports whether another rule limits whatever meets m: each address, or
// by what is in the key besides attributes of loose kinds, or less.
func (w *warner) bounded(m Match, loose func(Kind) bool) (found bool) {
	kept := func(p Part) bool { return only(p, func(a Attribute) bool { return !loose(a.Kind) }) }
	w.near.each(w.at, func(i int) bool {
		o := &w.p.rules[i]
		if o.Exempt || !o.refuses() {
			return false
		}
		beside := !slices.ContainsFunc(o.Key, func(p Part) bool {
			return !kept(p) || !slices.ContainsFunc(w.r.Key, func(q Part) bool { return slices.Equal(p.Attributes, q.Attributes) })
		}) && (len(o.Key) > 0 || !slices.ContainsFunc(w.r.Key, kept))
		found = (beside || o.byAddress()) && o.Match.covers(m, &w.budget) && w.p.lacks(i, w.at, &w.budget) == ""
		return found || w.budget < 0
	})
	return found || w.budget < 0
}

// loose reports whether a client has the values of k to choose from, as it likes.
func (k Kind) loose() bool {
	return k.Claimed() || k == Path || k == Host || k == Method || k == ContentLength
}

// repeated warns of a rule that says what another says.
func (w *warner) repeated() {
	if w.r.Exempt {
		return
	}
	e := w.r.essence()
	backup := Backup{}
	if e.Backup != nil {
		backup, e.Backup = *e.Backup, nil // in the text a pointer would be that alone
	}
	text := fmt.Sprintf("%#v %#v", e, backup)
	if first, ok := w.said[text]; ok {
		w.warn("repeated", "name", "remove one of them", "says what %s says", w.p.rules[first].Name)
		return
	}
	w.said[text] = w.at
}

// essence is what a rule does, whatever it is called and however it says so.
func (r *Rule) essence() Rule {
	e := *r
	e.Name, e.Source, e.Answer, e.FaultAnswer, e.Tell, e.Hide = "", "", nil, nil, false, false
	return e
}

// unused reports fields that have no effect beside others.
func (r *Rule) unused(bad func(field string, err error)) {
	type field struct {
		name  string
		there bool
	}
	none := func(why string, fields ...field) {
		for _, f := range fields {
			if f.there {
				bad(f.name, errors.New(why+"; remove it"))
			}
		}
	}
	table := []field{{"max_keys", r.MaxKeys != 0}, {"at_cap", r.AtCap != spillgate.Overflow}}
	backup := field{"backup", r.Backup != nil}
	counting := []field{{"failures", len(r.Failures) > 0}, {"on_fault", r.OnFault != Local || r.FaultAnswer != nil}, {"ttl", r.TTL != 0}}
	switch {
	case r.Exempt: // see checkExempt
	case r.Deny:
		none("a rule that denies counts nothing, so this has no effect", append(append(counting, table...),
			field{"unit", r.Unit != ""}, field{"cost", r.Cost != 0}, field{"tell", r.Tell}, field{"headers", r.Hide})...)
		none("a backup is for whom a limit refuses, and a rule that denies has none", backup)
	case r.Limit.Algorithm == spillgate.Unlimited:
		none("unlimited keeps no account of callers, so this has no effect", append(append(counting, table...), field{"cost", r.Cost != 0 || len(r.Prices) > 0}, field{"headers", r.Hide})...)
		none("unlimited refuses nobody, so nobody is sent there", backup)
	case r.Limit.Algorithm == spillgate.Concurrency:
		none("a slot is given back at the end of every request, so this has no effect", field{"failures", len(r.Failures) > 0})
		if r.Unit == Bytes {
			bad("unit", errors.New("bytes are counted when an answer has been sent, so they can't be what is used at once; write a limit such as 1_000_000/s, or remove the unit"))
		}
	}
	if len(r.Key) == 0 && !r.Exempt {
		if !r.Deny && r.Limit.Algorithm != spillgate.Unlimited {
			none("a rule without a key has one caller for all, so this has no effect", table...)
		}
		none("a rule without a key misses no part of it, so this has no effect", field{"missing", r.Missing != Share})
		if r.Spare > 0 && r.Spare < 100 {
			bad("enforce", fmt.Errorf("%d percent of the keys, but a rule without a key has one for all: write 0 or 100, or say under key what tells callers apart", 100-r.Spare))
		}
	}
}
