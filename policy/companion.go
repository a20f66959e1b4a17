package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spillgate/spillgate"
)

// maxComparisons bounds the work of comparing rules with each other: seconds
// would let a large file stall a reload.
const maxComparisons = 4_000_000

// accompanied is a rule whose key the client chooses, and its companions.
type accompanied struct {
	rule int
	by   []int
}

// companions refuses rules whose keys have claimed parts and that have no
// companion: a rule keyed by the client's address that charges at least the
// same requests. It notes the companions of the others.
func (p *Policy) companions(bad func(i int, err error)) {
	var addressed []int
	for i := range p.plain {
		if r := &p.plain[i]; !r.Deny && !r.Exempt && r.byAddress() {
			addressed = append(addressed, i)
		}
	}
	budget, near := maxComparisons, newVicinity(p)
	for i := range p.plain {
		r := &p.plain[i]
		claimed, ok := r.claimed()
		if !ok || r.Disabled || r.Exempt || !r.refuses() {
			continue
		}
		g := accompanied{rule: i}
		near.each(i, func(j int) bool {
			if o := &p.plain[j]; !o.Deny && !o.Exempt && o.byAddress() && o.Match.covers(r.Match, &budget) && p.lacks(j, i, &budget) == "" {
				g.by = append(g.by, j)
			}
			return budget < 0
		})
		if len(g.by) > 0 {
			p.guards = append(p.guards, g)
			continue
		}
		why := fmt.Sprintf("the client chooses its %s, so a new value each time walks around this rule: add a rule keyed by client.ip alone that limits the same requests", claimed)
		for _, j := range addressed {
			if o := &p.plain[j]; o.Match.covers(r.Match, &budget) {
				if lack := p.lacks(j, i, &budget); lack != "" {
					why += fmt.Sprintf("; %s is none, since %s", o.Name, lack)
					break
				}
			}
		}
		if budget < 0 {
			bad(i, fmt.Errorf("the client chooses its %s, and there are too many rules to find this one's companion among: add one rule keyed by client.ip without a match", claimed))
			return
		}
		bad(i, errors.New(why))
	}
}

// claimed returns an attribute of r's key whose value the client claims. A
// part that falls back from a claimed value to a proven one is claimed: the
// client chooses. A proven part beside it does not help: a new claim is a new
// key all the same.
func (r *Rule) claimed() (Attribute, bool) {
	return r.keyed(func(a Attribute) bool { return a.Kind.Claimed() })
}

// asked returns an attribute of r's key that the client asks for and r's match
// leaves to its choice, where servers may serve the same for any value of it.
func (r *Rule) asked() (Attribute, bool) {
	return r.keyed(func(a Attribute) bool {
		return (a.Kind == Host || a.Kind == Method || a.Kind == ContentLength) && !r.Match.fixes(a.Kind)
	})
}

// keyed returns the first attribute of r's key that is such.
func (r *Rule) keyed(such func(Attribute) bool) (Attribute, bool) {
	for _, part := range r.Key {
		if i := slices.IndexFunc(part.Attributes, such); i >= 0 {
			return part.Attributes[i], true
		}
	}
	return Attribute{}, false
}

// refuses reports whether r has a limit that refuses somebody.
func (r *Rule) refuses() bool {
	return !r.Deny && r.Spare < 100 && r.Limit.Algorithm != spillgate.Unlimited
}

// byAddress reports whether r tells callers apart by their address alone.
func (r *Rule) byAddress() bool {
	return len(r.Key) == 1 && len(r.Key[0].Attributes) == 1 && r.Key[0].Attributes[0].Kind == ClientIP
}

// lacks says why the j-th rule, one with a limit, does not charge whatever the
// i-th does, though it matches the same requests, or why it refuses nobody; ""
// if it will do.
func (p *Policy) lacks(j, i int, budget *int) string {
	o, r := &p.plain[j], &p.plain[i]
	switch {
	case o.Disabled:
		return "it is switched off (enabled: false)"
	case o.Limit.Algorithm == spillgate.Unlimited:
		return "it is unlimited"
	case o.forgetful() != "":
		return o.forgetful()
	case o.Spare > 0:
		return fmt.Sprintf("it refuses only %d percent of the keys (enforce)", 100-o.Spare)
	case len(o.Peek) > 0:
		return "it does not charge what fits its peek"
	case len(o.Failures) > 0 && (len(r.Failures) == 0 || slices.ContainsFunc(r.Failures, func(f string) bool { return !o.failed(f) })):
		return "it gives back what ends otherwise than in " + strings.Join(o.Failures, ", ")
	case o.unit() != Requests && o.unit() != r.unit():
		return fmt.Sprintf("it counts %s, of which a request may use none", o.unit())
	case len(o.Key) > 0 && o.Missing == Skip:
		return "it does not apply to requests that lack its key (missing: skip)"
	case o.Backup != nil:
		return "those whom it refuses may go to its backup"
	case o.Group == "" || o.Group == r.Group:
		return ""
	}
	for _, e := range p.exemptions {
		*budget--
		if x := &p.rules[e.index]; x.Group == o.Group && !disjoint(x.match, p.rules[i].match) {
			return fmt.Sprintf("%s exempts some requests from it (group %s) and not from this rule", x.Name, x.Group)
		}
	}
	return ""
}

