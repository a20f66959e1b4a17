package policyfile

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate"
)

// TestScenarios plays the files of testdata/scenarios: each behaviour of the
// policy once in the engine. With -update what comes is written into them.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/scenarios/*.yaml")
	if err != nil || len(files) < 5 {
		t.Fatalf("%d scenarios: %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			if *update {
				rewriteFile(t, file)
			}
			f, err := LoadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if err := f.TestAll(); err != nil {
				t.Error(err)
			}
		})
	}
}

func rewriteFile(t *testing.T, file string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text, _, err := Rewrite(file, data, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
}

// guarded is a policy, for tests to follow.
const guarded = `rules:
  - {name: login, match: {path: /login}, peek: {method: GET, path: /login}, key: client.ip, limit: 1/10s burst 2, failures: 401}
  - {name: mail, match: {path: /mail}, limit: 1/s queue 1}
  - {name: trial, match: {path: /mail}, limit: 1/min, enforce: 0}
  - {name: shut, match: {path: /admin}, deny: true}
  - {name: slots, match: {path: /slow}, limit: 1 at once}
  - {name: spare, match: {path: /spare}, limit: 1/h, backup: {upstream: "http://127.0.0.1:9"}}
  - {name: safe, match: {path: /pay}, limit: 10/s, on_fault: closed}
tests:
  - name: one
    with: {client.ip: 203.0.113.7, ends: 401}
    requests:
`

// steps are requests to guarded: as they stand, as Rewrite leaves them, and the
// failures that they bring, each by a part of its text.
var steps = []struct {
	name, text, rewritten string
	fails                 []string
}{
	{name: "as it is", text: "- {path: /login, times: 2, expect: {remaining: {login: 0}}}"},
	{
		name: "numbers", text: "- {path: /login, expect: {remaining: {login: 7}}} # left\n- {path: /login, times: 2, every: 1s, expect: {denied: login, retry_after: 1s}}",
		fails: []string{"at 0s: want 7 of login; got 1", "at 0s, request 1 of 2: want denied by login; got allowed, login: 0 left"},
	},
	{
		name: "a number of several alike", text: "- {path: /login, times: 2, expect: {remaining: {login: 1}}}",
		rewritten: "- {path: /login, times: 2, expect: {remaining: {login: 0}}}", fails: []string{"request 2 of 2: want 1 of login; got 0"},
	},
	{
		name: "the answer", text: "- path: /login\n  times: 2\n- path: /login # third\n  expect: allowed # hope",
		rewritten: "- path: /login\n  times: 2\n  expect: {remaining: {login: 0}}\n- path: /login # third\n  expect: {denied: login} # hope",
		fails:     []string{"want allowed; got denied by login, retry after 10s"},
	},
	{
		name: "the wait", text: "- {path: /login, times: 2}\n- {path: /login, at: 1s, expect: {denied: 'login', retry_after: never}}",
		rewritten: "- {path: /login, times: 2, expect: {remaining: {login: 0}}}\n- {path: /login, at: 1s, expect: {denied: 'login', retry_after: 9s}}",
		fails:     []string{"want retry after never; got 9s"},
	},
	{
		name: "a refusal that is none", text: "- path: /login\n  expect:\n    denied: login\n    retry_after: 10s\n- {path: /login}",
		rewritten: "- path: /login\n  expect:\n    allowed\n- {path: /login, expect: {remaining: {login: 0}}}",
		fails:     []string{"want denied by login; got allowed, login: 1 left"},
	},
	{
		name: "rules", text: "- {path: /mail, expect: {rules: [mail, login], would_deny: trial, peeked: mail}}",
		rewritten: "- {path: /mail, expect: {rules: [mail, trial], would_deny: [], peeked: []}}",
		fails: []string{
			"want applies: mail and login; got applies: mail and trial",
			"want would be denied by trial; got would be denied by no rule", "want peeked by mail; got peeked by no rule",
		},
	},
	{
		name: "all that came", text: "- {path: /mail}\n- {path: /mail,}\n- {path: /login, method: GET }\n- {path: //admin}\n- {path: /pay, store: down}\n- {path: /none}",
		rewritten: "- {path: /mail, expect: {remaining: {mail: 1, trial: 0}}}\n- {path: /mail, expect: {delay: 1s, remaining: {mail: 0, trial: 0}, would_deny: trial}}\n" +
			"- {path: /login, method: GET, expect: {remaining: {login: 2}, peeked: login} }\n- {path: //admin, expect: {denied: shut, retry_after: never}}\n" +
			"- {path: /pay, store: down, expect: unavailable}\n- {path: /none, expect: allowed}",
		fails: []string{"the test expects nothing"},
	},
	{
		name: "a delay", text: "- {path: /mail, expect: {delay: 2s}}", rewritten: "- {path: /mail, expect: {delay: 0s}}", fails: []string{"want delay 2s; got 0s"},
	},
	{
		name: "slots", text: "- {path: /slow, takes: 10s, expect: allowed}\n- {path: /slow, at: 9999ms, expect: allowed}\n- {path: /slow, at: 10s, times: 3, expect: denied}",
		rewritten: "- {path: /slow, takes: 10s, expect: allowed}\n- {path: /slow, at: 9999ms, expect: {denied: slots}}\n- {path: /slow, at: 10s, times: 3, expect: allowed}",
		fails:     []string{"want allowed; got denied by slots, retry after 9m50.001s", "at 10s, request 1 of 3: want denied; got allowed, slots: 0 left"},
	},
	{
		name: "a backup", text: "- {path: /spare, expect: {rules: [spare]}}\n- {path: /spare, expect: {denied: spare, backup: []}}\n- {path: /spare}",
		rewritten: "- {path: /spare, expect: {rules: [spare]}}\n- {path: /spare, expect: {denied: spare, backup: spare}}\n- {path: /spare, expect: {denied: spare, retry_after: 1h, backup: spare}}",
		fails:     []string{"want sent to the backup of no rule; got sent to the backup of spare"},
	},
	{
		name: "no rule of that name applies", text: "- {path: /mail, expect: {remaining: {login: 1}}}",
		fails: []string{"want 1 of login; got login does not apply"},
	},
	{
		name: "without a store nothing remains", text: "- {path: /login, store: down, expect: {remaining: {login: 1}}}\n- {path: /login, store: down, expect: {remaining: {login: 0}}}\n- {path: /login, expect: {remaining: {login: 1}}}\n- {path: /mail, store: down, expect: {remaining: {trial: 0}}}",
		fails: []string{"want 0 of trial; got trial asks no limit"},
	},
	{
		name: "some of several", text: "- {path: /login, times: 3, expect: allowed}", fails: []string{"request 3 of 3: want allowed; got denied by login"},
	},
	{name: "some of several, not said", text: "- {path: /login, times: 3}\n- {path: /none, expect: allowed}"},
	{
		name: "aliases and comments", text: "- {path: /mail, expect: &e {delay: 9s}}\n- {path: /none, expect: *e}\n- {path: /none, expect: {denied: # why?\n  mail}}",
		fails: []string{"want delay 9s; got 0s", "want denied by mail; got allowed"},
	},
}

// kept are the steps that can't be rewritten, and why.
var kept = map[string]string{
	"numbers":                         "not all answered alike",
	"no rule of that name applies":    "what came can't be written here: login does not apply",
	"without a store nothing remains": "what came can't be written here: trial asks no limit",
	"some of several":                 "not all answered alike",
	"some of several, not said":       "not all answered alike",
	"aliases and comments":            "can't be rewritten where it stands",
}

func indented(steps string) string {
	return "      " + strings.ReplaceAll(steps, "\n", "\n      ") + "\n"
}

func TestStepsFail(t *testing.T) {
	for _, c := range steps {
		f, err := Parse("x", []byte(guarded+indented(c.text)))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		got := f.Tests[0].Run().Failures
		if len(got) != len(c.fails) {
			t.Errorf("%s: failures\n%v\nwant %q", c.name, got, c.fails)
			continue
		}
		for i, want := range c.fails {
			if !strings.Contains(got[i].Error(), want) {
				t.Errorf("%s: fails with %v, want %q", c.name, got[i], want)
			}
		}
	}
}

func TestRewrite(t *testing.T) {
	for _, c := range steps {
		for _, eol := range []string{"\n", "\r\n"} {
			before := "\uFEFF" + strings.ReplaceAll(guarded+indented(c.text), "\n", eol)
			want := "\uFEFF" + strings.ReplaceAll(guarded+indented(c.rewritten), "\n", eol)
			if c.rewritten == "" {
				want = before
			}
			got, n, err := Rewrite("x", []byte(before), nil)
			if why := kept[c.name]; why != "" {
				if err == nil || !strings.Contains(err.Error(), why) {
					t.Errorf("%s: error %v, want %q", c.name, err, why)
				}
				continue
			}
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
				continue
			}
			if string(got) != want || (n == 0) != (c.rewritten == "") {
				t.Errorf("%s: %d rewritten:\n%s\nwant\n%s", c.name, n, got, want)
			}
			if again, n, err := Rewrite("x", got, nil); err != nil || n != 0 || !bytes.Equal(again, got) {
				t.Errorf("%s: rewritten again: %d, %v\n%s", c.name, n, err, again)
			}
		}
	}
}

