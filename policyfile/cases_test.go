package policyfile

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/policy"
)

// firstError returns what is wrong with a file that holds one rule and says
// more, with its place; "" if nothing is.
func firstError(t *testing.T, rule string) string {
	t.Helper()
	_, err := Parse("limits.yaml", []byte("rules:\n  - "+rule+"\n  - {name: address, limit: 50/s, key: client.ip}\n"))
	var errs Errors
	switch {
	case err == nil:
		return ""
	case !errors.As(err, &errs):
		t.Fatalf("%s: %v", rule, err)
	}
	return fmt.Sprintf("%d:%d: %s; %s", errs[0].Line, errs[0].Column, errs[0].Msg, errs[0].Fix)
}

// A key that is not understood would put all callers into one bucket.
func TestB136KeySourcesAreUnderstoodOrRefused(t *testing.T) {
	for key, want := range map[string]string{
		"header.x-tenant":      "",
		"header.X-Tenant":      "",
		"{header: X-Tenant}":   "2:32: key: want text such as client.ip, not a mapping; write header.x-tenant",
		"{Header: X-Tenant}":   "2:32: key: want text such as client.ip, not a mapping; write header.x-tenant",
		"{ip: null}":           "2:32: key: want text such as client.ip, not a mapping; write client.ip",
		"Header.X-Tenant":      `2:32: key: unknown attribute "Header.X-Tenant"; write header.x-tenant`,
		"null":                 "2:32: key: want text, not nothing; write a value, or remove it",
		`""`:                   "2:32: key: ",
		"[]":                   "2:32: key: the list is empty; name at least one, or leave it out",
		"header.":              `2:32: key: attribute "header."`,
		"header":               `2:32: key: unknown attribute "header"`,
		"[client.ip, {ip: 1}]": "2:44: key: want text such as client.ip, not a mapping; write client.ip",
	} {
		got := firstError(t, "{name: r, limit: 5/s, key: "+key+"}")
		if want == "" && got != "" || !strings.HasPrefix(got, want) {
			t.Errorf("key: %s\n is %q\nwant %q", key, got, want)
		}
	}
}

// A time that is not understood is never no time.
func TestB138TimesAreUnderstoodOrRefused(t *testing.T) {
	for _, period := range []string{"1d", "1m", "10s", "1min", "s", "90m"} {
		if got := firstError(t, "{name: r, key: client.ip, limit: 10/"+period+"}"); got != "" {
			t.Errorf("10/%s: %s", period, got)
		}
	}
	for _, period := range []string{"1 minute", "10", "", "-5s", "inf", "1e3s", "NaN", "0s", "1.5s", "1h30m", "٣s", "99999999999d"} {
		for _, rule := range []string{
			`{name: r, key: client.ip, limit: "10/` + period + `"}`,
			`{name: r, key: client.ip, limit: 10/s, ttl: "` + period + `"}`,
		} {
			if got := firstError(t, rule); !strings.HasPrefix(got, "2:") || !strings.Contains(got, "limit: ") && !strings.Contains(got, "ttl: ") {
				t.Errorf("%s: %q", rule, got)
			}
		}
	}
	if got := firstError(t, "{name: r, key: client.ip}"); !strings.Contains(got, "limit: missing") {
		t.Errorf("no limit: %q", got)
	}
}

// Numbers below 0 are errors wherever they stand, and give nobody anything.
func TestB140NegativeNumbersAreRefused(t *testing.T) {
	for rule, field := range map[string]string{
		`limit: -1/s`:                                                    "limit: ",
		`limit: "10/s burst -1"`:                                         "limit: ",
		`limit: 10/-1s`:                                                  "limit: ",
		`limit: 10/s, cost: -1`:                                          "cost: ",
		`limit: 10/s, cost: 9223372036854775807`:                         "cost: ",
		`limit: 10/s, cost: 9223372036854775808`:                         "cost: ",
		`limit: 10/s, cost: {from: query.n, most: -1}`:                   "cost: most: ",
		`limit: 10/s, cost: {from: query.n, default: -1}`:                "cost: default: ",
		`limit: 10/s, cost: {from: query.n, per: 0}`:                     "cost: per: ",
		`limit: 10/s, cost: [{cost: -1}]`:                                "cost: cost: ",
		`limit: 10/s, lanes: [{match: {user: a}, keep: 0}, {keep: -1}]`:  "lanes: keep: ",
		`limit: 10/s, lanes: [{match: {user: a}, keep: 0}, {keep: -1%}]`: "lanes: keep: ",
		`limit: 10/s, enforce: -1`:                                       "enforce: ",
		`limit: 10/s, max_keys: -1`:                                      "max_keys: ",
		`limit: 10/s, ttl: -1s`:                                          "ttl: ",
	} {
		if got := firstError(t, "{name: r, key: client.ip, "+rule+"}"); !strings.HasPrefix(got, "2:") || !strings.Contains(got, field) {
			t.Errorf("%s: %q, want an error of %s", rule, got, field)
		}
	}
	f, err := Parse("limits.yaml", []byte("rules: [{name: r, limit: 10/h, cost: {from: query.n}}]"))
	if err != nil {
		t.Fatal(err)
	}
	m := spillgate.NewMemory()
	defer m.Close()
	e := policy.NewEngine(f.Policy, m)
	for _, n := range []string{"-1", "-9223372036854775808", "9223372036854775807"} {
		if v := e.Decide(t.Context(), policy.Attrs{"query.n": n}); v.Allowed || v.Outcome(0).Decision.Reason != spillgate.NeverFits || v.Outcome(0).Decision.Remaining != 10 {
			t.Errorf("n=%s: %+v", n, v.Outcome(0).Decision)
		}
	}
}

// Nobody is trusted who is not named: a list that was emptied, or a number of
// hops without the addresses that they have, is refused, and not taken for trust
// in everybody.
func TestB126TrustIsNamedOrRefused(t *testing.T) {
	for client, want := range map[string]string{
		"{trusted: [], from: x-forwarded-for}":             "trusted: the list is empty",
		"{trusted: null, from: x-forwarded-for}":           "trusted: ",
		"{from: x-forwarded-for}":                          "trusted",
		"{hops: 1, from: x-forwarded-for}":                 `unknown key "hops"`,
		"{trusted: 1, from: x-forwarded-for}":              "trusted: ",
		`{trusted: "", from: x-forwarded-for}`:             "trusted: ",
		`{trusted: "*", from: x-forwarded-for}`:            "trusted: ",
		"{trusted: private}":                               "from",
		"true":                                             "client_ip: ",
		"{trusted: [10.0.0.0/8, nobody], from: x-real-ip}": `"nobody"`,
		"{trusted: 10.0.0.0/8, from: x-forwarded-for}":     "",
		"{trusted: [10.0.0.0/8], from: forwarded}":         "",
	} {
		f, err := Parse("limits.yaml", []byte("server: {upstream: \"http://127.0.0.1:1\", client_ip: "+client+"}\nrules: [{name: r, limit: 5/s, key: client.ip}]\n"))
		switch {
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("client_ip: %s: %v, want an error of %s", client, err, want)
		case want == "" && err != nil:
			t.Errorf("client_ip: %s: %v", client, err)
		case err == nil:
			h := map[string][]string{"X-Forwarded-For": {"203.0.113.9"}}
			if got := f.Server.Client.Addr("198.51.100.7:80", h); got.String() != "198.51.100.7" {
				t.Errorf("client_ip: %s: whoever connects is %s by its own word", client, got)
			}
		}
	}
}
