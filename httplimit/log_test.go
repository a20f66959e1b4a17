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

// Every refusal of a quiet second is in the log with the id that its client was
// told, and of a flood at least how many there were.
func TestLogLinesAreSampled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, lines := logged(t)
		eng := engine(t, rule(t, "visitor", "1/h burst 1", "host"))
		h := httplimit.Policy(eng, httplimit.Logger(log))(trivial)
		get(h) // passes
		for range 29 {
			id := get(h).Header.Get("Spillgate-Refusal")
			if got := lines(); len(got) != 1 || got[0]["refusal_id"] != id || got[0]["suppressed"] != 0.0 {
				t.Fatalf("of %s: %v", id, got)
			}
		}
		for range 1000 {
			get(h)
		}
		if got := lines(); len(got) != policy.JournalLines-29 {
			t.Errorf("%d lines of a flood", len(got))
		}
		eng.Close()
		got := lines()
		if len(got) != 1 || got[0]["msg"] != "refusals were not logged" || got[0]["rule"] != "visitor" || got[0]["suppressed"] != 1029.0-policy.JournalLines {
			t.Errorf("at the stop: %v", got)
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
		want := 1 // of the first fault
		if r.OnFault == policy.Shut {
			want = 3 // and of both refusals
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
