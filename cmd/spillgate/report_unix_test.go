//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/policy"
)

// TestReportOnSignal : SIGUSR1 tells who is limited and blocked, and an entry in
// a list of those who are exempt lets somebody pass who is.
func TestReportOnSignal(t *testing.T) {
	dir := t.TempDir()
	list, file := filepath.Join(dir, "pardoned.txt"), filepath.Join(dir, "policy.yaml")
	for name, text := range map[string]string{list: "", file: fmt.Sprintf(`
server: {upstream: %q}
rules:
  - {name: login, match: {path: /login}, key: client.ip, limit: 1/h, penalty: {after: 2, within: 1m, block: 1h}}
  - {name: token, key: header.authorization, missing: skip, limit: 1/h burst 2}
  - {name: address, key: client.ip, limit: 1000/s}
  - {name: tokens, unit: tokens, limit: 100_000/h}
usage: [{match: {path: /v1/chat}, format: openai, output: "1000"}]
overrides: [{exempt: true, rule: login, list: pardoned.txt}]
`, models(t).URL)} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p := start(t, file)
	who := visitor(t, "127.0.0.51")
	login := func(want int) {
		t.Helper()
		if r := ask(t, who, http.MethodPost, p.url+"/login", ""); r.status != want {
			t.Errorf("login: %d, want %d", r.status, want)
		}
	}
	for _, want := range []int{200, 429, 429, 429} {
		login(want)
	}
	for range 3 {
		ask(t, who, http.MethodGet, p.url+"/", "", "Authorization", "Bearer hush")
	}
	ask(t, who, http.MethodPost, p.url+"/v1/chat", "")

	p.signal(t, syscall.SIGUSR1)
	p.log.await(t, p.exited, `{"report":"end"`)
	got := map[string]map[string]any{}
	for line := range strings.Lines(p.log.String()) {
		if strings.HasPrefix(line, "{") {
			var l map[string]any
			if err := json.Unmarshal([]byte(line), &l); err != nil {
				t.Fatalf("%v in %s", err, line)
			}
			key, _, _ := strings.Cut(fmt.Sprint(l["key"]), "=hmac:")
			got[fmt.Sprint(l["report"], " ", l["rule"], " ", key)] = l
		}
	}
	for name, want := range map[string]map[string]any{
		"blocked login client.ip=127.0.0.51": {"times": 1.0, "refused": 1.0},
		"limited login client.ip=127.0.0.51": {"denied": 3.0, "trial": false},
		"limited token header.authorization": {"denied": 1.0},
		"usage <nil> <nil>":                  {"usage": file + ":8", "unit": "tokens", "told": 1.0, "reserved": 1000.0, "settled": 300.0, "back": 700.0, "over": 0.0},
		"end <nil> <nil>":                    {"lines": float64(len(got) - 1), "left_out": 0.0},
	} {
		for key, value := range want {
			if got[name][key] != value {
				t.Errorf("%s: %s is %v, want %v", name, key, got[name][key], value)
			}
		}
	}
	if strings.Contains(p.log.String(), "hush") {
		t.Error("a secret is told")
	}

	if err := os.WriteFile(list, []byte("127.0.0.51 until=2099-01-01 reason=\"the lock was our mistake\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.log.await(t, p.exited, "entries=1")
	login(200)
	p.signal(t, syscall.SIGTERM)
	if state := p.exit(t); state.ExitCode() != exitOK {
		t.Errorf("%s", state)
	}
	p.log.await(t, p.exited, `msg="keys blocked by a penalty" rule=login keys=1`)
	p.log.await(t, p.exited, `opaque=0 cut=0 free=0 reserved=1000 settled=300 over=0 back=700`)
}

// TestReportOfConnections : refused connections are in the log, one by one, in the
// report, and in the log at the stop.
func TestReportOfConnections(t *testing.T) {
	p := start(t, `
server:
  connections: {open: 1, accepts: 1/h burst 2, exempt: 127.0.0.8}
rules:
  - {name: everybody, limit: 1000/s, key: client.ip}
`, "--demo")
	dial(t, "127.0.0.8", p.url, "")
	first, _, cut := dial(t, "127.0.0.2", p.url, "")
	if _, _, second := dial(t, "127.0.0.2", p.url, ""); cut || !second {
		t.Errorf("cut: %t, %t", cut, second)
	}
	first.Close()
	until(t, "the end of the first makes room", func() bool {
		c, _, cut := dial(t, "127.0.0.2", p.url, "")
		if !cut {
			c.Close()
		}
		return !cut
	})
	until(t, "it is too fast", func() bool {
		dial(t, "127.0.0.2", p.url, "")
		return strings.Contains(p.log.String(), "too fast")
	})
	for _, because := range []string{"too many open", "opened too fast"} {
		p.log.await(t, p.exited, `msg="connection refused" peer=127.0.0.2 because="`+because+`" suppressed=0`)
	}
	p.signal(t, syscall.SIGUSR1)
	line := p.log.await(t, p.exited, `{"report":"connections"`)
	var got struct{ Accepted, Exempt, Open, Too_fast, Too_many, Faults int64 }
	if err := json.Unmarshal([]byte(line), &got); err != nil {
		t.Fatal(err)
	}
	if got.Accepted != 3 || got.Exempt != 1 || got.Open != 1 || got.Too_many < 1 || got.Too_fast < 1 || got.Faults != 0 {
		t.Errorf("%+v in %s", got, line)
	}
	p.signal(t, syscall.SIGTERM)
	p.log.await(t, p.exited, fmt.Sprintf(`msg=connections accepted=3 exempt=1 open=0 too_fast=%d too_many=%d faults=0`, got.Too_fast, got.Too_many))
	if state := p.exit(t); state.ExitCode() != exitOK {
		t.Errorf("%s", state)
	}
}

// TestReportIsBounded : it says how much it left out.
func TestReportIsBounded(t *testing.T) {
	limit, err := spillgate.ParseLimit("1/h burst 1")
	if err != nil {
		t.Fatal(err)
	}
	var rules []policy.Rule
	for i := range 30 {
		rules = append(rules, policy.Rule{
			Name: fmt.Sprintf("r%d", i), Limit: limit, Key: []policy.Part{{Attributes: []policy.Attribute{{Kind: policy.User}}}},
		})
	}
	p, err := policy.Compile(rules)
	if err != nil {
		t.Fatal(err)
	}
	m := spillgate.NewMemory()
	defer m.Close()
	e := policy.NewEngine(p, m)
	at := time.Unix(1_800_000_000, 0)
	for i := range 101 {
		for range 2 {
			e.Decide(t.Context(), policy.Attrs{"user": fmt.Sprint(i)}, policy.At(at))
		}
	}
	var b bytes.Buffer
	if err := reportTo(&b, e, nil, at); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	want := fmt.Sprintf(`{"report":"end","time":%q,"lines":%d,"left_out":%d}`, at.Format(time.RFC3339), maxReportedLines, 30*101-maxReportedLines)
	if got := lines[len(lines)-1]; got != want || len(lines) != maxReportedLines+1 {
		t.Errorf("%d lines, the last is %s, want %s", len(lines), got, want)
	}
}
