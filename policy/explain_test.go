package policy

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate"
)

// TestExplainSaysWhatDecideDoes holds explanations of random requests against
// the verdicts on them.
func TestExplainSaysWhatDecideDoes(t *testing.T) {
	for seed := range uint64(12) {
		r := rand.New(rand.NewPCG(seed, 7))
		rules := randomPolicy(t, r).plain
		for i := range rules {
			if rules[i].Exempt {
				continue
			}
			if len(rules[i].Key) == 0 && r.IntN(2) == 0 {
				rules[i].Key = testRule(t, "k", "", pick(r, []string{"client.ip", "tenant", "user else tenant", "host"})).Key
			}
			if len(rules[i].Key) > 0 {
				rules[i].Missing = pick(r, []Missing{Share, Share, Share, Skip, Skip, Refuse})
			}
			if r.IntN(200) == 0 {
				rules[i].Deny, rules[i].Limit = true, spillgate.Limit{}
			}
			rules[i].Spare = pick(r, []int{0, 0, 100})
		}
		p, err := Compile(rules)
		if err != nil {
			t.Fatal(err)
		}
		if p, err = p.WithOverrides(randomOverrides(t, r, p)); err != nil {
			t.Fatal(err)
		}
		for range 25 {
			attrs := randomVisit(r)
			v := NewEngine(p, spillgate.NewMemory()).Decide(context.Background(), attrs, At(start))
			checkExplained(t, p, attrs, &v)
		}
	}
}

// randomOverrides are a few overrides of the rules of p.
func randomOverrides(t *testing.T, r *rand.Rand, p *Policy) (list []Override) {
	for range r.IntN(5) {
		o := Override{Match: Match{{Attribute{Kind: ClientIP}, []string{pick(r, []string{"192.0.2.1", "192.0.2.0/24", "2001:db8::/32"})}}}}
		if r.IntN(3) == 0 {
			o.Match = append(o.Match, Condition{Attribute{Kind: Method}, []string{"GET"}})
		}
		var limited []string
		for i := range p.plain {
			if p.plain[i].Limit.Algorithm == spillgate.Bucket && !p.plain[i].Deny && !p.plain[i].Exempt {
				limited = append(limited, p.plain[i].Name)
			}
		}
		o.Until = pick(r, []time.Time{{}, start.Add(time.Hour), start})
		switch n := r.IntN(6); {
		case n == 0:
			o.Deny = true
		case len(limited) == 0 || n == 1:
			o.Exempt = true
		default:
			o.Rules = []string{pick(r, limited), pick(r, limited)}[:1]
			switch o.Exempt, o.Deny = n == 2, n == 3; n {
			case 4, 5:
				o.Limit = testRule(t, "r", "50/s").Limit
			}
		}
		list = append(list, o)
	}
	return list
}

func checkExplained(t *testing.T, p *Policy, attrs Attrs, v *Verdict) {
	t.Helper()
	x := p.Explain(attrs, At(start))
	if x.Verdict.Allowed != v.Allowed || x.Verdict.Len() != v.Len() || len(x.Rules) < len(p.plain) || len(x.Rules) > len(p.plain)+1 {
		t.Fatalf("%q: explained %+v, decided %+v", attrs, x.Verdict, v)
	}
	if exempt := v.Exempt(); exempt != nil && !x.Rules[slices.IndexFunc(p.plain, func(r Rule) bool { return r.Name == exempt.Name })].Exempts {
		t.Fatalf("%q: exempt by %s, which is not explained", attrs, exempt.Name)
	}
	ended := v.Refusing() != nil && !v.Refusing().Judged() || v.err != nil
	for i := range x.Rules {
		at := &x.Rules[i]
		decided := v.Of(at.Rule.Name)
		switch {
		case (at.Outcome == nil) != (decided == nil):
			t.Fatalf("%q: %s: explained %+v, decided %+v", attrs, at.Rule.Name, at.Outcome, decided)
		case (at.Why == "") != (at.Outcome != nil || at.Exempts) || at.Exempts && at.Outcome != nil:
			t.Fatalf("%q: %s: outcome %v because %q", attrs, at.Rule.Name, at.Outcome, at.Why)
		case at.Outcome != nil && (!at.Matches || at.Outcome.Peeked != decided.Peeked || at.Outcome.Decision.Allowed != decided.Decision.Allowed):
			t.Fatalf("%q: %s: explained %+v, decided %+v", attrs, at.Rule.Name, at.Outcome, decided)
		case at.Matches && at.Outcome == nil && !ended && !at.Exempts && !strings.HasPrefix(at.Why, "the request is exempt, by r") && !strings.HasPrefix(at.Why, "the request is exempt, by the override"):
			t.Fatalf("%q: %s matches and was not asked: %s", attrs, at.Rule.Name, at.Why)
		case at.Matches != (at.Key != ""):
			t.Fatalf("%q: %s: key %q of a rule that matches: %v", attrs, at.Rule.Name, at.Key, at.Matches)
		case strings.Contains(at.Why, "a condition does not hold") || strings.Contains(at.Why, "another rule ends"):
			t.Fatalf("%q: %s: no reason: %q", attrs, at.Rule.Name, at.Why)
		}
	}
}

