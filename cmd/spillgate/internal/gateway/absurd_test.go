package gateway_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/spillgate/spillgate/policy"
)

// What is absurd is answered, at once and within bounds: a header of more than
// 64 KiB is not read to its end, and nothing of it is kept.
func TestAbsurdInput(t *testing.T) {
	var w witness
	token := rule(t, "token", "3/h burst 3", []string{"header.x-api-key"})
	token.Missing = policy.Skip
	f := serve(t, upstream(t, w.ServeHTTP), compile(t, token, rule(t, "address", "1000/h burst 1000", []string{"client.ip"})))
	var many strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&many, "X-%d: a\r\n", i)
	}
	for name, c := range map[string]struct {
		text   string
		status int
	}{
		"a key of 1 MB":         {login("X-Api-Key: " + strings.Repeat("k", 1<<20)), 431},
		"10,000 headers":        {"GET / HTTP/1.1\r\nHost: x\r\n" + many.String() + "\r\n", 431},
		"a target of 1 MB":      {head("GET /"+strings.Repeat("a/", 1<<19), "Host: x"), 431},
		"a key of 60 KB":        {login("X-Api-Key: " + strings.Repeat("k", 60_000)), 200},
		"5,000 headers":         {"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + strings.Repeat("X: a\r\n", 5000) + "\r\n", 200},
		"30,000 slashes":        {head("GET "+strings.Repeat("/", 30_000), "Host: x"), 200},
		"10,000 ups":            {head("GET "+strings.Repeat("/x/../..", 5000), "Host: x"), 200},
		"10,000 parameters":     {head("GET /?"+strings.Repeat("a=b&", 10_000), "Host: x"), 200},
		"5,000 cookies":         {head("GET /", "Host: x", "Cookie: "+strings.Repeat("a=b; ", 5000)), 200},
		"7,000 hops":            {head("GET /", "Host: x", "X-Forwarded-For: "+strings.Repeat("1.1.1.1,", 7000)), 200},
		"2,000 override fields": {head("GET /", "Host: x", strings.Repeat("X-Method-Override: PUT\r\n", 2000)+"A: b"), 200},
	} {
		got := exchange(t, "127.0.0.1", f.addr, c.text)
		if len(got) != 1 || got[0] != c.status {
			t.Errorf("%s: %v, want %d", name, got, c.status)
		}
	}
	if text := f.log.String(); len(text) > 64<<10 || strings.Contains(text, "panic") {
		t.Errorf("%d bytes of log", len(text))
	}
	if got := get(t, visitor(t, "127.0.0.1"), f.url+"/after"); got.StatusCode != http.StatusOK {
		t.Errorf("afterwards: %d", got.StatusCode)
	}
}
