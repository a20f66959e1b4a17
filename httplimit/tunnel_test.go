package httplimit_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/spillgate/spillgate/clientip"
	"github.com/spillgate/spillgate/httplimit"
	"github.com/spillgate/spillgate/policy"
)

// tunnels serves a policy over loopback, behind a proxy that this test plays:
// ask asks as a visitor from an address for a host.
func tunnels(t *testing.T, rules ...policy.Rule) (ask func(visitor, host string) *http.Response) {
	proxies, err := clientip.New(clientip.Options{Trusted: []string{clientip.Loopback}, Header: clientip.XForwardedFor})
	if err != nil {
		t.Fatal(err)
	}
	h := httplimit.Policy(engine(t, rules...), httplimit.TrustedProxies(proxies))(trivial)
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return func(visitor, host string) *http.Response {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), "GET", server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		r.Header.Set("X-Forwarded-For", visitor)
		answer, err := server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		if _, err := io.Copy(io.Discard, answer.Body); err != nil {
			t.Fatal(err)
		}
		return answer
	}
}

func TestAGreedyVisitorDoesNotUseUpTheTunnel(t *testing.T) {
	own := rule(t, "visitor", "3/h burst 3", "client.ip")
	shared := rule(t, "tunnel", "10/h burst 10", "host")
	for _, rules := range [][]policy.Rule{{own, shared}, {shared, own}} {
		t.Run(rules[0].Name+" first", func(t *testing.T) {
			ask := tunnels(t, rules...)
			passed := 0
			for range 50 {
				answer := ask("198.51.100.1", "alice.example.com")
				if answer.StatusCode == 200 {
					passed++
					continue
				}
				// Named after what refuses, not after what stands first.
				if _, limits := fieldsOf(t, answer.Header); limits[0].value != "visitor" || answer.Header.Get("Retry-After") != "1200" {
					t.Fatalf("%v", answer.Header)
				}
			}
			if passed != 3 {
				t.Errorf("%d of the greedy visitor's 50 passed; want 3", passed)
			}
			passed = 0
			for i := range 20 {
				if ask(fmt.Sprintf("203.0.113.%d", i), "alice.example.com").StatusCode == 200 {
					passed++
				}
			}
			if passed != 7 {
				t.Errorf("%d of 20 others passed; want 7", passed)
			}
			// The full tunnel did not charge them: all may visit another three times.
			for i := 7; i < 20; i++ {
				for range 3 {
					host := fmt.Sprintf("bob-%d.example.com", i)
					if got := ask(fmt.Sprintf("203.0.113.%d", i), host).StatusCode; got != 200 {
						t.Fatalf("visitor %d of another tunnel: %d", i, got)
					}
				}
			}
		})
	}
}

// TestSpellings sends requests that mean the same in other spellings over a
// raw connection, and expects all of them to be charged to one rule.
func TestSpellings(t *testing.T) {
	guard := rule(t, "login", "100/h burst 100", "host")
	guard.Match = policy.Match{
		{Attribute: policy.Attribute{Kind: policy.Path}, Values: []string{"/login"}},
		{Attribute: policy.Attribute{Kind: policy.Method}, Values: []string{"POST"}},
	}
	// A handler that reads its path as loosely as any upstream might.
	server := httptest.NewServer(httplimit.Policy(engine(t, guard, rule(t, "all", "1000/h burst 1000")))(trivial))
	defer server.Close()
	for request, rules := range map[string][]string{
		"POST /login HTTP/1.1\r\nHost: example.com":                         {"login", "all"},
		"POST //login HTTP/1.1\r\nHost: example.com":                        {"login", "all"},
		"POST /login/ HTTP/1.1\r\nHost: EXAMPLE.com":                        {"login", "all"},
		"POST /%6cogin HTTP/1.1\r\nHost: example.com.":                      {"login", "all"},
		"POST /lo%67in?next=/ HTTP/1.1\r\nHost: example.com:443":            {"login", "all"},
		"POST /a/../login HTTP/1.1\r\nHost: example.com":                    {"login", "all"},
		"POST /login;a=b HTTP/1.1\r\nHost: example.com":                     {"login", "all"},
		"POST /%2e/login HTTP/1.1\r\nHost: example.com":                     {"login", "all"},
		"POST /%2flogin HTTP/1.1\r\nHost: example.com":                      {"login", "all"},
		"POST /%5clogin HTTP/1.1\r\nHost: example.com":                      {"login", "all"},
		"POST http://example.com/login HTTP/1.1\r\nHost: other.example":     {"login", "all"},
		"POST http://EXAMPLE.COM:80//login HTTP/1.1\r\nHost: other.example": {"login", "all"},
		"POST /login HTTP/1.1\r\nHost: example.com\r\nX-HTTP-Method: GET":   {"login", "all"},
		"post /login HTTP/1.1\r\nHost: example.com":                         {"login", "all"}, // some servers serve it as POST
		"PUT /login HTTP/1.1\r\nHost: example.com":                          {"all"},
		"POST /login/more HTTP/1.1\r\nHost: example.com":                    {"all"},
		"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443":         {"all"},
		"GET http://example.com HTTP/1.1\r\nHost: other.example":            {"all"},
		"GET / HTTP/1.0": {"all"},
		"GET /\xff\xfe%00 HTTP/1.1\r\nHost: example.com":                     {"all"},
		"GET /" + strings.Repeat("../", 3000) + " HTTP/1.1\r\nHost: example": {"all"},
	} {
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, request+"\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		conn.Close()
		name := request[:min(len(request), 80)]
		if err != nil || answer.StatusCode != 200 {
			t.Errorf("%q: %v, %v", name, answer, err)
			continue
		}
		_, limits := fieldsOf(t, answer.Header)
		var got []string
		for _, l := range limits {
			got = append(got, l.value)
		}
		if !slices.Equal(got, rules) {
			t.Errorf("%q: charged to %v; want %v", name, got, rules)
		}
	}
}
