package httplimit_test

import (
	"maps"
	"net/http"
	"regexp"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate/httplimit"
)

// Public bugs of other rate limiters in what they tell clients; docs/proof.md
// lists them.

// The wait is a whole number of seconds, at least one, and what the fields hold
// strict clients can read, whatever fraction of a second it truly is.
func TestB056WaitsAreWholeSeconds(t *testing.T) {
	whole := regexp.MustCompile(`^[1-9][0-9]*$`)
	for _, limit := range []string{
		"120/s burst 1", "3/s burst 2", "7/h burst 1", "1000000000/s burst 1", "5/1500ms fixed", "7/13s sliding", "3/7s log",
		"11/calendar hour",
	} {
		for _, jitter := range []int{0, 20} {
			synctest.Test(t, func(t *testing.T) {
				h := httplimit.Policy(engine(t, rule(t, "a", limit)), httplimit.Jitter(jitter), httplimit.Dialects(httplimit.Draft, httplimit.GitHub))(trivial)
				time.Sleep(123456789 * time.Nanosecond)
				answer := get(h)
				for range 1000 {
					if answer.StatusCode == http.StatusTooManyRequests {
						break
					}
					answer = get(h)
				}
				if waits := answer.Header.Values("Retry-After"); answer.StatusCode != http.StatusTooManyRequests || len(waits) != 1 || !whole.MatchString(waits[0]) {
					t.Errorf("%s: %s, Retry-After %q", limit, answer.Status, waits)
				}
				_, limits := fieldsOf(t, answer.Header)
				if r, ok := limits[0].params["r"].(int64); !ok || r != 0 {
					t.Errorf("%s: %v", limit, limits)
				}
				for name, value := range older(answer.Header) {
					if name != "Resource" && name != "Scope" && !regexp.MustCompile(`^[0-9]+$`).MatchString(value) {
						t.Errorf("%s: %s: %q", limit, name, value)
					}
				}
			})
		}
	}
}

// Of several rules each is told by its name, or one is: the one with the least
// left, with all its numbers.
func TestB070WhichRuleTheNumbersSpeakOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := httplimit.Policy(engine(t, rule(t, "hour", "100/h burst 100"), rule(t, "second", "5/s burst 5")),
			httplimit.Dialects(httplimit.Draft, httplimit.Delta))(trivial)
		var answer *http.Response
		for range 5 {
			answer = get(h)
		}
		policies, limits := fieldsOf(t, answer.Header)
		if !same(limits, []item{{"name": "hour", "r": 95, "t": 180}, {"name": "second", "r": 0, "t": 1}}) ||
			!same(policies, []item{{"name": "hour", "q": 100, "w": 3600}, {"name": "second", "q": 5, "w": 1}}) {
			t.Errorf("RateLimit: %s; RateLimit-Policy: %s", answer.Header.Get("RateLimit"), answer.Header.Get("RateLimit-Policy"))
		}
		want := map[string]string{"Limit": "5", "Remaining": "0", "Used": "5", "Reset": "1", "Burst": "5", "Resource": "second"}
		if got := older(answer.Header); !maps.Equal(got, want) {
			t.Errorf("of one rule: %v, want %v", got, want)
		}
	})
}
