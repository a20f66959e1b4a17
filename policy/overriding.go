package policy

import (
	"cmp"
	"fmt"
	"net/netip"
	"time"

	"github.com/spillgate/spillgate"
)

// everyRule is the name under which an override that blocks, and names no
// rule, refuses. It is the last of a policy's rules, and matches nothing.
const everyRule = "overrides"

// refusal is how an override blocks beside rules that have limits: a charge
// that never fits refuses the request, charges it to none, and lets each limit
// say its wait.
var refusal, _ = spillgate.Limit{Period: time.Second}.Meter()

// addEveryRule adds the rule by which overrides refuse that name none. The
// index does not know it, so no request finds it.
func (p *Policy) addEveryRule() {
	r := rule{Rule: &Rule{Name: everyRule, Key: []Part{{Attributes: []Attribute{{Kind: ClientIP}}}}, Deny: true, Disabled: true}, meter: refusal}
	p.rules = append(p.rules, r)
}

// bound is a table of overrides as one engine carries it out.
type bound struct {
	*Overrides
	limits map[limited]*spillgate.Meter
}

// limited names the limit that an override sets for a rule.
type limited struct {
	over int32
	rule int
}

// SetOverrides puts o in place of the overrides by which e decides: those of
// its policy at first, none if o is nil. It is one swap: each request sees one
// table or the other. o is of e's policy or another one made from it by
// [Policy.WithOverrides]; otherwise the error wraps [ErrRule].
//
// A key whose limit an override changes keeps what it has used, both when the
// override begins and when it ends. It earns at the old numbers up to its first
// request under the new ones.
func (e *Engine) SetOverrides(o *Overrides) error {
	if o == nil {
		e.overrides.Store(nil)
		return nil
	}
	if o.of != e.policy.base {
		return fmt.Errorf("policy: %w: overrides of another policy", ErrRule)
	}
	e.binding.Lock()
	defer e.binding.Unlock()
	b := &bound{o, make(map[limited]*spillgate.Meter)}
	for i := range o.all {
		over := &o.all[i]
		if over.Limit == (spillgate.Limit{}) {
			continue
		}
		for rule := nextRule(over.rules, 0); rule >= 0; rule = nextRule(over.rules, rule+1) {
			l, err := e.otherLimit(rule, over.Limit)
			if err != nil {
				return fmt.Errorf("policy: %w", err)
			}
			b.limits[limited{int32(i), rule}] = l
		}
	}
	e.overrides.Store(b)
	return nil
}

// otherLimit returns the meter of another limit in a rule's space. It is
// kept, since those that are renewed are new each time; e.binding is locked.
func (e *Engine) otherLimit(rule int, l spillgate.Limit) (*spillgate.Meter, error) {
	id := madeLimit{rule, l}
	if before, ok := e.others[id]; ok {
		return before, nil
	}
	m, err := l.Meter()
	if err == nil {
		m, err = e.spaces[rule].Joining(m)
	}
	if err != nil {
		return nil, err
	}
	if e.others == nil {
		e.others = make(map[madeLimit]*spillgate.Meter)
	}
	e.others[id] = m
	return m, nil
}

type madeLimit struct {
	rule  int
	limit spillgate.Limit
}

// An exception is an override that holds for the request at hand.
type exception struct {
	over  int32
	is    *override
	told  *Override // what is told: the override, or what its list says of the entry
	line  int32
	until int64

	unsure *Attribute // if it holds by one of several values of that
}

// charged is an applied override, and the charge that it stands behind.
type charged struct {
	charge int
	by     *exception
}

// blocks, exempts and limits say what an override does, on nil nothing.
func (a *exception) blocks() bool  { return a != nil && a.is.Deny }
func (a *exception) exempts() bool { return a != nil && a.is.Exempt }
func (a *exception) limits() bool  { return a != nil && !a.is.Deny && !a.is.Exempt }

// override finds the overrides that hold for a request. It reports false if
// one of them blocks it whatever the rules say and for ever, so that nothing
// is left to ask.
func (e *Engine) override(v *Verdict, s *scratch) bool {
	s.over.bound.find(v, s)
	var by *exception
	for i := range s.over.applied {
		if a := &s.over.applied[i]; a.blocks() && a.is.rules == nil && (by == nil || a.until > by.until) {
			by = a
		}
	}
	if by == nil {
		return true
	}
	rule := len(e.policy.plain)
	s.key = s.key[:0]
	s.appendKey(&e.policy.rules[rule].Key[0])
	return e.block(v, s, rule, e.seed.Key(s.key), by, e.policy.off)
}

