package policy

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spillgate/spillgate"
)

// This is what a policy says of a request, found out in the plainest way: every
// rule is asked by itself, everything is read anew, and patterns are regular
// expressions.

// naively is what one rule says.
type naively struct {
	rule       string
	peeked     bool
	cost, keep int64
	key        string
	override   string // its reason
}

type naive struct {
	attrs Attrs
	paths Paths
}

func (n naive) value(a Attribute) (readings []string, ok bool) {
	v, ok := n.attrs[a.String()]
	if n.paths.AnyCase && a.Kind == Path {
		v = strings.ToLower(v)
	}
	if !ok || strings.Trim(v, " \t") == "" {
		return nil, false
	}
	if a.Kind == Header {
		v = strings.Trim(v, " \t")
	}
	if a.Kind == Path || a.Kind == Method {
		return strings.Split(v, "\x00"), true
	}
	return []string{v}, true
}

func (n naive) addr() netip.Addr {
	a, _ := netip.ParseAddr(n.attrs["client.ip"])
	return a.Unmap().WithZone("")
}

func (n naive) glob(k Kind, pattern, v string) bool {
	if k == Path && n.paths.AnyCase {
		pattern = strings.ToLower(pattern)
	}
	if k == Path && pattern == "/**" {
		return true
	}
	rest := ""
	star := ".*"
	if k == Path {
		star = "[^/]*"
		if front, ok := strings.CutSuffix(pattern, "/**"); ok {
			pattern, rest = front, "(/.*)?"
		}
	}
	return regexp.MustCompile("(?s)^" + strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, star) + rest + "$").MatchString(v)
}

// holds says whether m holds: by some of its readings, or by all of them.
func (n naive) holds(m Match, all bool) bool {
	for _, c := range m {
		meets := func(v string) bool {
			wants, met := false, false
			for _, pattern := range c.Values {
				pattern, not := strings.CutPrefix(pattern, "!")
				hit := false
				if c.Attribute.Kind == ClientIP {
					network, err := netip.ParsePrefix(pattern)
					if err != nil {
						a := netip.MustParseAddr(pattern)
						network = netip.PrefixFrom(a, a.BitLen())
					}
					hit = network.Contains(n.addr())
				} else {
					hit = n.glob(c.Attribute.Kind, pattern, v)
				}
				if not && hit {
					return false
				}
				wants, met = wants || !not, met || !not && hit
			}
			return met || !wants
		}
		some, every := false, true
		readings, ok := n.value(c.Attribute)
		switch {
		case c.Attribute.Kind == ClientIP:
			some = meets("")
			every = some
		case !ok:
			some = !slices.ContainsFunc(c.Values, func(v string) bool { return v[:1] != "!" })
			every = some
		default:
			for _, v := range readings {
				some, every = some || meets(v), every && meets(v)
			}
		}
		if !some || all && !every {
			return false
		}
	}
	return true
}

func (n naive) key(parts []Part) (key string, whole bool) {
	whole = true
	for _, p := range parts {
		text := "missing"
		for _, a := range p.Attributes {
			if addr := n.addr(); a.Kind == ClientIP && addr.IsValid() {
				if text = "v4 " + addr.String(); addr.Is6() {
					bits := p.Prefix
					if bits == 0 {
						bits = 64
					}
					network, _ := addr.Prefix(bits)
					text = "v6 " + network.String()
				}
				break
			}
			readings, ok := n.value(a)
			if !ok {
				continue
			}
			v := readings[0]
			if len(readings) > 1 {
				v = "\x00"
			}
			if p.Trim && len(readings) == 1 {
				if v = strings.Trim(v, " \x00\t\x7f"); v == "" {
					continue
				}
			}
			if p.Lower {
				v = strings.ToLower(v)
			}
			text = fmt.Sprintf("%d %q %q", a.Kind, a.Name, v)
			break
		}
		whole = whole && text != "missing"
		key += text + "\n"
	}
	return key, whole
}

func (n naive) cost(r Rule) int64 {
	if len(r.Prices) == 0 {
		return max(1, r.Cost)
	}
	cost := int64(1)
	for _, p := range r.Prices {
		if !n.holds(p.Match, false) {
			continue
		}
		one := p.Units
		if p.From != (Attribute{}) {
			one = max(1, p.Default)
			if v, ok := n.value(p.From); ok {
				i, err := strconv.ParseUint(v[0], 10, 62)
				if one = min(int64(i), p.Most); err != nil {
					one = p.Most
				}
			}
		}
		cost = max(cost, one)
		if n.holds(p.Match, true) {
			break
		}
	}
	return cost
}

func (n naive) keep(r Rule) (keep int64) {
	for _, l := range r.Lanes {
		if n.holds(l.Match, false) {
			if keep = max(keep, l.Keep); n.holds(l.Match, true) {
				break
			}
		}
	}
	return keep
}

