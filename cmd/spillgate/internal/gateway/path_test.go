package gateway_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// A path keeps what of it is encoded, whatever else stands in it, for the upstream and
// for the rules.
func TestEscapesOfAPathAreKept(t *testing.T) {
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.RequestURI) })
	f := serve(t, up, compile(t, rule(t, "edit", "9/h", nil, "path", "/p/*/edit"), rule(t, "all", "99/h", nil)))
	for sent, want := range map[string]string{
		"/p/a%2Fb/edit":            "/p/a%2Fb/edit",
		"/p/a%2fb|c/edit":          "/p/a%2fb%7Cc/edit",
		"/p/a%2Fb^{}`\"<>/edit":    "/p/a%2Fb%5E%7B%7D%60%22%3C%3E/edit",
		"/p/a%2Fb\xc3\xbc/edit":    "/p/a%2Fb%C3%BC/edit",
		"/p/%3B%40%3A%25[x]|/edit": "/p/%3B%40%3A%25[x]%7C/edit",
		"/p/a|b/edit":              "/p/a%7Cb/edit",
		"/p/%C3%BC%7c/edit?q=|":    "/p/%C3%BC%7c/edit?q=|",
	} {
		c := raw(t, f.addr, "GET "+sent+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		got, err := io.ReadAll(c)
		if err != nil || !strings.HasSuffix(string(got), "\r\n\r\n"+want) {
			t.Errorf("%s: the upstream hears %q, want %s (%v)", sent, got, want, err)
		}
		if !strings.Contains(string(got), `"edit";r=`) {
			t.Errorf("%s: the rule on /p/*/edit does not count it:\n%s", sent, got)
		}
	}
}
