package clientip

import (
	"net/netip"
	"testing"
)

func BenchmarkAddr(b *testing.B) {
	h := map[string][]string{
		"X-Forwarded-For":  {"6.6.6.6, 203.0.113.9, 10.0.0.3, 10.0.0.2"},
		"Forwarded":        {`for=6.6.6.6, for=203.0.113.9;proto=https, for="[fd00::3]:80", for=10.0.0.2`},
		"Cf-Connecting-Ip": {"203.0.113.9"},
	}
	for _, bb := range []struct{ name, header string }{
		{"peer", ""},
		{"x-forwarded-for of three hops", XForwardedFor},
		{"forwarded of three hops", Forwarded},
		{"cf-connecting-ip", "CF-Connecting-IP"},
	} {
		b.Run(bb.name, func(b *testing.B) {
			r := mustNew(b, bb.header, Private, Loopback)
			b.ReportAllocs()
			for b.Loop() {
				r.Addr("203.0.113.9:51234", h)
			}
		})
	}
}

func BenchmarkNetworksOf100000(b *testing.B) {
	n := mustNetworks(b, hundredThousand()...)
	var v4, v6 [1 << 12]netip.Addr
	for i := range uint32(len(v4)) {
		x := i * 2654435761 // spread over the whole set
		v4[i] = netip.AddrFrom4([4]byte{byte(x>>24) % 8, byte(x >> 16), byte(x >> 8), byte(x)})
		v6[i] = netip.AddrFrom16([16]byte{0x20, 0x01, 5: byte(x>>24) & 1, 6: byte(x >> 16), 7: byte(x >> 8)})
	}
	for name, probes := range map[string]*[1 << 12]netip.Addr{"v4": &v4, "v6": &v6} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				n.Contains(probes[i&(1<<12-1)])
				i++
			}
		})
	}
}