func (n naive) decide(rules []Rule, overrides []Override) (out []naively) {
	exempt := map[string]bool{}
	for _, r := range rules {
		if r.Exempt && !r.Disabled && n.holds(r.Match, true) {
			exempt[r.Group] = true
		}
	}
	for _, r := range rules {
		peeked := len(r.Peek) > 0 && n.holds(r.Peek, true)
		if r.Disabled || r.Exempt || exempt[""] || r.Group != "" && exempt[r.Group] || !peeked && !n.holds(r.Match, false) {
			continue
		}
		one := naively{rule: r.Name, peeked: peeked, keep: n.keep(r)}
		var by *Override
		for i := range overrides {
			if o := &overrides[i]; slices.Contains(o.Rules, r.Name) && n.holds(o.Match, true) && (by == nil || o.Exempt && !by.Exempt) {
				by = o
			}
		}
		if by != nil {
			one.override = by.Reason
		}
		var whole bool
		one.key, whole = n.key(r.Key)
		if by != nil && by.Exempt || !whole && r.Missing == Skip {
			continue
		}
		if !peeked {
			one.cost = n.cost(r)
		}
		out = append(out, one)
	}
	return out
}

// randomRules returns rules with keys, costs, lanes, groups, peeks, penalties,
// and exceptions from them, of which many ask for the same.
func randomRules(t testing.TB, r *rand.Rand) (rules []Rule, overrides []Override) {
	keys := []string{
		"client.ip", "client.ip", "client.ip/48", "client.ip/128", "header.x-plan", "header.x-plan lower", "header.x-plan trim", "header.x-plan lower trim",
		"header.x-plan trim lower", "user", "path", "path lower", "method", "host", "user else client.ip", "header.x-plan else user", "header.x-plan else path trim",
		"header.x-plan secret", "header.x-plan shown", "attr.x-plan", "query.x-plan",
	}
	group := func(r *rand.Rand) string { return pick(r, []string{"", "", "g", "h"}) }
	rules = append(rules, testRule(t, "all", "1000000000/h burst 1000000000", "client.ip"))
	rules[0].Group = "g"
	rules = append(rules, testRule(t, "also", "1000000000/h burst 1000000000", "client.ip"))
	rules[1].Group = "h"
	rules = append(rules, testRule(t, "always", "1000000000/h burst 1000000000", "client.ip")) // whatever is exempt from groups
	for i := range 1 + r.IntN(40) {
		if m := randomMatch(r); r.IntN(8) == 0 && len(m) > 0 {
			if _, onWord := m.onWord(); !onWord {
				rules = append(rules, Rule{Name: fmt.Sprintf("r%d", i), Exempt: true, Match: append(m, Condition{Attribute{Kind: User}, []string{"v"}}), Group: pick(r, []string{"g", "h"})})
				continue
			}
		}
		rule := testRule(t, fmt.Sprintf("r%d", i), "1000000000/h burst 1000000000")
		for range r.IntN(3) {
			part, err := ParsePart(pick(r, keys))
			if err != nil {
				t.Fatal(err)
			}
			rule.Key = append(rule.Key, part)
		}
		rule.Group, rule.Match = group(r), randomMatch(r)
		if len(rule.Key) > 0 {
			rule.Missing = pick(r, []Missing{Share, Skip})
		}
		rule.Disabled = r.IntN(12) == 0
		if r.IntN(3) == 0 {
			rule.Peek = randomMatch(r)
		}
		switch r.IntN(4) {
		case 0:
			rule.Cost = 3
		case 1:
			for j := range 1 + r.IntN(3) {
				if m := randomMatch(r); len(m) > 0 {
					rule.Prices = append(rule.Prices, pick(r, []Price{{Match: m, Units: int64(j + 2)}, {Match: m, From: Attribute{Kind: Query, Name: "n"}, Most: 900, Default: 5}}))
				}
			}
		}
		if r.IntN(4) == 0 {
			for j := range 1 + r.IntN(2) {
				if m := randomMatch(r); len(m) > 0 {
					rule.Lanes = append(rule.Lanes, Lane{Match: m, Keep: int64(j)})
				}
			}
			rule.Lanes = append(rule.Lanes, Lane{Keep: 10})
			if rule.Lanes[0].Keep != 0 || len(rule.Lanes) == 1 {
				rule.Lanes = nil
			}
		}
		rules = append(rules, rule)
		if m := randomMatch(r); r.IntN(3) == 0 && len(m) > 0 {
			o := Override{Rules: []string{rule.Name, "all"}, Match: m, Reason: fmt.Sprintf("o%d", i)}
			if o.Exempt = r.IntN(2) == 0; !o.Exempt {
				o.Limit = limitOf(t, "2000000000/h burst 1000000000")
			}
			overrides = append(overrides, o)
		}
	}
	return rules, overrides
}

