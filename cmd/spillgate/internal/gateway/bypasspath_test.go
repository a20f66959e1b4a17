package gateway_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/spillgate/spillgate/cmd/spillgate/internal/nginxtest"
	"github.com/spillgate/spillgate/policy"
)

// sortedOut sends each target once, and returns the bodies of those that passed.
func sortedOut(t *testing.T, addr string, targets []string) (bodies []string) {
	t.Helper()
	for _, target := range targets {
		c := raw(t, addr, head("GET "+target, "Host: x"))
		text, err := io.ReadAll(c)
		if err != nil {
			t.Fatal(err)
		}
		if status, body, _ := strings.Cut(string(text), "\r\n\r\n"); strings.HasPrefix(status, "HTTP/1.1 200") {
			bodies = append(bodies, body)
		}
		c.Close()
	}
	return bodies
}

// nginx decodes %2F to a slash and %5C to none.
func TestBypassByWhatNginxTakesForSlashes(t *testing.T) {
	targets := []string{
		"/login%2fx%5c../..", "/l%5cx/%2E./login%2f", "/a/../login", "//login", "/x%2f..%2flogin", `/\/../login`, "/%2e/login", "/login%2fx%5c/../..",
		"/login%2f%5c/%2e%2e", "/x%5cy%2f../login", "/%5c../x/../../login", "/login/a%5c..%2f..", "/x//../login", "/login/.", "/%2flogin", "/login/x%2f..",
	}
	for _, merge := range []string{"on", "off"} {
		ng := nginxtest.Start(t, "merge_slashes "+merge+`; location = /login { return 200 login; } location ~ ^//?login/?$ { return 200 login; } location / { return 200 other; }`)
		served := 0
		for _, body := range sortedOut(t, ng.Addr, targets) {
			served += strings.Count(body, "login")
		}
		if served < 10 {
			t.Errorf("merge_slashes %s: nginx serves only %d of %d as a login", merge, served, len(targets))
		}
		f := serve(t, ng.Addr, compile(t, rule(t, "login", "3/h burst 3", []string{"client.ip"}, "path", "/login")))
		passed := 0
		for _, body := range sortedOut(t, f.addr, targets) {
			passed += strings.Count(body, "login")
		}
		if passed == 0 || passed > loginLimit {
			t.Errorf("merge_slashes %s: %d logins came through, want %d", merge, passed, loginLimit)
		}
	}
}

// nodePath is what Node makes of a target by new URL(target, "http://x").pathname
// (the URL standard of the WHATWG, section 4.4).
func nodePath(target string) string {
	target, _, _ = strings.Cut(target, "?")
	path := withoutHost(strings.ReplaceAll(target, `\`, "/"))
	if path == target && strings.HasPrefix(path, "//") {
		path = "/" // a host alone
	}
	var out []string
	segs := strings.Split(path, "/")[1:]
	for i, seg := range segs {
		switch dots := strings.NewReplacer("%2e", ".", "%2E", ".").Replace(seg); dots {
		case ".", "..":
			if dots == ".." && len(out) > 0 {
				out = out[:len(out)-1]
			}
			if i == len(segs)-1 {
				out = append(out, "")
			}
		default:
			out = append(out, seg)
		}
	}
	return "/" + strings.Join(out, "/")
}

func TestBypassByHostsInPaths(t *testing.T) {
	for target, want := range map[string]string{
		"/login": "/login", "//x/login": "/login", "///x/login": "/login", "//u:p@h:80/login?/a": "/login", `/\x\login`: "/login", "//x": "/", "//": "/",
		"/a/%2e%2E/login": "/login", "/a//../login": "/a/login", "/.//x/login": "//x/login", "/a%2f../b": "/a%2f../b", "/a/.": "/a/",
	} {
		if got := nodePath(target); got != want {
			t.Fatalf("the model of Node takes %s for %s, not %s", target, got, want)
		}
	}
	addr := upstream(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, nodePath(r.RequestURI)) })
	rules := []policy.Rule{
		rule(t, "login", "3/h burst 3", []string{"client.ip"}, "path", "/login"),
		closed(t, "path", "/admin/**"),
		{Name: "health", Exempt: true, Match: when(t, "path", "/health/**")},
	}
	f := serve(t, addr, compile(t, rules...))
	var targets []string
	for _, front := range []string{"//x", "///x", "//u:p@x:80", "//health", "//health/../..", "/%2e//..//x", "////health", "//[::1]:1", "http://x//health"} {
		targets = append(targets, front+"/login", front+"/admin/x", front+"//login", front+"/admin", front+"/health/../admin/y")
	}
	logins := 0
	for _, served := range sortedOut(t, f.addr, targets) {
		logins += strings.Count(fmt.Sprint(served == "/login"), "true")
		if strings.HasPrefix(served, "/admin") {
			t.Errorf("%s came through", served)
		}
	}
	if logins == 0 || logins > loginLimit {
		t.Errorf("%d logins came through, want %d", logins, loginLimit)
	}
}
