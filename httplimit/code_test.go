package httplimit_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/httplimit"
	"github.com/spillgate/spillgate/policy"
)

// A call of gRPC fails with status 200: its code stands in a trailer, or in the
// header of an answer without a body, or the program names it.
func TestFailuresOfGRPC(t *testing.T) {
	trailer := func(prefix, code string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/grpc+proto")
			if prefix == "" {
				w.Header().Set("Trailer", "Grpc-Status")
			}
			_, _ = io.WriteString(w, "\x00\x00\x00\x00\x00")
			w.Header()[prefix+"Grpc-Status"] = []string{code}
		}
	}
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		failed  bool
	}{
		"a trailer":                {trailer("", "16"), true},
		"one that comes unseen":    {trailer(http.TrailerPrefix, "16"), true},
		"another code":             {trailer("", "5"), false},
		"all is well":              {trailer("", "0"), false},
		"a code that is none":      {trailer("", "99"), false},
		"no number":                {trailer("", "UNAUTHENTICATED"), false},
		"a failure by its status":  {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401) }, true},
		"HTTP that looks like one": {func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Grpc-Status", "16") }, false},
		"the header alone": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/grpc")
			w.Header().Set("Grpc-Status", "16")
		}, true},
		"the program's word": {func(w http.ResponseWriter, r *http.Request) { policy.FromContext(r.Context()).Code(16) }, true},
		"a code and a status": {func(w http.ResponseWriter, r *http.Request) {
			policy.FromContext(r.Context()).Code(5)
			w.WriteHeader(401)
		}, true},
	} {
		login := failuresOf(t, "9/h burst 9", "401")
		login.Failures = append(login.Failures, "UNAUTHENTICATED")
		h := httplimit.Policy(engine(t, login))(c.handler)
		for range 10 {
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/", nil))
		}
		if refused := get(h).StatusCode == http.StatusTooManyRequests; refused != c.failed {
			t.Errorf("%s: counts as a failure: %t", name, refused)
		}
	}
}

// A refusal's code says what the refusal is, also where a rule answers with
// another status; a fault is never told as a denial.
func TestCodesOfRefusals(t *testing.T) {
	limited, denying := rule(t, "a", "1/h burst 1"), policy.Rule{Name: "b", Deny: true}
	teapot := &policy.Answer{Status: http.StatusTeapot}
	limited.Answer, denying.Answer = teapot, teapot
	shut := rule(t, "c", "1/h")
	shut.OnFault = policy.Shut
	for name, c := range map[string]struct {
		eng  *policy.Engine
		cost int64
		want uint32
	}{
		"a limit":         {engine(t, limited), 1, 8},
		"a denial":        {engine(t, denying), 1, 7},
		"a fault":         {engineOn(t, &scripted{decide: fails(spillgate.ErrUnavailable)}, shut), 1, 14},
		"our fault":       {engineOn(t, &scripted{decide: fails(spillgate.ErrCharge)}, rule(t, "e", "1/h")), 1, 13},
		"a negative cost": {engine(t, rule(t, "d", "1/h")), -1, 3},
	} {
		var got uint32
		h := httplimit.Policy(c.eng, httplimit.Cost(policy.Requests, func(*http.Request) int64 { return c.cost }),
			httplimit.Denied(func(_ http.ResponseWriter, _ *http.Request, f httplimit.Refusal) { got = f.Code() }))(trivial)
		get(h)
		get(h)
		if got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}
