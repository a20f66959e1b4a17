package policy

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// walk is the reference of the index: it asks every rule.
func walk(p *Policy, attrs Attributes) []string {
	var out []string
	r := &request{}
	exempt := map[string]bool{}
	for _, exempting := range []bool{true, false} {
		for i := range p.plain {
			rule := &p.rules[i]
			r.begin(attrs, p.slots)
			switch {
			case rule.Disabled || rule.Exempt != exempting:
			case rule.Exempt && r.meets(rule.match, true):
				exempt[rule.Group] = true
			case rule.Exempt || exempt[""] && !rule.Deny || rule.Group != "" && exempt[rule.Group]:
			case len(rule.peek) > 0 && r.meets(rule.peek, true) || r.meets(rule.match, false):
				out = append(out, rule.Name)
			}
		}
	}
	return out
}

// found returns the names of the rules that the index finds.
func found(p *Policy, attrs Attributes) []string {
	var out []string
	r := &request{}
	r.begin(attrs, p.slots)
	set := p.index.find(r)
	for i := nextRule(set, 0); i >= 0; i = nextRule(set, i+1) {
		out = append(out, p.rules[i].Name)
	}
	return out
}

var (
	someWords = []string{"a", "b", "ab", "login", "v1", "x.y", "files"}
	someAttrs = []string{"method", "path", "path", "path", "host", "host", "header.x-plan", "user", "client.ip"}
	somePaths = []string{
		"/", "/login", "/login/", "//login", "/%6cogin", "/a/../login", "/a//../login", "/login;a=b", "/a%2flogin", "/a%2Flogin/../b",
		"/a/;x/../b/login", "/a/b/ab", "/v1/login/ab", "\\login", "/a%00b", "*", "", "login", "xlogin/a",
	}
)

func pick[T any](r *rand.Rand, of []T) T { return of[r.IntN(len(of))] }

// randomMatch returns conditions of every form: literals, globs in all places,
// negations, several values, absent attributes.
func randomMatch(r *rand.Rand) Match {
	var m Match
	for range r.IntN(4) {
		a, err := ParseAttribute(pick(r, someAttrs))
		if err != nil {
			panic(err)
		}
		c := Condition{Attribute: a}
		for range 1 + r.IntN(3) {
			v := pick(r, someWords)
			switch a.Kind {
			case ClientIP:
				v = pick(r, []string{"192.0.2.1", "192.0.2.0/24", "2001:db8::/32"})
			case Method:
				v = pick(r, []string{"GET", "POST", "P*"})
			case Path:
				v = ""
				for range 1 + r.IntN(3) {
					v += "/" + pick(r, append(someWords, "*", "a*", "*n"))
				}
				v += pick(r, []string{"", "", "/**"})
				v = pick(r, []string{v, v, v, "/", "/**"})
			case Host:
				v = pick(r, []string{"", "*.", "*", "a.*.", "**."}) + v + pick(r, []string{"", ".b", ".*"})
			default:
				v = pick(r, []string{"", "", "*"}) + v
			}
			if r.IntN(6) == 0 {
				v = "!" + v
			}
			if c2 := (Condition{a, []string{v}}); c2.Validate() == nil {
				c.Values = append(c.Values, v)
			}
		}
		if c.Values != nil {
			m = append(m, c)
		}
	}
	return m
}