// block makes an override refuse a request in the name of a rule. It reports
// whether the other rules are still to be asked: for how long, as they may
// refuse for longer.
func (e *Engine) block(v *Verdict, s *scratch, rule int, key spillgate.Key, by *exception, trial bool) bool {
	if by.until != forever || trial {
		s.over.charges = append(s.over.charges, charged{len(s.charges), by})
		s.charge(rule, spillgate.Charge{
			Space: e.spaces[len(e.policy.plain)], Key: key, Meter: refusal, Ask: spillgate.Ask{N: 1}, Trial: trial,
		})
		return true
	}
	e.refuse(v, s, Outcome{
		Rule: e.policy.rules[rule].Rule, Decision: by.decision(v), Override: by.told, line: by.line, from: fromNowhere, index: int32(rule), key: key,
	})
	return false
}

// decision is what an override that blocks says.
func (a *exception) decision(v *Verdict) spillgate.Decision {
	d := spillgate.Decision{Reason: spillgate.Blocked, RetryAfter: spillgate.Never, ResetAfter: spillgate.Never}
	if a.until != forever {
		wait := time.Duration(a.until - nanoseconds(v.now()))
		d.RetryAfter, d.ResetAfter = max(wait, 1), max(wait, 1)
	}
	return d
}

// fold makes an outcome that of an override, if one stands behind charge i. An
// override that blocks has refused by a charge that never fits; what it says
// is said here.
func (t *overriding) fold(v *Verdict, s *scratch, o *Outcome, i int) {
	for _, c := range t.charges {
		if c.charge != i {
			continue
		}
		o.Override, o.line = c.by.told, c.by.line
		if c.by.blocks() {
			o.Decision, o.from, o.charged = c.by.decision(v), fromNowhere, 0
		} else {
			o.meter = s.charges[i].Meter
		}
	}
}

// overriding is what a decision has to do with overrides.
type overriding struct {
	bound   *bound
	applied []exception
	charges []charged
}

// begin makes t ready for another request, under a table that may be nil.
func (t *overriding) begin(b *bound) {
	t.bound, t.applied, t.charges = b, t.applied[:0], t.charges[:0]
}

// of returns the override that counts for a request and a rule, nil if none
// does: one that blocks before one that exempts before one with a limit; of
// those that block the one that ends last, of others the first in the list.
func (t *overriding) of(rule int) (best *exception) {
	for i := range t.applied {
		a := &t.applied[i]
		if a.is.rules == nil && a.is.Deny || a.is.rules != nil && a.is.rules[rule>>6]&(1<<(rule&63)) == 0 {
			continue // said already, or of other rules
		}
		if best == nil || a.before(best) {
			best = a
		}
	}
	return best
}

func (a *exception) before(b *exception) bool {
	switch {
	case a.is.Deny != b.is.Deny:
		return a.is.Deny
	case a.is.Deny && a.until != b.until:
		return a.until > b.until
	case a.is.Exempt != b.is.Exempt:
		return a.is.Exempt
	}
	return a.over < b.over
}

// overriding finds the overrides that hold for a request that was decided.
func (e *Engine) overriding(v *Verdict, s *scratch) {
	if s.over.begin(e.overrides.Load()); s.over.bound != nil {
		s.over.bound.find(v, s)
	}
}

// charge notes that charge i is one of a rule by the limit of an override.
func (t *overriding) charge(c *spillgate.Charge, by *exception, r *rule, rule, i int) {
	c.Meter = t.bound.limits[limited{by.over, rule}]
	c.Keep = r.keepOf(c.Meter, c.Keep)
	t.charges = append(t.charges, charged{i, by})
}

// find finds the overrides that hold for a request.
func (b *bound) find(v *Verdict, s *scratch) {
	now := int64(forever) // not asked for yet
	if len(b.v4.starts)+len(b.v6.starts) > 0 {
		if a := s.address(); a.IsValid() {
			b.chain(v, s, b.network(a), &now, nil)
		}
	}
	for i := range b.values {
		set := &b.values[i]
		if a, text, _ := s.pick(&set.part); a == nil {
			continue
		} else if each := s.repeats(*a, 0); len(each) > 0 {
			b.findRepeated(v, s, set, each, &now)
		} else if head, ok := set.heads[string(text)]; ok {
			b.chain(v, s, head, &now, nil)
		}
	}
	for _, head := range b.searched {
		b.chain(v, s, head, &now, nil)
	}
}

