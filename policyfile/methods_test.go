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
			for _, method := range []string{"GET", "get", "Post"} {
				r := httptest.NewRequest(method, "/", nil)
				r.Header.Set(name, value)
				front := httplimit.Attributes(f.Policy, r)
				own := policy.Attrs{"method": method}
				a, err := policy.ParseAttribute("header." + name)
				if err != nil {
					t.Fatal(err)
				}
				own[a.String()] = value
				otherMethods(own)
				attribute := policy.Attribute{Kind: policy.Method}
				want, _ := front.AppendAttr(nil, attribute)
				if got, _ := own.AppendAttr(nil, attribute); string(got) != string(want) {
					t.Errorf("%s with %s: %q: %q, want %q", method, name, value, got, want)
				}
			}
		}
	}
}
