package httplimit

import (
	"net/http"
	"testing"

	"github.com/spillgate/spillgate/clientip"
	"github.com/spillgate/spillgate/policy"
)

// The word of a proxy is that of a peer that is trusted, and of nobody else.
func TestOnlyTrustedProxiesSetTheirAttributes(t *testing.T) {
	resolver, err := clientip.New(clientip.Options{Trusted: []string{"10.0.0.0/8"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		peer string
		opts []Option
		want string
	}{
		{"10.0.0.1:4711", []Option{TrustedProxies(resolver)}, "ann, bob"},
		{"[::ffff:10.0.0.1]:4711", []Option{TrustedProxies(resolver)}, "ann, bob"},
		{"192.0.2.1:4711", []Option{TrustedProxies(resolver)}, "-"},
		{"@", []Option{TrustedProxies(resolver)}, "-"},
		{"10.0.0.1:4711", []Option{TrustedProxies(nil)}, "-"},
		{"10.0.0.1:4711", nil, "-"},
	} {
		r := &http.Request{RemoteAddr: c.peer, Header: http.Header{"X-User": {"ann", "bob"}, "X-Forwarded-For": {"10.0.0.1"}}}
		if got := ask(t, r, "proxy.X-User", c.opts...); got != c.want {
			t.Errorf("of %s: %q, want %q", c.peer, got, c.want)
		}
		var a attributes
		a.begin(&shared{options: optionsOf(c.opts)}, r)
		_, _ = a.AppendAttr(nil, policy.Attribute{Kind: policy.Header, Name: "x-user"}) // a rule on the header, too
		all := string(a.AppendRepeats(nil, policy.Attribute{Kind: policy.Proxy, Name: "x-user"}))
		if several := all == "ann\x00bob\x00"; several != (c.want != "-") || !several && all != "" {
			t.Errorf("of %s: several values %q", c.peer, all)
		}
	}
}
