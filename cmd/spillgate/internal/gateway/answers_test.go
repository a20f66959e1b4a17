package gateway_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/spillgate/spillgate/cmd/spillgate/internal/gateway"
	"github.com/spillgate/spillgate/httplimit"
	"github.com/spillgate/spillgate/policy"
)

// What the upstream sends under the names of the older fields is replaced, also
// after an interim answer: one answer tells of one decision.
func TestOlderFieldsAreTheGatewaysOwn(t *testing.T) {
	addr := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/early" {
			w.Header().Set("Link", "</a.css>")
			w.WriteHeader(http.StatusEarlyHints)
		}
		w.Header().Set("X-RateLimit-Limit", "999")
		w.Header().Set("X-RateLimit-Remaining", "998")
		w.Header().Set("X-Other", "kept")
	})
	f := serve(t, addr, compile(t, rule(t, "a", "10/min", []string{"client.ip"})), func(c *gateway.Config) {
		c.Answers = []httplimit.Option{httplimit.Dialects(httplimit.Delta)}
	})
	for i, path := range []string{"/", "/early", "/"} {
		resp := get(t, visitor(t, "127.0.0.1"), f.url+path)
		want := []string{"9", "8", "7"}[i]
		if limit, left := resp.Header.Values("X-RateLimit-Limit"), resp.Header.Values("X-RateLimit-Remaining"); len(limit) != 1 || limit[0] != "10" ||
			len(left) != 1 || left[0] != want || resp.Header.Get("X-Other") != "kept" || resp.Header.Get("RateLimit") != "" {
			t.Errorf("%s: %v", path, resp.Header)
		}
	}
}

func TestAnswersByRuleInTheGateway(t *testing.T) {
	r := rule(t, "a", "1/h burst 1", []string{"client.ip"})
	r.Answer = &policy.Answer{Status: 503, Type: "text/html; charset=utf-8", Body: "<h1>Busy</h1>", Header: map[string]string{"X-Reason": "busy"}}
	f := serve(t, upstream(t, func(http.ResponseWriter, *http.Request) {}), compile(t, r))
	c := visitor(t, "127.0.0.1")
	get(t, c, f.url+"/")
	resp := get(t, c, f.url+"/")
	if resp.StatusCode != 503 || resp.Header.Get("X-Reason") != "busy" || resp.Header.Get("Retry-After") == "" {
		t.Errorf("%d %v", resp.StatusCode, resp.Header)
	}
	if id := resp.Header.Get(httplimit.RefusalHeader); !strings.Contains(f.log.String(), id) {
		t.Errorf("no %s in the log: %s", id, f.log)
	}
}
