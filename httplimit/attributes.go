package httplimit

import (
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/spillgate/spillgate/policy"
)

// attributes is what is known of a request. Values are found when they are
// asked for.
type attributes struct {
	*shared
	request  *http.Request
	client   netip.Addr
	resolved bool
}

func (a *attributes) begin(s *shared, r *http.Request) {
	a.shared, a.request, a.client, a.resolved = s, r, netip.Addr{}, false
}

// addr returns the client's address, the zero Addr if it is not known.
func (a *attributes) addr() netip.Addr {
	if !a.resolved {
		a.client, a.resolved = a.resolver.Addr(a.request.RemoteAddr, a.request.Header), true
	}
	return a.client
}

// ClientAddr implements [policy.Addressed].
func (a *attributes) ClientAddr() netip.Addr { return a.addr() }

// AppendAttr implements [policy.Attributes].
func (a *attributes) AppendAttr(dst []byte, attr policy.Attribute) ([]byte, bool) {
	r := a.request
	switch attr.Kind {
	case policy.ClientIP:
		addr := a.addr()
		return addr.AppendTo(dst), addr.IsValid()
	case policy.Method:
		return appendMethod(dst, r), r.Method != ""
	case policy.Path:
		return appendPath(dst, r.URL, a.paths), r.URL != nil
	case policy.Host:
		n := len(dst)
		dst = policy.AppendHost(dst, r.Host)
		return dst, len(dst) > n
	case policy.Header:
		return a.appendHeader(dst, attr.Name)
	case policy.Cookie:
		return appendCookie(dst, r.Header["Cookie"], attr.Name)
	case policy.Query:
		if r.URL == nil {
			return dst, false
		}
		return appendQuery(dst, r.URL.RawQuery, attr.Name)
	case policy.TLSClient:
		name := certified(r.TLS)
		return append(dst, name...), name != ""
	case policy.ContentLength:
		if r.ContentLength < 0 { // a body whose end is yet to be seen
			return dst, false
		}
		return strconv.AppendInt(dst, r.ContentLength, 10), true
	case policy.Claim:
		if a.claim == nil {
			return dst, false
		}
		v, ok := a.claim(r, attr.Name)
		return append(dst, v...), ok
	}
	var v string
	if s := a.source(attr); s != nil {
		v = s.get(r)
	} else if attr.Kind == policy.Route {
		v = r.Pattern
	}
	return append(dst, v...), v != ""
}

// appendPath appends the path in the form in which rules match it. The
// asterisk of OPTIONS is no path and stays; a request without a path (CONNECT,
// http://host) is for the root.
func appendPath(dst []byte, u *url.URL, paths policy.Paths) []byte {
	if u == nil {
		return dst
	}
	path := u.Path
	switch {
	case path == "*":
		return append(dst, path...)
	case u.Opaque != "":
		path = u.Opaque
	case u.RawPath != "" || !plain(path):
		path = u.EscapedPath()
	}
	return paths.Append(dst, path)
}

// plain reports whether the normal form of the decoded path s is that of its
// escaped form, so that s needn't be escaped first.
func plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c == '%' || c == '\\' || c < ' ' || c == 0x7f {
			return false
		}
	}
	return true
}

// appendHeader appends a header's value, several lines joined as one list
// (RFC 9110, 5.3). Present and empty is not missing.
func (a *attributes) appendHeader(dst []byte, name string) ([]byte, bool) {
	if name == "host" { // net/http moves it
		return append(dst, a.request.Host...), a.request.Host != ""
	}
	key, ok := a.canonical[name]
	if !ok {
		key = http.CanonicalHeaderKey(name)
	}
	lines := a.request.Header[key]
	for i, line := range lines {
		if i > 0 {
			dst = append(dst, ", "...)
		}
		dst = append(dst, line...)
	}
	return dst, len(lines) > 0
}

// appendCookie appends the value that http.Request.Cookie would give, without
// building all cookies.
func appendCookie(dst []byte, lines []string, name string) ([]byte, bool) {
	for _, line := range lines {
		for len(line) > 0 {
			var part string
			part, line, _ = strings.Cut(line, ";")
			key, value, _ := strings.Cut(strings.Trim(part, " \t\r\n"), "=")
			if strings.Trim(key, " \t\r\n") != name {
				continue
			}
			if n := len(value); n > 1 && value[0] == '"' && value[n-1] == '"' {
				value = value[1 : n-1]
			}
			if cookieValue(value) {
				return append(dst, value...), true
			}
		}
	}
	return dst, false
}

// cookieValue reports whether net/http takes s for the value of a cookie.
func cookieValue(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

// appendQuery appends the first value of a query parameter, as
// url.Values.Get finds it. Parameters that net/url can't read are no
// parameters.
func appendQuery(dst []byte, query, name string) ([]byte, bool) {
	start := len(dst)
	for len(query) > 0 {
		var part string
		part, query, _ = strings.Cut(query, "&")
		if part == "" || strings.Contains(part, ";") {
			continue
		}
		key, value, _ := strings.Cut(part, "=")
		var ok bool
		if dst, ok = appendUnescaped(dst[:start], key); !ok || string(dst[start:]) != name {
			continue
		}
		if dst, ok = appendUnescaped(dst[:start], value); ok {
			return dst, true
		}
	}
	return dst[:start], false
}

// appendUnescaped is url.QueryUnescape without the allocation.
func appendUnescaped(dst []byte, s string) ([]byte, bool) {
	for i := 0; i < len(s); i++ {
		switch c := s[i]; c {
		case '+':
			dst = append(dst, ' ')
		case '%':
			if i+2 >= len(s) {
				return dst, false
			}
			hi, lo := hexValue(s[i+1]), hexValue(s[i+2])
			if hi > 15 || lo > 15 {
				return dst, false
			}
			dst = append(dst, hi<<4|lo)
			i += 2
		default:
			dst = append(dst, c)
		}
	}
	return dst, true
}

// hexValue returns the value of a hexadecimal digit, 255 if c is none.
func hexValue(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10
	}
	return 255
}

// canonical returns the header names of the policy's rules as net/http spells
// its keys, by the names as rules spell them.
func canonical(rules []policy.Rule) map[string]string {
	names := map[string]string{}
	for i := range rules {
		for _, a := range rules[i].Attributes() {
			if a.Kind == policy.Header {
				names[a.Name] = http.CanonicalHeaderKey(a.Name)
			}
		}
	}
	return names
}