func TestExplainTellsWhy(t *testing.T) {
	when := func(attr string, values ...string) Match {
		a, err := ParseAttribute(attr)
		if err != nil {
			t.Fatal(err)
		}
		return Match{{a, values}}
	}
	attrs := Attrs{
		"method": "GET", "path": string(AppendPath(nil, "/a%2Fb")), "host": "a.example", "client.ip": "203.0.113.7",
		"header.x-plan": "free\n", "header.authorization": "Bearer x", "header.x-empty": "", "user": "ann",
	}
	for _, c := range []struct {
		match Match
		why   string
	}{
		{when("method", "POST"), "method is GET, not POST"},
		{when("method", "POST", "PUT"), "method is GET, none of POST, PUT"},
		{when("method", "!GET"), "method is GET, and must not be GET"},
		{when("path", "/x/**", "/z*/**"), "path is /a%2Fb or /a/b, none of /x/**, /z*/**"},
		{when("path", "/login"), "path is /a%2Fb or /a/b, not /login"},
		{when("path", "/a/**", "!/a/b", "!/c"), "path is /a%2Fb or /a/b, and must not be /a/b or /c"},
		{when("host", "*.b.example"), "host is a.example, not *.b.example"},
		{when("client.ip", "10.0.0.0/8", "192.0.2.1"), "client.ip is 203.0.113.7, none of 10.0.0.0/8, 192.0.2.1"},
		{when("client.ip", "!203.0.113.0/24"), "client.ip is 203.0.113.7, and must not be 203.0.113.0/24"},
		{when("header.x-plan", "free"), `header.x-plan is "free\n", not free`},
		{when("header.x-empty", "a b"), `the request has no header.x-empty`},
		{when("header.x-none", "a"), "the request has no header.x-none"},
		{append(when("user", "ann"), when("tenant", "acme", "!other")...), "the request has no tenant"},
	} {
		p, err := Compile([]Rule{{Name: "r", Match: c.match, Limit: testRule(t, "r", "1/s").Limit}})
		if err != nil {
			t.Fatal(err)
		}
		x := p.Explain(attrs, At(start))
		if got := x.Rules[0].Why; got != c.why || x.Rules[0].Matches || !x.Verdict.Allowed {
			t.Errorf("%v: %q, want %q", c.match, got, c.why)
		}
	}
	secret, err := Compile([]Rule{{Name: "r", Match: when("header.authorization", "Bearer y"), Limit: testRule(t, "r", "1/s").Limit}})
	if err != nil {
		t.Fatal(err)
	}
	if why := secret.Explain(attrs).Rules[0].Why; strings.Contains(why, "Bearer x") || !strings.HasPrefix(why, "header.authorization is hmac:") {
		t.Errorf("a secret is shown: %q", why)
	}
}

