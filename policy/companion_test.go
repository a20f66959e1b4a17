package policy

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
)

// A rule is no companion where an exemption switches it off for some of those
// whom it is to limit.
func TestExemptionsFromCompanions(t *testing.T) {
	at := func(kind Kind, values ...string) Match { return Match{{Attribute{Kind: kind}, values}} }
	token, address := testRule(t, "token", "1/s", "header.x-id"), testRule(t, "address", "1/s", "client.ip")
	token.Match = at(Path, "/api/**")
	for name, c := range map[string]struct {
		token, address, exempt string // groups
		match                  Match
		fine                   bool
	}{
		"nobody is exempt":     {"", "g", "h", at(ClientIP, "10.0.0.0/8"), true},
		"from all":             {"", "g", "", at(ClientIP, "10.0.0.0/8"), true},
		"from the companion":   {"", "g", "g", at(ClientIP, "10.0.0.0/8"), false},
		"from another group's": {"h", "g", "g", at(ClientIP, "10.0.0.0/8"), false},
		"from both":            {"g", "g", "g", at(ClientIP, "10.0.0.0/8"), true},
		"elsewhere":            {"", "g", "g", at(Path, "/health", "/pages/**"), true},
		"below it":             {"", "g", "g", at(Path, "/health", "/api/v1"), false},
		"above it":             {"", "g", "g", at(Path, "/**"), false},
		"by a pattern":         {"", "g", "g", at(Path, "/*/v1"), false},
	} {
		token.Group, address.Group = c.token, c.address
		rules := []Rule{token, address, {Name: "spared", Exempt: true, Group: c.exempt, Match: c.match}}
		if c.exempt == "h" {
			other := testRule(t, "other", "1/s", "client.ip")
			other.Group = "h"
			other.Match = at(Path, "/other")
			rules = append(rules, other)
		}
		if _, err := Compile(rules); (err == nil) != c.fine || err != nil && !strings.Contains(err.Error(), "address is none, since spared exempts some requests from it (group g)") {
			t.Errorf("%s: %v", name, err)
		}
		second := testRule(t, "second", "9/s", "client.ip")
		if _, err := Compile(append(rules, second)); err != nil {
			t.Errorf("%s, with another companion: %v", name, err)
		}
	}
}

// An override that exempts from the last companion, and not from the rule that
// needs it, is refused.
func TestOverridesExemptFromCompanions(t *testing.T) {
	ip := func(values ...string) Match { return Match{{Attribute{Kind: ClientIP}, values}} }
	token, address := testRule(t, "token", "1/s", "header.x-id"), testRule(t, "address", "1/s", "client.ip")
	token.Match = Match{{Attribute{Kind: Host}, []string{"api.example"}}, ip("192.0.2.0/24")[0]}
	second := testRule(t, "second", "9/s", "client.ip")
	ten := limitOf(t, "10/s")
	for name, c := range map[string]struct {
		rules []Rule
		over  []Override
		fine  bool
	}{
		"from the companion":    {nil, []Override{{Rules: []string{"address"}, Match: ip("192.0.2.7"), Exempt: true}}, false},
		"by a list":             {nil, []Override{{Rules: []string{"address"}, List: "l", Entries: []Entry{{Network: netip.MustParsePrefix("10.0.0.0/8")}}, Exempt: true}}, false},
		"from both":             {nil, []Override{{Rules: []string{"address", "token"}, Match: ip("192.0.2.7"), Exempt: true}}, true},
		"from all":              {nil, []Override{{Match: ip("192.0.2.7"), Exempt: true}}, true},
		"with another limit":    {nil, []Override{{Rules: []string{"address"}, Match: ip("192.0.2.7"), Limit: ten}}, true},
		"of others":             {nil, []Override{{Rules: []string{"address"}, Match: ip("10.0.0.0/8"), Exempt: true}}, true},
		"at another host":       {nil, []Override{{Rules: []string{"address"}, Match: Match{{Attribute{Kind: Host}, []string{"www.example"}}}, Exempt: true}}, true},
		"with a second":         {[]Rule{second}, []Override{{Rules: []string{"address"}, Match: ip("192.0.2.7"), Exempt: true}}, true},
		"from both companions":  {[]Rule{second}, []Override{{Rules: []string{"address", "second"}, Match: ip("192.0.2.7"), Exempt: true}}, false},
		"one after the other":   {[]Rule{second}, []Override{{Rules: []string{"address"}, Match: ip("192.0.2.7"), Exempt: true}, {Rules: []string{"second"}, Match: ip("192.0.2.7"), Exempt: true}}, false},
		"blocked, and not free": {nil, []Override{{Rules: []string{"address"}, Match: ip("192.0.2.7"), Deny: true}}, true},
	} {
		p, err := Compile(append([]Rule{token, address}, c.rules...))
		if err != nil {
			t.Fatal(err)
		}
		_, err = p.WithOverrides(c.over)
		var wrong *OverrideError
		if (err == nil) != c.fine || err != nil && (!errors.As(err, &wrong) || wrong.Field != "rule" || wrong.Index != len(c.over)-1 || !strings.Contains(err.Error(), "not from token")) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A companion of tokens, or of failures, will do for what counts these alone.
func TestCompanionsOfTheSameKind(t *testing.T) {
	token, address := testRule(t, "token", "1/s", "header.x-id"), testRule(t, "address", "1/s", "client.ip")
	for name, change := range map[string]func(r *Rule){
		"tokens":   func(r *Rule) { r.Unit = Tokens },
		"failures": func(r *Rule) { r.Failures = []string{"401", "403"} },
	} {
		one, two := token, address
		change(&one)
		change(&two)
		if _, err := Compile([]Rule{one, two}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := Compile([]Rule{token, two}); err == nil {
			t.Errorf("a companion of %s alone, for all", name)
		}
	}
	token.Failures, address.Failures = []string{"401", "500"}, []string{"4xx"}
	if _, err := Compile([]Rule{token, address}); err == nil {
		t.Error("a companion that gives back a failure")
	}
	address.Failures = []string{"4xx", "500"}
	if _, err := Compile([]Rule{token, address}); err != nil {
		t.Error(err)
	}
}
