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
	"testing/fstest"

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
  - {name: a, match: {path: /x}, peek: {method: [GET]}, key: client.ip, missing: skip, limit: 10/s burst 20, deny: false, unit: tokens, cost: 5, failures: [401], enforce: 50, tell: true, headers: off, on_fault: open, max_keys: 5, at_cap: overflow, ttl: 10m}
tests:
  - {name: t, start: 2026-03-29T00:00:00+01:00, with: {header.x-y: z, store: up}, requests: [{at: 0s, times: 2, every: 1s, cost: {tokens: 5}, ends: 401, takes: 1s, spent: {tokens: 0}, expect: {denied: a, retry_after: 1h30m}}, {at: 2026-03-30T00:00:00Z, path: /x, expect: allowed}]}
`
	agrees(t, good, [][2]string{
		{"", ""},
		{"listen:", "listn:"}, {`"127.0.0.1:80"`, "localhost"}, {`"127.0.0.1:80"`, "80"}, {"http://", "ftp://"}, {"a.example", "a.example?x=1"},
		{"[private]", "[]"}, {"[private]", "private"}, {", from: forwarded", ""}, {"headers: off", "headers: false"}, {"headers: off", "headers: on"},
		{"name: a,", ""}, {"name: a", "name: A"}, {"name: a", "name: 5"}, {"name: a", "name: "},
		{"{path: /x}", "{}"}, {"{path: /x}", "null"}, {"{path: /x}", "[]"}, {"path: /x", "paths: /x"}, {"path: /x", "header.x-y: ''"}, {"path: /x", "header.x-y: ' '"}, {"path: /x", "header.x-y: '!'"}, {"path: /x", "header.x-y: ['!*', ' a']"}, {"path: /x", "header.x-y: [a, '!\t']"}, {"path: /x", "header.: x"}, {"path: /x", "attr.a: 5"}, {"path: /x", "user: []"}, {"path: /x", "user: null"},
		{"key: client.ip", "key: [client.ip, host]"}, {"key: client.ip", "key: []"}, {"key: client.ip", "key: {header: x}"}, {"key: client.ip", "key: null"}, {"key: client.ip", "key: 5"},
		{"missing: skip", "missing: Skip"}, {"missing: skip", "missing: share"},
		{"limit: 10/s burst 20", "limit: 10"}, {"limit: 10/s burst 20", "limit: null"}, {"limit: 10/s burst 20", "limit: unlimited"}, {"limit: 10/s burst 20", "limit: 20 at once"}, {"limit: 10/s burst 20", "limit: -1/s"},
		{"limit: 10/s burst 20, ", ""}, {"deny: false", "deny: true"}, {"limit: 10/s burst 20, deny: false", "deny: true"}, {"deny: false", "deny: yes"}, {"deny: false, ", ""},
		{"unit: tokens", "unit: ''"}, {"cost: 5", "cost: 0"}, {"cost: 5", "cost: 1.5"}, {"cost: 5", "cost: '5'"}, {"cost: 5", "cost: 1"},
		{"[401]", "[600]"}, {"[401]", "[4xx, error, UNAVAILABLE]"}, {"[401]", "[4x]"}, {"[401]", "[]"}, {"[401]", "401"},
		{"enforce: 50", "enforce: 101"}, {"enforce: 50", "enforce: -1"}, {"enforce: 50", "enforce: 0"},
		{"tell: true", "tell: 1"}, {"headers: off", "headers: refusals"}, {"on_fault: open", "on_fault: shut"}, {"on_fault: open", "on_fault: closed"},
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
	})
}

// agrees makes one change at a time in a policy, and holds the schema's word on
// the outcome against the reader's.
func agrees(t *testing.T, good string, changes [][2]string) {
	t.Helper()
	s := compile(t)
	beside := fstest.MapFS{"lists/deny.txt": {Data: []byte("203.0.113.7\n")}, "busy.html": {Data: []byte("<p>Busy.")}}
	for _, c := range changes {
		if !strings.Contains(good, c[0]) {
			t.Errorf("there is no %q to change", c[0])
		}
		text := []byte(strings.Replace(good, c[0], c[1], 1))
		_, parsed := policyfile.ParseFS(beside, "x", text)
		valid := validate(t, s, text)
		if (parsed == nil) != (valid == nil) {
			t.Errorf("%q instead of %q: the reader says %v, the schema %v", c[1], c[0], parsed, valid)
		}
	}
}

// TestSchemaAgreesOnAmounts is about costs, lanes and penalties.
func TestSchemaAgreesOnAmounts(t *testing.T) {
	agrees(t, `rules:
  - name: a
    group: g
    enabled: true
    key: client.ip
    limit: 10/s burst 200
    cost: [{match: {method: POST}, cost: 5}, {from: query.n, per: 10, default: 2, most: 50}]
    lanes: [{match: {client.ip: 10.0.0.0/8}, keep: 0}, {match: {path: /b}, keep: 50%}, {keep: 30}]
    penalty: {after: 10, within: 1m, block: 1h, grow: 2, most: 24h, forget: 7d}
    delay: {most: 2s, queue: 10}
    backup: {upstream: "http://b.example", match: {client.ip: 10.0.0.0/8}}
    answer: {status: 503, headers: {X-Why: busy}, html: <p>}
  - {name: b, exempt: true, group: g, match: {client.ip: 192.0.2.1}}