func TestExplain(t *testing.T) {
	rules := []Rule{
		testRule(t, "visitor", "1/s burst 5", "client.ip"),
		testRule(t, "token", "2/s", "header.x-api-key", "user"),
		testRule(t, "tenant", "2/s", "tenant", "user"),
		testRule(t, "form", "3/s"),
		{Name: "shut", Deny: true, Match: Match{{Attribute{Kind: Path}, []string{"/admin/**"}}}},
		testRule(t, "heavy", "10/s burst 10"),
	}
	rules[2].Missing = Skip
	rules[3].Match, rules[3].Peek = Match{{Attribute{Kind: Method}, []string{"POST"}}}, Match{{Attribute{Kind: Method}, []string{"GET"}}}
	rules[5].Unit, rules[5].Cost = "bytes", 4
	p, err := Compile(rules)
	if err != nil {
		t.Fatal(err)
	}
	attrs := Attrs{"method": "GET", "path": "/", "client.ip": "2001:db8::1", "header.x-api-key": "k", "user": "ann"}
	x := p.Explain(attrs)
	if at := x.Rules[0]; at.Key != "client.ip=2001:db8::/64" || at.Outcome.Decision.Remaining != 4 {
		t.Errorf("visitor: %+v", at)
	}
	if at := x.Rules[1]; !strings.HasPrefix(at.Key, "header.x-api-key=hmac:") || !strings.HasSuffix(at.Key, " user=ann") {
		t.Errorf("token: %+v", at)
	}
	if at := x.Rules[2]; at.Matches || at.Why != "the request has no tenant, and the rule says missing: skip" {
		t.Errorf("tenant: %+v", at)
	}
	if at := x.Rules[3]; at.Key != "*" || !at.Outcome.Peeked {
		t.Errorf("form: %+v", at)
	}
	if at := x.Rules[5]; at.Outcome.Decision.Remaining != 6 {
		t.Errorf("heavy: %+v", at)
	}
	if d := p.Explain(attrs, Cost("bytes", 11)); d.Verdict.Allowed || d.Verdict.Refusing().Rule.Name != "heavy" || d.Rules[0].Outcome.Decision.Taken != 0 {
		t.Errorf("11 bytes: %+v", d.Verdict)
	}
	attrs["path"] = "/admin/x"
	for _, at := range p.Explain(attrs).Rules {
		switch name := at.Rule.Name; {
		case name == "shut" && (at.Outcome == nil || at.Outcome.Judged()):
			t.Errorf("%s: %+v", name, at)
		case name == "visitor" && (at.Outcome != nil || !at.Matches || at.Why != "shut refuses the request without asking a limit, so nothing is asked of others"):
			t.Errorf("%s: %+v", name, at)
		}
	}
	if bad := p.Explain(attrs, Cost("bytes", -1)); bad.Verdict.Allowed {
		t.Errorf("a negative cost: %+v", bad)
	}
	attrs["path"] = "/"
	if bad := p.Explain(attrs, Cost("bytes", -1)).Rules[0]; bad.Outcome != nil || !strings.HasPrefix(bad.Why, "nothing is decided: ") {
		t.Errorf("a negative cost: %+v", bad)
	}
}

func TestExplainExemptions(t *testing.T) {
	at := func(path string) Match { return Match{{Attribute{Kind: Path}, []string{path}}} }
	rules := []Rule{
		testRule(t, "visitor", "1/s", "client.ip"),
		testRule(t, "login", "1/s"),
		testRule(t, "off", "1/s"),
		{Name: "health", Exempt: true, Match: at("/health")},
		{Name: "ours", Exempt: true, Group: "logins", Match: Match{{Attribute{Kind: ClientIP}, []string{"192.0.2.0/24"}}}},
		{Name: "odd", Exempt: true, Match: at("/a/b")},
	}
	rules[1].Group, rules[2].Disabled = "logins", true
	p, err := Compile(rules)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		attrs Attrs
		why   [6]string
	}{
		{Attrs{"path": "/health", "client.ip": "192.0.2.1"}, [6]string{"the request is exempt, by health", "the request is exempt, by health", "the rule is switched off (enabled: false)", "", "", "path is /health, not /a/b"}},
		{Attrs{"path": "/", "client.ip": "192.0.2.1"}, [6]string{"", "the request is exempt, by ours", "the rule is switched off (enabled: false)", "path is /, not /health", "", "path is /, not /a/b"}},
		{Attrs{"path": string(AppendPath(nil, "/a%2fb"))}, [6]string{"", "", "the rule is switched off (enabled: false)", "path is /a%2Fb or /a/b, not /health", "the request has no client.ip", "path is /a%2Fb or /a/b, not /a/b"}},
	} {
		for i, x := range p.Explain(c.attrs, At(start)).Rules {
			if x.Why != c.why[i] || x.Exempts != (x.Why == "" && x.Rule.Exempt) {
				t.Errorf("%q: %s: %q, want %q", c.attrs, x.Rule.Name, x.Why, c.why[i])
			}
		}
	}
}

