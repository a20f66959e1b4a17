package clientip

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"sort"
	"strings"
)

// Names that [ParseNetworks] knows besides CIDRs and addresses.
const (
	Private   = "private"    // RFC 1918 and RFC 4193: 10/8, 172.16/12, 192.168/16, fc00::/7
	Loopback  = "loopback"   // 127.0.0.0/8 and ::1
	LinkLocal = "link-local" // 169.254.0.0/16 and fe80::/10
	Unix      = "unix"       // peers on a unix socket, which have no address
	Any       = "any"        // every address, but not unix
)

var named = map[string][]netip.Prefix{
	Private: {
		netip.MustParsePrefix("10.0.0.0/8"),
		netip.MustParsePrefix("172.16.0.0/12"),
		netip.MustParsePrefix("192.168.0.0/16"),
		netip.MustParsePrefix("fc00::/7"),
	},
	Loopback: {
		netip.MustParsePrefix("127.0.0.0/8"),
		netip.MustParsePrefix("::1/128"),
	},
	LinkLocal: {
		netip.MustParsePrefix("169.254.0.0/16"),
		netip.MustParsePrefix("fe80::/10"),
	},
	Unix: nil,
	Any: {
		netip.MustParsePrefix("0.0.0.0/0"),
		netip.MustParsePrefix("::/0"),
	},
}

// names is what an error advises to write.
const names = Private + ", " + Loopback + ", " + LinkLocal + ", " + Unix + ", " + Any

// Networks is an immutable set of addresses, made of networks: sorted ranges
// that neither overlap nor touch, 8 bytes for one of IPv4 and 32 for one of
// IPv6, searched by halving. It is safe for concurrent use and cheap to copy.
// The zero value is empty.
type Networks struct {
	v4   []span4
	v6   []span6
	unix bool
}

type span4 struct{ first, last uint32 }

type span6 struct{ first, last uint128 }

type uint128 struct{ hi, lo uint64 }

func (a uint128) less(b uint128) bool {
	return a.hi < b.hi || a.hi == b.hi && a.lo < b.lo
}

// A NetworkError tells which entry given to [ParseNetworks] can't be read.
type NetworkError struct {
	Index  int    // position among the entries, from 0
	Entry  string // the entry as it was given
	Reason string // what is wrong with it and what to write instead
}

// Error names the entry and what to do.
func (e *NetworkError) Error() string {
	return fmt.Sprintf("clientip: network %.60q (entry %d): %s", e.Entry, e.Index+1, e.Reason)
}

// ParseNetworks reads a set of networks. An entry is a CIDR, a single address,
// or one of the names [Private], [Loopback], [LinkLocal], [Unix] and [Any].
// Overlaps and neighbours are merged. The first entry that can't be read is
// returned as a [*NetworkError].
//
// Entries mean normal forms, see [Normal]: "::ffff:10.0.0.0/104" is 10.0.0.0/8,
// "::/0" holds IPv6 alone, and networks behind the NAT64 prefix are refused where
// their addresses are known by the IPv4 address. A CIDR with bits beyond its
// length, such as 10.1.2.3/8, is refused, for it is unclear which part is meant.
func ParseNetworks(entries ...string) (Networks, error) {
	var set Networks
	ranges := make([]addrRange, 0, len(entries))
	for i, entry := range entries {
		prefixes, ok := named[entry]
		if !ok {
			p, reason := parsePrefix(entry)
			if reason != "" {
				return Networks{}, &NetworkError{Index: i, Entry: entry, Reason: reason}
			}
			prefixes = []netip.Prefix{p}
		}
		set.unix = set.unix || entry == Unix
		for _, p := range prefixes {
			ranges = append(ranges, addrRange{p.Addr(), lastAddr(p)})
		}
	}
	for _, r := range merge(ranges) {
		if r.first.Is4() {
			set.v4 = append(set.v4, span4{bits4(r.first), bits4(r.last)})
		} else {
			set.v6 = append(set.v6, span6{bits6(r.first), bits6(r.last)})
		}
	}
	set.v4, set.v6 = slices.Clip(set.v4), slices.Clip(set.v6)
	return set, nil
}

