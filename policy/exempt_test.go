package policy

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/spillgate/spillgate"
)

func on(t testing.TB, attr string, values ...string) Match {
	t.Helper()
	a, err := ParseAttribute(attr)
	if err != nil {
		t.Fatal(err)
	}
	return Match{{a, values}}
}

// applied returns the names of the rules that said something, and by which
// rule the request was exempt.
func applied(v *Verdict) string {
	var names []string
	for i := range v.Len() {
		names = append(names, v.Outcome(i).Rule.Name)
	}
	if x := v.Exempt(); x != nil {
		names = append(names, "exempt by "+x.Name)
	}
	return strings.Join(names, ", ")
}

func TestExempt(t *testing.T) {
	all := testRule(t, "all", "1/h")
	login := testRule(t, "login", "1/h", "client.ip")
	login.Group, login.Match = "login", on(t, "path", "/login")
	shut := Rule{Name: "shut", Deny: true, Match: on(t, "path", "/admin/**")}
	shutLogin := Rule{Name: "shut-login", Deny: true, Group: "login", Match: on(t, "client.ip", "192.0.2.66")}
	office := Rule{Name: "office", Exempt: true, Match: on(t, "client.ip", "10.0.0.0/8")}
	tests := Rule{Name: "tests", Exempt: true, Group: "login", Match: on(t, "client.ip", "192.0.2.0/24")}
	health := Rule{Name: "health", Exempt: true, Match: on(t, "path", "/health/**", "/ping")}
	e := testEngine(t, all, login, shut, shutLogin, office, tests, health)
	for _, tt := range []struct{ ip, path, want string }{
		{"203.0.113.1", "/login", "all, login"},
		{"10.1.2.3", "/login", "exempt by office"},
		{"192.0.2.7", "/login", "all, exempt by tests"},
		{"192.0.2.66", "/login", "all, exempt by tests"},
		{"192.0.2.66", "/", "all, exempt by tests"},
		{"10.1.2.3", "/admin/x", "shut, exempt by office"},
		{"203.0.113.1", "/health/live", "exempt by health"},
		{"203.0.113.1", "/health/..;/login", "all, login"}, // another server reads /login
		{"203.0.113.1", "/health/x;y", "exempt by health"},
	} {
		for range 2 { // an exempt request is never refused by a limit
			v := e.Decide(context.Background(), Attrs{"client.ip": tt.ip, "path": string(AppendPath(nil, tt.path))}, At(start))
			if got := applied(&v); got != tt.want {
				t.Errorf("%s %s: %q, want %q", tt.ip, tt.path, got, tt.want)
			}
			if strings.HasPrefix(tt.want, "exempt") && !v.Allowed {
				t.Errorf("%s %s: refused", tt.ip, tt.path)
			}
		}
	}
	if v := e.Decide(context.Background(), Attrs{"client.ip": "10.1.2.3", "path": "/admin"}, At(start)); v.Allowed || v.at != start {
		t.Errorf("an exempt address opens what is shut: %+v", v)
	}
	var none *Verdict
	if none.Exempt() != nil {
		t.Error("no verdict is exempt")
	}
}

// An exempt request leaves nothing behind: the limit is as if it never came.
func TestExemptRequestsChargeNothing(t *testing.T) {
	e := testEngine(t, testRule(t, "all", "2/h"), Rule{Name: "office", Exempt: true, Match: on(t, "client.ip", "10.0.0.0/8")})
	for range 10 {
		v := decide(e, 0, Attrs{"client.ip": "10.0.0.1"})
		if err := v.Spent(Requests, 5); err != nil || !v.Allowed {
			t.Fatal(err, v)
		}
		v.Done()
	}
	if v := decide(e, 0, Attrs{"client.ip": "192.0.2.1"}); v.Of("all").Decision.Remaining != 1 {
		t.Errorf("%+v", v.Of("all"))
	}
}

func TestDisabled(t *testing.T) {
	off := testRule(t, "off", "1/h")
	off.Disabled = true
	e := testEngine(t, off, testRule(t, "on", "5/h"), Rule{Name: "x", Disabled: true, Exempt: true, Match: on(t, "client.ip", "192.0.2.1")})
	for range 2 {
		v := decide(e, 0, Attrs{"client.ip": "192.0.2.1"})
		if got := applied(&v); got != "on" || !v.Allowed {
			t.Fatalf("%q, allowed %v", got, v.Allowed)
		}
	}
	// It is checked all the same.
	off.Limit.Rate = -1
	if _, err := Compile([]Rule{off}); !errors.Is(err, ErrRule) {
		t.Errorf("a rule that is off is not checked: %v", err)
	}
	// A rule that is off is nobody's companion, and needs none.
	token, address := testRule(t, "token", "1/s", "header.x-token"), testRule(t, "address", "1/s", "client.ip")
	address.Disabled = true
	if _, err := Compile([]Rule{token, address}); err == nil {
		t.Error("a rule that is off served as a companion")
	}
	token.Disabled = true
	if _, err := Compile([]Rule{token, address}); err != nil {
		t.Error(err)
	}
}

