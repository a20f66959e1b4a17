// Package policyschema holds the JSON Schema of policy files against what the
// reader takes and refuses, with a schema validator that others wrote.
package policyschema

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"

	"github.com/spillgate/spillgate/policyfile"
)

const root = "../.."

func compile(t *testing.T) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(policyfile.Schema()))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	if err := c.AddResource("policy.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("policy.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// validate holds a YAML text against the schema, as an editor would.
func validate(t *testing.T, s *jsonschema.Schema, text []byte) error {
	t.Helper()
	var n yaml.Node
	if err := yaml.Load(text, &n); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	timesAreText(&n)
	var v any
	if err := n.Decode(&v); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return s.Validate(v)
}

// timesAreText makes strings of timestamps, which YAML 1.2, and JSON, have not.
func timesAreText(n *yaml.Node) {
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!timestamp" {
		n.Tag = "!!str"
	}
	for _, c := range n.Content {
		timesAreText(c)
	}
}

var block = regexp.MustCompile("(?ms)^```yaml (policy|refused)\n(.*?)^```$")

// TestSchemaTakesWhatTheReaderTakes uses the examples of the manual and of the
// examples folder.
func TestSchemaTakesWhatTheReaderTakes(t *testing.T) {
	s := compile(t)
	manual, err := os.ReadFile(filepath.Join(root, "docs", "policy.md"))
	if err != nil {
		t.Fatal(err)
	}
	taken := 0
	for _, m := range block.FindAllSubmatch(manual, -1) {
		err := validate(t, s, m[2])
		if good := string(m[1]) == "policy"; good != (err == nil) {
			t.Errorf("the schema says %v of\n%s", err, m[2])
		}
		taken++
	}
	files, err := filepath.Glob(filepath.Join(root, "examples", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := validate(t, s, text); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		taken++
	}
	if taken < 10 {
		t.Errorf("only %d examples found", taken)
	}
}

// TestSchemaAgreesOnSmallChanges changes a good policy in one place at a time.
func TestSchemaAgreesOnSmallChanges(t *testing.T) {
	const good = `server: {listen: "127.0.0.1:80", upstream: "http://a.example", client_ip: {trusted: [private], from: forwarded}, headers: off}
rules:
  - {name: a, match: {path: /x}, peek: {method: [GET]}, key: client.ip, missing: skip, limit: 10/s burst 20, deny: false, unit: tokens, cost: 5, failures: [401], enforce: 50, tell: true, on_fault: open, max_keys: 5, at_cap: overflow, ttl: 10m}
tests:
  - {name: t, start: 2026-03-29T00:00:00+01:00, with: {header.x-y: z, store: up}, requests: [{at: 0s, times: 2, every: 1s, cost: {tokens: 5}, ends: 401, takes: 1s, spent: {tokens: 0}, expect: {denied: a, retry_after: 1h30m}}, {at: 2026-03-30T00:00:00Z, path: /x, expect: allowed}]}
`
	s := compile(t)
	for _, c := range []struct{ from, to string }{
		{"", ""},
		{"listen:", "listn:"}, {`"127.0.0.1:80"`, "localhost"}, {`"127.0.0.1:80"`, "80"}, {"http://", "ftp://"}, {"a.example", "a.example?x=1"},
		{"[private]", "[]"}, {"[private]", "private"}, {", from: forwarded", ""}, {"headers: off", "headers: false"}, {"headers: off", "headers: on"},
		{"name: a,", ""}, {"name: a", "name: A"}, {"name: a", "name: 5"}, {"name: a", "name: "},
		{"{path: /x}", "{}"}, {"{path: /x}", "null"}, {"{path: /x}", "[]"}, {"path: /x", "paths: /x"}, {"path: /x", "header.x-y: ''"}, {"path: /x", "header.: x"}, {"path: /x", "attr.a: 5"}, {"path: /x", "user: []"}, {"path: /x", "user: null"},
		{"key: client.ip", "key: [client.ip, host]"}, {"key: client.ip", "key: []"}, {"key: client.ip", "key: {header: x}"}, {"key: client.ip", "key: null"}, {"key: client.ip", "key: 5"},
		{"missing: skip", "missing: Skip"}, {"missing: skip", "missing: share"},
		{"limit: 10/s burst 20", "limit: 10"}, {"limit: 10/s burst 20", "limit: null"}, {"limit: 10/s burst 20", "limit: unlimited"}, {"limit: 10/s burst 20", "limit: 20 at once"}, {"limit: 10/s burst 20", "limit: -1/s"},
		{"limit: 10/s burst 20, ", ""}, {"deny: false", "deny: true"}, {"limit: 10/s burst 20, deny: false", "deny: true"}, {"deny: false", "deny: yes"}, {"deny: false, ", ""},
		{"unit: tokens", "unit: ''"}, {"cost: 5", "cost: 0"}, {"cost: 5", "cost: 1.5"}, {"cost: 5", "cost: '5'"}, {"cost: 5", "cost: 1"},
		{"[401]", "[600]"}, {"[401]", "[4xx, error, UNAVAILABLE]"}, {"[401]", "[4x]"}, {"[401]", "[]"}, {"[401]", "401"},
		{"enforce: 50", "enforce: 101"}, {"enforce: 50", "enforce: -1"}, {"enforce: 50", "enforce: 0"},
		{"tell: true", "tell: 1"}, {"on_fault: open", "on_fault: shut"}, {"on_fault: open", "on_fault: closed"},
		{"max_keys: 5", "max_keys: 0"}, {"max_keys: 5", "max_keys: 3000000000"}, {"at_cap: overflow", "at_cap: makeroom"}, {"at_cap: overflow", "at_cap: make_room"},
		{"ttl: 10m", "ttl: 10"}, {"ttl: 10m", "ttl: 1e3s"}, {"ttl: 10m", "ttl: ''"}, {"ttl: 10m", "ttl: 7d"},
		{"rules:", "rule:"},
		{"name: t, ", ""}, {"name: t,", "name: '',"}, {"start:", "begin:"}, {"29T00:00:00+01:00", "29"}, {"01:00", "0100"}, {"header.x-y: z", "header.x-y: 5"}, {"header.x-y: z", "heading: z"},
		{"store: up", "store: off"}, {"store: up", "store: down"}, {"at: 0s", "at: 0"}, {"at: 0s", "at: 1.5h30m"}, {"at: 0s", "at: -1s"}, {"times: 2", "times: 0"}, {"times: 2", "times: '2'"},
		{"every: 1s", "every: never"}, {"cost: {tokens: 5}", "cost: 5"}, {"cost: {tokens: 5}", "cost: {}"}, {"cost: {tokens: 5}", "cost: {tokens: 0}"}, {"ends: 401", "ends: 4xx"}, {"ends: 401", "ends: aborted"}, {"ends: 401", "ends: OK"},
		{"takes: 1s", "takes: 1"}, {"tokens: 0}", "tokens: -1}"}, {"expect: allowed", "expect: passed"}, {"expect: allowed", "expect: {}"}, {"expect: allowed", "expect: []"}, {"expect: allowed", "expect: {rules: []}"}, {"expect: allowed", "expect: {allowed: a}"},
		{"expect: allowed", "expect: {retry_after: 1s}"}, {"expect: allowed", "expect: {delay: 1s, remaining: {a: 1}, would_deny: [a], peeked: a}"}, {"expect: allowed", "expect: {remaining: {}}"}, {"expect: allowed", "expect: {remaining: {a: -1}}"},
		{"retry_after: 1h30m", "retry_after: never"}, {"retry_after: 1h30m", "retry_after: 10"}, {"retry_after: 1h30m", "delay: 1s"}, {"denied: a", "denied: []"}, {"denied: a", "denied: 5"}, {"denied: a,", ""},
		{", requests: [", ", steps: ["},
	} {
		text := []byte(strings.Replace(good, c.from, c.to, 1))
		_, parsed := policyfile.Parse("x", text)
		valid := validate(t, s, text)
		if (parsed == nil) != (valid == nil) {
			t.Errorf("%q instead of %q: the reader says %v, the schema %v", c.to, c.from, parsed, valid)
		}
	}
}
