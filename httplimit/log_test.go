package httplimit_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/httplimit"
	"github.com/spillgate/spillgate/policy"
)

// logged makes a logger and a function that reads what was written since.
func logged(t *testing.T) (*slog.Logger, func() []map[string]any) {
	var b bytes.Buffer
	return slog.New(slog.NewJSONHandler(&b, nil)), func() (lines []map[string]any) {
		t.Helper()
		for line := range strings.Lines(b.String()) {
			var m map[string]any
			if err := json.Unmarshal([]byte(line), &m); err != nil {
				t.Fatal(err)
			}
			lines = append(lines, m)
		}
		b.Reset()
		return lines
	}
}

func TestRefusalsAreLogged(t *testing.T) {
	log, lines := logged(t)
	h := httplimit.Policy(engine(t, rule(t, "visitor", "1/m burst 1", "client.ip")), httplimit.Logger(log))(trivial)
	change := func(r *http.Request) {
		r.URL.Path, r.URL.RawQuery = "/"+strings.Repeat("x", 9000), "token=secret"
		r.Header.Set("Authorization", "Bearer secret")
	}
	get(h, change)
	if got := lines(); len(got) != 0 {
		t.Errorf("an admitted request is logged: %v", got)
	}
	answer := get(h, change)
	got := lines()
	if len(got) != 1 {
		t.Fatalf("%d lines", len(got))
	}
	line := got[0]
	want := map[string]any{
		"msg": "request refused", "level": "INFO", "rule": "visitor", "why": "over limit", "key": "client.ip=203.0.113.9", "status": 429.0, "client": "203.0.113.9",
		"method": "GET", "host": "alice.example.com", "refusal_id": problemOf(t, answer).ID, "suppressed": 0.0,
	}
	for k, v := range want {
		if line[k] != v {
			t.Errorf("%s: %v; want %v", k, line[k], v)
		}
	}
	text, _ := line["retry_after"].(string)
	if wait, err := time.ParseDuration(text); err != nil || wait < 59*time.Second || wait > time.Minute {
		t.Errorf("retry_after %v", line["retry_after"])
	}
	if text := fmt.Sprint(line); len(text) > 1000 || strings.Contains(text, "secret") {
		t.Errorf("%d bytes: %s", len(text), text)
	}
}

// A rule that denies has no limit into which a request might not fit.
func TestWhyIsLogged(t *testing.T) {
	log, lines := logged(t)
	lacking := rule(t, "lacking", "1/h", "user")
	lacking.Missing = policy.Refuse
	for why, r := range map[string]policy.Rule{"denied by rule": {Name: "deny", Deny: true}, "key incomplete": lacking} {
		get(httplimit.Policy(engine(t, r), httplimit.Logger(log))(trivial))
		if got := lines(); len(got) != 1 || got[0]["why"] != why {
			t.Errorf("%v, want %q", got, why)
		}
	}
}

func TestLogLinesAreSampled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, lines := logged(t)
		other := rule(t, "other", "1/h burst 1")
		other.Match = policy.Match{{Attribute: policy.Attribute{Kind: policy.Host}, Values: []string{"bob.example.com"}}}
		h := httplimit.Policy(engine(t, rule(t, "visitor", "1/h burst 1", "host"), other), httplimit.Logger(log))(trivial)
		attack := func(n int) {
			for range n {
				get(h)
				time.Sleep(time.Millisecond)
			}
		}
		attack(1)    // passes
		attack(2500) // at 1 ms, 1001 ms and 2001 ms
		var got []any
		for _, line := range lines() {
			got = append(got, line["suppressed"])
		}
		if fmt.Sprint(got) != "[0 999 999]" {
			t.Errorf("suppressed: %v", got)
		}
		// Rules are sampled one by one.
		bob := func(r *http.Request) { r.Host = "bob.example.com" }
		get(h, bob)
		get(h, bob)
		if got := lines(); len(got) != 0 {
			t.Errorf("the rule that refused first is sampled: %v", got)
		}
		time.Sleep(time.Hour)
		attack(1) // passes, as the hour is over
		attack(1)
		if got := lines(); len(got) != 1 || got[0]["suppressed"] != 500.0 {
			t.Errorf("%v", got)
		}
	})
}

func TestFaultsAreLogged(t *testing.T) {
	log, lines := logged(t)
	shut, open := rule(t, "shut", "1/h burst 1"), rule(t, "open", "1/h burst 1")
	shut.OnFault, open.OnFault = policy.Shut, policy.Open
	for _, r := range []policy.Rule{shut, open} {
		h := httplimit.Policy(engineOn(t, &scripted{decide: fails(spillgate.ErrUnavailable)}, r), httplimit.Logger(log))(trivial)
		get(h)
		get(h)
		got := lines()
		want := 1 // of the fault
		if r.OnFault == policy.Shut {
			want = 2 // and of the refusal
		}
		if len(got) != want {
			t.Errorf("%s: %v", r.Name, got)
		}
		for _, line := range got {
			if line["level"] != "WARN" || !strings.Contains(fmt.Sprint(line["error"]), "unavailable") {
				t.Errorf("%v", line)
			}
		}
	}
}

func TestALostSettlementIsLogged(t *testing.T) {
	log, lines := logged(t)
	store := &scripted{decide: grants, settle: spillgate.ErrUnavailable}
	h := httplimit.Policy(engineOn(t, store, failuresOf(t, "9/h burst 9", "401")), httplimit.Logger(log))(trivial)
	if got := get(h).StatusCode; got != 200 {
		t.Errorf("the client is made to pay: %d", got)
	}
	if got := lines(); len(got) != 1 || got[0]["msg"] != "verdict not settled" || got[0]["level"] != "WARN" {
		t.Errorf("%v", got)
	}
}
