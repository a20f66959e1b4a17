package httplimit

import (
	"bytes"
	"strings"
)

// AnyServer reads query parameters as whatever server might that stands behind a
// proxy: some take "api.key", "api_key[]" or "[api_key]" for api_key (PHP, Rack,
// Express), or a semicolon for the end of a parameter. All of them are values of the
// one that rules name. Without it, what counts is what [url.Values] has, which is
// right for programs that ask these.
func AnyServer() Option {
	return func(o *options) { o.naming.any = true }
}

// naming says which names of parameters and cookies are one.
type naming struct {
	any     bool // those that any server may take for one
	anyCase bool // whatever their case is
}

// same reports whether a request's parameter or cookie of a name may be the one
// that a rule names. It writes into got.
func (n naming) same(got []byte, rule string) bool {
	switch {
	case string(got) == rule:
		return true
	case !n.any:
		return false
	case n.anyCase:
		rule = strings.ToLower(rule)
		for i, c := range got {
			if 'A' <= c && c <= 'Z' {
				got[i] = c + 'a' - 'A'
			}
		}
	}
	var buf [64]byte
	if strings.ContainsAny(rule, ". []\x00") {
		return bytes.Equal(plainName(got), plainName(append(buf[:0], rule...)))
	}
	return string(plainName(got)) == rule
}

// plainName puts a name into the form in which those are the same that some server
// takes for the same, in place.
func plainName(b []byte) []byte {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i] // PHP
	}
	for len(b) > 0 && strings.IndexByte(" []", b[0]) >= 0 {
		b = b[1:] // PHP, Rack; Express
	}
	first := bytes.IndexAny(b, "[]")
	if first < 0 {
		first = len(b)
	}
	// Of what follows the first bracket only what stands in pairs of them counts (PHP,
	// Express), and not the numbers at its end, which are elements of a list.
	out, end, rest := b[:first], first, b[first:]
	for {
		open := bytes.IndexByte(rest, '[')
		if open < 0 {
			break
		}
		n := bytes.IndexByte(rest[open:], ']') + 1
		if n == 0 {
			if len(rest) == len(b)-first && open == 0 {
				out = append(out, rest...) // the first is none: PHP
				end = len(out)
			}
			break
		}
		part := rest[open : open+n]
		rest = rest[open+n:]
		named := !digits(part[1 : n-1])
		if out = append(out, part...); named { // in place, and never beyond part
			end = len(out)
		}
	}
	b = out[:end]
	closed := bytes.LastIndexByte(b, ']')
	for i, c := range b {
		if c == '.' || c == ' ' || c == '[' && i > closed {
			b[i] = '_' // PHP
		}
	}
	return b
}

func digits(b []byte) bool {
	for _, c := range b {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}
