package gateway_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/spillgate/spillgate/clientip"
	"github.com/spillgate/spillgate/cmd/spillgate/internal/gateway"
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
