package policy

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
)

// holding returns the overrides of the networks that hold an address, as the
// ranges have it.
func holding(n *networks, nodes []node, a netip.Addr) (out []int32) {
	for at := n.head(addressOf(a)); at >= 0; at = nodes[at].next {
		out = append(out, nodes[at].over)
	}
	slices.Sort(out)
	return out
}

// checkNetworks holds the ranges of prefixes, each of its own override, against a look
// at every prefix, at the addresses at and around their ends.
func checkNetworks(t *testing.T, prefixes []netip.Prefix, more ...netip.Addr) {
	t.Helper()
	var all []network
	asked := append([]netip.Addr(nil), more...)
	for i, p := range prefixes {
		all = append(all, network{p, node{over: int32(i), own: -1, next: -1, until: forever}})
		first, last := p.Addr(), lastOf(p)
		asked = append(asked, first, last, first.Prev(), last.Next())
	}
	n, nodes := newNetworks(all, nil)
	for i := 1; i < len(n.starts); i++ {
		if !n.starts[i-1].less(n.starts[i]) {
			t.Fatalf("%v: range %d begins at %v, after %v", prefixes, i, n.starts[i], n.starts[i-1])
		}
	}
	for _, a := range asked {
		if !a.IsValid() || len(prefixes) > 0 && a.Is4() != prefixes[0].Addr().Is4() {
			continue
		}
		var want []int32
		for i, p := range prefixes {
			if p.Contains(a) {
				want = append(want, int32(i))
			}
		}
		if got := holding(&n, nodes, a); !slices.Equal(got, want) {
			t.Fatalf("%v: %s is in %v, want %v", prefixes, a, got, want)
		}
	}
}

func lastOf(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 1 << (7 - i%8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

func prefixes(t testing.TB, texts ...string) (out []netip.Prefix) {
	t.Helper()
	for _, s := range texts {
		p, err := ParseNetwork(s)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, p)
	}
	return out
}

func TestNetworksAtTheirEnds(t *testing.T) {
	for _, texts := range [][]string{
		nil,
		{"0.0.0.0/0"},
		{"::/0"},
		{"0.0.0.0/0", "0.0.0.0/0", "0.0.0.0", "255.255.255.255"},
		{"::/0", "::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "::/64", "::/63", "::/65"},
		{"10.0.0.0/8", "10.0.0.0/16", "10.0.0.0/24", "10.0.0.0", "10.0.255.0/24", "10.255.255.255"},
		{"192.0.2.0/25", "192.0.2.128/25", "192.0.2.0/24", "192.0.2.127", "192.0.2.128"},
		{"128.0.0.0/1", "0.0.0.0/1", "64.0.0.0/2"},
		{"2001:db8::/32", "2001:db8::/64", "2001:db8:0:1::/64", "2001:db8::1"},
	} {
		checkNetworks(t, prefixes(t, texts...), netip.MustParseAddr("203.0.113.9"))
	}
}

func TestNetworksOfRandomLists(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		var list []netip.Prefix
		var more []netip.Addr
		for range 1 + r.IntN(12) {
			// Few different bits, so that networks lie in and beside each other.
			a := netip.AddrFrom4([4]byte{byte(r.IntN(2)) * 255, byte(r.IntN(2)) * 128, 0, byte(r.IntN(4))})
			bits := r.IntN(33)
			if r.IntN(2) == 0 {
				var b [16]byte
				b[0], b[7], b[8], b[15] = byte(r.IntN(2))*255, byte(r.IntN(2)), byte(r.IntN(2))*128, byte(r.IntN(3))
				a, bits = netip.AddrFrom16(b), r.IntN(129)
			}
			p, err := a.Prefix(bits)
			if err != nil {
				t.Fatal(err)
			}
			list, more = append(list, p), append(more, a)
		}
		for _, four := range []bool{true, false} {
			family := slices.DeleteFunc(slices.Clone(list), func(p netip.Prefix) bool { return p.Addr().Is4() != four })
			checkNetworks(t, family, slices.DeleteFunc(slices.Clone(more), func(a netip.Addr) bool { return a.Is4() != four })...)
		}
	}
}

// Of a network that one override names again and again the entry that ends
// last is kept.
func TestNetworkNamedAgain(t *testing.T) {
	p := prefixes(t, "192.0.2.0/24")[0]
	var all []network
	for i, until := range []int64{5, 9, 7, 9} {
		all = append(all, network{p, node{over: 0, own: int32(i), next: -1, until: until}})
	}
	n, nodes := newNetworks(all, nil)
	if at := n.head(addressOf(p.Addr())); len(nodes) != 1 || at != 0 || nodes[0].until != 9 {
		t.Errorf("%+v", nodes)
	}
}

func TestParseNetwork(t *testing.T) {
	for text, want := range map[string]string{
		"203.0.113.9": "203.0.113.9/32", "203.0.113.0/24": "203.0.113.0/24", "::ffff:203.0.113.9": "203.0.113.9/32",
		"::ffff:203.0.113.0/120": "203.0.113.0/24", "2001:DB8::/32": "2001:db8::/32", "0.0.0.0/0": "0.0.0.0/0", "::/0": "::/0",
	} {
		if p, err := ParseNetwork(text); err != nil || p.String() != want {
			t.Errorf("%s is %s, %v; want %s", text, p, err, want)
		}
	}
	for _, text := range []string{"", "a", "203.0.113.9/24", "203.0.113.0/33", "2001:db8::1/32", "::ffff:0:0/95", "203.0.113", "203.0.113.9:80", "1.2.3.4-1.2.3.9", "010.0.0.1"} {
		if p, err := ParseNetwork(text); err == nil {
			t.Errorf("%q is %s", text, p)
		}
	}
}

func BenchmarkOverrides(b *testing.B) {
	for _, tt := range []struct {
		name string
		size int
	}{{"1k", 1000}, {"100k", 100_000}, {"1M", 1_000_000}} {
		o := manyNetworks(b, tt.size)
		addrs := manyAddresses(4096)
		b.Run(tt.name, func(b *testing.B) {
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				o.network(addrs[i&4095])
				i++
			}
		})
	}
}

// manyNetworks returns overrides of one list of that many networks: hosts,
// and networks of all sizes, in both families.
func manyNetworks(t testing.TB, size int) *Overrides {
	t.Helper()
	p, err := Compile([]Rule{testRule(t, "r", "1000000000/s burst 1000000000", "client.ip")})
	if err != nil {
		t.Fatal(err)
	}
	p, err = p.WithOverrides([]Override{{Deny: true, List: "deny.txt", Entries: manyEntries(size)}})
	if err != nil {
		t.Fatal(err)
	}
	return p.Overrides()
}

func manyEntries(size int) (out []Entry) {
	r := rand.New(rand.NewPCG(3, 4))
	for i := range size {
		v := r.Uint32()
		a := netip.AddrFrom4([4]byte{byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)})
		bits := 32 - r.IntN(3)*4
		if i%4 == 0 {
			a, bits = netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)}), 64-r.IntN(3)*8
		}
		p, _ := a.Prefix(bits)
		out = append(out, Entry{Network: p, Line: i + 1})
	}
	return out
}

func manyAddresses(n int) (out []netip.Addr) {
	r := rand.New(rand.NewPCG(5, 6))
	for i := range n {
		v := r.Uint32()
		if i%4 == 0 {
			out = append(out, netip.MustParseAddr(fmt.Sprintf("2001:db8:%x:%x::1", v>>16, v&0xffff)))
		} else {
			out = append(out, netip.AddrFrom4([4]byte{byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)}))
		}
	}
	return out
}
