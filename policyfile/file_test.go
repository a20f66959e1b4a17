package policyfile

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/clientip"
	"github.com/spillgate/spillgate/policy"
)

func attribute(t *testing.T, s string) policy.Attribute {
	t.Helper()
	a, err := policy.ParseAttribute(s)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestEveryKeyReachesTheRule(t *testing.T) {
	f, err := Parse("limits.yaml", []byte(`# every key
server:
  listen: ":8081"
  upstream: https://up.example/base
  client_ip: {trusted: [private, 192.0.2.0/24, unix], from: X-Real-IP}
  headers: refusals
  state: /var/lib/spillgate/state
  fingerprint_key_file: /etc/spillgate/key
  dialects: [draft, openai, envoy]
  jitter: 10%
  partition_keys: true
rules:
  - name: full
    match: {host: "*.tunnel.example", method: [POST, PUT], client.ip: ["!10.1.0.0/16"], header.X-Plan: free}
    peek: {method: GET}
    key: [client.ip/56, host else header.x-id lower trim secret]
    missing: deny
    limit: 10/s burst 20
    unit: tokens
    cost: 5
    failures: [401, 5xx, UNAUTHENTICATED, error]
    enforce: 30
    tell: true
    headers: off
    delay: {most: 2s, queue: 7}
    backup: {upstream: "http://b.example", match: {method: GET}}
    answer: {status: 503, headers: {X-Why: busy}, json: '{"e": 1}'}
    on_fault: closed
    max_keys: 1024
    at_cap: make_room
    ttl: 10m
  - {name: shut, key: host, deny: true, missing: skip, on_fault: local, at_cap: overflow, enforce: 0}
  - {name: plain, limit: unlimited, deny: false, tell: false, headers: on}
  - {name: everybody, limit: 10/s, key: client.ip, on_fault: open}
`))
	if err != nil {
		t.Fatal(err)
	}
	want := []policy.Rule{{
		Name: "full",
		Match: policy.Match{
			{Attribute: attribute(t, "host"), Values: []string{"*.tunnel.example"}},
			{Attribute: attribute(t, "method"), Values: []string{"POST", "PUT"}},
			{Attribute: attribute(t, "client.ip"), Values: []string{"!10.1.0.0/16"}},
			{Attribute: attribute(t, "header.x-plan"), Values: []string{"free"}},
		},
		Peek: policy.Match{{Attribute: attribute(t, "method"), Values: []string{"GET"}}},
		Key: []policy.Part{
			{Attributes: []policy.Attribute{attribute(t, "client.ip")}, Prefix: 56},
			{Attributes: []policy.Attribute{attribute(t, "host"), attribute(t, "header.x-id")}, Lower: true, Trim: true, Secret: true},
		},
		Missing: policy.Refuse, Limit: spillgate.Limit{Rate: 10, Period: time.Second, Burst: 20},
		Unit: "tokens", Cost: 5, Failures: []string{"401", "5xx", "UNAUTHENTICATED", "error"},
		Spare: 70, Tell: true, Hide: true, OnFault: policy.Shut,
		Delay:   policy.Delay{Most: 2 * time.Second, Queue: 7},
		Backup:  &policy.Backup{Upstream: "http://b.example", Match: policy.Match{{Attribute: attribute(t, "method"), Values: []string{"GET"}}}},
		Answer:  &policy.Answer{Status: 503, Header: map[string]string{"X-Why": "busy"}, Type: "application/json", Body: `{"e": 1}`},
		MaxKeys: 1024, AtCap: spillgate.MakeRoom, TTL: 10 * time.Minute, Source: "limits.yaml:13",
	}, {
		Name: "shut", Key: []policy.Part{{Attributes: []policy.Attribute{attribute(t, "host")}}}, Deny: true, Missing: policy.Skip, Spare: 100, Source: "limits.yaml:32",
	}, {
		Name: "plain", Limit: spillgate.Limit{Algorithm: spillgate.Unlimited}, Source: "limits.yaml:33",
	}, {
		Name: "everybody", Limit: spillgate.Limit{Rate: 10, Period: time.Second, Burst: 10}, OnFault: policy.Open, Source: "limits.yaml:34",
		Key: []policy.Part{{Attributes: []policy.Attribute{attribute(t, "client.ip")}}},
	}}
	wanted, err := policy.Compile(want) // which a rule's parts know of
	if err != nil {
		t.Fatal(err)
	}
	for i, got := range f.Policy.Rules() {
		if want := wanted.Rules()[i]; !reflect.DeepEqual(got, want) {
			t.Errorf("rule %d is\n%+v\nwant\n%+v", i, got, want)
		}
	}
	s := f.Server
	if want := (clientip.Options{Trusted: []string{"private", "192.0.2.0/24", "unix"}, Header: "X-Real-IP"}); !f.ForGateway || !reflect.DeepEqual(s.ClientIP, want) {
		t.Errorf("for the gateway %t, client_ip %+v", f.ForGateway, s.ClientIP)
	}
	if f.Name != "limits.yaml" || s.Listen != ":8081" || s.Upstream != "https://up.example/base" || s.Headers != HeadersRefusals || s.State != "/var/lib/spillgate/state" || s.FingerprintKeyFile != "/etc/spillgate/key" ||
		!reflect.DeepEqual(s.Dialects, []Dialect{DialectDraft, DialectOpenAI, DialectEnvoy}) || s.Jitter != 10 || !s.PartitionKeys {
		t.Errorf("file %q, server %+v", f.Name, s)
	}
	peer := map[string][]string{"X-Real-Ip": {"203.0.113.7"}}
	if got := s.Client.Addr("192.0.2.1:80", peer); got != netip.MustParseAddr("203.0.113.7") {
		t.Errorf("the client behind a proxy is %v", got)
	}
	if got := s.Client.Addr("198.51.100.1:80", peer); got != netip.MustParseAddr("198.51.100.1") {
		t.Errorf("the client who claims to be another is %v", got)
	}
}

func TestDefaults(t *testing.T) {
	f, err := Parse("x", []byte("rules: [{name: a, limit: 10/s}]"))
	if err != nil {
		t.Fatal(err)
	}
	if want := (Server{Listen: DefaultListen}); !reflect.DeepEqual(f.Server, want) {
		t.Errorf("server %+v, want %+v", f.Server, want)
	}
	want := policy.Rule{Name: "a", Limit: spillgate.Limit{Rate: 10, Period: time.Second, Burst: 10}, Source: "x:1"}
	if got := f.Policy.Rules()[0]; !reflect.DeepEqual(got, want) {
		t.Errorf("rule %+v, want %+v", got, want)
	}
}

func TestHeadersSpellTheirWords(t *testing.T) {
	for _, c := range headersWords {
		f, err := Parse("x", []byte("server: {headers: "+c.word+"}\nrules: [{name: a, limit: 10/s}]"))
		if err != nil || f.Server.Headers != c.value || c.value.String() != c.word {
			t.Errorf("%s: %v, %v", c.word, c.value, err)
		}
	}
	if s := Headers(9).String(); s != "headers(9)" {
		t.Errorf("an unknown value is %q", s)
	}
}

func TestFormsOfText(t *testing.T) {
	const plain = "rules:\n  - name: a\n    limit: 10/s\n"
	for name, text := range map[string]string{
		"byte order mark": "\uFEFF" + plain,
		"carriage return": strings.ReplaceAll(plain, "\n", "\r\n"),
		"no last newline": strings.TrimSpace(plain),
		"markers":         "---\n" + plain + "...\n",
		"JSON":            `{"rules": [{"name": "a", "limit": "10/s"}]}`,
		"folded":          "rules:\n  - name: a\n    limit: >-\n      10/s\n      burst 10\n",
		"aliases":         "rules:\n  - {name: &n a, limit: &l 10/s}\n  - {name: b, limit: *l, match: {user: *n}}\n",
	} {
		f, err := Parse("x", []byte(text))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if r := f.Policy.Rules()[0]; r.Name != "a" || r.Limit != spillgate.Must("10/s").Limit() {
			t.Errorf("%s: rule %+v", name, r)
		}
	}
}

func TestCauses(t *testing.T) {
	parse := func(text string) error {
		_, err := Parse("x", []byte(text))
		return err
	}
	var syntax *spillgate.SyntaxError
	if err := parse("rules: [{name: a, limit: 10/s brust 5}]"); !errors.As(err, &syntax) || !errors.Is(err, spillgate.ErrSyntax) {
		t.Errorf("limit: %v", err)
	}
	if err := parse("rules: [{name: a, limit: 10/s burst 0}]"); !errors.Is(err, policy.ErrRule) {
		t.Errorf("rule: %v", err)
	}
	var rule *policy.RuleError
	if err := parse("rules: [{name: a, limit: 1/s}, {name: a, limit: 1/s}]"); !errors.As(err, &rule) || rule.Index != 1 || rule.Field != "name" {
		t.Errorf("name: %v", err)
	}
	var network *clientip.NetworkError
	if err := parse("server: {client_ip: {trusted: nobody, from: x-real-ip}}\nrules: [{name: a, limit: 1/s}]"); !errors.As(err, &network) {
		t.Errorf("network: %v", err)
	}
	var one *Error
	err := parse("rules: [{name: a, limit: 10/s, x: 1}]")
	if !errors.As(err, &one) || one.Error() != err.Error() || one.Line != 1 || one.Column != 32 {
		t.Errorf("first error of %v is %v", err, one)
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	good, huge := filepath.Join(dir, "good.yaml"), filepath.Join(dir, "huge.yaml")
	if err := os.WriteFile(good, []byte("rules: [{name: a, limit: 10/s}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(huge, make([]byte, MaxSize+2), 0o600); err != nil {
		t.Fatal(err)
	}
	pol, err := Load(good)
	if err != nil || pol.Rules()[0].Source != good+":1" {
		t.Errorf("%+v, %v", pol, err)
	}
	if _, err := Load(filepath.Join(dir, "none.yaml")); !errors.Is(err, fs.ErrNotExist) || !strings.HasPrefix(err.Error(), "policyfile: ") {
		t.Errorf("a missing file: %v", err)
	}
	if _, err := Load(dir); err == nil || !strings.HasPrefix(err.Error(), "policyfile: ") {
		t.Errorf("a folder: %v", err)
	}
	var errs Errors
	if _, err := Load(huge); !errors.As(err, &errs) || !strings.Contains(err.Error(), "more than 10485760 bytes") {
		t.Errorf("a huge file: %v", err)
	}
}

func TestErrorsAreFewAndShort(t *testing.T) {
	_, err := Parse("x", []byte("rules:\n"+strings.Repeat("  - {name: A}\n", 1000)))
	var errs Errors
	if !errors.As(err, &errs) || len(errs) != maxErrors+1 {
		t.Errorf("%d errors, want %d and one that says so", len(errs), maxErrors)
	}
	if last := errs[len(errs)-1].Msg; !strings.Contains(last, "only the first 100 errors") {
		t.Errorf("the last error is %q", last)
	}
	for _, text := range []string{
		"rules: [{name: a, limit: %s}]", "rules: [{name: a, limit: 1/s, key: %s}]", "rules: [{%s: a}]",
		"rules: [{name: a, limit: 1/s, match: {%s: a}}]", "rules: !%s []", "rules: *%s",
	} {
		_, err := Parse("x", []byte(fmt.Sprintf(text, strings.Repeat("é", 100_000))))
		if err == nil || len(err.Error()) > 3*maxMessage {
			t.Errorf("%s: the message is %d bytes long", text, len(fmt.Sprint(err)))
		}
	}
}