// checkExposed refuses overrides that exempt callers from the last companion of
// a rule that still applies to them: whoever is exempt would walk around it.
func (c *overrideCompiler) checkExposed() {
	exempts := func(o *override, rule int) bool {
		return o.rules == nil || o.rules[rule>>6]&(1<<(rule&63)) != 0
	}
	var all []int
	for i := range c.o.all {
		if o := &c.o.all[i]; o.Exempt && slices.ContainsFunc(c.p.guards, func(g accompanied) bool {
			return slices.ContainsFunc(g.by, func(j int) bool { return exempts(o, j) })
		}) {
			all = append(all, i)
		}
	}
	for _, g := range c.p.guards {
		r, left := &c.p.rules[g.rule], slices.Clone(g.by)
		for _, i := range all {
			o := &c.o.all[i]
			if m, err := compileMatch(o.Match); err != nil || exempts(o, g.rule) || disjoint(m, r.match) {
				continue
			}
			last := len(left)
			if left = slices.DeleteFunc(left, func(j int) bool { return exempts(o, j) }); len(left) < last && len(left) == 0 {
				claimed, _ := r.claimed()
				field := "rule"
				if len(o.Rules) == 0 {
					field = "group"
				}
				c.bad(i, field, 0, fmt.Errorf("exempts from %s, which limits each address whatever it claims, and not from %s, whose %s the client chooses: whoever is exempt walks around that; name both, or write a limit in place of exempt",
					c.p.plain[g.by[0]].Name, r.Name, claimed))
				return
			}
		}
	}
}

// disjoint reports whether surely nothing meets both a and b.
func disjoint(a, b []condition) bool {
	apart := func(p, q *pattern, k Kind) bool {
		if k == ClientIP {
			return !p.prefix.Overlaps(q.prefix)
		}
		return (!p.globs || p.under) && (!q.globs || q.under) && !p.includes(q, k) && !q.includes(p, k)
	}
	for i := range a {
		for j := range b {
			c, d := &a[i], &b[j]
			if c.attr != d.attr || len(c.want) == 0 || len(d.want) == 0 || len(c.want)*len(d.want) > 1000 {
				continue
			}
			if !slices.ContainsFunc(c.want, func(p pattern) bool {
				return slices.ContainsFunc(d.want, func(q pattern) bool { return !apart(&p, &q, c.attr.Kind) })
			}) {
				return true
			}
		}
	}
	return false
}

// covers reports whether every request that meets o surely meets m: each
// condition of m stands in o too. It is false once the budget is used up.
func (m Match) covers(o Match, budget *int) bool {
	*budget--
	for _, c := range m {
		same := false
		for _, d := range o {
			if same = d.Attribute == c.Attribute && subset(d.Values, c.Values, budget); same {
				break
			}
		}
		if !same {
			return false
		}
	}
	return *budget >= 0
}

// subset reports whether whoever has one of the values of, and none that
// begins with "!", surely meets the values in.
func subset(of, in []string, budget *int) bool {
	unwanted := func(v string) bool { return strings.HasPrefix(v, "!") }
	has := func(all []string, v string) bool {
		*budget -= len(all)
		return *budget >= 0 && slices.Contains(all, v)
	}
	wants := false
	for _, v := range in {
		if !unwanted(v) {
			wants = true
		} else if !has(of, v) {
			return false
		}
	}
	some := false
	for _, v := range of {
		if unwanted(v) {
			continue
		}
		if some = true; wants && !has(in, v) {
			return false
		}
	}
	return some || !wants
}

// A vicinity finds, for a rule, those that may apply to all of its requests,
// without asking each of them.
type vicinity struct {
	p *Policy
	s *scratch
}

func newVicinity(p *Policy) vicinity { return vicinity{p, p.newScratch()} }

// each calls f for each other rule that may apply to all requests of the i-th,
// in the policy's order, until it returns true. Rules that are switched off are
// left out.
func (v vicinity) each(i int, f func(j int) bool) {
	match := v.p.rules[i].match
	v.s.begin(example(match), v.p.slots)
	found := v.p.index.find(&v.s.request)
	for k := range match {
		if slices.ContainsFunc(match[:k], func(c condition) bool { return c.attr == match[k].attr }) {
			for w := range found { // no one value of it need meet both
				found[w] = ^uint64(0)
			}
		}
	}
	for j := nextRule(found, 0); j >= 0; j = nextRule(found, j+1) {
		if j >= len(v.p.plain) {
			return
		}
		if j != i && !v.p.plain[j].Disabled && f(j) {
			return
		}
	}
}

// example is a request that meets conditions: of each attribute it has the first
// value that is wanted, with a letter for each star.
type example []condition

// AppendAttr implements [Attributes].
func (m example) AppendAttr(dst []byte, a Attribute) ([]byte, bool) {
	for i := range m {
		if c := &m[i]; c.attr == a && len(c.want) > 0 && a.Kind != ClientIP {
			return append(dst, strings.ReplaceAll(c.want[0].text, "*", "x")...), true
		}
	}
	return dst, false
}
