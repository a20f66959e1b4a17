package clientip

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
)

func mustNetworks(t testing.TB, entries ...string) Networks {
	t.Helper()
	n, err := ParseNetworks(entries...)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestNetworksContain(t *testing.T) {
	tests := []struct {
		entries string // separated by blanks
		in, out string
		ranges  int
	}{
		{"", "", "0.0.0.0 :: 127.0.0.1 ::1", 0},
		{"private", "10.0.0.0 10.255.255.255 172.16.0.0 172.31.255.255 192.168.0.0 192.168.255.255 fc00:: fdff:ffff::1 ::ffff:10.1.1.1",
			"9.255.255.255 11.0.0.0 172.15.255.255 172.32.0.0 192.167.255.255 192.169.0.0 100.64.0.1 127.0.0.1 fe80::1 fe00:: fbff::1 64:ff9b::10.0.0.1", 4},
		{"loopback", "127.0.0.1 127.255.255.255 ::1 ::ffff:127.0.0.1", "126.255.255.255 128.0.0.0 :: ::2 64:ff9b::127.0.0.1", 2},
		{"link-local", "169.254.0.0 169.254.255.255 fe80::1 fe80::1%eth0 febf:ffff::1", "169.253.255.255 169.255.0.0 fec0:: fe7f::1", 2},
		{"any", "0.0.0.0 255.255.255.255 :: ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "", 2},
		{"0.0.0.0/0", "0.0.0.0 255.255.255.255 64:ff9b::1.2.3.4", ":: 2001:db8::1 64:ff9b::10.0.0.1", 1},
		{"::/0", ":: 2001:db8::1 ffff::", "1.2.3.4 ::ffff:1.2.3.4 64:ff9b::1.2.3.4", 1},
		{"192.0.2.7", "192.0.2.7 ::ffff:192.0.2.7 64:ff9b::192.0.2.7", "192.0.2.6 192.0.2.8", 1},
		{"192.0.2.7/32 192.0.2.8 192.0.2.6", "192.0.2.6 192.0.2.7 192.0.2.8", "192.0.2.5 192.0.2.9", 1},
		{"::ffff:10.0.0.0/104", "10.9.9.9", "11.0.0.0", 1},
		{"::ffff:192.0.2.7", "192.0.2.7", "192.0.2.8", 1},
		{"10.0.0.0/8 10.1.0.0/16 10.0.0.0/9 10.255.255.255", "10.0.0.0 10.255.255.255", "9.255.255.255 11.0.0.0", 1},
		{"2001:db8::/33 2001:db8:8000::/33", "2001:db8:: 2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", "2001:db7:ffff:ffff:ffff:ffff:ffff:ffff 2001:db9::", 1},
		{"255.255.255.255 ::", "255.255.255.255 ::", "255.255.255.254 ::1 0.0.0.0", 2},
		{"2001:db8::/127", "2001:db8:: 2001:db8::1", "2001:db8::2 2001:db7:ffff:ffff:ffff:ffff:ffff:ffff", 1},
		{"2001:db8:0:0:8000::/65", "2001:db8::8000:0:0:0 2001:db8::ffff:ffff:ffff:ffff", "2001:db8::7fff:ffff:ffff:ffff 2001:db8:0:1::", 1},
		{"64:ff9b::10.0.0.0/104", "64:ff9b::10.0.0.1", "10.0.0.1 64:ff9b::11.0.0.1", 1},
		{"unix", "", "0.0.0.0 ::", 0},
	}
	for _, tt := range tests {
		n := mustNetworks(t, strings.Fields(tt.entries)...)
		if n.Len() != tt.ranges {
			t.Errorf("%q: %d ranges, want %d", tt.entries, n.Len(), tt.ranges)
		}
		for _, a := range strings.Fields(tt.in) {
			if !n.Contains(netip.MustParseAddr(a)) {
				t.Errorf("%q lacks %s", tt.entries, a)
			}
		}
		for _, a := range strings.Fields(tt.out) {
			if n.Contains(netip.MustParseAddr(a)) {
				t.Errorf("%q contains %s", tt.entries, a)
			}
		}
		if n.Contains(netip.Addr{}) {
			t.Errorf("%q contains the zero Addr", tt.entries)
		}
		if got, want := n.ContainsUnix(), tt.entries == Unix; got != want {
			t.Errorf("%q: ContainsUnix = %v", tt.entries, got)
		}
	}
}

func TestNetworksRefuse(t *testing.T) {
	for entry, advice := range map[string]string{
		"":                         "neither a CIDR",
		"Private":                  "private, loopback, link-local, unix, any",
		"localhost":                "loopback",
		"10.0.0.0/8 ":              "neither",
		"10.0.0.0/33":              "neither",
		"10.0.0.0/-1":              "neither",
		"10.0.0.0/08":              "neither",
		"10.0.0.0/":                "neither",
		"10.0.0/8":                 "neither",
		"/8":                       "neither",
		"10.0.0.1-10.0.0.9":        "neither",
		"10.0.0.1:80":              "neither",
		"[::1]":                    "neither",
		"2001:db8::/129":           "neither",
		"fe80::%eth0/10":           "neither",
		"fe80::1%eth0":             `without "%eth0"`,
		"10.1.2.3/8":               "write 10.0.0.0/8",
		"2001:db8::1/64":           "write 2001:db8::/64",
		"::ffff:10.0.0.1/104":      "write ::ffff:10.0.0.0/104",
		"64:ff9b::192.0.2.0/120":   "write 192.0.2.0/24",
		"64:ff9b::192.0.2.7":       "write 192.0.2.7/32",
		"64:ff9b::/96":             "write 0.0.0.0/0",
		strings.Repeat("x", 1<<20): "neither",
	} {
		_, err := ParseNetworks("private", entry, "also bad")
		var bad *NetworkError
		if !errors.As(err, &bad) {
			t.Errorf("%.40q: got %v, want a NetworkError", entry, err)
			continue
		}
		if bad.Index != 1 || bad.Entry != entry {
			t.Errorf("%.40q: the error speaks of entry %d, %.40q", entry, bad.Index, bad.Entry)
		}
		if msg := err.Error(); !strings.HasPrefix(msg, "clientip: network ") || !strings.Contains(msg, advice) || len(msg) > 500 {
			t.Errorf("%.40q: error %.600q lacks %q", entry, msg, advice)
		}
	}
}

// TestNetworksAgreeWithPrefixes compares random sets with netip's own test, at
// the edges of each network and at random places.
func TestNetworksAgreeWithPrefixes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var entries []string
		var prefixes []netip.Prefix
		var probes []netip.Addr
		for range rng.IntN(20) {
			p := randomPrefix(rng)
			prefixes, entries = append(prefixes, p), append(entries, p.String())
			probes = append(probes, p.Addr(), p.Addr().Prev(), lastAddr(p), lastAddr(p).Next(), randomPrefix(rng).Addr())
		}
		n := mustNetworks(t, entries...)
		for _, a := range probes {
			want := false
			for _, p := range prefixes {
				want = want || p.Contains(a)
			}
			if got := n.Contains(a); got != want {
				t.Fatalf("%v contains %v: got %v, want %v", entries, a, got, want)
			}
		}
	}
}