`, [][2]string{
		{"", ""},
		{"cost: 5}", "cost: 0}"}, {"cost: 5}", "cost: '5'}"}, {"{method: POST}, cost: 5", "{method: POST}"}, {"cost: 5}", "cost: 5, from: query.n}"}, {"from: query.n, ", ""},
		{"from: query.n", "from: method"}, {"from: query.n", "from: content-length"}, {"per: 10", "per: 0"}, {"default: 2", "default: 0"}, {"most: 50", "most: 0"}, {"most: 50", "max: 50"},
		{"cost: [{match: {method: POST}, cost: 5}, {from: query.n, per: 10, default: 2, most: 50}]", "cost: 7"}, {"cost: [{match: {method: POST}, cost: 5}, {from: query.n, per: 10, default: 2, most: 50}]", "cost: {from: header.x-n}"},
		{"cost: [{match: {method: POST}, cost: 5}, {from: query.n, per: 10, default: 2, most: 50}]", "cost: []"},
		{"keep: 0}", "keep: -1}"}, {"keep: 50%", "keep: 101%"}, {"keep: 50%", "keep: 5.5%"}, {"keep: 50%", "kept: 50%"}, {"keep: 30}", "keep: '30'}"}, {", {match: {path: /b}, keep: 50%}, {keep: 30}]", "]"},
		{"after: 10, ", ""}, {"within: 1m, ", ""}, {"block: 1h, ", ""}, {"after: 10", "after: 0"}, {"after: 10", "after: 1001"}, {"within: 1m", "within: 60"}, {"grow: 2", "grow: 101"}, {"forget: 7d", "forget: never"}, {"forget: 7d", "reset: 7d"},
		{"most: 2s, ", ""}, {"most: 2s", "most: 2"}, {"queue: 10", "queue: 0"}, {"queue: 10", "queue: 10001"}, {", queue: 10", ""}, {"queue: 10", "size: 10"},
		{`upstream: "http://b.example", `, ""}, {"http://b.example", "b.example"}, {", match: {client.ip: 10.0.0.0/8}}\n    answer", "}\n    answer"}, {"backup: {", "backup: {url: x, "},
		{"status: 503", "status: 199"}, {"status: 503", "status: 600"}, {"html: <p>", "html: 5"}, {"html: <p>", "html: <p>, text: x"}, {"html: <p>", "problem: quota-exceeded"}, {"html: <p>", "problem: quota"},
		{"html: <p>", "file: busy.html"}, {"{X-Why: busy}", "{}"}, {"{X-Why: busy}", "{X-Why: 5}"}, {"{X-Why: busy}", "[]"}, {", html: <p>", ""}, {"{status: 503, headers: {X-Why: busy}, html: <p>}", "{}"},
		{"enabled: true", "enabled: on"}, {"enabled: true", "enabled: false"}, {"group: g\n", "group: G\n"}, {"group: g\n", "group: ''\n"},
		{"enabled: true", "on_fault: closed"}, {"enabled: true", "on_fault: shut"}, {"enabled: true", "on_fault: {closed: {status: 503, text: x}}"}, {"enabled: true", "on_fault: {closed: {json: '{}'}}"}, {"enabled: true", "on_fault: {closed: {status: 429}}"},
		{"enabled: true", "on_fault: {closed: {problem: quota-exceeded}}"}, {"enabled: true", "on_fault: {closed: {problem: temporary-reduced-capacity, status: 500}}"}, {"enabled: true", "on_fault: {closed: {}}"}, {"enabled: true", "on_fault: {}"},
		{"enabled: true", "on_fault: {open: {status: 503}}"}, {"enabled: true", "on_fault: {closed: 503}"}, {"enabled: true", "on_fault: {closed: {text: x, html: y}}"}, {"exempt: true", "exempt: true, on_fault: {closed: {status: 503}}"},
		{"exempt: true", "exempt: false"}, {"exempt: true", "exempt: yes"}, {", match: {client.ip: 192.0.2.1}", ""}, {"exempt: true", "exempt: true, limit: 1/s"}, {"exempt: true", "exempt: true, key: client.ip"}, {"exempt: true", "exempt: true, deny: true"},
	})
	agrees(t, "rules: [{name: a, key: client.ip, limit: 10/s}]\n", [][2]string{
		{"", ""},
		{"limit: 10/s", "limit: unlimited"}, {"limit: 10/s", "limit: unlimited, cost: 2"}, {"limit: 10/s", `limit: unlimited, backup: {upstream: "http://b.example"}`}, {"limit: 10/s", "limit: unlimited, tell: true"},
		{"limit: 10/s", "deny: true"}, {"limit: 10/s", `deny: true, backup: {upstream: "http://b.example"}`}, {"limit: 10/s", "deny: true, answer: {status: 410}"}, {"limit: 10/s", "deny: true, on_fault: {closed: {status: 503}}"},
		{"key: client.ip", "key: proxy.x-user"}, {"limit: 10/s", "limit: 10/s, match: {proxy.x-plan: paid}"}, {"limit: 10/s", "limit: 10/s, match: {proxy: paid}"}, {"limit: 10/s", "limit: 10/s, cost: {from: proxy.x-n}"},
		{"limit: 10/s", "limit: 5 at once"}, {"limit: 10/s", "limit: 5 at once, failures: 401"}, {"limit: 10/s", "limit: 5 at once, unit: bytes"}, {"limit: 10/s", "limit: 5 at once for 30s, unit: jobs"}, {"limit: 10/s", "limit: 10/s, unit: bytes, failures: 401"},
	})
}

// TestSchemaAgreesOnOverrides is about overrides, usage, paths and enforce.
func TestSchemaAgreesOnOverrides(t *testing.T) {
	agrees(t, `enforce: off
