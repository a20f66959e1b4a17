package policy

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate"
)

func limitOf(t testing.TB, text string) spillgate.Limit {
	t.Helper()
	l, err := spillgate.ParseLimit(text)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func listOf(t testing.TB, networks ...string) (out []Entry) {
	t.Helper()
	for i, p := range prefixes(t, networks...) {
		out = append(out, Entry{Network: p, Line: i + 1})
	}
	return out
}

// overridden makes an engine of rules and overrides.
func overridden(t testing.TB, overrides []Override, rules ...Rule) *Engine {
	t.Helper()
	p, err := Compile(rules)
	if err != nil {
		t.Fatal(err)
	}
	if p, err = p.WithOverrides(overrides); err != nil {
		t.Fatal(err)
	}
	m := spillgate.NewMemory()
	t.Cleanup(func() { m.Close() })
	return NewEngine(p, m)
}

func TestOverridesInOrderOfPrecedence(t *testing.T) {
	own := testRule(t, "own", "1/h burst 1", "client.ip")
	vip := on(t, "client.ip", "192.0.2.1")
	block := Override{Deny: true, Rules: []string{"own"}, Match: vip, Reason: "block"}
	exempt := Override{Exempt: true, Rules: []string{"own"}, Match: vip, Reason: "exempt"}
	more := Override{Limit: limitOf(t, "5/h burst 5"), Rules: []string{"own"}, Match: vip, Reason: "more"}
	most := Override{Limit: limitOf(t, "7/h burst 7"), Rules: []string{"own"}, Match: vip, Reason: "most"}
	for _, tt := range []struct {
		name      string
		overrides []Override
		passes    int
	}{
		{"none", nil, 1},
		{"a block", []Override{block}, 0},
		{"exempt", []Override{exempt}, 20},
		{"another limit", []Override{more}, 5},
		{"the first of two limits", []Override{most, more}, 7},
		{"exempt before a limit", []Override{more, exempt}, 20},
		{"a block before all", []Override{more, exempt, block}, 0},
	} {
		e := overridden(t, tt.overrides, own)
		passes := 0
		var last Verdict
		for range 20 {
			if last = decide(e, 0, Attrs{"client.ip": "192.0.2.1"}); last.Allowed {
				passes++
			}
		}
		if passes != tt.passes {
			t.Errorf("%s: %d of 20 pass, want %d", tt.name, passes, tt.passes)
		}
		switch {
		case tt.passes == 20:
			if last.Len() != 0 || last.Exemption() == nil || last.Exemption().Reason != "exempt" {
				t.Errorf("%s: %d outcomes, exempt by %+v", tt.name, last.Len(), last.Exemption())
			}
		case len(tt.overrides) > 0:
			if o := last.Of("own"); o.Override == nil || o.Override.Reason == "exempt" || o.Line() != 0 {
				t.Errorf("%s: told of %+v", tt.name, o.Override)
			}
		}
		if v := decide(e, 0, Attrs{"client.ip": "192.0.2.2"}); !v.Allowed || v.Outcome(0).Override != nil || v.Exemption() != nil {
			t.Errorf("%s: of another address: %+v", tt.name, v.Outcome(0))
		}
	}
}

// An override has its effect up to the instant at which it ends, and none from
// then on.
func TestOverrideEndsAtItsInstant(t *testing.T) {
	own := testRule(t, "own", "1/h burst 1", "client.ip")
	other := testRule(t, "other", "100/h burst 100", "client.ip")
	end := start.Add(time.Minute)
	who := Attrs{"client.ip": "192.0.2.1"}
	match := on(t, "client.ip", "192.0.2.0/24")
	for name, tt := range map[string]struct {
		o            Override
		during, then bool
	}{
		"block":          {Override{Deny: true, Rules: []string{"own"}, Match: match, Until: end}, false, true},
		"block all":      {Override{Deny: true, Match: match, Until: end}, false, true},
		"block by list":  {Override{Deny: true, List: "x", Entries: listOf(t, "192.0.2.1"), Until: end}, false, true},
		"block by entry": {Override{Deny: true, List: "x", Entries: []Entry{{Network: prefixes(t, "192.0.2.1")[0], Until: end}}}, false, true},
		"exempt":         {Override{Exempt: true, Match: match, Until: end}, true, true},
	} {
		e := overridden(t, []Override{tt.o}, own, other)
		for range 3 {
			if v := decide(e, time.Minute-1, who); v.Allowed != tt.during {
				t.Errorf("%s: a nanosecond before the end: allowed %t", name, v.Allowed)
			} else if !v.Allowed {
				if d := v.Refusing().Decision; v.RetryAfter() != 1 || d.Reason != spillgate.Blocked || !errors.Is(v.Err(), spillgate.ErrBlocked) {
					t.Errorf("%s: a nanosecond before the end: %+v", name, d)
				}
			}
		}
		v := decide(e, time.Minute, who)
		if v.Allowed != tt.then || v.Len() != 2 || v.Of("own").Override != nil || v.Exemption() != nil {
			t.Errorf("%s: at the end: %+v", name, v)
		}
		if got := v.Of("other").Decision.Remaining; got != 99 {
			t.Errorf("%s: %d left of what blocked and exempt requests don't use", name, got)
		}
	}
}

func TestBlockForEver(t *testing.T) {
	e := overridden(t, []Override{{Deny: true, Match: on(t, "client.ip", "192.0.2.1"), Reason: "abuse", Owner: "ops", Source: "f:9"}}, testRule(t, "own", "1/h", "client.ip"))
	v := decide(e, 0, Attrs{"client.ip": "192.0.2.1"})
	o := v.Refusing()
	if v.Allowed || v.RetryAfter() != spillgate.Never || o.Rule.Name != everyRule || o.Decision.Reason != spillgate.Blocked || v.Len() != 1 {
		t.Errorf("%+v", o)
	}
	if o.Override.Reason != "abuse" || o.Override.Owner != "ops" || o.Override.Source != "f:9" || o.Limit() != (spillgate.Limit{}) {
		t.Errorf("told of %+v", o.Override)
	}
	if c := e.Limited(everyRule, 1); len(c) != 1 || c[0].Key != "client.ip=192.0.2.1" || c[0].Denied != 1 {
		t.Errorf("listed: %+v", c)
	}
}

// An override that blocks and names no rule blocks what no rule matches too.
func TestBlockOfEverything(t *testing.T) {
	post := testRule(t, "post", "1/h", "client.ip")
	post.Match = on(t, "method", "POST")
	for _, until := range []time.Time{{}, start.Add(time.Hour)} {
		e := overridden(t, []Override{
			{Deny: true, Match: on(t, "client.ip", "192.0.2.1"), Until: until},
			{Deny: true, Match: on(t, "client.ip", "192.0.2.2"), Until: until, Rules: []string{"post"}},
		}, post)
		for _, tt := range []struct {
			ip, method string
			want       bool
		}{
			{"192.0.2.1", "GET", false}, {"192.0.2.1", "POST", false},
			{"192.0.2.2", "GET", true}, {"192.0.2.2", "POST", false},
			{"192.0.2.3", "GET", true}, {"192.0.2.3", "POST", true},
		} {
			if v := decide(e, 0, Attrs{"client.ip": tt.ip, "method": tt.method}); v.Allowed != tt.want {
				t.Errorf("until %v: %s from %s: allowed %t", until, tt.method, tt.ip, v.Allowed)
			}
		}
	}
}

// Waiting as told is enough: the wait is that of whatever refuses longest.
func TestBlockedByOverrideWaitHolds(t *testing.T) {
	slow := testRule(t, "slow", "1/h burst 1", "client.ip")
	who := Attrs{"client.ip": "192.0.2.1"}
	p, err := Compile([]Rule{slow})
	if err != nil {
		t.Fatal(err)
	}
	m := spillgate.NewMemory()
	defer m.Close()
	e := NewEngine(p, m)
	decide(e, 0, who)
	with, err := p.WithOverrides([]Override{
		{Deny: true, Match: on(t, "client.ip", "192.0.2.1"), Until: start.Add(10 * time.Minute)},
		{Deny: true, Match: on(t, "client.ip", "192.0.2.0/24"), Until: start.Add(20 * time.Minute), Rules: []string{"slow"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.SetOverrides(with.Overrides()); err != nil {
		t.Fatal(err)
	}
	if v := decide(e, time.Minute, who); v.RetryAfter() != 19*time.Minute {
		t.Errorf("the longer block: %s", v.RetryAfter())
	}
	// Of one rule a block says its end; the limit behind it is asked by none.
	if with, err = p.WithOverrides([]Override{{Deny: true, Match: on(t, "client.ip", "192.0.2.1"), Until: start.Add(10 * time.Minute)}}); err != nil {
		t.Fatal(err)
	}
	if err := e.SetOverrides(with.Overrides()); err != nil {
		t.Fatal(err)
	}
	v := decide(e, time.Minute, who)
	if v.Allowed || v.RetryAfter() != 59*time.Minute {
		t.Errorf("the limit's wait is longer than the block's: %s", v.RetryAfter())
	}
	if v := decide(e, time.Minute+v.RetryAfter(), who); !v.Allowed {
		t.Error("the wait was not enough")
	}
}

func TestWhoAnOverrideIsFor(t *testing.T) {
	rule := testRule(t, "own", "1/h burst 1", "client.ip")
	for _, tt := range []struct {
		name      string
		o         Override
		who       Attrs
		exempt    bool
		forWhomso Attrs
	}{
		{"a network", Override{Match: on(t, "client.ip", "10.0.0.0/8", "192.0.2.0/24")}, Attrs{"client.ip": "192.0.2.9"}, true, Attrs{"client.ip": "192.0.3.9"}},
		{"an address mapped into IPv6", Override{Match: on(t, "client.ip", "192.0.2.9")}, Attrs{"client.ip": "::ffff:192.0.2.9"}, true, Attrs{"client.ip": "::ffff:192.0.2.8"}},
		{"a network written as IPv6", Override{Match: on(t, "client.ip", "::ffff:192.0.2.0/120")}, Attrs{"client.ip": "192.0.2.9"}, true, nil},
		{"all of IPv4", Override{Match: on(t, "client.ip", "0.0.0.0/0")}, Attrs{"client.ip": "192.0.2.9"}, true, Attrs{"client.ip": "2001:db8::1"}},
		{"all of IPv6", Override{Match: on(t, "client.ip", "::/0")}, Attrs{"client.ip": "2001:db8::1"}, true, Attrs{"client.ip": "192.0.2.9"}},
		{"all but some", Override{Match: on(t, "client.ip", "!10.0.0.0/8")}, Attrs{"client.ip": "192.0.2.9"}, true, Attrs{"client.ip": "10.0.0.1"}},
		{"a user", Override{Match: on(t, "user", "acme", "bob")}, Attrs{"user": "bob"}, true, Attrs{"user": "bobby"}},
		{"a pattern", Override{Match: on(t, "user", "svc-*")}, Attrs{"user": "svc-a"}, true, Attrs{"user": "a"}},
		{"no address", Override{Match: on(t, "client.ip", "0.0.0.0/0")}, Attrs{}, false, nil},
		{"two conditions", Override{Match: append(on(t, "user", "bob"), on(t, "method", "GET")...)}, Attrs{"user": "bob", "method": "GET"}, true, Attrs{"user": "bob", "method": "POST"}},
		{"a path", Override{Match: on(t, "path", "/health")}, Attrs{"path": "/health"}, true, Attrs{"path": "/"}},
		{"a list and a match", Override{Match: on(t, "method", "GET"), List: "x", Entries: listOf(t, "192.0.2.0/24")}, Attrs{"client.ip": "192.0.2.9", "method": "GET"}, true, Attrs{"client.ip": "192.0.2.9", "method": "POST"}},
		{"an empty list", Override{List: "x"}, Attrs{"client.ip": "192.0.2.9"}, false, nil},
		{"a list of values", Override{List: "x", Key: mustPart(t, "header.x-email lower trim"), Entries: []Entry{{Value: " Bob@Example.org"}}}, Attrs{"header.x-email": "bob@EXAMPLE.org "}, true, Attrs{"header.x-email": "bobo@example.org"}},
		{"a list by name of the address", Override{List: "x", Key: mustPart(t, "client.ip"), Entries: listOf(t, "192.0.2.0/24")}, Attrs{"client.ip": "192.0.2.9"}, true, nil},
	} {
		tt.o.Exempt = true
		e := overridden(t, []Override{tt.o}, rule)
		v := decide(e, 0, tt.who)
		if got := v.Exemption() != nil; got != tt.exempt || got != (v.Len() == 0) {
			t.Errorf("%s: exempt %t, want %t", tt.name, got, tt.exempt)
		}
		if tt.forWhomso != nil {
			if v := decide(e, 0, tt.forWhomso); v.Exemption() != nil {
				t.Errorf("%s: for %v too", tt.name, tt.forWhomso)
			}
		}
	}
}

// A rule that exempts from a group speaks of the group, and is not of it: an
// override of the group is one of the rules with a limit.
func TestOverridesOfAGroupWithAnExemption(t *testing.T) {
	own := testRule(t, "own", "1/h burst 1", "client.ip")
	own.Group = "login"
	ours := Rule{Name: "ours", Group: "login", Exempt: true, Match: on(t, "client.ip", "198.51.100.0/24")}
	e := overridden(t, []Override{{Limit: limitOf(t, "3/h burst 3"), Groups: []string{"login"}, Match: on(t, "client.ip", "192.0.2.0/24")}}, ours, own)
	for who, passes := range map[string]int{"192.0.2.1": 3, "203.0.113.1": 1, "198.51.100.1": 10} {
		passed := 0
		for range 10 {
			if decide(e, 0, Attrs{"client.ip": who}).Allowed {
				passed++
			}
		}
		if passed != passes {
			t.Errorf("%s: %d of 10 pass, want %d", who, passed, passes)
		}
	}
	p, err := Compile([]Rule{own, ours})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.WithOverrides([]Override{{Deny: true, Rules: []string{"ours"}, Match: on(t, "client.ip", "192.0.2.1")}}); err == nil {
		t.Error("an exception from a rule that exempts is taken")
	}
}

func mustPart(t testing.TB, s string) Part {
	t.Helper()
	p, err := ParsePart(s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Which reading of an odd path the server takes is not known: who is exempt
// must be so by all, who is blocked by any.
func TestOverridesOfOddPaths(t *testing.T) {
	odd := string(AppendPath(nil, "/open%2F../admin"))
	for name, tt := range map[string]struct {
		o    Override
		want bool
	}{
		"exempt": {Override{Exempt: true, Match: on(t, "path", "/open/**")}, false},
		"block":  {Override{Deny: true, Match: on(t, "path", "/admin")}, true},
	} {
		e := overridden(t, []Override{tt.o}, testRule(t, "own", "10/h", "client.ip"))
		v := decide(e, 0, Attrs{"path": odd, "client.ip": "192.0.2.1"})
		if got := v.Exemption() != nil || !v.Allowed; got != tt.want {
			t.Errorf("%s: %t, want %t, for %q", name, got, tt.want, odd)
		}
	}
}

// What a list says of an entry is told with its line; the end that is last
// counts, wherever it stands.
func TestEntriesSayMore(t *testing.T) {
	net := prefixes(t, "192.0.2.0/24", "192.0.2.1", "192.0.0.0/16")
	e := overridden(t, []Override{{Deny: true, List: "deny.txt", Reason: "listed", Owner: "ops", Until: start.Add(3 * time.Hour), Entries: []Entry{
		{Network: net[0], Line: 2, Reason: "scans", Until: start.Add(time.Hour)},
		{Network: net[1], Line: 5, Until: start.Add(2 * time.Hour)},
		{Network: net[2], Line: 7, Until: start.Add(time.Minute)},
		{Network: net[0], Line: 9, Until: start.Add(time.Minute)},
	}}}, testRule(t, "own", "1/h", "client.ip"))
	for _, tt := range []struct {
		ip     string
		line   int
		reason string
		wait   time.Duration
	}{
		{"192.0.2.9", 2, "scans", time.Hour},
		{"192.0.2.1", 5, "listed", 2 * time.Hour},
		{"192.0.9.9", 7, "listed", time.Minute},
	} {
		v := decide(e, 0, Attrs{"client.ip": tt.ip})
		o := v.Refusing()
		if o == nil || o.Line() != tt.line || o.Override.Reason != tt.reason || o.Override.Owner != "ops" || v.RetryAfter() != tt.wait {
			t.Errorf("%s: %+v, wait %s", tt.ip, o, v.RetryAfter())
		}
	}
}

// Peeks are never refused, and exempt rules are not told of.
func TestOverridesOfPeeks(t *testing.T) {
	r := testRule(t, "own", "10/h burst 10", "client.ip")
	r.Peek = on(t, "method", "GET")
	get := Attrs{"client.ip": "192.0.2.1", "method": "GET"}
	match := on(t, "client.ip", "192.0.2.1")
	if v := decide(overridden(t, []Override{{Deny: true, Rules: []string{"own"}, Match: match}}, r), 0, get); !v.Allowed || !v.Outcome(0).Peeked {
		t.Error("a peek is refused")
	}
	if v := decide(overridden(t, []Override{{Limit: limitOf(t, "50/h burst 50"), Rules: []string{"own"}, Match: match}}, r), 0, get); v.Outcome(0).Decision.Remaining != 50 {
		t.Errorf("a peek at another limit: %+v", v.Outcome(0))
	}
	if v := decide(overridden(t, []Override{{Exempt: true, Rules: []string{"own"}, Match: match}}, r), 0, get); v.Len() != 0 {
		t.Error("a peek of who is exempt")
	}
}

// A shadow rule refuses nobody, not by an override either, and a policy that
// is not enforced does not.
func TestOverridesOfShadowRules(t *testing.T) {
	r := testRule(t, "own", "10/h burst 10", "client.ip")
	who := Attrs{"client.ip": "192.0.2.1"}
	match := on(t, "client.ip", "192.0.2.1")
	for _, until := range []time.Time{{}, start.Add(time.Hour)} {
		r := r
		r.Spare = 100
		v := decide(overridden(t, []Override{{Deny: true, Rules: []string{"own"}, Match: match, Until: until}}, r), 0, who)
		if !v.Allowed || v.Len() != 1 || !v.Outcome(0).Trial || v.Outcome(0).Decision.Reason != spillgate.Blocked || v.Outcome(0).Override == nil {
			t.Errorf("until %v: %+v", until, v.Outcome(0))
		}
	}
	for _, rules := range [][]string{nil, {"own"}} {
		p, err := Compile([]Rule{r})
		if err != nil {
			t.Fatal(err)
		}
		if p, err = p.WithOverrides([]Override{{Deny: true, Rules: rules, Match: match}}); err != nil {
			t.Fatal(err)
		}
		m := spillgate.NewMemory()
		defer m.Close()
		e := NewEngine(p.Unenforced(), m)
		v := decide(e, 0, who)
		if !v.Allowed || v.Outcome(0).Decision.Reason != spillgate.Blocked || !v.Outcome(0).Trial {
			t.Errorf("not enforced: %+v", v.Outcome(0))
		}
		if err := e.SetOverrides(p.Overrides()); err != nil {
			t.Error(err)
		}
	}
}

// Blocks hold while the store can't answer, and so do other limits.
func TestOverridesWhileTheStoreFails(t *testing.T) {
	for _, fault := range []OnFault{Local, Open, Shut} {
		r := testRule(t, "own", "10/h burst 10", "client.ip")
		r.OnFault = fault
		p, err := Compile([]Rule{r})
		if err != nil {
			t.Fatal(err)
		}
		if p, err = p.WithOverrides([]Override{
			{Deny: true, Rules: []string{"own"}, Match: on(t, "client.ip", "192.0.2.1"), Until: start.Add(time.Hour)},
			{Deny: true, Match: on(t, "client.ip", "192.0.2.2"), Until: start.Add(time.Hour)},
			{Deny: true, Match: on(t, "client.ip", "192.0.2.3")},
			{Limit: limitOf(t, "4/h burst 4"), Rules: []string{"own"}, Match: on(t, "client.ip", "192.0.2.4")},
		}); err != nil {
			t.Fatal(err)
		}
		e := NewEngine(p, brokenStore{spillgate.ErrUnavailable}, Nodes(2))
		for i := range 3 {
			v := decide(e, 0, Attrs{"client.ip": fmt.Sprintf("192.0.2.%d", i+1)})
			if v.Allowed || !errors.Is(v.Err(), spillgate.ErrBlocked) {
				t.Errorf("%d: block %d: allowed %t, %v", fault, i+1, v.Allowed, v.Err())
			}
		}
		passes := 0
		for range 20 {
			if v := decide(e, 0, Attrs{"client.ip": "192.0.2.4"}); v.Allowed {
				passes++
			}
		}
		if want := map[OnFault]int{Local: 2, Open: 20, Shut: 0}[fault]; passes != want {
			t.Errorf("%d: another limit: %d of 20 pass, want %d", fault, passes, want)
		}
	}
}

// Penalties and overrides: who is exempt is not counted nor blocked, and who
// is blocked by hand is not counted.
func TestOverridesAndPenalties(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := overridden(t, nil, guarded(t))
		const ip = "192.0.2.1"
		ask(e, ip)
		refuse(t, e, ip, 3)
		p, err := e.Policy().WithOverrides([]Override{{Exempt: true, Match: on(t, "client.ip", ip)}})
		if err != nil {
			t.Fatal(err)
		}
		if err := e.SetOverrides(p.Overrides()); err != nil {
			t.Fatal(err)
		}
		if v := ask(e, ip); !v.Allowed {
			t.Error("exempt and blocked")
		}
		if p, err = p.WithOverrides([]Override{{Deny: true, Rules: []string{"login"}, Match: on(t, "client.ip", "192.0.2.2"), Until: time.Now().Add(time.Minute)}}); err != nil {
			t.Fatal(err)
		}
		if err := e.SetOverrides(p.Overrides()); err != nil {
			t.Fatal(err)
		}
		if v := refuse(t, e, "192.0.2.2", 20); v.RetryAfter() != time.Minute {
			t.Errorf("blocked by hand: %s", v.RetryAfter())
		}
		if v := refuse(t, e, ip, 1); v.RetryAfter() != time.Hour {
			t.Errorf("no longer exempt: %s", v.RetryAfter())
		}
	})
}

// Each request sees one table or the other, and none sees half of one.
func TestOverridesAreSwappedAtOnce(t *testing.T) {
	e := overridden(t, nil, testRule(t, "a", "1000000/s burst 1000000"), testRule(t, "b", "1000000/s burst 1000000"))
	var tables [2]*Overrides
	for i := range tables {
		p, err := e.Policy().WithOverrides([]Override{{Limit: limitOf(t, fmt.Sprintf("1000000/s burst %d000", i+5)), Rules: []string{"a", "b"}, Match: on(t, "client.ip", "192.0.2.0/24")}})
		if err != nil {
			t.Fatal(err)
		}
		tables[i] = p.Overrides()
	}
	if err := e.SetOverrides(tables[0]); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				v := e.Decide(context.Background(), Attrs{"client.ip": "192.0.2.9"})
				if a, b := v.Of("a"), v.Of("b"); a.Override == nil || a.Override != b.Override || a.Decision.Limit != b.Decision.Limit {
					t.Errorf("%+v and %+v", a, b)
					return
				}
			}
		})
	}
	for i := range 500 {
		if err := e.SetOverrides(tables[i%2]); err != nil {
			t.Error(err)
		}
	}
	close(done)
	wg.Wait()
	other := overridden(t, []Override{{Deny: true, Match: on(t, "user", "x")}}, testRule(t, "a", "1/s"))
	if err := e.SetOverrides(other.Policy().Overrides()); !errors.Is(err, ErrRule) {
		t.Errorf("of another policy: %v", err)
	}
}

// A request that may be served as one of several methods, or paths, is blocked
// if one of them is, and is exempt only if all of them are.
func TestOverridesAskEachReading(t *testing.T) {
	for _, tt := range []struct {
		attr   string
		values []string
		sent   string
		block  bool
		exempt bool
	}{
		{"method", []string{"DELETE"}, "DELETE", true, true},
		{"method", []string{"DELETE"}, "DELETE\x00GET", true, false},
		{"method", []string{"DELETE"}, "GET\x00DELETE", true, false},
		{"method", []string{"GET", "DELETE"}, "GET\x00DELETE", true, true},
		{"method", []string{"DELETE"}, "GET\x00POST", false, false},
		{"path", []string{"/b"}, "/a\x00/b", true, false},
		{"path", []string{"/a", "/b"}, "/a\x00/b", true, true},
	} {
		own := testRule(t, "own", "1/h burst 1", "client.ip")
		attrs := Attrs{"client.ip": "192.0.2.1", tt.attr: tt.sent}
		match := on(t, tt.attr, tt.values...)
		e := overridden(t, []Override{{Deny: true, Match: match}}, own)
		if v := decide(e, 0, attrs); v.Allowed == tt.block {
			t.Errorf("%s %q, those of %q are blocked: allowed %t", tt.attr, tt.sent, tt.values, v.Allowed)
		}
		e = overridden(t, []Override{{Exempt: true, Match: match}}, own)
		if v := decide(e, 0, attrs); (v.Exemption() != nil) != tt.exempt {
			t.Errorf("%s %q, those of %q are exempt: %v", tt.attr, tt.sent, tt.values, v.Exemption())
		}
	}
}
