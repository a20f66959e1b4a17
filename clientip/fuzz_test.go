package clientip

import (
	"net/netip"
	"testing"
)

// FuzzAddr holds the promises against any peer and any header: no panic; a peer
// that is not trusted is the client; the result is in normal form; and whatever
// a client sends, the entry that the first proxy adds after it decides.
func FuzzAddr(f *testing.F) {
	for _, s := range [][3]string{
		{"198.51.100.7:4711", "6.6.6.6, 203.0.113.9", "10.0.0.2"},
		{"10.0.0.1:4711", "6.6.6.6, 203.0.113.9", "10.0.0.2"},
		{"[::ffff:10.0.0.1]:4711", "::ffff:102:304", "0:0:0:0:0:ffff:0102:0304"},
		{"[fe80::1%25eth0]:443", "fe80::1%eth0.100", "unknown"},
		{"[64:ff9b::10.0.0.1]:80", "64:ff9b::10.0.0.1, 64:ff9b::1.2.3.4", "::ffff:1.2.3.4%z"},
		{"@", "unix:, _hidden", ""},
		{"", `for="[2001:db8::1]:_x";proto=https`, `for="\1.2.3.4", for=unknown`},
		{"10.0.0.1", `for="`, `host="x\", for=6.6.6.6;by=\"y"`},
		{"10.0.0.1", `for="\`, `"\\\"`},
		{"/run/x.sock", ",,;;==\"\"", "for=;for=;="},
		{"pipe", "\x00\xff", "2001:db8:1234:5678::1.2.3.4"},
		{"[::]:0", "0.0.0.0", "::"},
	} {
		f.Add(s[0], s[1], s[2])
	}
	nobody := new(Resolver)
	client := netip.MustParseAddr("203.0.113.9")
	added := map[string]string{
		XForwardedFor:      "203.0.113.9",
		Forwarded:          `for="203.0.113.9:80";host="a,b\"c"`,
		"Cf-Connecting-Ip": "203.0.113.9",
	}
	resolvers := map[string]*Resolver{}
	for header := range added {
		resolvers[header] = mustNew(f, header, "10.0.0.0/8", Unix, LinkLocal)
	}
	f.Fuzz(func(t *testing.T, remote, first, second string) {
		for header, r := range resolvers {
			h := map[string][]string{header: {first, second}}
			peer := nobody.Addr(remote, h)
			got := r.Addr(remote, h)
			if !r.Trusts(remote) && got != peer {
				t.Errorf("%s: peer %q is not trusted, yet the client is %v", header, remote, got)
			}
			for _, a := range []netip.Addr{peer, got, r.Addr(remote, map[string][]string{header: {first}})} {
				if Normal(a) != a || a.Zone() != "" || a.Is4In6() {
					t.Errorf("%s: %v is not in normal form", header, a)
				}
				if g := Group(a, 0, 0); a.IsValid() && !g.Contains(a) {
					t.Errorf("%v is not in its own group %v", a, g)
				}
			}
			if whole, err := netip.ParseAddr(remote); err == nil && whole.Is4() && whole != peer {
				t.Errorf("%q is %v, netip reads %v", remote, peer, whole)
			}
			if parsed, err := Parse(remote); err == nil && parsed != peer {
				t.Errorf("Parse(%q) = %v, the peer is %v", remote, parsed, peer)
			}
			switch r.form {
			case single:
				h = map[string][]string{header: {added[header]}}
			default:
				h = map[string][]string{header: {first, second + ", " + added[header]}}
				if got := r.Addr("10.0.0.1:80", h); got != client {
					t.Errorf("%s: %q decided: got %v, want %v", header, h, got, client)
				}
				h = map[string][]string{header: {first, second, added[header]}}
			}
			if got := r.Addr("10.0.0.1:80", h); got != client {
				t.Errorf("%s: %q decided: got %v, want %v", header, h, got, client)
			}
		}
	})
}

// FuzzNetworks compares a set of two with netip's own test.
func FuzzNetworks(f *testing.F) {
	f.Add("10.0.0.0/8", "10.1.0.0/16", "10.1.2.3")
	f.Add("private", "unix", "fc00::1")
	f.Add("::ffff:10.0.0.0/104", "2001:db8::/32", "::ffff:10.1.2.3")
	f.Add("64:ff9b::/96", "64:ff9b::10.0.0.0/104", "64:ff9b::10.0.0.1")
	f.Add("0.0.0.0/0", "::/0", "fe80::1%eth0")
	f.Add("255.255.255.255", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "255.255.255.255")
	f.Add("10.1.2.3/8", "fe80::1%x", "")
	f.Fuzz(func(t *testing.T, a, b, probe string) {
		n, err := ParseNetworks(a, b)
		if err != nil {
			return
		}
		addr, err := netip.ParseAddr(probe)
		if err != nil {
			return
		}
		want := false
		for _, entry := range []string{a, b} {
			prefixes, ok := named[entry]
			if !ok {
				p, reason := parsePrefix(entry)
				if reason != "" {
					t.Fatalf("%q was accepted, though %s", entry, reason)
				}
				prefixes = []netip.Prefix{p}
			}
			for _, p := range prefixes {
				want = want || p.Contains(Normal(addr))
			}
		}
		if got := n.Contains(addr); got != want {
			t.Errorf("{%q, %q} contains %v: got %v, want %v", a, b, addr, got, want)
		}
	})
}