// network returns the narrowest network that holds an address, -1 if none does.
func (o *Overrides) network(a netip.Addr) int32 {
	if a.Is4() {
		return o.v4.head(addressOf(a))
	}
	return o.v6.head(addressOf(a))
}

// chain adds the overrides of a chain of nodes that hold, found by one of
// several values of an attribute or, if that is nil, by the only one.
func (b *bound) chain(v *Verdict, s *scratch, at int32, now *int64, by *Attribute) {
	for ; at >= 0; at = b.nodes[at].next {
		n := &b.nodes[at]
		if n.until != forever {
			if *now == forever {
				*now = nanoseconds(v.now())
			}
			if *now >= n.until {
				continue
			}
		}
		over := &b.all[n.over]
		unsure := by
		if !s.meets(over.match, !over.Deny) {
			if over.Exempt || !s.meets(over.match, false) {
				continue
			}
			if unsure = s.repeatedIn(over.match); unsure == nil {
				continue
			}
		}
		if over.Exempt && unsure != nil {
			continue
		}
		a := exception{over: n.over, is: over, told: over.Override, line: n.line, until: n.until, unsure: unsure}
		if n.own >= 0 {
			a.told = b.owns[n.own]
		}
		s.over.add(a)
	}
}

// add adds an override that holds; one that holds by several entries holds as
// long as the last of them.
func (t *overriding) add(a exception) {
	for i := range t.applied {
		if t.applied[i].over == a.over {
			if a.until > t.applied[i].until {
				t.applied[i] = a
			}
			return
		}
	}
	t.applied = append(t.applied, a)
}

// foldFault tells the overrides of a request whose store has failed: those
// that block refuse all the same, and then it reports true.
func (e *Engine) foldFault(v *Verdict, s *scratch) bool {
	blocked := false
	for _, c := range s.over.charges {
		if g := &s.charges[c.charge]; c.by.blocks() {
			e.fold(v, s, c.charge, &spillgate.Decision{Reason: spillgate.NeverFits, RetryAfter: spillgate.Never}, fromNowhere)
			blocked = blocked || !g.Trial
		}
	}
	return blocked
}

// localCharge makes c, which is charge i, one that is decided without the
// store: by this engine's part of the rule's limit or of that of an override,
// which it notes for the charge that local is about to get.
func (e *Engine) localCharge(s, local *scratch, i int, c *spillgate.Charge, share *spillgate.Meter) {
	most := c.Meter.Limit().Cap()
	c.Meter = share
	for _, o := range s.over.charges {
		if o.charge == i {
			local.over.charges = append(local.over.charges, charged{len(local.charges), o.by})
			c.Keep = part(c.Meter.Limit().Cap(), c.Keep, most, 0)
			return
		}
	}
	c.Keep = e.policy.rules[s.index[i]].keepOf(c.Meter, c.Keep)
}

// exempts notes that an override exempts the request from a rule that matches.
func (v *Verdict) exempts(by *exception) {
	if v.exemption == nil {
		v.exemption = by.told
	}
}

// Exemption returns the override by which the request is exempt from rules that
// match it, the first if there are several, nil if there is none. Rules that it
// is exempt from do not apply: they are not among the outcomes.
func (v *Verdict) Exemption() *Override {
	if v == nil {
		return nil
	}
	return v.exemption
}

// Flat reports whether o refuses by itself, whatever is left of a quota: a rule
// that denies, or an override that blocks.
func (o *Outcome) Flat() bool {
	d := &o.Decision
	return !d.Allowed && d.Limit == 0 && (d.Reason == spillgate.NeverFits || d.Reason == spillgate.Blocked)
}

// Line returns the line of the list that names the caller of an override, 0 if
// no list does.
func (o *Outcome) Line() int { return int(o.line) }

// Listed returns the place in the list that names the caller of an override,
// "lists/deny.txt:3", for people; "" if no list does.
func (o *Outcome) Listed() string {
	if o.Override == nil || o.line == 0 {
		return ""
	}
	return fmt.Sprintf("%s:%d", cmp.Or(o.Override.List, "list"), o.line)
}

// Limit returns the limit that o was decided by: the rule's, or that of an
// override. It is the zero Limit if o is that of a rule without one, or of an
// override that blocks.
func (o *Outcome) Limit() spillgate.Limit {
	switch {
	case o.Override == nil:
		return o.Rule.Limit
	case o.Override.Deny:
		return spillgate.Limit{}
	}
	return o.Override.Limit
}
