package policy

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/spillgate/spillgate"
)

// An Explanation says what a policy does with one request, and why.
type Explanation struct {
	// Verdict is what is decided on a store in which nobody has used anything
	// yet. Nothing needs to be settled.
	Verdict Verdict
	// Rules has what is to be said of each rule, in the policy's order. An
	// override that blocks whatever the rules say comes last, under the name
	// by which it refuses.
	Rules []Explained
	// Reserved are the usages by which the request is paid for.
	Reserved []Reserved
}

// Explained is what is to be said of one rule and one request.
type Explained struct {
	Rule *Rule
	// Outcome is what the rule says of the request. It is nil if the rule was
	// not asked, for the reason Why.
	Outcome *Outcome
	// Exempts reports that the rule exempts the request. It has no outcome.
	Exempts bool
	// Why says in words why the rule was not asked, or does not exempt: the
	// condition that does not hold, or the rule that made asking needless.
	Why string
	// Matches reports whether the request is one of those that the rule speaks
	// of. One that matches is not asked if another rule ends the matter.
	Matches bool
	// Key is the key of the request under this rule, as that of a [Caller];
	// "" if it does not match. Secret parts are fingerprints.
	Key string
	// Lane is the number, from 1, of the [Lane] that the request is in; 0 if
	// the rule has none, or the request does not match.
	Lane int
}

// Explain decides a request on an empty store and says of each rule what it
// did, or why it was not asked. Options are those of [Engine.Decide]. What
// applies is what Decide says, and what does not hold is asked of the very
// conditions that Decide asks. A rule that spares some keys is taken to refuse
// this one: which it spares, only the engine knows that has its counters.
//
// Fingerprints are others each time; see [Policy.ExplainKeyed].
func (p *Policy) Explain(attrs Attributes, opts ...Option) *Explanation {
	return p.ExplainKeyed(nil, attrs, opts...)
}

// ExplainKeyed is [Policy.Explain] with the fingerprints that engines with that
// [FingerprintKey] show.
func (p *Policy) ExplainKeyed(key []byte, attrs Attributes, opts ...Option) *Explanation {
	e := NewEngine(p.sparing(), spillgate.NewMemory(), Track(0), FingerprintKey(key))
	x := &Explanation{Rules: make([]Explained, len(p.plain))}
	opts, x.Reserved = e.reserved(attrs, opts)
	e.DecideInto(context.Background(), &x.Verdict, attrs, opts...)
	for i := range x.Verdict.Len() {
		o := x.Verdict.Outcome(i)
		o.Rule = p.rules[o.index].Rule
	}
	s := p.newScratch()
	s.begin(attrs, p.slots)
	p.exempts(&Verdict{}, s, p.index.find(&s.request))
	e.overriding(&x.Verdict, s)
	for i := range p.plain {
		r, at := &p.rules[i], &x.Rules[i]
		at.Rule = r.Rule
		if at.Why = r.passedOver(&s.request, &e.prints); at.Why != "" {
			continue
		}
		at.Matches, at.Exempts = true, r.Exempt
		at.Outcome = x.Verdict.Of(r.Name)
		at.Key = string(s.appendText(nil, r.Key, &e.prints))
		at.Lane = r.laneOf(&s.request)
		by := s.over.of(i)
		switch {
		case at.Exempts || at.Outcome != nil:
		case s.spares(r):
			at.Why = fmt.Sprintf("the request is exempt, by %s", p.exempting(s, r))
		case by.exempts():
			at.Why = fmt.Sprintf("the request is exempt, by the override %s", by.told)
		default:
			at.Why = x.Verdict.instead()
		}
	}
	if o := x.Verdict.Of(everyRule); o != nil {
		x.Rules = append(x.Rules, Explained{Rule: o.Rule, Outcome: o, Matches: true, Key: string(s.appendText(nil, o.Rule.Key, &e.prints))})
	}
	return x
}

// sparing returns p with rules that spare all keys or none.
func (p *Policy) sparing() *Policy {
	out := *p
	out.rules = slices.Clone(p.rules)
	for i := range out.rules {
		if r := &out.rules[i]; 0 < r.Spare && r.Spare < 100 {
			one := *r.Rule
			one.Spare = 0
			r.Rule = &one
		}
	}
	return &out
}

