package policy

import "strings"

// AppendMethod appends a method as it was sent and, if it has lower-case
// letters, after a NUL, the one in upper case: a second reading, in which rules
// see it too. Methods are case-sensitive (RFC 9110, section 9.1), but some
// servers take "post" for POST: gunicorn with casefold_http_method, cheroot
// unless it is strict.
func AppendMethod(dst []byte, method string) []byte {
	dst = append(dst, method...)
	if upper := strings.ToUpper(method); upper != method {
		dst = append(append(dst, readingsEnd), upper...)
	}
	return dst
}