// TestRewritePicks leaves tests alone that are not chosen.
func TestRewritePicks(t *testing.T) {
	text := guarded + indented("- {path: /none}") + "  - name: two\n    requests: [{path: /none}]\n"
	got, n, err := Rewrite("x", []byte(text), func(t *Test) bool { return t.Name == "two" })
	if want := strings.Replace(text, "[{path: /none}]", "[{path: /none, expect: allowed}]", 1); err != nil || n != 1 || string(got) != want {
		t.Errorf("%d, %v:\n%s\nwant\n%s", n, err, got, want)
	}
	if _, _, err := Rewrite("x", []byte("rules: 5"), nil); !errors.As(err, new(Errors)) {
		t.Errorf("a broken file: %v", err)
	}
}

func TestTestAll(t *testing.T) {
	for text, want := range map[string]string{
		"rules: [{name: a, limit: 1/s}]": "policyfile: x: no tests",
		"rules: [{name: a, limit: 1/s}]\ntests: [{name: t, requests: [{times: 2, expect: allowed}]}]":            `x:2:49: test "t": at 0s, request 2 of 2: want allowed; got denied by a, retry after 1s`,
		"rules: [{name: a, limit: 1/s}]\ntests: [{name: t, requests: [{times: 2, every: 1s, expect: allowed}]}]": "",
	} {
		f, err := Parse("x", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if err := f.TestAll(); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s\nsays %q, want %q", text, got, want)
		}
	}
}