paths: {case: ignored, trailing_slash: matters}
rules:
  - {name: a, group: g, key: client.ip, limit: 10/s burst 20}
  - {name: t, key: client.ip, limit: 1000/s, unit: tokens}
overrides:
  - {deny: true, list: lists/deny.txt, reason: scans, owner: ops, until: 2099-01-01}
  - {exempt: true, group: g, match: {client.ip: 10.0.0.0/8}}
  - {limit: 100/s burst 200, rule: [a], match: {client.ip: 192.0.2.0/24}, until: 2098-06-30T18:00:00+02:00}
usage:
  - {match: {path: /v1/**}, unit: tokens, format: openai, input: bytes/4, output: max_tokens else p95 else 1000, weights: {cached: 10%, output: 400%}, errors: free, read: 1024}
  - {format: {input: u.in, output: [u.a, u.b], cached: u.c, most: m}}
`, [][2]string{
		{"", ""},
		{"enforce: off", "enforce: on"}, {"enforce: off", "enforce: 0"}, {"enforce: off", "enforce: false"},
		{"case: ignored", "case: matters"}, {"case: ignored", "case: lower"}, {"trailing_slash: matters", "trailing_slash: true"}, {"{case: ignored, trailing_slash: matters}", "{}"}, {"case:", "cases:"},
		{"deny: true, ", ""}, {"deny: true", "deny: false"}, {"deny: true", "deny: true, exempt: true"}, {"deny: true", "deny: true, limit: 1/s"}, {"list: lists/deny.txt, ", ""}, {"list: lists/deny.txt", "list: ''"}, {"list: lists/deny.txt", "file: lists/deny.txt"},
		{"list: lists/deny.txt", "list: lists/deny.txt, key: client.ip"}, {"list: lists/deny.txt", "list: lists/deny.txt, key: 5"}, {"reason: scans", "reason: ''"}, {"reason: scans", "reason: 5"}, {"owner: ops", "owner: []"},
		{"2099-01-01", "2099"}, {"2099-01-01", "soon"}, {"+02:00", ""}, {"2099-01-01", "2099-01-01T00:00:00Z"},
		{"group: g, match", "group: [g], match"}, {"group: g, match", "group: [], match"}, {"exempt: true", "exempt: 1"}, {"match: {client.ip: 10.0.0.0/8}", "match: {}"},
		{"100/s burst 200", "100"}, {"rule: [a]", "rule: a"}, {"rule: [a]", "rule: []"}, {"rule: [a]", "rule: 5"},
		{"format: openai, ", ""}, {"format: openai", "format: gemini"}, {"format: openai", "format: anthropic"}, {"format: openai", "format: {}"}, {"input: bytes/4", "input: 500"}, {"input: bytes/4", "input: bytes"}, {"input: bytes/4", "input: -1"}, {"input: bytes/4", "input: bytes/101"},
		{"max_tokens else p95 else 1000", "500"}, {"max_tokens else p95 else 1000", "p95"}, {"max_tokens else p95 else 1000", "p95 else 5"}, {"max_tokens else p95 else 1000", "p99 else 5"},
		{"cached: 10%", "cached: 10"}, {"cached: 10%", "cached: 10001%"}, {"cached: 10%", "cache: 10%"}, {"{cached: 10%, output: 400%}", "{}"}, {"errors: free", "errors: no"}, {"errors: free", "errors: charged"}, {"read: 1024", "read: 0"}, {"read: 1024", "read: 67108865"},
		{"input: u.in", "input: u..in"}, {"input: u.in", "input: ''"}, {"input: u.in", "in: u.in"}, {"[u.a, u.b]", "[]"}, {"[u.a, u.b]", "u.a"}, {"input: u.in, output: [u.a, u.b], ", ""}, {"most: m", "most: 5"},
		{"unit: tokens, format", "unit: '', format"},
	})
}

// TestSchemaAgreesOnServers is about what the gateway is told.
func TestSchemaAgreesOnServers(t *testing.T) {
	agrees(t, `server:
  upstream: http://a.example
  dialects: [draft, github]
  jitter: 20%
  partition_keys: true
  fingerprint_key_file: /etc/key
  connections: {accepts: 20/s burst 50, open: 100, key: client.ip/56, exempt: [loopback, 192.0.2.0/24]}
  tls: {certificate_file: /etc/crt, key_file: /etc/key}
  store: {redis: ["rediss://ann@127.0.0.1:6379", "rediss://ann@127.0.0.1:6380/0"], cluster: true, password_file: /etc/pw, ca_file: /etc/ca, certificate_file: /etc/crt, key_file: /etc/key, prefix: "{x}:", nodes: 3, timeout: 10ms, mode: leased, share: 10%, seed_file: /etc/seed}
rules:
  - {name: a, key: client.ip, limit: 10/s}
`, [][2]string{
		{"", ""},
		{"[draft, github]", "draft"}, {"[draft, github]", "[]"}, {"[draft, github]", "[ietf]"}, {"[draft, github]", "5"},
		{"20%", "20"}, {"20%", "101%"}, {"20%", "0%"}, {"partition_keys: true", "partition_keys: 1"}, {"partition_keys:", "pk:"}, {"/etc/key\n", "''\n"}, {"/etc/key\n", "5\n"},
		{"20/s burst 50", "20"}, {"open: 100", "open: 0"}, {"open: 100", "open: 1048577"}, {"accepts: 20/s burst 50, open: 100, ", ""}, {"open: 100, ", ""}, {"accepts: 20/s burst 50, ", ""}, {"key: client.ip/56", "key: client.ip"}, {"key: client.ip/56", "key: host"},
		{"key: client.ip/56", "key: client.ip/129"}, {"[loopback, 192.0.2.0/24]", "loopback"}, {"[loopback, 192.0.2.0/24]", "[]"}, {"exempt:", "allow:"},
		{"certificate_file: /etc/crt, ", ""}, {", key_file: /etc/key", ""}, {"key_file: /etc/key", "key_file: ''"}, {"certificate_file:", "cert:"},
		{`redis: ["rediss://ann@127.0.0.1:6379", "rediss://ann@127.0.0.1:6380/0"], `, ""}, {`["rediss://ann@127`, `["http://ann@127`}, {"rediss://ann@127.0.0.1:6380", "rediss://ann:pw@127.0.0.1:6380"}, {"6380/0", "6380/x"}, {`["rediss://ann@127.0.0.1:6379", "rediss://ann@127.0.0.1:6380/0"]`, "[]"}, {`["rediss://ann@127.0.0.1:6379", "rediss://ann@127.0.0.1:6380/0"]`, "rediss://127.0.0.1"},
		{"cluster: true", "cluster: 3"}, {"password_file: /etc/pw", "password: pw"}, {"ca_file: /etc/ca", "ca_file: 3"}, {"certificate_file: /etc/crt", "certificate_file: ''"}, {"key_file: /etc/key", "key_file: [/etc/key]"}, {`"{x}:"`, "''"}, {"nodes: 3", "nodes: 0"}, {"nodes: 3", "nodes: 10001"}, {"timeout: 10ms", "timeout: 10"}, {"mode: leased", "mode: fast"}, {"share: 10%", "share: 10"},
	})
}