// TestSettleAt gives back at the time of the end: what was used up in a window
// that is over by then is not given to the next.
func TestSettleAt(t *testing.T) {
	e := testEngine(t, testRule(t, "r", "10/s burst 10", "user"))
	attrs := Attrs{"user": "ann"}
	v := e.Decide(context.Background(), attrs, At(start), Cost(Requests, 10))
	v.SettleAt(start.Add(500 * time.Millisecond))
	if err := v.GiveBack(); err != nil {
		t.Fatal(err)
	}
	// A settle tells the store its time: it does not flow back.
	if w := e.Decide(context.Background(), attrs, At(start), Cost(Requests, 10)); w.Outcome(0).Decision.At != spillgate.Instant(start.Add(500*time.Millisecond).UnixNano()) {
		t.Errorf("decided at %d", w.Outcome(0).Decision.At)
	}
	var none *Verdict
	none.SettleAt(start)
}

// TestExplainOfARuleThatSparesSome : which keys it spares, only the engine knows
// that has the counters, so one is explained that it does not.
func TestExplainOfARuleThatSparesSome(t *testing.T) {
	r := testRule(t, "some", "1/s", "client.ip")
	r.Spare = 99
	p, err := Compile([]Rule{r})
	if err != nil {
		t.Fatal(err)
	}
	for range 20 { // each has other digests
		x := p.Explain(Attrs{"client.ip": "192.0.2.1"}, Cost(Requests, 2))
		if o := x.Rules[0].Outcome; x.Verdict.Allowed || o.Trial || o.Rule != &p.Rules()[0] || o.Rule.Spare != 99 {
			t.Fatalf("allowed %v, trial %v, rule %+v", x.Verdict.Allowed, o.Trial, o.Rule)
		}
	}
}

// TestExplainTellsTheLane : the one that says what is kept, of those that an odd
// path is in.
func TestExplainTellsTheLane(t *testing.T) {
	path := func(s string) Match { return Match{{Attribute{Kind: Path}, []string{s}}} }
	r := testRule(t, "r", "10/s")
	r.Lanes = []Lane{{Match: path("/a"), Keep: 0}, {Match: path("/a/b"), Keep: 5}, {Keep: 2}}
	p, err := Compile([]Rule{r, testRule(t, "none", "10/s")})
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]int{"/a": 1, "/a/b": 2, "/c": 3, "/a%2Fb": 2} {
		x := p.Explain(Attrs{"path": string(p.Paths().Append(nil, path))})
		if got := x.Rules[0].Lane; got != want || x.Rules[1].Lane != 0 || x.Rules[0].Outcome.Kept() != r.Lanes[got-1].Keep {
			t.Errorf("%s: lane %d, want %d; %d are kept", path, got, want, x.Rules[0].Outcome.Kept())
		}
	}
}

// With the key of an engine the fingerprints are the engine's.
func TestExplainKeyed(t *testing.T) {
	key := []byte("0123456789abcdef")
	r := testRule(t, "r", "1/s", "header.authorization")
	companion := testRule(t, "all", "9/s", "client.ip")
	p, err := Compile([]Rule{r, companion})
	if err != nil {
		t.Fatal(err)
	}
	e := NewEngine(p, spillgate.NewMemory(), FingerprintKey(key))
	a := Attribute{Kind: Header, Name: "authorization"}
	attrs := Attrs{"header.authorization": "Bearer x", "client.ip": "203.0.113.7"}
	want := "header.authorization=" + e.Fingerprint(a, "Bearer x")
	if got := p.ExplainKeyed(key, attrs).Rules[0].Key; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := p.Explain(attrs).Rules[0].Key; got == want {
		t.Errorf("without the key: %q", got)
	}
}
