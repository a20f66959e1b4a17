package clientip

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
)

func mustNew(t testing.TB, header string, trusted ...string) *Resolver {
	t.Helper()
	r, err := New(Options{Trusted: trusted, Header: header})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// show prints the zero Addr as "".
func show(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

func TestUntrustedPeerIsTheClient(t *testing.T) {
	spoofed := map[string][]string{
		"X-Forwarded-For":  {"6.6.6.6", "6.6.6.6, 10.0.0.2"},
		"Forwarded":        {"for=6.6.6.6"},
		"X-Real-Ip":        {"6.6.6.6"},
		"Cf-Connecting-Ip": {"6.6.6.6"},
		"x-forwarded-for":  {"6.6.6.6"},
	}
	nobody, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	emptied, err := New(Options{Trusted: []string{}})
	if err != nil {
		t.Fatal(err)
	}
	resolvers := map[string]*Resolver{
		"nil": nil, "zero": {}, "no options": nobody, "emptied trust list": emptied,
		"trust without a header": mustNew(t, "", Private, Loopback, "198.51.100.0/24"),
		"list":                   mustNew(t, XForwardedFor, Private, Unix),
		"forwarded":              mustNew(t, Forwarded, Private),
		"single":                 mustNew(t, "X-Real-IP", Private),
		"neighbours of the peer": mustNew(t, XForwardedFor, "198.51.100.6", "198.51.100.8/29"),
	}
	for name, r := range resolvers {
		for _, peer := range []struct{ remote, want string }{
			{"198.51.100.7:4711", "198.51.100.7"},
			{"[2001:db8::7]:4711", "2001:db8::7"},
			{"[::ffff:198.51.100.7]:4711", "198.51.100.7"},
			{"[64:ff9b::198.51.100.7]:4711", "198.51.100.7"},
			{"[64:ff9b::10.0.0.1]:4711", "64:ff9b::a00:1"}, // not the private proxy
			{"[2001:db8::ffff:10.0.0.1]:4711", "2001:db8::ffff:a00:1"},
			{"pipe", ""},
			{"unknown", ""},
			{"10.0.0.1.:80", ""},
			{"010.0.0.1:80", ""},
		} {
			if got := show(r.Addr(peer.remote, spoofed)); got != peer.want {
				t.Errorf("%s: peer %q: got %q, want %q", name, peer.remote, got, peer.want)
			}
		}
	}
}

func TestXForwardedFor(t *testing.T) {
	tests := []struct {
		name  string
		lines []string
		want  string
	}{
		{"no header", nil, "10.0.0.1"},
		{"one client", []string{"203.0.113.9"}, "203.0.113.9"},
		{"client writes the leftmost", []string{"6.6.6.6, 203.0.113.9"}, "203.0.113.9"},
		{"client writes a line of its own", []string{"6.6.6.6", "203.0.113.9"}, "203.0.113.9"},
		{"client claims a trusted address", []string{"10.0.0.9, 127.0.0.1, 203.0.113.9"}, "203.0.113.9"},
		{"trusted hops are passed over", []string{"6.6.6.6, 203.0.113.9, 10.0.0.3, 10.0.0.2"}, "203.0.113.9"},
		{"trusted hops over several lines", []string{"6.6.6.6, 203.0.113.9", "10.0.0.3", "10.0.0.2"}, "203.0.113.9"},
		{"trusted hop in mapped spelling", []string{"203.0.113.9, ::ffff:10.0.0.2"}, "203.0.113.9"},
		{"trusted IPv6 hop", []string{"2001:db8::9, fd00::2"}, "2001:db8::9"},
		{"all trusted: leftmost", []string{"10.0.0.4, 10.0.0.3", "10.0.0.2"}, "10.0.0.4"},
		{"untrusted hop on the right ends it", []string{"203.0.113.9, 198.51.100.1"}, "198.51.100.1"},
		{"blanks of all sorts", []string{"6.6.6.6,\t 203.0.113.9 \t,10.0.0.2"}, "203.0.113.9"},
		{"no blanks", []string{"6.6.6.6,203.0.113.9,10.0.0.2"}, "203.0.113.9"},
		{"ports", []string{"203.0.113.9:1234, 10.0.0.2:80"}, "203.0.113.9"},
		{"IPv6 with brackets and port", []string{"[2001:db8::9]:1234"}, "2001:db8::9"},
		{"IPv6 in brackets", []string{"[2001:db8::9]"}, "2001:db8::9"},
		{"zone", []string{"fe80::1%eth0.100"}, "fe80::1"},
		{"zone in a URL's spelling", []string{"[fe80::1%25eth0]:443"}, "fe80::1"},
		{"unknown", []string{"6.6.6.6, unknown"}, "10.0.0.1"},
		{"unknown after a trusted hop", []string{"6.6.6.6, unknown, 10.0.0.2"}, "10.0.0.2"},
		{"obfuscated", []string{"6.6.6.6, _hidden, 10.0.0.2"}, "10.0.0.2"},
		{"garbage", []string{"6.6.6.6, <script>, 10.0.0.2"}, "10.0.0.2"},
		{"garbage left of the client", []string{"\x00\xff, ,,\"', 203.0.113.9"}, "203.0.113.9"},
		{"empty line", []string{""}, "10.0.0.1"},
		{"empty line on the right", []string{"6.6.6.6", ""}, "10.0.0.1"},
		{"empty entry is an unknown hop", []string{"6.6.6.6, , 10.0.0.2"}, "10.0.0.2"},
		{"trailing comma", []string{"6.6.6.6,"}, "10.0.0.1"},
		{"only commas", []string{",,,"}, "10.0.0.1"},
		{"leading zeros", []string{"6.6.6.6, 203.0.113.009"}, "10.0.0.1"},
		{"octal, hex and short forms", []string{"0x7f.1, 127.1, 2130706433"}, "10.0.0.1"},
		{"out of range", []string{"203.0.113.256"}, "10.0.0.1"},
		{"bad port", []string{"203.0.113.9:99999"}, "10.0.0.1"},
		{"no port after the colon", []string{"203.0.113.9:"}, "10.0.0.1"},
		{"CIDR", []string{"203.0.113.0/24"}, "10.0.0.1"},
		{"quoted", []string{`"203.0.113.9"`}, "10.0.0.1"},
		{"semicolons", []string{"6.6.6.6; 203.0.113.9"}, "10.0.0.1"},
		{"wide digits", []string{"２03.0.113.9"}, "10.0.0.1"},
		{"no-break space", []string{"\u00a0203.0.113.9"}, "10.0.0.1"},
		{"unspecified", []string{"6.6.6.6, 0.0.0.0, 10.0.0.2"}, "10.0.0.2"},
		{"unspecified IPv6", []string{"::, 10.0.0.2"}, "10.0.0.2"},
		{"NAT64 client", []string{"64:ff9b::203.0.113.9"}, "203.0.113.9"},
		{"NAT64 is no way into the private networks", []string{"6.6.6.6, 64:ff9b::10.0.0.2"}, "64:ff9b::a00:2"},
		{"hop on a unix socket that is not trusted", []string{"6.6.6.6, unix:, 10.0.0.2"}, "10.0.0.2"},
		{"a very long entry", []string{"6.6.6.6, " + strings.Repeat("1", 1<<20) + ", 10.0.0.2"}, "10.0.0.2"},
		{"a long zone", []string{"fe80::1%" + strings.Repeat("z", 1000)}, "10.0.0.1"},
	}
	r := mustNew(t, XForwardedFor, "10.0.0.0/8", Loopback, "fd00::/8")
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := show(r.Addr("10.0.0.1:4711", map[string][]string{"X-Forwarded-For": tt.lines})); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestClientCannotChangeItsKey(t *testing.T) {
	r := mustNew(t, XForwardedFor, "10.0.0.0/8")
	want := netip.MustParseAddr("203.0.113.9")
	for i := range 50 {
		random := fmt.Sprintf("%d.%d.7.7", i+1, i*3)
		for _, lines := range [][]string{{random + ", 203.0.113.9"}, {random, "203.0.113.9"}, {"10.0.0.1, " + random, "203.0.113.9, 10.0.0.7"}} {
			if got := r.Addr("10.0.0.1:80", map[string][]string{"X-Forwarded-For": lines}); got != want {
				t.Fatalf("%q: got %v, want %v", lines, got, want)
			}
		}
	}
}

func TestForwarded(t *testing.T) {
	tests := []struct {
		name  string
		lines []string
		want  string
	}{
		{"no header", nil, "10.0.0.1"},
		{"token", []string{"for=203.0.113.9"}, "203.0.113.9"},
		{"all parameters", []string{`For=203.0.113.9;proto=http;by=10.0.0.1;host="example.org"`}, "203.0.113.9"},
		{"for is not first", []string{"proto=http; FOR=203.0.113.9 ;by=_me"}, "203.0.113.9"},
		{"quoted IPv6 with port", []string{`for="[2001:db8:cafe::17]:4711"`}, "2001:db8:cafe::17"},
		{"quoted IPv6", []string{`for="[2001:db8:cafe::17]"`}, "2001:db8:cafe::17"},
		{"quoted IPv4 with port", []string{`for="203.0.113.9:80"`}, "203.0.113.9"},
		{"obfuscated port", []string{`for="203.0.113.9:_p.o-r_t"`}, "203.0.113.9"},
		{"bad obfuscated port", []string{`for="203.0.113.9:_a b"`}, "10.0.0.1"},
		{"empty obfuscated port", []string{`for="203.0.113.9:_"`}, "10.0.0.1"},
		{"not quoted though it should be", []string{"for=[2001:db8::17]:80"}, "2001:db8::17"},
		{"no brackets though there should be", []string{`for="2001:db8::17"`}, "2001:db8::17"},
		{"escaped characters", []string{`for="\2\03.0.113\.9"`}, "203.0.113.9"},
		{"several elements", []string{"for=6.6.6.6, for=203.0.113.9, for=10.0.0.2"}, "203.0.113.9"},
		{"several lines", []string{"for=6.6.6.6, for=203.0.113.9", "for=10.0.0.2"}, "203.0.113.9"},
		{"all trusted: leftmost", []string{"for=10.0.0.3,for=10.0.0.2"}, "10.0.0.3"},
		{"unknown", []string{"for=6.6.6.6, for=unknown, for=10.0.0.2"}, "10.0.0.2"},
		{"obfuscated", []string{"for=6.6.6.6, for=_gazonk, for=10.0.0.2"}, "10.0.0.2"},
		{"obfuscated and quoted", []string{`for="_gazonk:80"`}, "10.0.0.1"},
		{"element without for", []string{"for=6.6.6.6, proto=https"}, "10.0.0.1"},
		{"for twice in one element", []string{"for=6.6.6.6;for=203.0.113.9"}, "10.0.0.1"},
		{"a name that ends in for", []string{"x-for=6.6.6.6"}, "10.0.0.1"},
		{"blank before the equals sign", []string{"for =6.6.6.6"}, "10.0.0.1"},
		{"empty for", []string{"for="}, "10.0.0.1"},
		{"empty quoted for", []string{`for=""`}, "10.0.0.1"},
		{"empty line", []string{""}, "10.0.0.1"},
		{"bare address", []string{"203.0.113.9"}, "10.0.0.1"},
		{"text after the quotes", []string{`for="6.6.6.6"x`}, "10.0.0.1"},
		{"quotes inside a token", []string{`for=6.6.6.6"x"`}, "10.0.0.1"},
		{"comma in a quoted string", []string{`host="a, for=6.6.6.6";for=203.0.113.9`}, "203.0.113.9"},
		{"semicolon in a quoted string", []string{`host="a;for=6.6.6.6;b";for=203.0.113.9`}, "203.0.113.9"},
		{"escaped quotes in a quoted string", []string{`for=203.0.113.9;host="x\", for=6.6.6.6;by=\"y"`}, "203.0.113.9"},
		{"escaped backslash before the closing quote", []string{`for=203.0.113.9;host="x\\", for=10.0.0.2`}, "203.0.113.9"},
		{"client opens a quote", []string{`for="6.6.6.6, for=203.0.113.9`}, "203.0.113.9"},
		{"client opens a quote before a quoted address", []string{`for=", for="[2001:db8::9]:80"`}, "2001:db8::9"},
		{"client opens a quote in a line of its own", []string{`for="6.6.6.6`, "for=203.0.113.9"}, "203.0.113.9"},
		{"client ends with a backslash", []string{`for="\, for="203.0.113.9"`}, "203.0.113.9"},
		{"quote that is not closed", []string{`for=6.6.6.6, for="203.0.113.9`}, "10.0.0.1"},
		{"quote that is not opened", []string{`for=203.0.113.9"`}, "10.0.0.1"},
		{"closing quote is escaped", []string{`for="203.0.113.9\"`}, "10.0.0.1"},
		{"unix hop", []string{`for=6.6.6.6, for="unix:"`}, "10.0.0.1"},
		{"long quoted text", []string{`for=6.6.6.6, for="` + strings.Repeat(`\a`, 1<<19) + `"`}, "10.0.0.1"},
	}
	r := mustNew(t, "forwarded", "10.0.0.0/8")
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := show(r.Addr("10.0.0.1:4711", map[string][]string{"Forwarded": tt.lines})); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// The walk from the right refuses open quotes before a value is cut; cutting
// must not depend on that.
func TestCutValueRefusesOpenQuotes(t *testing.T) {
	for _, s := range []string{`"`, `"a`, `"\\`, `"a\"`, `"\\\"`} {
		if value, rest, ok := cutValue(s); ok {
			t.Errorf("cutValue(%q) = %q, %q", s, value, rest)
		}
	}
}

func TestSingleAddressHeader(t *testing.T) {
	r := mustNew(t, "CF-Connecting-IP", "10.0.0.0/8")
	tests := []struct {
		name  string
		lines []string
		want  string
	}{
		{"absent", nil, "10.0.0.1"},
		{"an address", []string{"203.0.113.9"}, "203.0.113.9"},
		{"blanks", []string{" 203.0.113.9\t"}, "203.0.113.9"},
		{"IPv6", []string{"2001:db8::9"}, "2001:db8::9"},
		{"mapped", []string{"::ffff:203.0.113.9"}, "203.0.113.9"},
		{"port", []string{"203.0.113.9:80"}, "203.0.113.9"},
		{"a trusted address", []string{"10.0.0.2"}, "10.0.0.2"},
		{"two lines", []string{"6.6.6.6", "203.0.113.9"}, "10.0.0.1"},
		{"a list", []string{"6.6.6.6, 203.0.113.9"}, "10.0.0.1"},
		{"empty", []string{""}, "10.0.0.1"},
		{"garbage", []string{"me"}, "10.0.0.1"},
		{"unix", []string{"unix:"}, "10.0.0.1"},
		{"unspecified", []string{"0.0.0.0"}, "10.0.0.1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := map[string][]string{
				"Cf-Connecting-Ip": tt.lines,
				"X-Forwarded-For":  {"6.6.6.6"}, // never read
				"Forwarded":        {"for=6.6.6.6"},
			}
			if got := show(r.Addr("10.0.0.1:4711", h)); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestOnlyTheNamedHeaderIsRead(t *testing.T) {
	h := map[string][]string{"X-Forwarded-For": {"1.1.1.1"}, "Forwarded": {"for=2.2.2.2"}, "X-Real-Ip": {"3.3.3.3"}}
	for header, want := range map[string]string{
		"": "10.0.0.1", XForwardedFor: "1.1.1.1", "x-forwarded-for": "1.1.1.1",
		Forwarded: "2.2.2.2", "X-Real-IP": "3.3.3.3", "True-Client-IP": "10.0.0.1",
	} {
		if got := show(mustNew(t, header, Private).Addr("10.0.0.1:1", h)); got != want {
			t.Errorf("header %q: got %q, want %q", header, got, want)
		}
	}
}

func TestLowerCaseKeysOfMetadata(t *testing.T) {
	r := mustNew(t, XForwardedFor, Private)
	if got := show(r.Addr("10.0.0.1:1", map[string][]string{"x-forwarded-for": {"203.0.113.9"}})); got != "203.0.113.9" {
		t.Errorf("got %q, want 203.0.113.9", got)
	}
	both := map[string][]string{"x-forwarded-for": {"6.6.6.6"}, "X-Forwarded-For": {"203.0.113.9"}}
	if got := show(r.Addr("10.0.0.1:1", both)); got != "203.0.113.9" {
		t.Errorf("both spellings: got %q, want 203.0.113.9", got)
	}
}

func TestUnixPeers(t *testing.T) {
	h := map[string][]string{"X-Forwarded-For": {"6.6.6.6, 203.0.113.9"}}
	hops := map[string][]string{"X-Forwarded-For": {"6.6.6.6, 203.0.113.9, unix:, 127.0.0.1, unix:"}}
	onlyUnix := map[string][]string{"X-Forwarded-For": {"unix:, unix:"}}
	broken := map[string][]string{"X-Forwarded-For": {"6.6.6.6, unknown"}}
	trusting := mustNew(t, XForwardedFor, Unix, Loopback)
	not := mustNew(t, XForwardedFor, Loopback, Any)
	for _, peer := range []string{"", "@", "@gateway", "/run/client.sock"} {
		for _, tt := range []struct {
			name   string
			r      *Resolver
			header map[string][]string
			want   string
		}{
			{"trusted", trusting, h, "203.0.113.9"},
			{"trusted, hops on sockets", trusting, hops, "203.0.113.9"},
			{"trusted, no header", trusting, nil, ""},
			{"trusted, no address anywhere", trusting, onlyUnix, ""},
			{"trusted, unreadable", trusting, broken, ""},
			{"not trusted", not, h, ""},
			{"zero", nil, h, ""},
		} {
			if got := show(tt.r.Addr(peer, tt.header)); got != tt.want {
				t.Errorf("peer %q, %s: got %q, want %q", peer, tt.name, got, tt.want)
			}
		}
	}
	if got := show(trusting.Addr("127.0.0.1:1", map[string][]string{"X-Forwarded-For": {"unix:"}})); got != "127.0.0.1" {
		t.Errorf("client on a socket of a proxy: got %q, want the proxy", got)
	}
}

func TestTrusts(t *testing.T) {
	r := mustNew(t, "", Private, Unix)
	for remote, want := range map[string]bool{
		"10.0.0.1:80": true, "[fd00::1]:80": true, "[::ffff:10.0.0.1]:80": true, "@": true, "": true,
		"203.0.113.9:80": false, "[64:ff9b::10.0.0.1]:80": false, "pipe": false, "10.0.0.1.evil.example:80": false,
	} {
		if got := r.Trusts(remote); got != want {
			t.Errorf("Trusts(%q) = %v, want %v", remote, got, want)
		}
	}
	var none *Resolver
	if none.Trusts("10.0.0.1:80") || new(Resolver).Trusts("@") {
		t.Error("the zero Resolver trusts somebody")
	}
}

// No name that a proxy or a network of others really uses is taken for another.
func TestHeadersOfProxiesAreTaken(t *testing.T) {
	for _, name := range []string{
		"X-Forwarded-For", "Forwarded", "X-Real-IP", "X-Client-IP", "Client-IP", "True-Client-IP", "CF-Connecting-IP", "CF-Connecting-IPv6", "Fastly-Client-IP",
		"X-Cluster-Client-IP", "X-Azure-ClientIP", "X-Envoy-External-Address", "X-Appengine-User-IP", "Proxy-Client-IP", "WL-Proxy-Client-IP", "Fly-Client-IP",
		"X-Original-Forwarded-For", "X-Nf-Client-Connection-Ip", "DO-Connecting-IP", "X-ProxyUser-Ip", "Remote-Addr", "CloudFront-Viewer-Address",
	} {
		if _, err := New(Options{Header: name, Trusted: []string{Private}}); err != nil {
			t.Error(err)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	tests := []struct {
		name string
		opts Options
		want error
		text string
	}{
		{"a header from everywhere", Options{Header: XForwardedFor}, ErrNothingTrusted, `"X-Forwarded-For"`},
		{"a header with an emptied list", Options{Header: "X-Real-IP", Trusted: []string{}}, ErrNothingTrusted, `"X-Real-IP"`},
		{"all of IPv4", Options{Header: XForwardedFor, Trusted: []string{"0.0.0.0/0"}}, ErrEverythingTrusted, `"any"`},
		{"all of IPv6", Options{Header: XForwardedFor, Trusted: []string{Private, "::/0"}}, ErrEverythingTrusted, `"any"`},
		{"all of IPv4, mapped", Options{Trusted: []string{"::ffff:0:0/96"}}, ErrEverythingTrusted, `"any"`},
		{"all in two halves", Options{Trusted: []string{"128.0.0.0/1", "0.0.0.0/1"}}, ErrEverythingTrusted, `"any"`},
		{"all that is public", Options{Trusted: []string{"2000::/3"}}, ErrEverythingTrusted, `"any"`},
		{"all that is public, with a gap", Options{Trusted: []string{"1.0.0.0/8", "2.0.0.0/7", "4.0.0.0/6", "8.0.0.0/5", "16.0.0.0/4", "32.0.0.0/3", "64.0.0.0/2", "128.0.0.0/2", "192.0.0.0/3"}}, ErrEverythingTrusted, `"any"`},
		{"a letter short", Options{Header: "X-Forwared-For", Trusted: []string{Private}}, ErrHeaderName, `"X-Forwarded-For"`},
		{"a letter short early on", Options{Header: "X-Fowarded-For", Trusted: []string{Private}}, ErrHeaderName, `"X-Forwarded-For"`},
		{"letters swapped", Options{Header: "x-fowrarded-for", Trusted: []string{Private}}, ErrHeaderName, `"X-Forwarded-For"`},
		{"no dashes, a letter more", Options{Header: "XFforwardedFor", Trusted: []string{Private}}, ErrHeaderName, `"X-Forwarded-For"`},
		{"the other one misspelt", Options{Header: "Fowarded", Trusted: []string{Private}}, ErrHeaderName, `"Forwarded"`},
		{"as PHP has it", Options{Header: "HTTP_X_FORWARDED_FOR", Trusted: []string{Private}}, ErrHeaderName, `"X-Forwarded-For"`},
		{"underscores", Options{Header: "x_forwarded_for", Trusted: []string{Private}}, ErrHeaderName, `"X-Forwarded-For"`},
		{"the header of the host", Options{Header: "X-Forwarded-Host", Trusted: []string{Private}}, ErrHeaderName, `"X-Forwarded-For"`},
		{"half a name", Options{Header: "Forwarded-For", Trusted: []string{Private}}, ErrHeaderName, `"Forwarded"`},
		{"a colon", Options{Header: "X-Real-IP:", Trusted: []string{Private}}, ErrHeaderName, "0x3a"},
		{"the host", Options{Header: "Host", Trusted: []string{Private}}, ErrHeaderName, `"X-Real-IP"`},
		{"a token", Options{Header: "authorization", Trusted: []string{Private}}, ErrHeaderName, `"authorization"`},
		{"a length", Options{Header: "Content-Length", Trusted: []string{Private}}, ErrHeaderName, `"X-Forwarded-For"`},
		{"the proxies' names", Options{Header: "via", Trusted: []string{Private}}, ErrHeaderName, "something else"},
		{"the browser", Options{Header: "USER-AGENT", Trusted: []string{Any}}, ErrHeaderName, "something else"},
		{"a blank", Options{Header: " X-Real-IP", Trusted: []string{Private}}, ErrHeaderName, "0x20"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, err := New(tt.opts)
			if !errors.Is(err, tt.want) {
				t.Fatalf("got %v, want %v", err, tt.want)
			}
			if r != nil {
				t.Error("a Resolver beside an error")
			}
			if !strings.HasPrefix(err.Error(), "clientip: ") || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("error %q lacks its package or %s", err, tt.text)
			}
		})
	}
	_, err := New(Options{Header: XForwardedFor, Trusted: []string{Private, "10.0.0.0/33"}})
	var bad *NetworkError
	if !errors.As(err, &bad) || bad.Index != 1 || bad.Entry != "10.0.0.0/33" {
		t.Errorf("got %v, want a NetworkError for entry 1", err)
	}
}

func TestHeadersOfOneAddress(t *testing.T) {
	for _, name := range []string{
		"X-Real-IP", "CF-Connecting-IP", "True-Client-IP", "Fastly-Client-IP", "X-Client-IP", "Fly-Client-IP", "X-Azure-ClientIP",
		"X-Envoy-External-Address", "X-Original-Forwarded-For", "X-Appengine-User-Ip", "X-Wardens-Word", "X-For", "A",
	} {
		if _, err := New(Options{Header: name, Trusted: []string{Private}}); err != nil {
			t.Error(err)
		}
	}
}

func TestTrustOfEverybodyMustBeNamed(t *testing.T) {
	r := mustNew(t, XForwardedFor, Any)
	if got := show(r.Addr("198.51.100.7:1", map[string][]string{"X-Forwarded-For": {"203.0.113.9, 198.51.100.1"}})); got != "203.0.113.9" {
		t.Errorf("got %q, want the leftmost", got)
	}
	mustNew(t, XForwardedFor, "0.0.0.0/0", Any)
}

func TestWalkIsBounded(t *testing.T) {
	r := mustNew(t, XForwardedFor, Private)
	chain := func(hops int) map[string][]string {
		return map[string][]string{"X-Forwarded-For": {"203.0.113.9" + strings.Repeat(", 10.0.0.2", hops)}}
	}
	if got := show(r.Addr("10.0.0.1:1", chain(maxHops-1))); got != "203.0.113.9" {
		t.Errorf("%d hops: got %q, want the client", maxHops, got)
	}
	if got := show(r.Addr("10.0.0.1:1", chain(maxHops))); got != "10.0.0.2" {
		t.Errorf("%d hops: got %q, want the last hop reached", maxHops+1, got)
	}
}

func TestAllocations(t *testing.T) {
	peers := mustNew(t, "")
	xff := mustNew(t, XForwardedFor, Private, Loopback, LinkLocal)
	fwd := mustNew(t, Forwarded, Private)
	cdn := mustNew(t, "CF-Connecting-IP", Private)
	h := map[string][]string{
		"X-Forwarded-For":  {"6.6.6.6, 2001:db8::9, [fe80::3%eth0]:80", "10.0.0.2"},
		"Forwarded":        {`for="[2001:db8::9]:80";proto=https, for=10.0.0.2`},
		"Cf-Connecting-Ip": {"2001:db8::9"},
	}
	want := netip.MustParseAddr("2001:db8::9")
	for _, tt := range []struct {
		name string
		r    *Resolver
		peer string
	}{
		{"peer only", peers, "[2001:db8::9]:4711"},
		{"peer not trusted", xff, "[2001:db8::9]:4711"},
		{"X-Forwarded-For of three hops", xff, "10.0.0.1:4711"},
		{"Forwarded of two hops", fwd, "10.0.0.1:4711"},
		{"CF-Connecting-IP", cdn, "10.0.0.1:4711"},
	} {
		if got := tt.r.Addr(tt.peer, h); got != want {
			t.Errorf("%s: got %v, want %v", tt.name, got, want)
		}
		if n := testing.AllocsPerRun(100, func() { tt.r.Addr(tt.peer, h) }); n != 0 {
			t.Errorf("%s: %v allocations, want 0", tt.name, n)
		}
	}
	if n := testing.AllocsPerRun(100, func() { Group(want, 0, 0) }); n != 0 {
		t.Errorf("Group: %v allocations, want 0", n)
	}
}

func TestConcurrentUse(t *testing.T) {
	r := mustNew(t, XForwardedFor, Private)
	h := map[string][]string{"X-Forwarded-For": {"6.6.6.6, 203.0.113.9, 10.0.0.2"}}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 1000 {
				if got := show(r.Addr("10.0.0.1:1", h)); got != "203.0.113.9" {
					t.Errorf("got %q", got)
					return
				}
			}
		})
	}
	wg.Wait()
}