func TestUnenforced(t *testing.T) {
	limited := testRule(t, "limited", "1/h", "client.ip")
	shut := Rule{Name: "shut", Deny: true, Match: on(t, "path", "/admin")}
	named := testRule(t, "named", "9/h", "user")
	named.Missing, named.Match = Refuse, on(t, "path", "/named")
	closed := testRule(t, "closed", "9/h")
	closed.OnFault, closed.Match = Shut, on(t, "path", "/closed")
	p, err := Compile([]Rule{limited, shut, named, closed})
	if err != nil {
		t.Fatal(err)
	}
	off := p.Unenforced()
	if !p.Enforced() || off.Enforced() {
		t.Fatalf("enforced: %v and %v", p.Enforced(), off.Enforced())
	}
	m := spillgate.NewMemory()
	defer m.Close()
	e := NewEngine(off, m)
	for path, rule := range map[string]string{"/": "limited", "/admin": "shut", "/named": "named"} {
		for range 3 {
			v := decide(e, 0, Attrs{"client.ip": "192.0.2.1", "path": path})
			if o := v.Of(rule); !v.Allowed || v.Err() != nil || v.Refusing() != nil || o == nil || !o.Trial {
				t.Errorf("%s: %+v", path, v)
			}
		}
		if c := e.Limited(rule, 1); len(c) != 1 || c[0].Denied == 0 || !c[0].Trial {
			t.Errorf("%s is not reported: %+v", rule, c)
		}
	}
	down := NewEngine(off, brokenStore{spillgate.ErrUnavailable})
	if v := decide(down, 0, Attrs{"client.ip": "192.0.2.1", "path": "/closed"}); !v.Allowed || v.Fault == nil {
		t.Errorf("a store that fails: %+v", v)
	}
}

func TestExemptErrors(t *testing.T) {
	ok := testRule(t, "all", "1/s")
	ok.Group = "known"
	for name, tt := range map[string]struct {
		rule Rule
		want string
	}{
		"everybody":     {Rule{}, "match: missing: every request would be exempt"},
		"claimed":       {Rule{Match: on(t, "header.x-plan", "paid")}, "match: whoever says the right header.x-plan would be exempt"},
		"asked for too": {Rule{Match: append(on(t, "query.admin", "1"), on(t, "path", "/x")...)}, "match: whoever says the right query.admin"},
		"not proven":    {Rule{Match: append(on(t, "cookie.a", "1"), on(t, "client.ip", "!10.0.0.0/8")...)}, "match: whoever says the right cookie.a"},
		"a claim less":  {Rule{Match: on(t, "header.via", "!*")}, "match: whoever says the right header.via"},
		"proven too":    {Rule{Match: append(on(t, "header.x-plan", "paid"), on(t, "client.ip", "10.0.0.0/8")...)}, ""},
		"of a client":   {Rule{Match: append(on(t, "header.x-batch", "1"), on(t, "tls.client", "spiffe://example.org/batch")...)}, ""},
		"of a user":     {Rule{Match: on(t, "user", "root")}, ""},
		"of a path":     {Rule{Match: on(t, "path", "/health")}, ""},
		"no such group": {Rule{Match: on(t, "user", "root"), Group: "unknown"}, `group: no rule is of the group "unknown"`},
		"a group":       {Rule{Match: on(t, "user", "root"), Group: "known"}, ""},
		"a bad group":   {Rule{Match: on(t, "user", "root"), Group: "Ünknown"}, "group: "},
		"deny":          {Rule{Match: on(t, "user", "root"), Deny: true}, "deny: a rule that exempts charges nothing"},
		"a limit":       {Rule{Match: on(t, "user", "root"), Limit: ok.Limit}, "limit: a rule that exempts charges nothing"},
		"a key":         {Rule{Match: on(t, "user", "root"), Key: []Part{{Attributes: []Attribute{{Kind: User}}}}}, "key: a rule that exempts charges nothing"},
		"a cost":        {Rule{Match: on(t, "user", "root"), Cost: 4}, "cost: a rule that exempts charges nothing"},
		"enforce":       {Rule{Match: on(t, "user", "root"), Spare: 100}, "enforce: a rule that exempts charges nothing"},
	} {
		tt.rule.Name, tt.rule.Exempt = "x", true
		_, err := Compile([]Rule{ok, tt.rule})
		switch {
		case tt.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case tt.want != "" && (err == nil || !strings.Contains(err.Error(), `rule "x": `+tt.want)):
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}
