//go:build !race

// What is as large as it may be is compiled by one goroutine: the race detector
// has nothing to look at there, and would make it ten times as dear.

package policy

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// Thousands of rules are compared with each other in about a second, and what
// takes too long is told.
func TestLargePolicies(t *testing.T) {
	began := time.Now()
	var rules []Rule
	for i := range MaxRules / 2 {
		r := testRule(t, fmt.Sprintf("r%d", i), "10/s", "client.ip")
		r.Match = Match{{Attribute{Kind: Path}, []string{fmt.Sprintf("/v%d/things", i)}}, {Attribute{Kind: Method}, []string{"GET", "POST"}}}
		claimed := testRule(t, fmt.Sprintf("c%d", i), "10/s", "header.x-id", "path")
		claimed.Match = r.Match
		rules = append(rules, claimed, r)
	}
	p, err := Compile(rules)
	if err != nil {
		t.Fatal(err)
	}
	if w := p.Warnings(); len(w) > 0 {
		t.Errorf("%d warnings, such as %+v", len(w), w[0])
	}
	t.Logf("%s", time.Since(began))
	for i := range rules { // without a literal none is found by the index
		rules[i].Match = Match{{Attribute{Kind: ClientIP}, []string{fmt.Sprintf("10.%d.%d.0/24", i/200, i%200)}}}
		rules[i].Key = rules[1].Key
		if i%2 == 0 {
			rules[i] = Rule{Name: rules[i].Name, Deny: true, Match: rules[i].Match}
		}
	}
	if p, err = Compile(rules); err != nil {
		t.Fatal(err)
	}
	if w := p.Warnings(); len(w) != 1 || w[0].Code != "unlooked" || w[0].Index == 0 {
		t.Errorf("%+v", w)
	}
}

func TestLargeOverridesAreBounded(t *testing.T) {
	p, err := Compile([]Rule{testRule(t, "own", "10/s", "client.ip")})
	if err != nil {
		t.Fatal(err)
	}
	one := Override{Deny: true, Match: on(t, "user", "a*")}
	for name, tt := range map[string]struct {
		n    int
		o    Override
		want string
	}{
		"too many":      {MaxOverrides + 1, Override{Deny: true, Match: on(t, "user", "a")}, "10001 overrides"},
		"too many odd":  {MaxSearched + 1, one, "one by one"},
		"as many odd":   {MaxSearched, one, ""},
		"as many plain": {MaxOverrides, Override{Deny: true, Match: on(t, "user", "a")}, ""},
		"large lists":   {2, Override{Deny: true, List: "x", Entries: make([]Entry, 0)}, ""},
	} {
		list := make([]Override, tt.n)
		for i := range list {
			list[i] = tt.o
		}
		_, err := p.WithOverrides(list)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	entries := make([]Entry, MaxEntries+1)
	for i := range entries {
		entries[i].Network = netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(i >> 24), byte(i >> 16), byte(i >> 8), byte(i)}), 32)
	}
	if _, err := p.WithOverrides([]Override{{Deny: true, List: "x", Entries: entries}}); err == nil || !strings.Contains(err.Error(), "at most 1000000") {
		t.Errorf("a list that is too long: %v", err)
	}
	if q, err := p.WithOverrides([]Override{{Deny: true, List: "x", Entries: entries[1:]}}); err != nil || q.Overrides().Len() != MaxEntries {
		t.Errorf("the longest list: %v", err)
	}
}
