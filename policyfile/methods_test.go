package policyfile

import (
	"net/http/httptest"
	"testing"

	"github.com/spillgate/spillgate/httplimit"
	"github.com/spillgate/spillgate/policy"
)

// TestMethodsAreThoseOfFronts : what a test says of a request is what HTTP
// middleware says of it.
func TestMethodsAreThoseOfFronts(t *testing.T) {
	f, err := Parse("x", []byte("rules: [{name: a, match: {method: POST}, limit: 1/s}]"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override", "X-Method"} {
		for _, value := range []string{"POST", " post ", "GET", "A-METHOD-OF-24-CHARACTERS", "A-METHOD-OF-24-CHARACTER", ""} {
			r := httptest.NewRequest("GET", "/", nil)
			r.Header.Set(name, value)
			front := httplimit.Attributes(f.Policy, r)
			own := policy.Attrs{"method": "GET"}
			a, err := policy.ParseAttribute("header." + name)
			if err != nil {
				t.Fatal(err)
			}
			own[a.String()] = value
			otherMethods(own)
			method := policy.Attribute{Kind: policy.Method}
			want, _ := front.AppendAttr(nil, method)
			if got, _ := own.AppendAttr(nil, method); string(got) != string(want) {
				t.Errorf("%s: %q: %q, want %q", name, value, got, want)
			}
		}
	}
}
