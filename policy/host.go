package policy

import (
	"net/netip"
	"strings"
)

// AppendHost appends the normal form of a host (with or without a port, as a
// request names it) to dst: the form in which rules match [Host], in lower case,
// without port and trailing dots; an IPv6 address in brackets and in its
// shortest form.
func AppendHost(dst []byte, host string) []byte {
	if strings.HasPrefix(host, "[") {
		if end := strings.IndexByte(host, ']'); end > 0 {
			inner := host[1:end]
			host = host[:end+1]
			if addr, err := netip.ParseAddr(inner); err == nil && addr.Is6() && addr.Zone() == "" {
				return append(addr.AppendTo(append(dst, '[')), ']')
			}
		}
	} else if i := strings.IndexByte(host, ':'); i >= 0 {
		host = host[:i]
	}
	host = strings.TrimRight(host, ".")
	for i := range len(host) {
		c := host[i]
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		dst = append(dst, c)
	}
	return dst
}