// checkNaively holds an engine against the plainest way, and tells whether two
// keys were ever taken for one, or one for two.
func checkNaively(t *testing.T, e *Engine, n naive, rules []Rule, overrides []Override, names map[[2]uint64]string, keys map[string][2]uint64) {
	t.Helper()
	v := e.Decide(context.Background(), n.attrs, At(start))
	if !v.Allowed {
		t.Fatalf("%q: refused: %v", n.attrs, v.Err())
	}
	var got []naively
	for i := range v.Len() {
		o := v.Outcome(i)
		one := naively{rule: o.Rule.Name, peeked: o.Peeked, cost: o.charged, keep: o.keep}
		if o.Override != nil {
			one.override = o.Override.Reason
		}
		got = append(got, one)
	}
	want := n.decide(rules, overrides)
	for i := range want {
		if i < len(got) {
			key, name := v.Outcome(i).key, want[i].key
			if before, ok := names[key]; ok && before != name {
				t.Fatalf("%q: rule %s: one digest for the keys %q and %q", n.attrs, want[i].rule, before, name)
			}
			if before, ok := keys[name]; ok && before != key {
				t.Fatalf("%q: rule %s: two digests for the key %q", n.attrs, want[i].rule, name)
			}
			names[key], keys[name] = name, key
		}
		want[i].key = ""
	}
	if !slices.Equal(got, want) {
		t.Fatalf("%q:\ngot  %+v\nwant %+v", n.attrs, got, want)
	}
}

func naiveRound(t *testing.T, r *rand.Rand, visits int, change func(Attrs)) {
	paths := Paths{AnyCase: r.IntN(3) == 0}
	rules, overrides := randomRules(t, r)
	p, err := Compile(rules, WithPaths(paths))
	if err != nil {
		t.Fatal(err)
	}
	if p, err = p.WithOverrides(overrides); err != nil {
		t.Fatal(err)
	}
	m := spillgate.NewMemory()
	defer m.Close()
	e := NewEngine(p, m)
	names, keys := map[[2]uint64]string{}, map[string][2]uint64{}
	for range visits {
		attrs := randomVisit(r)
		attrs["user"] = pick(r, []string{"u", "v", "U", "free"})
		for name, values := range map[string][]string{
			"client.ip":     {"::ffff:192.0.2.1", "2001:db8::2", "2001:db8:0:1::1", "fe80::1%eth0"},
			"header.x-plan": {" Free", "FREE\t", "free\x00", "u", "192.0.2.1"},
			"attr.x-plan":   {"free", "a"},
			"query.x-plan":  {"free", "a"},
			"query.n":       {"7", "x", "", "99999999999999999999", "901"},
		} {
			if r.IntN(3) == 0 {
				attrs[name] = pick(r, values)
			}
		}
		if r.IntN(8) == 0 {
			delete(attrs, pick(r, []string{"client.ip", "user", "path", "method"}))
		}
		if change != nil {
			change(attrs)
		}
		checkNaively(t, e, naive{attrs, paths}, rules, overrides, names, keys)
	}
}

func TestEngineSaysWhatThePlainestWaySays(t *testing.T) {
	for seed := range uint64(40) {
		naiveRound(t, rand.New(rand.NewPCG(seed, 3)), 30, nil)
	}
}

func FuzzEngineNaively(f *testing.F) {
	for i, path := range somePaths {
		f.Add(uint64(i), path, "free")
	}
	f.Fuzz(func(t *testing.T, seed uint64, path, plan string) {
		for i := range len(path + plan) {
			if c := (path + plan)[i]; c >= 0x80 || c < ' ' {
				t.Skip("letters beyond ASCII are for another test")
			}
		}
		naiveRound(t, rand.New(rand.NewPCG(seed, 4)), 3, func(a Attrs) { a["path"], a["header.x-plan"] = string(AppendPath(nil, path)), plan })
	})
}

// The names of a program's own attributes may look like what is written of
// another key.
func TestKeysThatAreWrittenAlike(t *testing.T) {
	part := func(name string, lower bool) []Part {
		return []Part{{Attributes: []Attribute{{Kind: Own, Name: name}}, Lower: lower}}
	}
	one, other := testRule(t, "one", "9/h burst 9"), testRule(t, "other", "9/h burst 9")
	one.Key, other.Key = part("id lower", false), part("id", true)
	e := overridden(t, []Override{
		{List: "one", Key: one.Key[0], Entries: []Entry{{Value: "a"}}, Rules: []string{"one"}, Exempt: true},
		{List: "other", Key: other.Key[0], Entries: []Entry{{Value: "b"}}, Rules: []string{"other"}, Exempt: true},
	}, one, other)
	v := decide(e, 0, Attrs{"attr.id lower": "x", "attr.id": "y"})
	if v.Len() != 2 || v.Outcome(0).key == v.Outcome(1).key {
		t.Error("two keys are one")
	}
	if v := decide(e, 0, Attrs{"attr.id lower": "x", "attr.id": "b"}); v.Len() != 1 || v.Outcome(0).Rule.Name != "one" {
		t.Errorf("%d rules apply, want the one that is not excepted from", v.Len())
	}
}
