package policy

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spillgate/spillgate"
)

// checkExempt reports what is wrong with a rule that exempts: it has a match,
// and nothing that only a rule that charges has.
func (r *Rule) checkExempt(bad func(field string, err error)) {
	for _, f := range []struct {
		field string
		there bool
	}{
		{"deny", r.Deny},
		{"limit", r.Limit != (spillgate.Limit{})},
		{"key", len(r.Key) > 0},
		{"peek", len(r.Peek) > 0},
		{"missing", r.Missing != Share},
		{"unit", r.Unit != ""},
		{"cost", r.Cost != 0 || len(r.Prices) > 0},
		{"lanes", len(r.Lanes) > 0},
		{"failures", len(r.Failures) > 0},
		{"enforce", r.Spare != 0},
		{"penalty", r.Penalty != (Penalty{})},
		{"tell", r.Tell},
		{"headers", r.Hide},
		{"answer", r.Answer != nil},
		{"delay", r.Delay != (Delay{})},
		{"backup", r.Backup != nil},
		{"on_fault", r.OnFault != Local || r.FaultAnswer != nil},
		{"max_keys", r.MaxKeys != 0},
		{"at_cap", r.AtCap != spillgate.Overflow},
		{"ttl", r.TTL != 0},
	} {
		if f.there {
			bad(f.field, errors.New("a rule that exempts charges nothing, so this has no effect; remove it"))
		}
	}
	if len(r.Match) == 0 {
		bad("match", errors.New(`missing: every request would be exempt; say which are, or switch off the rules (enabled: false) or all refusals ("enforce: off" at the top of the file)`))
		return
	}
	if claimed, ok := r.Match.onWord(); ok && claimed.Kind.Claimed() {
		bad("match", fmt.Errorf("whoever says the right %s would be exempt, and the client chooses what it says: add a condition that it can't choose, such as client.ip", claimed))
	}
}

// unusedGroups refuses exemptions from groups that no rule is of.
func (p *Policy) unusedGroups(bad func(i int, err error)) {
	used := map[string]bool{}
	for i := range p.plain {
		used[p.plain[i].Group] = used[p.plain[i].Group] || !p.plain[i].Exempt
	}
	for i := range p.plain {
		if r := &p.plain[i]; r.Exempt && r.Group != "" && !used[r.Group] {
			bad(i, fmt.Errorf("no rule is of the group %q, so nothing is exempt; say group: %s in the rules that are meant", r.Group, r.Group))
		}
	}
}

// An exemption is a rule that exempts, made ready.
type exemption struct {
	index int
	group int // 0 for all
}

// groups numbers the groups of rules, from 1.
func (p *Policy) groups() {
	at := map[string]int{}
	for i := range p.rules {
		r := &p.rules[i]
		if r.Group != "" {
			if at[r.Group] == 0 {
				at[r.Group] = len(at) + 1
			}
			r.group = at[r.Group]
		}
		if r.Exempt && !r.Disabled {
			p.exemptions = append(p.exemptions, exemption{i, r.group})
		}
	}
}

// exempts finds out what the request is exempt from, among the rules that may
// apply. An odd path is exempt only if every reading of it is.
func (p *Policy) exempts(v *Verdict, s *scratch, found []uint64) {
	s.exempt = s.exempt[:0]
	for _, x := range p.exemptions {
		if found[x.index>>6]&(1<<(x.index&63)) == 0 || !s.meets(p.rules[x.index].match, true) {
			continue
		}
		if v.exempt == nil {
			v.exempt = p.rules[x.index].Rule
		}
		s.exempt = append(s.exempt, x.group)
	}
}

// spares reports whether the request is exempt from r. Rules that deny are no
// limits: only who names their group is exempt from them.
func (s *scratch) spares(r *rule) bool {
	if len(s.exempt) == 0 {
		return false
	}
	return slices.Contains(s.exempt, r.group) && (r.group != 0 || !r.Deny) || !r.Deny && slices.Contains(s.exempt, 0)
}

// Exempt returns the first rule, in the policy's order, by which the request
// is exempt from all rules or from those of its group, nil if there is none.
// Rules that it is exempt from do not apply: they are not among the outcomes.
func (v *Verdict) Exempt() *Rule {
	if v == nil {
		return nil
	}
	return v.exempt
}

// Unenforced returns a policy of the same rules that refuses nobody: every
// rule counts and reports, as on trial.
func (p *Policy) Unenforced() *Policy {
	off := *p
	off.off = true
	return &off
}

// Enforced reports whether p refuses: it is not [Policy.Unenforced].
func (p *Policy) Enforced() bool { return !p.off }