// TestElapsed reads what it writes.
func TestElapsed(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 1: "1ns", time.Second: "1s", 90 * time.Second: "90s", 90 * time.Minute: "90m", 1500 * time.Millisecond: "1.5s",
		72 * time.Hour: "3d", 25 * time.Hour: "25h", 26*time.Hour + 30*time.Minute + time.Second: "1d2h30m1s", 48*time.Hour + 1: "2d1ns",
		11*time.Hour + 59*time.Minute + 50*time.Second: "11h59m50s", 999_999_999: "999.999999ms", 333_333_334: "333.333334ms",
		24*time.Hour + 10*time.Minute: "1450m", 240*time.Hour + 10*time.Minute: "10d10m", 24*time.Hour + time.Hour + time.Millisecond: "1d1h0m0.001s",
	} {
		got := elapsed(d)
		if again, ok := parseSpan(got); got != want || !ok || again != d {
			t.Errorf("%v is written %s and read %v, %v; want %s", d, got, again, ok, want)
		}
	}
	if got := elapsed(spillgate.Never); got != "never" {
		t.Errorf("never is %s", got)
	}
	for text, want := range map[string]time.Duration{"7d": 168 * time.Hour, "1w": 168 * time.Hour, "5min": 5 * time.Minute, "1.5h30m": 2 * time.Hour, "10us": 10 * time.Microsecond} {
		if got, ok := parseSpan(text); !ok || got != want {
			t.Errorf("%s is read %v, %v; want %v", text, got, ok, want)
		}
	}
	for _, bad := range []string{"", "s", "10", "-1s", "1e3s", "1s ", "1 s", "200000000000000h", "9999999999999999999d", "37000d", "1s1"} {
		if d, ok := parseSpan(bad); ok {
			t.Errorf("%q is read as %v", bad, d)
		}
	}
}

// FuzzRewrite holds Rewrite to its word: what it returns passes, and is left
// alone when it is rewritten again.
// A length is a number, and may be written as one.
func TestLengthsAreNumbers(t *testing.T) {
	f, err := Parse("x", []byte(`rules: [{name: a, limit: 10/h, match: {content-length: [0, "1", 2048]}}]
tests:
  - {name: a, requests: [{content-length: 2048, expect: {rules: a}}, {content-length: 1, expect: {rules: a}}, {content-length: "0", expect: {rules: a}}, {content-length: 5, expect: {rules: []}}]}
`))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.TestAll(); err != nil {
		t.Error(err)
	}
	for _, wrong := range []string{"content-length: 010", "content-length: -1", "content-length: 1e3", "header.x-n: 5"} {
		if _, err := Parse("x", []byte("rules: [{name: a, limit: 1/h}]\ntests: [{name: a, requests: [{"+wrong+"}]}]")); err == nil {
			t.Errorf("%s is taken", wrong)
		}
	}
}

func FuzzRewrite(f *testing.F) {
	for _, c := range steps {
		f.Add(c.text)
	}
	f.Add("- {path: \"a\\\"b\", header.x-y: 'it''s', expect: {denied: [login, mail]}}")
	f.Fuzz(func(t *testing.T, steps string) {
		if len(steps) > 1000 || strings.Contains(steps, "000") {
			t.Skip("a thousand requests take too long")
		}
		got, _, err := Rewrite("x", []byte(guarded+indented(steps)), nil)
		if err != nil {
			if strings.Contains(err.Error(), "could not be read") {
				t.Error(err)
			}
			return
		}
		if again, n, err := Rewrite("x", got, nil); err != nil || n != 0 || !bytes.Equal(got, again) {
			t.Errorf("rewritten again: %d, %v", n, err)
		}
	})
}
