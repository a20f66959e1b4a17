package httplimit

import (
	"net/http"
	"strings"
)

// FirstCookies takes out of the header of a request the cookies of these names
// that no rule reads, since another one of the same name comes before, or what
// stands there is no value: a server behind might read them all the same. It is
// for proxies; a program that asks [http.Request.Cookie] reads what rules do.
// Everything else stays as it was sent.
func FirstCookies(h http.Header, names []string) {
	for _, name := range names {
		if lines := h["Cookie"]; needless(lines, name) {
			if lines = without(lines, name); len(lines) == 0 {
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

// needless reports whether the lines have a cookie of that name that is not read.
func needless(lines []string, name string) bool {
	read := false
	for _, line := range lines {
		for len(line) > 0 {
			var p pair
			if p, line = cutPair(line); p.name != name {
				continue
			}
			if !p.valid || read {
				return true
			}
			read = true
		}
	}
	return false
}

// without returns the lines without the cookies of that name that are not read.
func without(lines []string, name string) (out []string) {
	read := false
	for _, line := range lines {
		var kept []string
		for len(line) > 0 {
			var p pair
			if p, line = cutPair(line); p.name != name {
				kept = append(kept, p.whole)
			} else if p.valid && !read {
				read = true
				kept = append(kept, p.whole)
			}
		}
		if len(kept) > 0 {
			out = append(out, strings.Trim(strings.Join(kept, ";"), " \t"))
		}
	}
	return out
}
