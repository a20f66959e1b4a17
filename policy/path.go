package policy

import (
	"bytes"
)

// AppendPath appends the normal form of a URL path (still percent-encoded, as
// sent) to dst: the form in which rules match paths, so that //login, /login/,
// /%6cogin and /a/../login are all /login.
//
// Percent-encoded octets are decoded once (RFC 3986, 6.2.2.2), except "%" and
// control characters; "." and empty segments vanish, ".." removes the segment
// before it (5.2.4), never above the root; backslashes count as slashes; a
// trailing slash is dropped. The empty path is "/".
//
// Servers differ on odd paths: on what else is a slash, on what follows a ";",
// on which segments ".." removes and when, or whether it does, on whether
// what follows two slashes is a host, and on where a query begins. Where that makes a difference, all
// readings are appended, the first with encoded slashes as letters, without
// parameters and with empty segments gone, and each further one after a NUL,
// which no path holds. A rule speaks of a request that any server might take
// for one of its own. Of a path with more readings than anybody has a use for
// the last one is "?", which is any path at all.
func AppendPath(dst []byte, raw string) []byte { return appendReadings(dst, raw, false) }

// isNormal reports whether raw surely is in normal form and has one reading,
// as most paths are: it has neither an escape, a parameter, a query, a backslash
// nor a NUL, and no segment that is empty or begins with a dot.
func isNormal(raw string) bool {
	if raw == "" || raw[0] != '/' {
		return false
	}
	for i := 0; i < len(raw); i++ {
		switch raw[i] {
		case '%', ';', '?', '#', '\\', readingsEnd:
			return false
		case '/':
			if i+1 == len(raw) {
				return i == 0
			}
			if raw[i+1] == '/' || raw[i+1] == '.' {
				return false
			}
		}
	}
	return true
}

const (
	// readingsEnd stands between two readings of a path.
	readingsEnd = 0
	// anyReading is the reading that is any path.
	anyReading = "?"
)

// octet returns the octet at s[i], whether it is percent-encoded, and how long it is.
func octet(s string, i int) (c byte, coded bool, n int) {
	if c = s[i]; c == '%' && i+2 < len(s) && isHex(s[i+1]) && isHex(s[i+2]) {
		return unhex(s[i+1])<<4 | unhex(s[i+2]), true, 3
	}
	return c, false, 1
}

// appendReading appends one reading of a path.
func appendReading(dst []byte, raw string, r reading) []byte {
	start, seg := len(dst), len(dst)
	dst = append(dst, '/')
	param, folder := false, false // folder: what came last names one
	for i := r.past(raw); i <= len(raw); {
		ends := i == len(raw)
		if ends {
			i++
		} else {
			c, coded, n := octet(raw, i)
			i += n
			switch {
			case r.isEnd(c, coded):
				i, ends = len(raw)+1, true
			case r.isSlash(c, coded):
				ends = !param || r.cut != cutSent || c == '/' && !coded
			case param:
			case r.isParam(c, coded):
				param = true
			case isSlash(c) || coded && (c == '%' || c < 0x20 || c == 0x7f):
				dst = append(dst, '%', hexDigits[c>>4], hexDigits[c&15])
			case c == readingsEnd:
				dst = append(dst, "%00"...)
			default:
				dst = append(dst, c)
			}
		}
		if !ends {
			continue
		}
		last := string(dst[seg+1:])
		folder = last == "" || last == "." || last == ".."
		switch {
		case last == "" && r.dots != keepEmpty, last == "." && r.dots != asLetters:
			dst = dst[:seg]
		case last == ".." && r.dots != asLetters:
			dst = dst[:seg]
			if i := bytes.LastIndexByte(dst[start:], '/'); i >= 0 {
				dst = dst[:start+i]
			}
		}
		seg, param = len(dst), false
		dst = append(dst, '/')
	}
	dst = dst[:seg] // the slash that a next segment would have had
	if r.dots == keepEmpty {
		dst = mergeSlashes(dst, start)
	}
	if len(dst) == start || r.slash && folder && dst[len(dst)-1] != '/' {
		dst = append(dst, '/')
	}
	return dst
}

func isSlash(c byte) bool { return c == '/' || c == '\\' }

// mergeSlashes drops empty segments from dst[start:].
func mergeSlashes(dst []byte, start int) []byte {
	out := dst[:start]
	for i := start; i < len(dst); i++ {
		if dst[i] != '/' || i+1 < len(dst) && dst[i+1] != '/' {
			out = append(out, dst[i])
		}
	}
	return out
}

const hexDigits = "0123456789ABCDEF"

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'f'
}

func unhex(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c | 0x20 - 'a' + 10
}
