package gateway_test

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/spillgate/spillgate/client"
	"github.com/spillgate/spillgate/cmd/spillgate/internal/gateway"
	"github.com/spillgate/spillgate/httplimit"
)

// An upstream that tells of its limits in the form of an older draft does not
// make ours unreadable; where we say nothing, it passes as it is.
func TestOlderDraftsOfTheUpstream(t *testing.T) {
	const theirs, named = "limit=100, remaining=0, reset=60", `"theirs";r=9;t=5`
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hints" {
			w.Header().Set("RateLimit", theirs)
			w.WriteHeader(http.StatusEarlyHints)
			w.Header().Del("RateLimit")
		}
		w.Header().Add("RateLimit", theirs)
		w.Header().Add("RateLimit", named)
		w.Header().Set("RateLimit-Policy", "100;w=60")
	})
	p := compile(t, rule(t, "ours", "5/h burst 5", nil))
	told := client.Quota{Unit: "requests", Limit: 100, Remaining: 0, Window: -1, Reset: time.Minute}
	for _, path := range []string{"/", "/hints"} {
		f := serve(t, up, p)
		got := get(t, visitor(t, "127.0.0.1"), f.url+path)
		if lines := got.Header["Ratelimit"]; len(lines) != 2 || lines[1] != named || len(got.Header["Ratelimit-Policy"]) != 1 {
			t.Errorf("%s: %q", path, got.Header)
		}
		if quotas := client.Read(got.Header, time.Now()).Quotas; len(quotas) != 2 || quotas[0].Name != "ours" || quotas[0].Limit != 5 || quotas[1].Name != "theirs" {
			t.Errorf("%s: read %+v", path, quotas)
		}
		f = serve(t, up, p, func(c *gateway.Config) { c.Headers = httplimit.Off })
		got = get(t, visitor(t, "127.0.0.1"), f.url+path)
		if lines := got.Header["Ratelimit"]; !slices.Equal(lines, []string{theirs, named}) {
			t.Errorf("%s: %q", path, lines)
		}
		if quotas := client.Read(got.Header, time.Now()).Quotas; len(quotas) != 2 || quotas[0] != told {
			t.Errorf("%s: read %+v", path, quotas)
		}
	}
}
