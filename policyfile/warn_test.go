package policyfile

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestWarnings finds each kind of warning at its place. The manual's table has
// all of them.
func TestWarnings(t *testing.T) {
	f, err := Parse("x", []byte(`server: {client_ip: {trusted: [private, any], from: x-forwarded-for}}
rules:
  - {name: agent, key: header.user-agent, limit: 10/s}
  - {name: paths, match: {method: GET}, limit: 10/s, backup: {upstream: "http://127.0.0.1:9", match: {header.x-plan: paid}}}
  - {name: burst, key: client.ip, limit: 10/s burst 100, failures: 5xx}
  - {name: never, match: &m {client.ip: [10.1.0.0/16, "!10.0.0.0/8"]}, limit: 1/s}
  - {name: nor, match: *m, limit: 2/s}
  - {name: codes, failures: error, limit: 1/s, key: client.ip}
  - {name: visitor, key: client.ip, limit: 10/s}
  - {name: again, key: client.ip, limit: 10/s}
  - {name: lanes, key: client.ip, limit: 10/s burst 20, unit: output, lanes: [{match: {client.ip: 10.0.0.0/8}, keep: 0}, {match: {header.x-plan: paid}, keep: 1}, {match: {header.x-plan: paid}, keep: 2}, {keep: 30%}]}
  - {name: llm, unit: tokens, key: client.ip, limit: 100/s}
  - {name: token, key: header.x-token, limit: 1/s, penalty: {after: 1, within: 1m, block: 1h}}
  - {name: said, match: {header.x-int: "!1", path: /b}, peek: {query.dry: "1"}, limit: 5/s, unit: work, cost: [{match: {host: cheap.example}, cost: 1}, {cost: 5}]}
  - {name: hosts, exempt: true, match: {host: free.example}}
overrides:
  - {exempt: true, rule: [visitor, token], match: {header.x-plan: paid, path: /a}, until: 2001-01-31}
  - {deny: true, match: {header.user-agent: bad}}
  - {exempt: true, match: {header.x-key: k, client.ip: 192.0.2.1}}
  - {exempt: true, match: {header.x-key: k, client.ip: "!192.0.2.1"}}
  - {exempt: true, match: {header.x-key: k, content-length: "0"}}
usage:
  - {format: openai, unit: output}
  - {match: {path: /v1/messages}, format: anthropic, unit: output}
`))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	codes := map[string]bool{}
	for _, w := range f.Warnings {
		got = append(got, fmt.Sprintf("%d:%d %s", w.Line, w.Column, w.Code))
		codes[w.Code] = true
		if w.File != "x" || w.Msg == "" || w.Fix == "" {
			t.Errorf("half a warning: %+v", w)
		}
		if (w.Code == "penalty-key" || w.Code == "open-backup") && !strings.Contains(w.Fix, "proxy.NAME") {
			t.Errorf("the gateway is told %q, which is for programs alone", w.Fix)
		}
	}
	want := []string{
		"1:41 any-proxy", "3:24 user-agent", "4:103 open-backup", "5:42 burst", "6:30 unreachable", "6:30 unreachable",
		"8:29 failures", "10:12 repeated", "11:131 claimed-lane", "11:163 unreachable", "12:23 untold-tokens", "13:61 penalty-key",
		"14:64 claimed-peek", "14:121 claimed-cost", "15:41 claimed-exempt",
		"17:52 claimed-exempt", "17:91 expired", "20:28 claimed-exempt", "21:28 claimed-exempt", "24:13 unreachable",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	f, err = Parse("x", []byte("rules: [{name: a, key: client.ip, limit: 1/s, match: {host: a.example, header.x-plan: free}}]"))
	if err != nil || len(f.Warnings) != 1 || f.Warnings[0].Code != "claimed-match" || f.Warnings[0].Column != 72 {
		t.Errorf("%v: %+v, want claimed-match at the header", err, f)
	}
	many := func(net int) (list []string) {
		for i := range 3000 {
			list = append(list, fmt.Sprintf("10.%d.%d.%d", net, i/200, i%200))
		}
		return list
	}
	for _, server := range []string{"upstream: http://127.0.0.1:8080", "client_ip: {trusted: unix, from: x-real-ip}", "client_ip: {trusted: private, from: x-real-ipp}"} {
		f, err = Parse("x", []byte("server: {"+server+"}\nrules: [{name: a, key: client.ip, limit: 10/s}]"))
		if err != nil || len(f.Warnings) != 1 {
			t.Fatalf("%v: %+v", err, f)
		}
		codes[f.Warnings[0].Code] = true
	}
	for _, rules := range []string{
		"{name: paths, key: path, limit: 10/s}", "{name: short, key: client.ip, limit: 2/h, ttl: 1s}", "{name: hosts, key: host, limit: 10/s}", `{name: said, match: {header.x-int: "!1"}, limit: 10/s}`,
		fmt.Sprintf("{name: one, exempt: true, match: {client.ip: [%s]}}, {name: other, limit: 10/s, match: {client.ip: [10.1.0.0, %s]}}", strings.Join(many(1), ", "), strings.Join(many(1), ", ")),
	} {
		f, err = Parse("x", []byte("rules: ["+rules+"]"))
		if err != nil || len(f.Warnings) != 1 {
			t.Fatalf("%v: %+v", err, f.Warnings)
		}
		codes[f.Warnings[0].Code] = true
	}
	rows := regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\|").FindAllStringSubmatch(string(section(t, "Warnings")), -1)
	for _, code := range WarningCodes() {
		if !codes[code] || !slices.ContainsFunc(rows, func(m []string) bool { return m[1] == code }) {
			t.Errorf("%s: no test or no row in the manual", code)
		}
	}
	if len(rows) != len(WarningCodes()) || len(codes) != len(rows) {
		t.Errorf("%d rows and %d codes; %d are known", len(rows), len(codes), len(WarningCodes()))
	}
}

// section returns a section of the manual.
func section(t *testing.T, title string) string {
	t.Helper()
	_, rest, ok := strings.Cut(string(manual(t)), "\n## "+title+"\n")
	if !ok {
		t.Fatalf("no section %s", title)
	}
	text, _, _ := strings.Cut(rest, "\n## ")
	return text
}
