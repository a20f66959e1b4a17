package clientip

import (
	"fmt"
	"net/netip"
	"strings"
)

// Prefix lengths that [Group] falls back to, in bits: an IPv4 address alone, and
// the IPv6 network that one host or one home is given (RFC 4291 section 2.5.1).
const (
	DefaultV4Bits = 32
	DefaultV6Bits = 64
)

// nat64 is the well-known prefix of RFC 6052 section 2.1.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// untranslated are the IPv4 networks that must not appear behind the well-known
// prefix (RFC 6052 section 3.1, RFC 6890). Were they unwrapped, a packet from
// 64:ff9b::10.0.0.1 would pass for the private address of a trusted proxy. The
// documentation networks are left out, since RFC 6052 itself translates them.
var untranslated = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),
	netip.MustParsePrefix("10.0.0.0/8"),
	netip.MustParsePrefix("100.64.0.0/10"),
	netip.MustParsePrefix("127.0.0.0/8"),
	netip.MustParsePrefix("169.254.0.0/16"),
	netip.MustParsePrefix("172.16.0.0/12"),
	netip.MustParsePrefix("192.168.0.0/16"),
	netip.MustParsePrefix("224.0.0.0/3"), // multicast and reserved
}

// Normal returns the one form of an address that keys and sets are made of. It
// drops the zone (RFC 4007), unwraps an IPv4-mapped IPv6 address (RFC 4291
// section 2.5.5.2), and unwraps an IPv4 address behind the well-known NAT64
// prefix 64:ff9b::/96 (RFC 6052) unless it is one that may not stand there, such
// as a private or loopback address. The zero Addr stays as it is.
func Normal(addr netip.Addr) netip.Addr {
	if addr.Is4() {
		return addr
	}
	addr = addr.Unmap().WithZone("")
	if nat64.Contains(addr) {
		if v4 := embedded(addr); translated(netip.PrefixFrom(v4, 32)) {
			return v4
		}
	}
	return addr
}

// embedded returns the last four bytes of an IPv6 address as an IPv4 address.
func embedded(addr netip.Addr) netip.Addr {
	b := addr.As16()
	return netip.AddrFrom4([4]byte(b[12:]))
}

// translated tells whether no network of untranslated covers the whole of p.
func translated(p netip.Prefix) bool {
	for _, u := range untranslated {
		if u.Bits() <= p.Bits() && u.Contains(p.Addr()) {
			return false
		}
	}
	return true
}

// Group returns the network that counts as one client: the normal form of addr,
// cut to v4bits or v6bits. Zero or less stands for [DefaultV4Bits] and
// [DefaultV6Bits], more than the address has for all of it. The group of the
// zero Addr is the zero Prefix.
func Group(addr netip.Addr, v4bits, v6bits int) netip.Prefix {
	addr = Normal(addr)
	if !addr.IsValid() {
		return netip.Prefix{}
	}
	if v4bits <= 0 {
		v4bits = DefaultV4Bits
	}
	if v6bits <= 0 {
		v6bits = DefaultV6Bits
	}
	bits := min(v6bits, 128)
	switch {
	case addr.Is4():
		bits = min(v4bits, 32)
	case nat64.Contains(addr): // not unwrapped, but still one IPv4 host each
		bits = nat64.Bits() + min(v4bits, 32)
	}
	group, _ := addr.Prefix(bits)
	return group
}

// Parse reads an address in any of the forms that logs, headers and
// http.Request.RemoteAddr use and returns its normal form: with or without
// brackets, port (a number, or "_" and a name as RFC 7239 obfuscates it) and
// zone. Blanks around it are not part of it and fail, as names of hosts do.
func Parse(text string) (netip.Addr, error) {
	addr, ok := parseAddr(text)
	if !ok {
		return netip.Addr{}, fmt.Errorf("clientip: %.60q is not an address: write it as 192.0.2.1, 192.0.2.1:80, 2001:db8::1 or [2001:db8::1]:80", text)
	}
	return addr, nil
}

