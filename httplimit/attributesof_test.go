package httplimit

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/spillgate/spillgate/policy"
)

func TestAttributesAreThoseOfPolicy(t *testing.T) {
	r := httptest.NewRequest("POST", "http://A.example:80/x/..%2flogin/?q=1", nil)
	r.RemoteAddr = "203.0.113.7:5"
	r.Header.Set("X-Plan", "free")
	p, err := policy.Compile(nil, policy.WithPaths(policy.Paths{Slash: true}))
	if err != nil {
		t.Fatal(err)
	}
	a := Attributes(p, r, User(func(*http.Request) string { return "ann" }))
	for name, want := range map[string]string{
		"method": "POST", "host": "a.example", "path": "/x/..%2Flogin/\x00/login/\x00/x/../login/", "client.ip": "203.0.113.7",
		"header.x-plan": "free", "query.q": "1", "user": "ann", "tenant": "", "header.x-none": "",
	} {
		attr, err := policy.ParseAttribute(name)
		if err != nil {
			t.Fatal(err)
		}
		got, ok := a.AppendAttr(nil, attr)
		if string(got) != want || ok != (want != "") {
			t.Errorf("%s is %q, %v; want %q", name, got, ok, want)
		}
	}
}
