package httplimit

import (
	"net/url"
	"strings"
)

// KeepEscapes has u keep the encoding of its path as it was sent. It is for proxies:
// net/url keeps that only where all of it is encoded, and else encodes the decoded path
// anew. Of "a%2Fb|c", which browsers send, rules and upstream would get "a/b%7Cc", which
// is another resource. What should be encoded (RFC 3986, 3.3) and is not is encoded, and
// nothing else changes.
func KeepEscapes(u *url.URL) {
	if u.RawPath == "" || u.EscapedPath() == u.RawPath {
		return
	}
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(u.RawPath) {
		c := u.RawPath[i]
		if 'a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9' || strings.IndexByte("-._~!$&'()*+,;=:@/%[]", c) >= 0 {
			b.WriteByte(c)
		} else {
			b.Write([]byte{'%', hex[c>>4], hex[c&15]})
		}
	}
	u.RawPath = b.String()
}
