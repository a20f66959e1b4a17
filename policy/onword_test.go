package policy

import (
	"fmt"
	"slices"
	"testing"
)

// What a client chooses to say frees nobody without a warning.
func TestWordsThatFree(t *testing.T) {
	is := func(name string, values ...string) Condition {
		a, err := ParseAttribute(name)
		if err != nil {
			t.Fatal(err)
		}
		return Condition{a, values}
	}
	rule := func(name, key string, change func(r *Rule)) Rule {
		r := testRule(t, name, "10/s burst 10")
		if key != "" {
			r = testRule(t, name, "10/s burst 10", key)
		}
		if change != nil {
			change(&r)
		}
		return r
	}
	both := func(name, key, beside string, change func(r *Rule)) Rule {
		r := rule(name, key, change)
		r.Key = append(r.Key, rule(name, beside, nil).Key...)
		return r
	}
	match := func(cs ...Condition) func(*Rule) { return func(r *Rule) { r.Match = cs } }
	peek := func(cs ...Condition) func(*Rule) { return func(r *Rule) { r.Peek = cs } }
	costs := func(ps ...Price) func(*Rule) { return func(r *Rule) { r.Prices = ps } }
	backup := func(cs ...Condition) func(*Rule) {
		return func(r *Rule) { r.Backup = &Backup{"http://b.test", cs} }
	}
	exempt := func(cs ...Condition) Rule { return Rule{Name: "e", Exempt: true, Match: cs} }
	address := rule("address", "client.ip", nil)
	for name, c := range map[string]struct {
		rules []Rule
		want  []string
	}{
		"by address and host":         {[]Rule{both("r", "client.ip", "host", nil)}, []string{"r asked-key"}},
		"by host":                     {[]Rule{rule("r", "host", nil)}, []string{"r asked-key"}},
		"by host, else":               {[]Rule{rule("r", "user else host", nil)}, []string{"r asked-key"}},
		"by length":                   {[]Rule{both("r", "client.ip", "content-length", nil)}, []string{"r asked-key"}},
		"by method":                   {[]Rule{both("r", "client.ip", "method", nil)}, []string{"r asked-key"}},
		"by any method but one":       {[]Rule{both("r", "client.ip", "method", match(is("method", "!GET")))}, []string{"r asked-key"}},
		"by hosts of a pattern":       {[]Rule{both("r", "client.ip", "host", match(is("host", "*.a")))}, []string{"r asked-key"}},
		"by hosts that are named":     {[]Rule{both("r", "client.ip", "host", match(is("host", "a", "b")))}, nil},
		"by methods that are named":   {[]Rule{both("r", "client.ip", "method", match(is("method", "GET", "POST")))}, nil},
		"by host, beside the address": {[]Rule{address, both("r", "client.ip", "host", nil)}, nil},
		"by host, beside a total":     {[]Rule{rule("all", "", nil), both("r", "client.ip", "host", nil)}, []string{"r asked-key"}},
		"by host alone, with a total": {[]Rule{rule("all", "", nil), rule("r", "host", nil)}, nil},
		"by host, beside failures":    {[]Rule{rule("f", "client.ip", func(r *Rule) { r.Failures = []string{"401"} }), both("r", "client.ip", "host", nil)}, []string{"r asked-key"}},
		"by host, failures both":      {[]Rule{rule("f", "client.ip", func(r *Rule) { r.Failures = []string{"401"} }), both("r", "client.ip", "host", func(r *Rule) { r.Failures = []string{"401"} })}, nil},
		"by route":                    {[]Rule{both("r", "client.ip", "route", nil)}, nil},
		"on trial":                    {[]Rule{both("r", "client.ip", "host", func(r *Rule) { r.Spare = 100 })}, nil},
		"exempt by host":              {[]Rule{address, exempt(is("host", "free.a"))}, []string{"e claimed-exempt"}},
		"exempt by host and address":  {[]Rule{address, exempt(is("host", "free.a"), is("client.ip", "10.0.0.0/8"))}, nil},
		"exempt by length":            {[]Rule{address, exempt(is("content-length", "0"))}, []string{"e claimed-exempt"}},
		"exempt by method":            {[]Rule{address, exempt(is("method", "OPTIONS"))}, nil},
		"exempt by all other methods": {[]Rule{address, exempt(is("method", "!POST"))}, []string{"e claimed-exempt"}},
		"exempt by path":              {[]Rule{address, exempt(is("path", "/health"))}, nil},
		"peek by header":              {[]Rule{rule("r", "client.ip", peek(is("header.x-peek", "1")))}, []string{"r claimed-peek"}},
		"peek by query":               {[]Rule{rule("r", "client.ip", peek(is("query.dry", "*")))}, []string{"r claimed-peek"}},
		"peek by host":                {[]Rule{rule("r", "client.ip", peek(is("host", "a")))}, []string{"r claimed-peek"}},
		"peek by method and path":     {[]Rule{rule("r", "client.ip", peek(is("method", "GET"), is("path", "/login")))}, nil},
		"peek by what is matched": {[]Rule{address, rule("r", "client.ip", func(r *Rule) {
			match(is("host", "*.a"), is("method", "POST"))(r)
			peek(is("host", "*.a"), is("method", "GET"))(r)
		})}, nil},
		"peek by header and user":      {[]Rule{rule("r", "client.ip", peek(is("header.x-peek", "1"), is("user", "ops")))}, nil},
		"match by no header":           {[]Rule{rule("r", "client.ip", match(is("header.x-int", "!1")))}, []string{"r claimed-match"}},
		"match by header":              {[]Rule{rule("r", "client.ip", match(is("header.x-plan", "free")))}, []string{"r claimed-match"}},
		"match by length":              {[]Rule{rule("r", "client.ip", match(is("content-length", "!0")))}, []string{"r claimed-match"}},
		"match by header, bounded":     {[]Rule{address, rule("r", "client.ip", match(is("header.x-plan", "free")))}, nil},
		"match by header, not wholly":  {[]Rule{rule("a", "client.ip", match(is("path", "/a"))), rule("r", "client.ip", match(is("header.x-plan", "free")))}, []string{"r claimed-match"}},
		"match by header and path":     {[]Rule{rule("a", "client.ip", match(is("path", "/a"))), rule("r", "client.ip", match(is("header.x-plan", "free"), is("path", "/a")))}, nil},
		"match by host":                {[]Rule{rule("r", "client.ip", match(is("host", "*.a")))}, nil},
		"denied by header":             {[]Rule{{Name: "r", Deny: true, Match: Match{is("header.user-agent", "*bot*")}}}, nil},
		"cheap by header":              {[]Rule{rule("r", "client.ip", costs(Price{Match: Match{is("header.x-int", "1")}, Units: 1}, Price{Units: 5}))}, []string{"r claimed-cost"}},
		"dear by header":               {[]Rule{rule("r", "client.ip", costs(Price{Match: Match{is("header.x-batch", "*")}, Units: 5}))}, nil},
		"dear without a header":        {[]Rule{rule("r", "client.ip", costs(Price{Match: Match{is("header.x-int", "!1")}, Units: 5}))}, []string{"r claimed-cost"}},
		"cheap by header and user":     {[]Rule{rule("r", "client.ip", costs(Price{Match: Match{is("header.x-int", "1"), is("user", "ops")}, Units: 1}, Price{Units: 5}))}, nil},
		"cheap by path":                {[]Rule{rule("r", "client.ip", costs(Price{Match: Match{is("path", "/a")}, Units: 1}, Price{Units: 5}))}, nil},
		"a lane by host":               {[]Rule{rule("r", "client.ip", func(r *Rule) { r.Lanes = []Lane{{Match: Match{is("host", "a")}}, {Keep: 2}} })}, []string{"r claimed-lane"}},
		"a backup for all":             {[]Rule{rule("r", "", backup())}, []string{"r open-backup"}},
		"a backup for a path":          {[]Rule{rule("r", "", backup(is("path", "/a")))}, []string{"r open-backup"}},
		"a backup for all, bounded":    {[]Rule{rule("r", "", backup()), address}, nil},
		"a backup, bounded in part":    {[]Rule{rule("r", "", backup()), rule("a", "client.ip", match(is("path", "/a")))}, []string{"r open-backup"}},
		"a backup with another beside": {[]Rule{rule("r", "", backup()), rule("a", "client.ip", backup())}, []string{"r open-backup", "a open-backup"}},
		"a backup by header, bounded":  {[]Rule{rule("r", "", backup(is("header.x-plan", "paid"))), address}, []string{"r open-backup"}},
		"a backup for networks":        {[]Rule{rule("r", "", backup(is("client.ip", "10.0.0.0/8")))}, nil},
		"a backup for all but one":     {[]Rule{rule("r", "", backup(is("client.ip", "!10.0.0.1")))}, []string{"r open-backup"}},
	} {
		p, err := Compile(c.rules)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var got []string
		for _, w := range p.Warnings() {
			got = append(got, fmt.Sprintf("%s %s", w.Name, w.Code))
			if w.Text == "" || w.Fix == "" {
				t.Errorf("%s: half a warning: %+v", name, w)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
