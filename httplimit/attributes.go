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
	several  bool // something that was asked for has several values
}

func (a *attributes) begin(s *shared, r *http.Request) {
	a.shared, a.request, a.client, a.resolved, a.several = s, r, netip.Addr{}, false, false
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
	case policy.Proxy:
		if !a.proxied() {
			return dst, false
		}
		return a.appendHeader(dst, attr.Name)
	case policy.Cookie:
		return appendCookie(dst, r.Header["Cookie"], attr.Name)
	case policy.Query:
		if r.URL == nil {
			return dst, false
		}
		dst, ok, several := a.naming.appendQuery(dst, r.URL.RawQuery, attr.Name)
		a.several = a.several || several
		return dst, ok
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

// appendHeader appends a header's value. Several lines are joined as one list
// (RFC 9110, 5.3) unless they are the same.
func (a *attributes) appendHeader(dst []byte, name string) ([]byte, bool) {
	if name == "host" { // net/http moves it
		return append(dst, a.request.Host...), a.request.Host != ""
	}
	lines := a.lines(name)
	if len(lines) > 1 {
		a.several = a.several || name != "cookie"
		return policy.AppendLines(dst, name, lines), true
	}
	if len(lines) == 0 {
		return dst, false
	}
	return append(dst, lines[0]...), true
}

// proxied reports whether the peer is a trusted proxy, so that what it sets is
// proven.
func (a *attributes) proxied() bool { return a.resolver.Trusts(a.request.RemoteAddr) }

// lines returns the lines of a header, named as in a policy.
func (a *attributes) lines(name string) []string {
	key, ok := a.canonical[name]
	if !ok {
		key = http.CanonicalHeaderKey(name)
	}
	return a.request.Header[key]
}

// AppendRepeats implements [policy.Repeating].
func (a *attributes) AppendRepeats(dst []byte, attr policy.Attribute) []byte {
	switch {
	case !a.several: // nor has this
	case attr.Kind == policy.Header && attr.Name != "host", attr.Kind == policy.Proxy && a.proxied():
		return policy.AppendRepeats(dst, attr.Name, a.lines(attr.Name))
	case attr.Kind == policy.Query && a.request.URL != nil:
		return a.naming.appendQueries(dst, a.request.URL.RawQuery, attr.Name)
	}
	return dst
}

// appendCookie appends the value that http.Request.Cookie would give, without
// building all cookies.
func appendCookie(dst []byte, lines []string, name string) ([]byte, bool) {
	for _, line := range lines {
		for len(line) > 0 {
			var p pair
			if p, line = cutPair(line); p.name == name && p.valid {
				return append(dst, p.value...), true
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
// url.Values.Get finds it, and reports whether there are more. Parameters that
// net/url can't read are no parameters.
func (n naming) appendQuery(dst []byte, query, name string) (_ []byte, ok, several bool) {
	if dst, query, ok = n.appendParameter(dst, query, name); ok {
		end := len(dst)
		dst, _, several = n.appendParameter(dst, query, name)
		dst = dst[:end]
	}
	return dst, ok, several
}

// appendQueries appends the values of a query parameter as [policy.Repeating]
// wants them.
func (n naming) appendQueries(dst []byte, query, name string) []byte {
	start, end, last, differ := len(dst), 0, 0, false // end is that of the first
	for i := 0; ; i++ {
		at, ok := len(dst), false
		if dst, query, ok = n.appendParameter(dst, query, name); !ok {
			break
		}
		if i == 0 {
			end = len(dst)
		}
		differ = differ || string(dst[at:]) != string(dst[start:end])
		dst = append(dst, 0)
		if i >= policy.MaxRepeats {
			dst = append(dst[:last], dst[at:]...) // in place of the one that was the last
		} else {
			last = at
		}
	}
	if !differ {
		return dst[:start]
	}
	return dst
}

// appendParameter appends the next value of a query parameter, and returns what
// is behind it.
func (n naming) appendParameter(dst []byte, query, name string) (_ []byte, rest string, ok bool) {
	start := len(dst)
	for len(query) > 0 {
		end := strings.IndexByte(query, '&')
		if n.any {
			end = strings.IndexAny(query, "&;") // older Rack, older Python
		}
		if end < 0 {
			end = len(query)
		}
		part := query[:end]
		query = query[min(end+1, len(query)):]
		if part == "" || strings.IndexByte(part, ';') >= 0 {
			continue
		}
		key, value, _ := strings.Cut(part, "=")
		if dst, ok = appendUnescaped(dst[:start], key); !ok || !n.same(dst[start:], name) {
			continue
		}
		if dst, ok = appendUnescaped(dst[:start], value); ok {
			return dst, query, true
		}
	}
	return dst[:start], "", false
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
			if a.Kind == policy.Header || a.Kind == policy.Proxy {
				names[a.Name] = http.CanonicalHeaderKey(a.Name)
			}
		}
	}
	return names
}
