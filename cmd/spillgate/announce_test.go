package main

import (
	"bytes"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spillgate/spillgate/policyfile"
)

// What the demo says to try shows what it says: a request that a limit speaks of, if
// there is one.
func TestDemoNamesARequestThatIsLimited(t *testing.T) {
	const rule = "rules: [{name: a, limit: 10/s, match: {"
	for text, want := range map[string]string{
		"rules: [{name: a, limit: 10/s}]":                                                    "curl -i http://127.0.0.1:1/                   # see the RateLimit fields",
		"server: {headers: off}\nrules: [{name: a, limit: 10/s}]":                            "curl -i http://127.0.0.1:1/                   # no answer has RateLimit fields (headers: off)",
		"server: {headers: refusals}\nrules: [{name: a, limit: 10/s}]":                       "/                   # RateLimit fields stand in refusals only (headers: refusals)",
		rule + "host: '*.tunnel.example'}}]":                                                 "curl -i -H 'Host: x.tunnel.example' http://127.0.0.1:1/                   # see the",
		rule + "path: /v1/**, method: [POST, PUT]}}]":                                        "curl -i -X POST http://127.0.0.1:1/v1/x               # see the",
		rule + "path: ['!/a', /b]}}]":                                                        "curl -i http://127.0.0.1:1/b                  # see the RateLimit fields",
		rule + "client.ip: 192.0.2.1}}]":                                                     "/                   # no rule limits this; spillgate explain",
		rule + "host: a.example}, headers: off}]":                                            "/                   # no rule limits this",
		rule + "path: \"/it's\"}}]":                                                          "/                   # no rule limits this",
		rule + "path: /admin}, enabled: false}, {name: b, deny: true}]":                      "/                   # no rule limits this",
		"server: {tls: {certificate_file: a, key_file: b}}\nrules: [{name: a, limit: 10/s}]": "curl -k -i https://127.0.0.1:1/                   # see",
	} {
		f, err := policyfile.Parse("x", []byte(text))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		holds(t, f, text, want)
	}
	for file, want := range map[string]string{
		"quickstart.yaml": "curl -i http://127.0.0.1:1/                   # see the RateLimit fields\n  curl -i -X POST http://127.0.0.1:1/report     # passes",
		"tunnel.yaml":     "curl -i -H 'Host: x.tunnel.example' http://127.0.0.1:1/                   # see the RateLimit fields",
		"models.yaml":     "http://127.0.0.1:1/                   # see the RateLimit fields",
	} {
		f, err := policyfile.LoadFile(filepath.Join("..", "..", "examples", file))
		if err != nil {
			t.Fatal(err)
		}
		holds(t, f, file, want)
	}
}

func holds(t *testing.T, f *policyfile.File, name, want string) {
	t.Helper()
	var out bytes.Buffer
	announce(&out, "x", f, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}, &f.Server, true)
	if !strings.Contains(out.String(), want) {
		t.Errorf("%s: %q is missing in\n%s", name, want, &out)
	}
}