// parsePrefix reads a CIDR or an address. A reason tells why it can't.
func parsePrefix(entry string) (p netip.Prefix, reason string) {
	var err error
	if strings.Contains(entry, "/") {
		p, err = netip.ParsePrefix(entry)
	} else {
		var a netip.Addr
		a, err = netip.ParseAddr(entry)
		if a.Zone() != "" {
			return p, "a zone is no part of a network: write it without " + fmt.Sprintf("%.60q", "%"+a.Zone())
		}
		p = netip.PrefixFrom(a, a.BitLen())
	}
	if err != nil {
		return p, "neither a CIDR, nor an address, nor one of " + names
	}
	if p.Masked() != p {
		return p, fmt.Sprintf("has bits beyond /%d: write %s, or the address alone", p.Bits(), p.Masked())
	}
	if p.Bits() >= 96 && p.Addr().Is4In6() {
		return netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96), ""
	}
	if p.Bits() >= nat64.Bits() && nat64.Contains(p.Addr()) {
		if v4 := netip.PrefixFrom(embedded(p.Addr()), p.Bits()-nat64.Bits()); translated(v4) {
			return p, fmt.Sprintf("NAT64 addresses are known by the IPv4 address inside: write %s", v4)
		}
	}
	return p, ""
}

type addrRange struct{ first, last netip.Addr }

// lastAddr returns the highest address of p.
func lastAddr(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := range b {
		free := min(max(8*(i+1)-p.Bits(), 0), 8) // bits of this byte beyond the prefix
		b[i] |= byte(1<<free - 1)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// merge sorts ranges, IPv4 first, and joins those that overlap or touch.
func merge(ranges []addrRange) []addrRange {
	slices.SortFunc(ranges, func(a, b addrRange) int { return a.first.Compare(b.first) })
	out := ranges[:0]
	for _, r := range ranges {
		if n := len(out); n > 0 {
			end := out[n-1].last
			if r.first.Compare(end) <= 0 || r.first == end.Next() {
				if end.Less(r.last) {
					out[n-1].last = r.last
				}
				continue
			}
		}
		out = append(out, r)
	}
	return out
}

func bits4(a netip.Addr) uint32 {
	b := a.As4()
	return binary.BigEndian.Uint32(b[:])
}

func bits6(a netip.Addr) uint128 {
	b := a.As16()
	return uint128{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])}
}

// Contains tells whether the normal form of addr is in one of the networks. The
// zero Addr is in none, not even where [Unix] is named.
func (n Networks) Contains(addr netip.Addr) bool {
	return n.contains(Normal(addr))
}

// contains is Contains for an address in normal form.
func (n *Networks) contains(addr netip.Addr) bool {
	switch {
	case addr.Is4():
		x := bits4(addr)
		i := sort.Search(len(n.v4), func(i int) bool { return n.v4[i].last >= x })
		return i < len(n.v4) && n.v4[i].first <= x
	case addr.Is6():
		x := bits6(addr)
		i := sort.Search(len(n.v6), func(i int) bool { return !n.v6[i].last.less(x) })
		return i < len(n.v6) && !x.less(n.v6[i].first)
	}
	return false
}

// ContainsUnix tells whether [Unix] is in the set.
func (n Networks) ContainsUnix() bool { return n.unix }

// Len returns the number of ranges after merging, [Unix] not counted.
func (n Networks) Len() int { return len(n.v4) + len(n.v6) }

func (n Networks) empty() bool { return n.Len() == 0 && !n.unix }

// coversInternet tells whether one range holds all public addresses of IPv4,
// 1.0.0.0 to 223.255.255.255, or of IPv6, 2000::/3 (RFC 4291 section 2.4).
func (n Networks) coversInternet() bool {
	for _, s := range n.v4 {
		if s.first <= 1<<24 && s.last >= 224<<24-1 {
			return true
		}
	}
	first, last := uint128{0x2 << 60, 0}, uint128{0x4<<60 - 1, 1<<64 - 1}
	for _, s := range n.v6 {
		if !first.less(s.first) && !s.last.less(last) {
			return true
		}
	}
	return false
}
