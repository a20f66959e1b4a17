package httplimit

import (
	"net/http"
	"strings"
)

// FirstCookies takes out of the header of a request what a server behind might read
// for the cookies of these names, and no rule does: one whose name comes again, or
// is written otherwise ("my.sid" or "my_sid[]" is my_sid to PHP), what is no value,
// and what hides in another cookie ("a=b my_sid=c" to Python). It is for proxies; a
// program that asks [http.Request.Cookie] reads what rules do. With anyCase names
// are the same in either case. Everything else stays as it was sent.
func FirstCookies(h http.Header, names []string, anyCase bool) {
	n := naming{any: true, anyCase: anyCase}
	for _, name := range names {
		if lines := h["Cookie"]; n.needless(lines, name) {
			if lines = n.without(lines, name); len(lines) == 0 {
				delete(h, "Cookie")
			} else {
				h["Cookie"] = lines
			}
		}
	}
}

// A pair is a cookie as it stands in a header.
type pair struct {
	name, value string
	whole       string // with what stands around
	valid       bool   // as a cookie of net/http
}

// cutPair cuts the first cookie off a line.
func cutPair(line string) (p pair, rest string) {
	p.whole, rest, _ = strings.Cut(line, ";")
	p.name, p.value, _ = strings.Cut(strings.Trim(p.whole, " \t\r\n"), "=")
	p.name = strings.Trim(p.name, " \t\r\n")
	if n := len(p.value); n > 1 && p.value[0] == '"' && p.value[n-1] == '"' {
		p.value = p.value[1 : n-1]
	}
	p.valid = cookieValue(p.value)
	return p, rest
}

// A pick takes the first cookie of a name, and tells what else to leave out.
type pick struct {
	naming
	name string
	read bool
}

// leaves reports whether a cookie is left out.
func (k *pick) leaves(p *pair) bool {
	if p.name == k.name && p.valid && !k.read && !k.hides(p.value) {
		k.read = true
		return false
	}
	return p.name == k.name || k.names(p.name) || k.hides(p.whole)
}

// names reports whether a server might take a name for that of the cookie.
func (k *pick) names(name string) bool {
	var buf [64]byte
	got, ok := append(buf[:0], name...), true
	if strings.IndexByte(name, '%') >= 0 {
		if got, ok = appendUnescaped(buf[:0], name); !ok { // older PHP, older Rack
			got = append(buf[:0], name...)
		}
	}
	return k.same(got, k.name)
}

// hides reports whether a server might see the cookie in the text of another, where
// blanks and commas stand between cookies: Python's http.cookies, older Java.
func (k *pick) hides(text string) bool {
	const between = " \t,"
	text = strings.Trim(text, between)
	for {
		i := strings.IndexAny(text, between)
		if i < 0 {
			return false
		}
		text = strings.TrimLeft(text[i:], between)
		name := text
		if i := strings.IndexAny(text, between+"="); i >= 0 {
			name = text[:i]
		}
		if strings.HasPrefix(strings.TrimLeft(text[len(name):], between), "=") && k.names(name) {
			return true
		}
	}
}

// needless reports whether the lines have a cookie that is left out.
func (n naming) needless(lines []string, name string) bool {
	k := pick{naming: n, name: name}
	for _, line := range lines {
		for len(line) > 0 {
			var p pair
			if p, line = cutPair(line); k.leaves(&p) {
				return true
			}
		}
	}
	return false
}

// without returns the lines without the cookies that are left out.
func (n naming) without(lines []string, name string) (out []string) {
	k := pick{naming: n, name: name}
	for _, line := range lines {
		var kept []string
		for len(line) > 0 {
			var p pair
			if p, line = cutPair(line); !k.leaves(&p) {
				kept = append(kept, p.whole)
			}
		}
		if len(kept) > 0 {
			out = append(out, strings.Trim(strings.Join(kept, ";"), " \t"))
		}
	}
	return out
}
