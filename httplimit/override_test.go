package httplimit_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/httplimit"
	"github.com/spillgate/spillgate/policy"
)

const abnormalUsage = "https://iana.org/assignments/http-problem-types#abnormal-usage-detected"

// What an answer says under an override is that of the override, not of its
// rule: the limit in the fields, and the end of a block.
func TestAnswersUnderOverrides(t *testing.T) {
	wide, err := spillgate.ParseLimit("2/h burst 2")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name     string
		override policy.Override
		statuses [3]int
		policy   string // RateLimit-Policy of the last answer
		retry    string
		kind     string
		detail   string
	}{
		{"exempt", policy.Override{Exempt: true}, [3]int{200, 200, 200}, "", "", "", ""},
		{"a limit", policy.Override{Limit: wide, Rules: []string{"a"}}, [3]int{200, 200, 429}, `"a";q=2;w=3600`, "1800", quotaExceeded, "used up"},
		{"denied", policy.Override{Deny: true}, [3]int{403, 403, 403}, "", "", "about:blank", "Waiting does not help"},
		{"denied for a while", policy.Override{Deny: true, Rules: []string{"a"}, Until: time.Date(2000, 1, 1, 2, 0, 0, 0, time.UTC)}, [3]int{403, 403, 403}, "", "7200", "about:blank", "Retry after 7200 s"},
		{"ended", policy.Override{Deny: true, Until: time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)}, [3]int{200, 429, 429}, `"a";q=1;w=60`, "60", quotaExceeded, "used up"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // begins at 2000-01-01
				p, err := policy.Compile([]policy.Rule{rule(t, "a", "1/m burst 1", "client.ip")})
				if err != nil {
					t.Fatal(err)
				}
				c.override.Match = policy.Match{{Attribute: policy.Attribute{Kind: policy.ClientIP}, Values: []string{"203.0.113.0/24"}}}
				if p, err = p.WithOverrides([]policy.Override{c.override}); err != nil {
					t.Fatal(err)
				}
				h := httplimit.Policy(policy.NewEngine(p, spillgate.NewMemory()))(trivial)
				var answer *http.Response
				for i, want := range c.statuses {
					if answer = get(h); answer.StatusCode != want {
						t.Fatalf("request %d: %s, want %d", i, answer.Status, want)
					}
				}
				if got := answer.Header.Get("RateLimit-Policy"); got != c.policy {
					t.Errorf("RateLimit-Policy %s, want %s", got, c.policy)
				}
				if got := answer.Header.Get("Retry-After"); got != c.retry {
					t.Errorf("Retry-After %s, want %s", got, c.retry)
				}
				if c.kind == "" {
					return
				}
				told := problemOf(t, answer)
				if told.Type != c.kind || !strings.Contains(told.Detail, c.detail) {
					t.Errorf("type %s, detail %q", told.Type, told.Detail)
				}
				// A rule is named if there is one.
				if named := len(c.override.Rules) > 0 || c.kind == quotaExceeded; strings.Contains(told.Detail, "rule") != named || (len(told.Violated) > 0) != named {
					t.Errorf("detail %q, violated %v", told.Detail, told.Violated)
				}
				// Others have the rule's limit.
				for i, want := range []int{200, 429} {
					if answer := get(h, from("198.51.100.1:1")); answer.StatusCode != want || answer.Header.Get("RateLimit-Policy") != `"a";q=1;w=60` {
						t.Errorf("another, request %d: %s, %s", i, answer.Status, answer.Header.Get("RateLimit-Policy"))
					}
				}
			})
		})
	}
}

// Whom a penalty blocks is told so, and the end of the block, which is true.
func TestAnswersUnderAPenalty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := rule(t, "a", "1/m burst 1", "client.ip")
		r.Penalty = policy.Penalty{After: 2, Within: time.Minute, Block: time.Hour}
		h := httplimit.Policy(engine(t, r))(trivial)
		for i, want := range []struct {
			status      int
			retry, kind string
		}{{200, "", ""}, {429, "60", quotaExceeded}, {429, "3600", abnormalUsage}, {429, "3600", abnormalUsage}} {
			answer := get(h)
			if answer.StatusCode != want.status || answer.Header.Get("Retry-After") != want.retry {
				t.Fatalf("request %d: %s, Retry-After %s", i, answer.Status, answer.Header.Get("Retry-After"))
			}
			if i == 0 {
				continue
			}
			if p := problemOf(t, answer); p.Type != want.kind || (want.kind == abnormalUsage) != strings.Contains(p.Detail, "is blocked") {
				t.Errorf("request %d: type %s, detail %q", i, p.Type, p.Detail)
			}
		}
		time.Sleep(time.Hour - 1)
		if answer := get(h); answer.StatusCode != 429 || answer.Header.Get("Retry-After") == "" {
			t.Errorf("a nanosecond early: %s", answer.Status)
		}
		time.Sleep(time.Nanosecond)
		if answer := get(h); answer.StatusCode != 200 {
			t.Errorf("after the block: %s", answer.Status)
		}
	})
}
