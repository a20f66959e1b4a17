package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/httplimit"
	"github.com/spillgate/spillgate/policy"
)

// TestExemptRequestsAreToldNothing: an answer tells no numbers of rules that the
// request is exempt from, and the handler hears by which rule it is.
func TestExemptRequestsAreToldNothing(t *testing.T) {
	all := rule(t, "all", "2/h", "client.ip")
	all.Tell = true
	health := policy.Rule{Name: "health", Exempt: true, Match: policy.Match{{Attribute: policy.Attribute{Kind: policy.Path}, Values: []string{"/health/**"}}}}
	h := httplimit.Policy(engine(t, all, health))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if x := policy.FromContext(r.Context()).Exempt(); x != nil {
			w.Header().Set("Exempt", x.Name)
		}
	}))
	ask := func(path string) *http.Response {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		return w.Result()
	}
	for range 5 {
		if a := ask("/health/live"); a.StatusCode != 200 || a.Header.Get("Exempt") != "health" || a.Header.Get("RateLimit") != "" || a.Header.Get("RateLimit-Policy") != "" {
			t.Fatalf("%d %v", a.StatusCode, a.Header)
		}
	}
	for i, want := range []int{200, 200, 429} {
		path := []string{"/", "/health/..;/x", "/"}[i] // the second is exempt by one reading only
		if a := ask(path); a.StatusCode != want || a.Header.Get("Exempt") != "" || a.Header.Get("RateLimit") == "" {
			t.Errorf("%s: %d %v", path, a.StatusCode, a.Header)
		}
	}
}

// TestUnenforcedPolicyChangesNoAnswer: with nobody refused, the answers are those
// of a server without limits.
func TestUnenforcedPolicyChangesNoAnswer(t *testing.T) {
	p, err := policy.Compile([]policy.Rule{
		rule(t, "all", "1/h", "client.ip"),
		{Name: "shut", Deny: true, Match: policy.Match{{Attribute: policy.Attribute{Kind: policy.Path}, Values: []string{"/admin"}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	h := httplimit.Policy(policy.NewEngine(p.Unenforced(), spillgate.NewMemory()))(trivial)
	for _, path := range []string{"/", "/", "/admin", "/"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		for name := range w.Header() {
			t.Errorf("%s: the answer has %s", path, name)
		}
		if w.Code != 200 {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
}