func randomPolicy(t testing.TB, r *rand.Rand) *Policy {
	var rules []Rule
	for i := range 1 + r.IntN(140) {
		rule := testRule(t, fmt.Sprintf("r%d", i), "100/s")
		rule.Match = append(Match{{Attribute{Kind: User}, []string{"u", "!nobody"}}}, randomMatch(r)...)[r.IntN(2):]
		switch r.IntN(12) {
		case 0, 1, 2:
			rule.Peek = randomMatch(r)
		case 3:
			rule.Disabled = true
		case 4:
			if m := append(randomMatch(r), rule.Match...); i > 0 && len(m) > 0 {
				if _, onWord := m.onWord(); !onWord {
					rule = Rule{Name: rule.Name, Exempt: true, Match: m, Group: pick(r, []string{"", "g"})}
				}
			}
		}
		if i == 0 || r.IntN(3) == 0 && !rule.Exempt {
			rule.Group = "g"
		}
		rules = append(rules, rule)
	}
	p, err := Compile(rules)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func randomVisit(r *rand.Rand) Attrs {
	a := Attrs{"user": "u", "client.ip": pick(r, []string{"192.0.2.1", "192.0.2.9", "2001:db8::1", "odd"})}
	set := func(name, value string) {
		if r.IntN(5) > 0 {
			a[name] = value
		}
	}
	set("method", pick(r, []string{"GET", "POST", "post", "GET\x00POST", "POST\x00PUT\x00GET"}))
	raw := pick(r, somePaths)
	if r.IntN(2) == 0 {
		raw = ""
		for range r.IntN(5) {
			raw += pick(r, []string{"/", "/", "//", "%2f", "/../", ";"}) + pick(r, someWords)
		}
	}
	set("path", pick(r, []string{string(AppendPath(nil, raw)), string(AppendPath(nil, raw)), raw}))
	set("host", pick(r, []string{"a.", ".", "", "..", "a.b."})+pick(r, someWords)+pick(r, []string{"", ".b"}))
	set("header.x-plan", pick(r, append(someWords, "", "free")))
	return a
}

// checkIndex holds the index and the engine against the walk.
func checkIndex(t *testing.T, p *Policy, e *Engine, attrs Attributes) {
	t.Helper()
	want, got := walk(p, attrs), found(p, attrs)
	for _, name := range want {
		if !slices.Contains(got, name) {
			i := slices.IndexFunc(p.plain, func(r Rule) bool { return r.Name == name })
			t.Fatalf("the index does not find %+v for %q", p.plain[i], attrs)
		}
	}
	if len(want) > 200 { // more than a store takes at once
		return
	}
	v := e.Decide(context.Background(), attrs, At(start))
	var decided []string
	for i := range v.Len() {
		decided = append(decided, v.Outcome(i).Rule.Name)
	}
	if !slices.Equal(decided, want) {
		t.Fatalf("%q: decided by %v, want %v", attrs, decided, want)
	}
}

func TestIndexFindsWhatTheWalkFinds(t *testing.T) {
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 1))
		p := randomPolicy(t, r)
		e := testEngine(t, p.plain...)
		for range 40 {
			checkIndex(t, p, e, randomVisit(r))
		}
	}
}

func FuzzIndex(f *testing.F) {
	for i, path := range somePaths {
		f.Add(uint64(i), path, "x.example")
	}
	f.Fuzz(func(t *testing.T, seed uint64, path, host string) {
		r := rand.New(rand.NewPCG(seed, 2))
		p := randomPolicy(t, r)
		e := testEngine(t, p.plain...)
		attrs := randomVisit(r)
		attrs["path"], attrs["host"] = string(AppendPath(nil, path)), host
		checkIndex(t, p, e, attrs)
		attrs["path"] = path
		checkIndex(t, p, e, attrs)
	})
}

// TestIndexAsksFewRules is what the index is for: rules that speak of one
// folder, file, domain or value each are not asked about another.
func TestIndexAsksFewRules(t *testing.T) {
	rules := []Rule{testRule(t, "everybody", "1/s")}
	add := func(attr string, values ...string) {
		a, err := ParseAttribute(attr)
		if err != nil {
			t.Fatal(err)
		}
		r := testRule(t, fmt.Sprintf("r%d", len(rules)), "1/s")
		r.Match = Match{{Attribute{Kind: Method}, []string{"POST"}}, {a, values}}
		rules = append(rules, r)
	}
	for i := range 300 {
		add("path", fmt.Sprintf("/folder-%d/**", i), fmt.Sprintf("/f/%d/*/x", i))
		add("path", fmt.Sprintf("/file-%d", i))
		add("host", fmt.Sprintf("*.c%d.example", i), fmt.Sprintf("c%d.example", i))
		add("header.x-tenant", fmt.Sprintf("t%d", i))
	}
	p, err := Compile(rules)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]int{"/folder-7/a/b": 2, "/f/9/a/x": 2, "/f/9/a/y": 2, "/file-3": 2, "/else": 1, "/file-3/": 2, "/x%2f..%2ffile-3": 2} {
		attrs := Attrs{"method": "POST", "path": string(AppendPath(nil, path))}
		if got := found(p, attrs); len(got) != want {
			t.Errorf("%s: %v are asked, want %d", path, got, want)
		}
	}
	attrs := Attrs{"method": "POST", "path": "/folder-1/x", "host": "a.b.c2.example", "header.x-tenant": "t3"}
	if got := found(p, attrs); len(got) != 4 {
		t.Errorf("%v are asked, want 4", got)
	}
	if got := found(p, Attrs{"method": "POST", "host": strings.Repeat("a.", 100_000) + "c2.example"}); len(got) != 2 {
		t.Errorf("a long host: %v", got)
	}
}
