package clientip

import (
	"net/netip"
	"strings"
)

// lastForwarded cuts the last element off a line of Forwarded (RFC 7239 section
// 4) and reads its "for" parameter. An element without one, or with two, or
// that breaks the grammar, is not ok.
//
// It works from the right end on purpose. Read from the left, a quote that the
// client left open swallows the elements that proxies append to the same line;
// read from the right, their elements stand complete before any of the client's
// text is seen.
func lastForwarded(line string) (rest string, hop netip.Addr, more, ok bool) {
	rest, element, more, ok := cutElement(line)
	if !ok {
		return "", hop, false, false
	}
	node, ok := forParameter(element)
	if !ok {
		return "", hop, false, false
	}
	hop, ok = parseNode(node)
	return rest, hop, more, ok
}

// cutElement splits a line at its last comma outside of quoted strings. Whether
// those are well formed is for forParameter to see.
func cutElement(line string) (rest, element string, more, ok bool) {
	for i := len(line) - 1; i >= 0; i-- {
		switch line[i] {
		case ',':
			return line[:i], line[i+1:], true, true
		case '"':
			for i--; i >= 0 && (line[i] != '"' || escaped(line, i)); i-- {
			}
			if i < 0 {
				return "", "", false, false
			}
		}
	}
	return "", line, false, true
}

// escaped tells whether an odd number of backslashes stands before s[i].
func escaped(s string, i int) bool {
	n := 0
	for i--; i >= 0 && s[i] == '\\'; i-- {
		n++
	}
	return n%2 == 1
}

// forParameter returns the value of an element's "for" parameter, unquoted.
// Values need not be tokens: unquoted addresses with ports, which the grammar
// forbids, are common.
func forParameter(element string) (node string, ok bool) {
	found := false
	for s := element; ; {
		s = strings.TrimLeft(s, " \t;")
		if s == "" {
			return node, found
		}
		eq := strings.IndexByte(s, '=')
		if eq <= 0 {
			return "", false
		}
		name := s[:eq]
		for i := range len(name) {
			if !tokenByte(name[i]) {
				return "", false
			}
		}
		var value string
		value, s, ok = cutValue(s[eq+1:])
		if !ok {
			return "", false
		}
		if strings.EqualFold(name, "for") {
			if found {
				return "", false
			}
			node, found = value, true
		}
	}
}

// cutValue takes a parameter's value off s, up to the next semicolon.
func cutValue(s string) (value, rest string, ok bool) {
	if s == "" || s[0] != '"' {
		value, rest, _ = strings.Cut(s, ";")
		value = trimBlank(value)
		return value, rest, strings.IndexByte(value, '"') < 0
	}
	end := 1
	for ; end < len(s) && s[end] != '"'; end++ {
		if s[end] == '\\' {
			end++
		}
	}
	if end >= len(s) {
		return "", "", false
	}
	rest = strings.TrimLeft(s[end+1:], " \t")
	if rest != "" && rest[0] != ';' {
		return "", "", false
	}
	return unescape(s[1:end]), rest, true
}

// unescape resolves the quoted pairs of RFC 9110 section 5.6.4. What is too long
// for an address is left alone, so that it costs nothing.
func unescape(s string) string {
	if len(s) > maxNode || strings.IndexByte(s, '\\') < 0 {
		return s
	}
	plain := make([]byte, 0, maxNode)
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) {
			i++
		}
		plain = append(plain, s[i])
	}
	return string(plain)
}

// tokenByte tells whether c may stand in a token (RFC 9110 section 5.6.2).
func tokenByte(c byte) bool {
	return alphanumeric(c) || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}

func alphanumeric(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}