// maxNode is more than any address with brackets, zone and port takes, in bytes.
const maxNode = 128

// parsePeer reads a remote address. A unix socket is ok and has the zero Addr:
// "" or "@" where the other end is unnamed, else its abstract name or its path.
func parsePeer(remote string) (addr netip.Addr, ok bool) {
	if remote == "" || remote[0] == '@' || remote[0] == '/' {
		return netip.Addr{}, true
	}
	return parseAddr(remote)
}

// parseNode reads a hop as a proxy wrote it. "unix:", nginx's word for a peer on
// a unix socket, is ok and has the zero Addr. The unspecified address names
// nobody.
func parseNode(s string) (addr netip.Addr, ok bool) {
	if s == "unix:" {
		return netip.Addr{}, true
	}
	addr, ok = parseAddr(s)
	if ok && addr.IsUnspecified() {
		return netip.Addr{}, false
	}
	return addr, ok
}

// parseAddr reads an address with optional brackets, port and zone into its
// normal form.
func parseAddr(s string) (addr netip.Addr, ok bool) {
	if s == "" || len(s) > maxNode {
		return netip.Addr{}, false
	}
	if v4, rest, ok := cutV4(s); ok && (rest == "" || rest[0] == ':' && portText(rest[1:])) {
		return netip.AddrFrom4(v4), true
	}
	host := s
	if s[0] == '[' {
		end := strings.IndexByte(s, ']')
		if end < 0 {
			return netip.Addr{}, false
		}
		host = s[1:end]
		if end+1 < len(s) && (s[end+1] != ':' || !portText(s[end+2:])) {
			return netip.Addr{}, false
		}
	} else if colon := strings.IndexByte(s, ':'); colon >= 0 && strings.IndexByte(s[colon+1:], ':') < 0 {
		// One colon: a port. With more of them it is all IPv6.
		host = s[:colon]
		if !portText(s[colon+1:]) {
			return netip.Addr{}, false
		}
	}
	// The zone goes before parsing, for netip would intern the sender's text.
	if i := strings.IndexByte(host, '%'); i >= 0 && strings.IndexByte(host[:i], ':') >= 0 {
		host = host[:i]
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return netip.Addr{}, false
	}
	return Normal(addr), true
}

// cutV4 reads an IPv4 address at the front of s, in the one form that netip takes,
// too. Nearly every request begins with one, and netip takes twice as long.
func cutV4(s string) (addr [4]byte, rest string, ok bool) {
	at, n, digits := 0, 0, 0
	for i := range len(s) {
		switch c := s[i]; {
		case '0' <= c && c <= '9':
			n = n*10 + int(c-'0')
			if digits++; n > 255 || digits > 1 && n < 10 {
				return addr, s, false
			}
		case digits == 0:
			return addr, s, false
		case at == 3:
			addr[3] = byte(n)
			return addr, s[i:], true
		case c != '.':
			return addr, s, false
		default:
			addr[at] = byte(n)
			at, n, digits = at+1, 0, 0
		}
	}
	addr[3] = byte(n)
	return addr, "", at == 3 && digits > 0
}

// portText tells whether s is a node-port of RFC 7239 section 6: a number up to
// 65535, or an obfuscated port, which begins with "_".
func portText(s string) bool {
	if len(s) > 1 && s[0] == '_' {
		for i := 1; i < len(s); i++ {
			if !alphanumeric(s[i]) && strings.IndexByte("._-", s[i]) < 0 {
				return false
			}
		}
		return true
	}
	if s == "" || len(s) > 5 {
		return false
	}
	n := 0
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
		n = n*10 + int(s[i]-'0')
	}
	return n <= 65535
}

// trimBlank drops the optional blanks of RFC 9110 section 5.6.3 at both ends.
func trimBlank(s string) string {
	for s != "" && (s[0] == ' ' || s[0] == '\t') {
		s = s[1:]
	}
	for s != "" && (s[len(s)-1] == ' ' || s[len(s)-1] == '\t') {
		s = s[:len(s)-1]
	}
	return s
}
