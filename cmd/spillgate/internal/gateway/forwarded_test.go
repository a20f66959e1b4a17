package gateway_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/spillgate/spillgate/clientip"
	"github.com/spillgate/spillgate/cmd/spillgate/internal/gateway"
	"github.com/spillgate/spillgate/policy"
)

// The upstream is told of no client that rules don't count by: not by who is not
// trusted, and not by a field that a trusted proxy left as some client sent it.
func TestUpstreamsHearOfTheClientThatCounts(t *testing.T) {
	names := []string{"X-Forwarded-For", "Forwarded", "X-Real-IP", "X_Real_IP"}
	addr := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		for _, name := range names {
			if v := r.Header.Values(name); len(v) > 0 {
				fmt.Fprintf(w, "%s: %s\n", name, strings.Join(v, ", "))
			}
		}
	})
	const claim, told = "6.6.6.6", "203.0.113.7"
	for _, c := range []struct {
		from, peer string
		fields     []string
		want       string
	}{
		{"X-Real-IP", "127.0.0.1", []string{"X-Real-IP", claim, "X_Real_IP", claim, "X-Forwarded-For", claim, "Forwarded", "for=" + claim}, "X-Forwarded-For: 127.0.0.1\n"},
		{"X-Real-IP", "127.0.0.2", []string{"X-Real-IP", told, "X_Real_IP", claim, "X-Forwarded-For", claim, "Forwarded", "for=" + claim}, "X-Forwarded-For: 203.0.113.7, 127.0.0.2\nX-Real-IP: 203.0.113.7\n"},
		{"X-Real-IP", "127.0.0.2", []string{"X-Real-IP", claim, "X-Real-IP", told}, "X-Forwarded-For: 127.0.0.2\n"},
		{"X-Real-IP", "127.0.0.2", []string{"X-Real-IP", told, "Connection", "X-Real-IP"}, "X-Forwarded-For: 203.0.113.7, 127.0.0.2\nX-Real-IP: 203.0.113.7\n"},
		{"X-Real-IP", "127.0.0.2", nil, "X-Forwarded-For: 127.0.0.2\n"},
		{"Forwarded", "127.0.0.1", []string{"X-Forwarded-For", claim, "Forwarded", "for=" + claim}, "X-Forwarded-For: 127.0.0.1\n"},
		{"Forwarded", "127.0.0.2", []string{"X-Forwarded-For", claim, "Forwarded", "for=" + told}, "X-Forwarded-For: 203.0.113.7, 127.0.0.2\nForwarded: for=203.0.113.7\n"},
		{"X-Forwarded-For", "127.0.0.2", []string{"X-Forwarded-For", told, "Forwarded", "for=" + claim}, "X-Forwarded-For: 203.0.113.7, 127.0.0.2\n"},
	} {
		f := open(t, addr, func(g *gateway.Config) {
			r, err := clientip.New(clientip.Options{Trusted: []string{"127.0.0.2"}, Header: c.from})
			if err != nil {
				t.Fatal(err)
			}
			g.Client = r
		})
		if got := get(t, visitor(t, c.peer), f.url, c.fields...).body; got != c.want {
			t.Errorf("%s, %q by %s: the upstream was told\n%swant\n%s", c.from, c.fields, c.peer, got, c.want)
		}
	}
}

// Where rules go by the host, no upstream is told of another one than they saw:
// most proxies pass on what clients claim. Elsewhere it hears what the proxy said.
func TestUpstreamsHearOfTheHostThatCounts(t *testing.T) {
	addr := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s", r.Header.Get("X-Forwarded-Host"), r.Header.Get("Forwarded"))
	})
	hosts := rule(t, "hosts", "1000/h burst 1000", nil, "host", "x.test")
	keyed := rule(t, "keyed", "1000/h burst 1000", []string{"host"})
	lanes := rule(t, "lanes", "1000/h burst 1000", []string{"client.ip"})
	lanes.Lanes = []policy.Lane{{Match: when(t, "host", "x.test")}, {Keep: 1}}
	usual := rule(t, "usual", "1000/h burst 1000", []string{"client.ip"}, "path", "/login")
	told := rule(t, "told", "1000/h burst 1000", []string{"host"}, "proxy.x-forwarded-host", "x.test")
	const from = "for=203.0.113.7"
	for _, c := range []struct {
		rule                       policy.Rule
		host, told, forwarded, see string
	}{
		{usual, "y.test", "x.test", from + ";host=x.test", "x.test " + from + ";host=x.test"},
		{hosts, "y.test", "x.test", from, "y.test " + from},
		{keyed, "y.test", "x.test", from, "y.test " + from},
		{lanes, "y.test", "x.test", from, "y.test " + from},
		{told, "y.test", "x.test", from, "x.test " + from},
		{hosts, "y.test:81", "", from + ";proto=https;host=Y.test", "y.test:81 " + from + ";proto=https;host=Y.test"},
		{hosts, "y.test", "", `host="y.test:80";` + from, `y.test host="y.test:80";` + from},
		{hosts, "y.test", "", "for=1;host=x.test, " + from + ";host=y.test", "y.test "},
		{hosts, "y.test", "", from + ";host=x.test", "y.test "},
		{hosts, "y.test", "", from + `;HOST = "x.test"`, "y.test "},
		{hosts, "y.test", "", from + `;host="\x.test"`, "y.test "},
		{hosts, "y.test", "", `for="a;host=x.test";` + from, "y.test "},
		{hosts, "y.test", "", `ghost=x.test;` + from, "y.test "},
		{hosts, "y.test", "", `for="_hosts";` + from, `y.test for="_hosts";` + from},
	} {
		f := serve(t, addr, compile(t, c.rule), func(g *gateway.Config) {
			r, err := clientip.New(clientip.Options{Trusted: []string{"127.0.0.2"}, Header: "Forwarded"})
			if err != nil {
				t.Fatal(err)
			}
			g.Client = r
		})
		fields := []string{"Host: " + c.host, "Forwarded: " + c.forwarded}
		if c.told != "" {
			fields = append(fields, "X-Forwarded-Host: "+c.told)
		}
		conn := rawFrom(t, "127.0.0.2", f.addr, head("GET /", fields...))
		answer, err := io.ReadAll(conn)
		if err != nil {
			t.Fatal(err)
		}
		if _, got, _ := strings.Cut(string(answer), "\r\n\r\n"); got != c.see {
			t.Errorf("%s, %s, %s: the upstream was told %q, want %q", c.rule.Name, c.host, c.forwarded, got, c.see)
		}
	}
}
