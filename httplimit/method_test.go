package httplimit_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/spillgate/spillgate/httplimit"
	"github.com/spillgate/spillgate/policy"
)

// A request that some program may serve as one of another method is one of
// both.
func TestMethodOverrides(t *testing.T) {
	guard := rule(t, "delete", "1/h burst 1")
	guard.Match = policy.Match{{Attribute: policy.Attribute{Kind: policy.Method}, Values: []string{"DELETE"}}}
	reads := rule(t, "others", "100/h burst 100", "method")
	reads.Peek = policy.Match{{Attribute: policy.Attribute{Kind: policy.Method}, Values: []string{"GET"}}}
	h := httplimit.Policy(engine(t, guard, reads))(trivial)
	for i, c := range []struct {
		fields []string
		want   int
	}{
		{nil, 200}, {[]string{"X-HTTP-Method-Override", "delete"}, 200}, {[]string{"X-HTTP-Method", " DELETE "}, 429},
		{[]string{"X-Method-Override", "PATCH", "X-Method-Override", "Delete"}, 429}, {[]string{"X-HTTP-Method-Override", "PATCH"}, 200},
		{[]string{"X-HTTP-Method-Override", ""}, 200}, {[]string{"X-HTTP-Method-Override", "GET"}, 200},
		{[]string{"X-HTTP-Method-Override", strings.Repeat("DELETE", 99)}, 200},
		{[]string{"X-HTTP-Method-Override", "DELETE, x"}, 429}, {[]string{"X-HTTP-Method-Override", "delete,"}, 429},
		{[]string{"X-HTTP-Method-Override", ",DELETE"}, 429}, {[]string{"X-HTTP-Method-Override", "a,b,c,d, e ,Delete"}, 429},
		{[]string{"X-HTTP-Method-Override", "a,b,c,d", "X-HTTP-Method-Override", "DELETE,x"}, 429},
		{[]string{"X-HTTP-Method-Override", strings.Repeat(",", 50_000)}, 200},
	} {
		resp := get(h, func(r *http.Request) {
			for j := 0; j < len(c.fields); j += 2 {
				r.Header.Add(c.fields[j], c.fields[j+1])
			}
		})
		if resp.StatusCode != c.want {
			t.Errorf("%d: %v: status %d", i, c.fields, resp.StatusCode)
		}
	}
}

// What stands in one field hides nothing of another, nor of its own first and
// last line.
func TestMethodOverridesAreNotCrowdedOut(t *testing.T) {
	guard := rule(t, "delete", "")
	guard.Deny, guard.Match = true, policy.Match{{Attribute: policy.Attribute{Kind: policy.Method}, Values: []string{"DELETE"}}}
	h := httplimit.Policy(engine(t, guard))(trivial)
	names := []string{"X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override"}
	for _, crowded := range names {
		for _, name := range names {
			for _, last := range []bool{false, true} {
				resp := get(h, func(r *http.Request) {
					add := func() { r.Header.Add(name, "DELETE") }
					if !last {
						add()
					}
					for i := range 40 {
						r.Header.Add(crowded, strings.Repeat(string(rune('A'+i%26)), 23))
					}
					if last {
						add()
					}
				})
				if resp.StatusCode != http.StatusForbidden {
					t.Errorf("%s among many %s, last %t: status %d", name, crowded, last, resp.StatusCode)
				}
			}
		}
	}
}