// randomPrefix draws from a small part of the address space, so that networks
// overlap, touch and nest.
func randomPrefix(rng *rand.Rand) netip.Prefix {
	if rng.IntN(2) == 0 {
		p, _ := netip.AddrFrom4([4]byte{198, 51, byte(rng.IntN(2)), byte(rng.IntN(256))}).Prefix(20 + rng.IntN(13))
		return p
	}
	b := [16]byte{0x20, 0x01, 0x0d, 0xb8, 6: byte(rng.IntN(2)), 7: byte(rng.IntN(256)), 8: byte(rng.IntN(2) * 255), 15: byte(rng.IntN(256))}
	p, _ := netip.AddrFrom16(b).Prefix(50 + rng.IntN(79))
	return p
}

// hundredThousand returns networks that don't merge, half of them IPv6.
func hundredThousand() []string {
	entries := make([]string, 0, 100_000)
	for i := range uint32(50_000) {
		var v4 [4]byte
		binary.BigEndian.PutUint32(v4[:], 1<<24+i*2048)
		entries = append(entries, netip.PrefixFrom(netip.AddrFrom4(v4), 24).String())
		v6 := [16]byte{0x20, 0x01}
		binary.BigEndian.PutUint32(v6[4:], i*2)
		entries = append(entries, netip.PrefixFrom(netip.AddrFrom16(v6), 64).String())
	}
	return entries
}

func TestManyNetworks(t *testing.T) {
	entries := hundredThousand()
	n := mustNetworks(t, entries...)
	if n.Len() != len(entries) {
		t.Fatalf("%d ranges, want %d", n.Len(), len(entries))
	}
	for _, e := range entries {
		p := netip.MustParsePrefix(e)
		if !n.Contains(p.Addr()) || !n.Contains(lastAddr(p)) || n.Contains(lastAddr(p).Next()) || n.Contains(p.Addr().Prev()) {
			t.Fatalf("wrong about the edges of %s", e)
		}
	}
	a := netip.MustParseAddr("203.0.113.9")
	if allocs := testing.AllocsPerRun(100, func() { n.Contains(a) }); allocs != 0 {
		t.Errorf("%v allocations, want 0", allocs)
	}
}
