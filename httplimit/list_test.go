package httplimit_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/httplimit"
)

// Only what is a List of names stands beside ours, as a strict reader reads it.
func TestOnlyListsAreJoined(t *testing.T) {
	ours := []string{`"ours";r=1;t=1`}
	for _, line := range []string{
		`"a";r=0;t=60`, ` "a" `, `"a";r=0,"b";r=1`, "\"a\";r=0 \t, \t\"b\"", `"a\"b\\"; r=1;x;y=?0;z=:cHNzdA==:`, `"a";d=@1659578233;e=-1.5;f=tok/en:1;g="s"`, `"";*k=1`,
	} {
		if got := httplimit.Join(ours, []string{line}); !slices.Equal(got, []string{ours[0], line}) {
			t.Errorf("%q is left out", line)
		}
		if _, err := parseList([]string{ours[0], line}); err != nil && !strings.Contains(line, "@") { // it knows no dates
			t.Errorf("%q is no list: %v", line, err)
		}
	}
	for _, line := range []string{
		"", " ", `limit=100, remaining=0, reset=60`, `100;w=60`, `100, 100;w=60`, `default;r=1`, `"a";r=0,`, `,"a"`, `"a" "b"`, `"a`, `"a\b"`, `"ä"`, `"a";`, `"a";R=1`, `"a";r=`,
		`"a";r=1.`, `"a";r=1234567890123456`, `"a";k=:%:`, `"a";k=?2`, `("a" "b");r=1`, "\"a\";r=1\n",
	} {
		if got := httplimit.Join(ours, []string{line, `"b";r=2`}); !slices.Equal(got, []string{ours[0], `"b";r=2`}) {
			t.Errorf("%q: %q", line, got)
		}
	}
	if len(ours) != 1 || httplimit.Join(nil, nil) != nil {
		t.Error("what was joined has changed")
	}
}

// What another middleware says stands beside what this one says, if it is a list.
func TestOlderDraftsOfAnotherMiddlewareAreLeftOut(t *testing.T) {
	for _, n := range []int64{1, 2} { // passes, and is refused
		inner := httplimit.New(spillgate.Must("1/h burst 1"), httplimit.Cost("requests", func(*http.Request) int64 { return n }))(trivial)
		resp := get(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header()["Ratelimit"] = []string{`limit=100, remaining=0, reset=60`, `"other";r=7`}
			inner.ServeHTTP(w, r)
		}))
		items, err := parseList(resp.Header["Ratelimit"])
		if err != nil || len(items) != 2 {
			t.Errorf("cost %d: %q, %v", n, resp.Header["Ratelimit"], err)
		}
	}
}