// laneOf returns the number of the lane that says what r keeps of a request, 0
// if it has none.
func (r *rule) laneOf(s *request) (lane int) {
	for i := range r.lanes {
		n := &r.lanes[i]
		if !s.meets(n.match, false) {
			continue
		}
		if lane == 0 || n.keep > r.lanes[lane-1].keep {
			lane = i + 1
		}
		if s.meets(n.match, true) {
			break
		}
	}
	return lane
}

// exempting returns the name of a rule by which the request is exempt from r.
func (p *Policy) exempting(s *scratch, r *rule) string {
	for _, x := range p.exemptions {
		one := scratch{exempt: []int{x.group}}
		if one.spares(r) && s.meets(p.rules[x.index].match, true) {
			return p.rules[x.index].Name
		}
	}
	return "a rule"
}

// instead says why rules that match were not asked.
func (v *Verdict) instead() string {
	if o := v.Refusing(); o != nil {
		return fmt.Sprintf("%s refuses the request without asking a limit, so nothing is asked of others", o.Rule.Name)
	}
	if v.err != nil {
		return fmt.Sprintf("nothing is decided: %v", v.err)
	}
	return "another rule ends the matter"
}

// passedOver says why r does not apply to a request, "" if it does.
func (r *rule) passedOver(req *request, prints *fingerprints) string {
	if r.Disabled {
		return "the rule is switched off (enabled: false)"
	}
	peeked := len(r.peek) > 0 && req.meets(r.peek, true)
	if !peeked && !req.meets(r.match, r.Exempt) { // an odd path is exempt only in all its readings
		return req.unmet(r.match, r.Exempt, prints)
	}
	if r.Missing == Skip {
		for i := range r.Key {
			p := &r.Key[i]
			if a, _, _ := req.pick(p); a == nil {
				return fmt.Sprintf("the request has no %s, and the rule says missing: skip", p)
			}
		}
	}
	return ""
}

// unmet says in words which of the conditions does not hold.
func (r *request) unmet(cs []condition, all bool, prints *fingerprints) string {
	for i := range cs {
		if c := &cs[i]; !c.holds(r, all) {
			return c.against(r, all, prints)
		}
	}
	return "a condition does not hold"
}

// against says in words why c does not hold.
func (c *condition) against(r *request, all bool, prints *fingerprints) string {
	value := c.shown(r, prints)
	if value == "" {
		return fmt.Sprintf("the request has no %s", c.attr)
	}
	var want, unwanted []string
	for i := range c.want {
		want = append(want, c.want[i].String())
	}
	for i := range c.unwanted {
		unwanted = append(unwanted, c.unwanted[i].String())
	}
	switch {
	case len(unwanted) > 0 && (len(want) == 0 || c.wanted(r, all)):
		return fmt.Sprintf("%s is %s, and must not be %s", c.attr, value, strings.Join(unwanted, " or "))
	case len(want) == 1:
		return fmt.Sprintf("%s is %s, not %s", c.attr, value, want[0])
	}
	return fmt.Sprintf("%s is %s, none of %s", c.attr, value, strings.Join(want, ", "))
}

// wanted reports whether c holds but for the values that must not be.
func (c *condition) wanted(r *request, all bool) bool {
	d := *c
	d.unwanted = nil
	return d.holds(r, all)
}

// shown returns the value that c looks at, for people; "" if there is none.
func (c *condition) shown(r *request, prints *fingerprints) string {
	v, ok := r.known(c.attr, c.slot)
	switch a := r.address(); {
	case c.attr.Kind == ClientIP && a.IsValid():
		return a.String()
	case !ok:
		return ""
	case c.attr.Secret():
		return string(prints.appendFingerprint(nil, &c.attr, v))
	case c.attr.Kind.read():
		var all []string
		for _, reading := range bytes.Split(v, []byte{readingsEnd}) {
			if string(reading) == anyReading && c.attr.Kind == Path {
				all = append(all, "any other")
			} else {
				all = append(all, string(appendValue(nil, reading)))
			}
		}
		return strings.Join(all, " or ")
	}
	return string(appendValue(nil, v))
}

// String returns the pattern as it is written in a policy.
func (p *pattern) String() string {
	if p.prefix != (netip.Prefix{}) {
		if p.prefix.IsSingleIP() {
			return p.prefix.Addr().String()
		}
		return p.prefix.String()
	}
	text := p.text
	if p.under {
		text += "/**"
	}
	return string(appendValue(nil, []byte(text)))
}
