package gateway_test

import (
	"fmt"
	"testing"

	"github.com/spillgate/spillgate/clientip"
	"github.com/spillgate/spillgate/cmd/spillgate/internal/gateway"
	"github.com/spillgate/spillgate/cmd/spillgate/internal/nginxtest"
)

// trusting makes a gateway believe X-Forwarded-For from those proxies.
func trusting(t testing.TB, proxies ...string) func(*gateway.Config) {
	t.Helper()
	r, err := clientip.New(clientip.Options{Trusted: proxies, Header: clientip.XForwardedFor})
	if err != nil {
		t.Fatal(err)
	}
	return func(c *gateway.Config) { c.Client = r }
}

func TestClaimedAddressesGainNothing(t *testing.T) {
	ng := nginxtest.Start(t, everywhere)
	for _, name := range []string{"X-Forwarded-For", "Forwarded", "X-Real-IP", "True-Client-IP", "CF-Connecting-IP", "X-Client-IP", "X_Forwarded_For"} {
		f := serve(t, ng.Addr, compile(t, rule(t, "visitor", "5/h burst 5", []string{"client.ip"})))
		c, i := visitor(t, "127.0.0.1"), 0
		n := passes(t, 40, func() reply {
			i++
			addr := fmt.Sprintf("203.0.113.%d", i)
			if name == "Forwarded" {
				addr = "for=" + addr
			}
			return get(t, c, f.url, name, addr)
		})
		if n != 5 {
			t.Errorf("a new %s each time: %d of 40 passed, want 5", name, n)
		}
	}
}

func TestTrustedProxiesAreBelievedAndNoOneElse(t *testing.T) {
	ng := nginxtest.Start(t, everywhere)
	f := serve(t, ng.Addr, compile(t, rule(t, "visitor", "2/h burst 2", []string{"client.ip"})), trusting(t, "127.0.0.2", "127.0.0.3"))
	proxy, stranger := visitor(t, "127.0.0.2"), visitor(t, "127.0.0.9")
	from := func(hops string) func() reply {
		return func() reply { return get(t, proxy, f.url, "X-Forwarded-For", hops) }
	}
	if n := passes(t, 5, from("203.0.113.1")); n != 2 {
		t.Errorf("a client behind the proxy: %d, want 2", n)
	}
	if n := passes(t, 5, from("203.0.113.2")); n != 2 {
		t.Errorf("another client: %d, want 2", n)
	}
	if n := passes(t, 5, from("6.6.6.6, 203.0.113.1")); n != 0 {
		t.Errorf("a claim in front of the first client's address: %d, want 0", n)
	}
	if n := passes(t, 5, from("203.0.113.2, 127.0.0.3")); n != 0 {
		t.Errorf("the second client through both proxies: %d, want 0", n)
	}
	i := 0
	if n := passes(t, 20, func() reply {
		i++
		return get(t, stranger, f.url, "X-Forwarded-For", fmt.Sprintf("203.0.113.%d", 100+i))
	}); n != 2 {
		t.Errorf("who is no proxy: %d, want 2", n)
	}
}
