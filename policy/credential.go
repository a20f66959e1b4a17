package policy

import "strings"

// One credential may be written in several ways (RFC 9110, 11.1 and 11.4): its
// scheme in any case, and blanks behind it. Rules see one of them, and what they
// compare it with is written as that.

// credential reports whether a holds a scheme and what belongs to it.
func (a Attribute) credential() bool {
	return a.Kind.field() && (a.Name == "authorization" || a.Name == "proxy-authorization")
}

// foldCredential puts a credential into its one form, in place: the scheme in
// lower case and one blank behind it. What has no blank has no scheme, and stays.
func foldCredential(v []byte) []byte {
	end := 0
	for end < len(v) && !isBlank(v[end]) {
		end++
	}
	next := end
	for next < len(v) && isBlank(v[next]) {
		next++
	}
	if next == len(v) {
		return v[:end]
	}
	for i, c := range v[:end] {
		if 'A' <= c && c <= 'Z' {
			v[i] = c + 'a' - 'A'
		}
	}
	v[end] = ' '
	return append(v[:end+1], v[next:]...)
}

// normalHeader returns a header's value without the blanks around it, which
// HTTP/1.1 takes away and HTTP/2 does not, and a credential in its form. It
// changes v.
func normalHeader(a Attribute, v []byte) []byte {
	for len(v) > 0 && isBlank(v[0]) {
		v = v[1:]
	}
	for len(v) > 0 && isBlank(v[len(v)-1]) {
		v = v[:len(v)-1]
	}
	if a.credential() {
		v = foldCredential(v)
	}
	return v
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' }

// normalText is normalHeader for what a policy says of an attribute, and leaves
// that of all others as it is.
func normalText(a Attribute, v string) string {
	if !a.Kind.field() {
		return v
	}
	return string(normalHeader(a, []byte(v)))
}

// credentialPatterns returns what is to be compared in place of a pattern for
// a: of a credential its form, and where a star may stand for a scheme's end,
// both that and the pattern.
func credentialPatterns(a Attribute, v string) []string {
	if !a.credential() {
		return []string{v}
	}
	folded := normalText(a, v)
	star := strings.IndexByte(v, '*')
	if star < 0 {
		return []string{folded}
	}
	if !strings.ContainsAny(v, " \t") {
		folded = lowerASCII(v[:star]) + v[star:]
	}
	if folded == v {
		return []string{v}
	}
	return []string{v, folded}
}
