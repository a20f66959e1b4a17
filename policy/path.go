package policy

import (
	"bytes"
	"strings"
)

// AppendPath appends the normal form of a URL path (still percent-encoded, as
// sent) to dst: the form in which rules match paths, so that //login, /login/,
// /%6cogin and /a/../login are all /login.
//
// Percent-encoded octets are decoded (RFC 3986, 6.2.2.2), except "%" and
// control characters; "." and empty segments vanish, ".." removes the segment
// before it (5.2.4), never above the root; backslashes count as slashes; a
// trailing slash is dropped. The empty path is "/".
//
// Servers differ on three things: whether an encoded slash is a slash, whether
// what follows a ";" in a segment belongs to it, and whether ".." removes an
// empty segment. Where that makes a difference, all readings are appended, the
// first as a letter, without parameters and with empty segments gone, and each
// further one after a NUL, which no path holds. A rule speaks of a request that
// any server might take for one of its own.
func AppendPath(dst []byte, raw string) []byte { return appendReadings(dst, raw, false) }

// appendReadings appends the readings of a path, each with the slash at its
// end if that is kept.
func appendReadings(dst []byte, raw string, keep bool) []byte {
	if isNormal(raw) {
		return append(dst, raw...)
	}
	start := len(dst)
	dst = appendReading(dst, raw, reading{cut: true, merge: true, keep: keep})
	slashes := encodedSlash(raw)
	literal := strings.IndexByte(raw, ';') >= 0
	kept := emptySegment(raw, slashes)
	if !slashes && !literal && !kept {
		return dst
	}
	for n := 1; n < 8; n++ {
		r := reading{slashes: n&1 != 0, cut: n&2 == 0, merge: n&4 == 0, keep: keep}
		if r.slashes && !slashes || !r.cut && !literal || !r.merge && !kept {
			continue
		}
		end := len(dst)
		dst = appendReading(append(dst, readingsEnd), raw, r)
		if hasReading(dst[start:end], dst[end+1:]) {
			dst = dst[:end]
		}
	}
	return dst
}

// isNormal reports whether raw surely is in normal form and has one reading,
// as most paths are: it has neither an escape, a parameter, a backslash nor a
// NUL, and no segment that is empty or begins with a dot.
func isNormal(raw string) bool {
	if raw == "" || raw[0] != '/' {
		return false
	}
	for i := 0; i < len(raw); i++ {
		switch raw[i] {
		case '%', ';', '\\', readingsEnd:
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

// readingsEnd stands between two readings of a path.
const readingsEnd = 0

// A reading is one way to take a path.
type reading struct {
	slashes bool // an encoded slash is a slash
	cut     bool // parameters are cut from segments
	merge   bool // empty segments are none
	keep    bool // the slash at the end is kept
}

// encodedSlash reports whether s has an encoded slash or backslash.
func encodedSlash(s string) bool {
	for i := 0; i+2 < len(s); i++ {
		if s[i] == '%' && (s[i+1] == '2' && s[i+2]|0x20 == 'f' || s[i+1] == '5' && s[i+2]|0x20 == 'c') {
			return true
		}
	}
	return false
}

// emptySegment reports whether s may have an empty segment and one that goes
// up: two slashes in a row, of any kind, and two dots.
func emptySegment(s string, encoded bool) bool {
	dots := strings.Contains(s, "..") || strings.Contains(s, "%2e") || strings.Contains(s, "%2E")
	if !dots {
		return false
	}
	if encoded {
		return true
	}
	for i := 1; i < len(s); i++ {
		if isSlash(s[i]) && (isSlash(s[i-1]) || s[i-1] == ';') {
			return true
		}
	}
	return strings.IndexByte(s, ';') >= 0 // a segment of parameters alone is empty
}

func isSlash(c byte) bool { return c == '/' || c == '\\' }

func hasReading(readings, r []byte) bool {
	for len(readings) > 0 {
		one, rest, _ := bytes.Cut(readings, []byte{readingsEnd})
		if bytes.Equal(one, r) {
			return true
		}
		readings = rest
	}
	return false
}

// appendReading appends one reading of a path.
func appendReading(dst []byte, raw string, r reading) []byte {
	start, seg := len(dst), len(dst)
	dst = append(dst, '/')
	param, folder := false, false // folder: what came last names one
	for i := 0; i <= len(raw); i++ {
		ends := i == len(raw)
		if !ends {
			c, coded := raw[i], false
			if c == '%' && i+2 < len(raw) && isHex(raw[i+1]) && isHex(raw[i+2]) {
				c, coded = unhex(raw[i+1])<<4|unhex(raw[i+2]), true
				i += 2
			}
			switch {
			case isSlash(c) && (!coded || r.slashes):
				ends = true
			case isSlash(c):
				dst = appendUnless(param, dst, '%', '2', 'F')
			case coded && (c == '%' || c < 0x20 || c == 0x7f):
				dst = appendUnless(param, dst, '%', hexDigits[c>>4], hexDigits[c&15])
			case c == ';' && !coded && r.cut:
				param = true
			case c == readingsEnd:
				dst = appendUnless(param, dst, '%', '0', '0')
			default:
				dst = appendUnless(param, dst, c)
			}
		}
		if !ends {
			continue
		}
		last := string(dst[seg+1:])
		folder = last == "" || last == "." || last == ".."
		switch last {
		case ".":
			dst = dst[:seg]
		case "":
			if r.merge {
				dst = dst[:seg]
			}
		case "..":
			dst = dst[:seg]
			if i := bytes.LastIndexByte(dst[start:], '/'); i >= 0 {
				dst = dst[:start+i]
			}
		}
		seg, param = len(dst), false
		dst = append(dst, '/')
	}
	dst = dst[:seg] // the slash that a next segment would have had
	if !r.merge {
		dst = mergeSlashes(dst, start)
	}
	if len(dst) == start || r.keep && folder && dst[len(dst)-1] != '/' {
		dst = append(dst, '/')
	}
	return dst
}

func appendUnless(not bool, dst []byte, c ...byte) []byte {
	if not {
		return dst
	}
	return append(dst, c...)
}

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
