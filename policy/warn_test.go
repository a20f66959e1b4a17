package policy

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate"
)

// warned is a policy in short: each rule's warnings by code.
func warned(t *testing.T, rules ...Rule) []string {
	t.Helper()
	for i := range rules {
		rules[i].Name = fmt.Sprintf("r%d", i)
	}
	p, err := Compile(rules)
	if err != nil {
		t.Fatal(err)
	}
	out := []string{}
	for _, w := range p.Warnings() {
		if w.Name != rules[w.Index].Name || w.Text == "" || w.Fix == "" || w.Field == "" {
			t.Errorf("half a warning: %+v", w)
		}
		out = append(out, w.Name+" "+w.Code)
	}
	return out
}

func TestWarnings(t *testing.T) {
	match := func(words ...string) (m Match) {
		for _, w := range words {
			attr, values, _ := strings.Cut(w, "=")
			a, err := ParseAttribute(attr)
			if err != nil {
				t.Fatal(err)
			}
			m = append(m, Condition{a, strings.Split(values, ",")})
		}
		return m
	}
	rule := func(limit string, key string, m Match) Rule {
		var keys []string
		if key != "" {
			keys = strings.Split(key, "+")
		}
		r := testRule(t, "r", limit, keys...)
		r.Match = m
		return r
	}
	with := func(r Rule, change func(*Rule)) Rule { change(&r); return r }
	deny := func(m Match) Rule { return Rule{Deny: true, Match: m} }
	exempt := func(group string, m Match) Rule { return Rule{Exempt: true, Group: group, Match: m} }
	visitor := rule("10/s", "client.ip", nil)
	get := match("method=GET")
	for name, c := range map[string]struct {
		rules []Rule
		want  []string
	}{
		"all is well":                  {[]Rule{visitor, rule("10/s burst 20", "client.ip", get), rule("1/10s burst 10", "user", nil), rule("100/min", "", nil)}, nil},
		"a burst":                      {[]Rule{rule("10/s burst 21", "client.ip", nil)}, []string{"r0 burst"}},
		"many tries":                   {[]Rule{rule("1/min burst 11", "client.ip", nil)}, []string{"r0 burst"}},
		"no bucket":                    {[]Rule{rule("10/s queue 100", "client.ip", nil), rule("10/min fixed", "client.ip", nil), rule("unlimited", "", nil)}, nil},
		"a rate of 0":                  {[]Rule{with(rule("0/s burst 100", "user", nil), func(r *Rule) { r.TTL = time.Hour })}, nil},
		"user agents":                  {[]Rule{visitor, rule("10/s", "header.user-agent", nil)}, []string{"r1 user-agent"}},
		"user agents beside":           {[]Rule{visitor, rule("10/s", "header.user-agent+client.ip", nil)}, nil},
		"paths":                        {[]Rule{rule("10/s", "path", nil)}, []string{"r0 path-key"}},
		"paths by address":             {[]Rule{rule("10/s", "client.ip+path", nil)}, []string{"r0 path-key"}},
		"paths under a folder":         {[]Rule{rule("10/s", "path", match("path=/a/**"))}, []string{"r0 path-key"}},
		"paths that are known":         {[]Rule{rule("10/s", "path", match("path=/a,/b"))}, nil},
		"paths with a bound":           {[]Rule{visitor, rule("10/s", "client.ip+path", nil)}, nil},
		"paths with another bound":     {[]Rule{rule("9/s", "user", nil), rule("10/s", "user+path", nil)}, nil},
		"paths with no bound":          {[]Rule{rule("9/s", "user", get), rule("10/s", "user+path", nil)}, []string{"r1 path-key"}},
		"paths on trial":               {[]Rule{with(rule("10/s", "path", nil), func(r *Rule) { r.Spare = 100 })}, nil},
		"the same twice":               {[]Rule{visitor, visitor}, []string{"r1 repeated"}},
		"the same, once off":           {[]Rule{visitor, with(visitor, func(r *Rule) { r.Disabled = true })}, nil},
		"the same of another":          {[]Rule{visitor, rule("10/s", "user", nil), rule("10/s", "client.ip", get), rule("11/s", "client.ip", nil)}, nil},
		"wanted and not":               {[]Rule{rule("1/s", "user", match("method=GET,!GET"))}, []string{"r0 unreachable"}},
		"wanted and not, but one":      {[]Rule{rule("1/s", "user", match("method=GET,POST,!GET"))}, nil},
		"a network within":             {[]Rule{rule("1/s", "user", match("client.ip=10.1.0.0/16,!10.0.0.0/8"))}, []string{"r0 unreachable"}},
		"a network around":             {[]Rule{rule("1/s", "user", match("client.ip=10.0.0.0/8,!10.1.0.0/16"))}, nil},
		"a folder within":              {[]Rule{rule("1/s", "user", match("path=/a/b/**,/a/x,!/a/**"))}, []string{"r0 unreachable"}},
		"a folder beside":              {[]Rule{rule("1/s", "user", match("path=/ab/**,!/a/**"))}, nil},
		"a glob within all":            {[]Rule{rule("1/s", "user", match("host=*.a,!*"))}, []string{"r0 unreachable"}},
		"denied before":                {[]Rule{deny(get), rule("1/s", "user", match("method=GET", "host=a"))}, []string{"r1 unreachable"}},
		"denied after":                 {[]Rule{rule("1/s", "user", get), deny(nil)}, []string{"r0 unreachable"}},
		"denied twice":                 {[]Rule{deny(get), deny(get)}, []string{"r1 unreachable", "r1 repeated"}},
		"denied, but for one":          {[]Rule{deny(match("client.ip=10.0.0.0/8,!10.0.0.1")), rule("1/s", "user", match("client.ip=10.0.0.0/8"))}, nil},
		"denied, all but one":          {[]Rule{deny(match("client.ip=10.0.0.0/8,!10.0.0.1")), rule("1/s", "user", match("client.ip=10.0.0.0/8,!10.0.0.1,!10.0.0.2"))}, []string{"r1 unreachable"}},
		"denied, but for some":         {[]Rule{deny(match("method=!GET")), rule("1/s", "user", match("method=!POST"))}, nil},
		"denied, whatever else":        {[]Rule{deny(match("method=!GET")), rule("1/s", "user", match("method=POST,!GET"))}, []string{"r1 unreachable"}},
		"denied first":                 {[]Rule{deny(match("method=GET", "host=a")), deny(get)}, nil},
		"denied in part":               {[]Rule{deny(match("method=GET", "host=a")), rule("1/s", "user", get)}, nil},
		"denied by a folder":           {[]Rule{deny(match("path=/a/**")), rule("1/s", "user", match("path=/a/**"))}, []string{"r1 unreachable"}},
		"denied by a folder around":    {[]Rule{deny(match("path=/a/**")), rule("1/s", "user", match("path=/a/b,/a/c/**", "method=GET"))}, []string{"r1 unreachable"}},
		"denied by a folder beside":    {[]Rule{deny(match("path=/a/**")), rule("1/s", "user", match("path=/a/b,/b"))}, nil},
		"denied by a network around":   {[]Rule{deny(match("client.ip=10.0.0.0/8")), rule("1/s", "user", match("client.ip=10.1.0.0/16,10.2.3.4"))}, []string{"r1 unreachable"}},
		"denied by a network within":   {[]Rule{deny(match("client.ip=10.1.0.0/16")), rule("1/s", "user", match("client.ip=10.0.0.0/8"))}, nil},
		"denied, but for a network":    {[]Rule{deny(match("client.ip=!10.0.0.0/8")), rule("1/s", "user", match("client.ip=!10.1.0.0/16"))}, nil},
		"denied, but for an address":   {[]Rule{deny(match("client.ip=!10.1.0.0/16")), rule("1/s", "user", match("client.ip=!10.0.0.0/8"))}, []string{"r1 unreachable"}},
		"denied on trial":              {[]Rule{with(deny(nil), func(r *Rule) { r.Spare = 100 }), visitor}, nil},
		"denied, if it has a user":     {[]Rule{with(deny(nil), func(r *Rule) { r.Key = rule("1/s", "user", nil).Key; r.Missing = Skip }), visitor}, nil},
		"denied, but for the exempt":   {[]Rule{with(deny(nil), func(r *Rule) { r.Group = "g" }), visitor, exempt("g", match("client.ip=10.0.0.0/8"))}, nil},
		"denied, but told":             {[]Rule{deny(nil), with(rule("1/s", "user", nil), func(r *Rule) { r.Peek = get })}, nil},
		"exempt":                       {[]Rule{exempt("", match("client.ip=10.0.0.0/8")), rule("1/s", "user", match("client.ip=10.0.0.0/8", "host=a"))}, []string{"r1 unreachable"}},
		"exempt from others":           {[]Rule{exempt("g", match("client.ip=10.0.0.0/8")), rule("1/s", "user", match("client.ip=10.0.0.0/8")), with(visitor, func(r *Rule) { r.Group = "g" })}, nil},
		"exempt from its group":        {[]Rule{exempt("g", match("client.ip=10.0.0.0/8")), with(rule("1/s", "user", match("client.ip=10.0.0.0/8")), func(r *Rule) { r.Group = "g" })}, []string{"r1 unreachable"}},
		"exempt unless it is odd":      {[]Rule{exempt("", match("path=/a")), rule("1/s", "user", match("path=/a"))}, nil},
		"denials are not exempt":       {[]Rule{exempt("", match("client.ip=10.0.0.0/8")), deny(match("client.ip=10.0.0.0/8"))}, nil},
		"peeks at all":                 {[]Rule{with(rule("1/s", "user", get), func(r *Rule) { r.Peek = match("method=GET,HEAD") })}, []string{"r0 unreachable"}},
		"peeks at some":                {[]Rule{with(rule("1/s", "user", nil), func(r *Rule) { r.Peek = get })}, nil},
		"switched off":                 {[]Rule{with(rule("1/s burst 50", "path", match("method=GET,!GET")), func(r *Rule) { r.Disabled = true })}, nil},
		"an address twice":             {[]Rule{rule("10/s", "client.ip+client.ip/48", nil)}, []string{"r0 repeated"}},
		"a penalty on what is claimed": {[]Rule{visitor, with(rule("1/s", "header.x-id", nil), func(r *Rule) { r.Penalty = Penalty{After: 1, Within: time.Minute, Block: time.Hour} })}, []string{"r1 penalty-key"}},
	} {
		if got := warned(t, c.rules...); !slices.Equal(got, c.want) && len(got)+len(c.want) > 0 {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestEntriesBehindOthers : of lanes and costs the first that matches decides.
func TestEntriesBehindOthers(t *testing.T) {
	ip := func(values ...string) Match { return Match{{Attribute{Kind: ClientIP}, values}} }
	get := Match{{Attribute{Kind: Method}, []string{"GET"}}}
	r := testRule(t, "r", "10/s burst 20", "client.ip")
	r.Lanes = []Lane{{Match: ip("10.0.0.0/8")}, {Match: get, Keep: 1}, {Match: ip("10.1.0.0/16"), Keep: 2}, {Match: append(ip("192.0.2.1"), get...), Keep: 3}, {Keep: 4}}
	r.Prices = []Price{{Match: get, Units: 1}, {Match: ip("10.1.0.0/16"), Units: 2}, {Match: ip("10.0.0.0/8"), Units: 3}, {Match: get, Units: 4}}
	p, err := Compile([]Rule{r})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, w := range p.Warnings() {
		got = append(got, fmt.Sprintf("%s %s %d", w.Code, w.Field, w.Entry))
	}
	if want := []string{"unreachable lanes 3", "unreachable lanes 4", "unreachable cost 4"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	p, err = Compile([]Rule{tokensRule(t, "t", "1/s"), func() Rule { r := testRule(t, "o", "1/s"); r.Unit = "output"; return r }()})
	if err == nil {
		p, err = p.WithUsage([]Usage{{Match: ip("10.0.0.0/8"), Format: "openai"}, {Match: ip("10.1.0.0/16"), Format: "anthropic"}, {Unit: "output", Format: "openai"}, {Format: "openai"}, {Match: get, Format: "anthropic"}})
	}
	if err != nil {
		t.Fatal(err)
	}
	if got, want := p.UnusedUsage(), []int{-1, 0, -1, -1, 3}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestUnreachableIsTrue looks for a request that a rule charges which is said to
// charge none.
func TestUnreachableIsTrue(t *testing.T) {
	warnings := 0
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 11))
		rules := randomPolicy(t, r).plain
		rules = rules[:min(len(rules), 12)]
		for i := range rules {
			if rules[i].Exempt {
				continue
			}
			rules[i].Match = rules[i].Match[:min(len(rules[i].Match), 2)]
			if r.IntN(4) == 0 && len(rules[i].Peek) == 0 {
				rules[i].Deny, rules[i].Limit, rules[i].Match = true, spillgate.Limit{}, rules[i].Match[:min(len(rules[i].Match), 1)]
			}
		}
		p, err := Compile(rules)
		if err != nil {
			continue // an exemption from a group that is gone
		}
		dead := map[string]string{}
		for _, w := range p.Warnings() {
			if w.Code == "unreachable" && w.Entry == 0 { // not of a lane alone
				dead[w.Name] = w.Text
			}
		}
		warnings += len(dead)
		for range 20 {
			attrs := randomVisit(r)
			for _, x := range p.Explain(attrs, At(start)).Rules {
				if why := dead[x.Rule.Name]; why != "" && (x.Exempts || x.Outcome != nil && !x.Outcome.Peeked) {
					t.Fatalf("%q is charged to %+v, of which it is said: %s", attrs, x.Rule, why)
				}
			}
		}
	}
	if warnings < 20 {
		t.Errorf("only %d rules are unreachable", warnings)
	}
}

func TestUnusedFields(t *testing.T) {
	for name, change := range map[string]func(*Rule){
		"unit":     func(r *Rule) { r.Deny, r.Limit, r.Unit = true, spillgate.Limit{}, "tokens" },
		"cost":     func(r *Rule) { r.Deny, r.Limit, r.Cost = true, spillgate.Limit{}, 2 },
		"failures": func(r *Rule) { r.Deny, r.Limit, r.Failures = true, spillgate.Limit{}, []string{"401"} },
		"tell":     func(r *Rule) { r.Deny, r.Limit, r.Tell = true, spillgate.Limit{}, true },
		"on_fault": func(r *Rule) { r.Limit, r.OnFault = testRule(t, "r", "unlimited").Limit, Open },
		"ttl":      func(r *Rule) { r.Limit, r.TTL = testRule(t, "r", "unlimited").Limit, time.Hour },
		"backup": func(r *Rule) {
			r.Deny, r.Limit, r.Backup = true, spillgate.Limit{}, &Backup{Upstream: "http://b.example"}
		},
		"backup of unlimited": func(r *Rule) {
			r.Limit, r.Backup = testRule(t, "r", "unlimited").Limit, &Backup{Upstream: "http://b.example"}
		},
		"cost of unlimited":      func(r *Rule) { r.Limit, r.Cost = testRule(t, "r", "unlimited").Limit, 2 },
		"cost list of unlimited": func(r *Rule) { r.Limit, r.Prices = testRule(t, "r", "unlimited").Limit, []Price{{Units: 2}} },
		"failures of slots":      func(r *Rule) { r.Limit, r.Failures = testRule(t, "r", "5 at once").Limit, []string{"401"} },
		"unit of slots":          func(r *Rule) { r.Limit, r.Unit = testRule(t, "r", "5 at once").Limit, Bytes },
		"max_keys":               func(r *Rule) { r.MaxKeys = 5 },
		"at_cap":                 func(r *Rule) { r.AtCap = spillgate.MakeRoom },
		"missing":                func(r *Rule) { r.Missing = Skip },
		"enforce":                func(r *Rule) { r.Spare = 50 },
	} {
		r := testRule(t, "r", "1/s")
		change(&r)
		_, err := Compile([]Rule{r})
		if name, _, _ = strings.Cut(name, " "); err == nil || !strings.Contains(err.Error(), `policy: rule "r": `+name+": ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, fine := range []Rule{
		{Name: "r", Deny: true, Spare: 100}, {Name: "r", Limit: testRule(t, "r", "1/s").Limit, TTL: time.Hour, Spare: 100},
		{Name: "r", Limit: testRule(t, "r", "unlimited").Limit, Tell: true, Unit: "bytes"},
	} {
		if _, err := Compile([]Rule{fine}); err != nil {
			t.Errorf("%+v: %v", fine, err)
		}
	}
}

// TestCompanionLeavesNobodyOut refuses a companion that excludes some of those
// who are to be limited.
func TestCompanionLeavesNobodyOut(t *testing.T) {
	ip := func(values ...string) Match { return Match{{Attribute{Kind: ClientIP}, values}} }
	token, address := testRule(t, "token", "1/s", "header.x-id"), testRule(t, "address", "1/s", "client.ip")
	for _, c := range []struct {
		token, address Match
		fine           bool
	}{
		{ip("10.0.0.0/8"), ip("10.0.0.0/8"), true},
		{ip("10.0.0.0/8"), ip("10.0.0.0/8", "!10.0.0.1"), false},
		{ip("10.0.0.0/8", "!10.0.0.1"), ip("10.0.0.0/8", "!10.0.0.1"), true},
		{ip("10.0.0.0/8", "!10.0.0.1"), ip("10.0.0.0/8"), true},
		{ip("!10.0.0.1"), ip("!10.0.0.1"), true},
		{ip("!10.0.0.1"), ip("!10.0.0.2"), false},
		{nil, ip("!10.0.0.2"), false},
	} {
		token.Match, address.Match = c.token, c.address
		if _, err := Compile([]Rule{token, address}); (err == nil) != c.fine {
			t.Errorf("%v with a companion for %v: %v", c.token, c.address, err)
		}
	}
}
