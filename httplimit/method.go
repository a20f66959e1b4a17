package httplimit

import (
	"net/http"
	"strings"

	"github.com/spillgate/spillgate/policy"
)

// overrides are the fields by which some programs let a request have another
// method than it was sent with, as net/http spells the keys of its maps.
var overrides = [...]string{"X-Http-Method-Override", "X-Http-Method", "X-Method-Override"}

const (
	longestMethod = 24 // bytes of a method in such a field at most
	// mostMethods is how many lines of one field are looked at, and how many
	// members of a line, the last among them: programs take the first, or the
	// last.
	mostMethods = 4
)

// looked reports whether the i-th of n lines or members is looked at.
func looked(i, n int) bool { return i < mostMethods-1 || i == n-1 }

// OverridesMethod reports whether name is, in any case, that of a field by which
// some programs let a request have another method. Rules on the method hold for
// the one that it names, too.
func OverridesMethod(name string) bool {
	for _, known := range overrides {
		if strings.EqualFold(name, known) {
			return true
		}
	}
	return false
}

// appendMethod appends the method, and, after a NUL, each other one that the
// request may be served as: by [policy.AppendMethod], or by a field.
func appendMethod(dst []byte, r *http.Request) []byte {
	dst = policy.AppendMethod(dst, r.Method)
	for _, name := range overrides {
		lines := r.Header[name]
		for i, line := range lines {
			if !looked(i, len(lines)) {
				continue // what one field says crowds out nothing of the others
			}
			members := strings.Count(line, ",") + 1
			for j := range members {
				var other string
				other, line, _ = strings.Cut(line, ",")
				if looked(j, members) {
					dst = appendOther(dst, r.Method, strings.ToUpper(strings.TrimSpace(other)))
				}
			}
		}
	}
	return dst
}

// appendOther appends, after a NUL, a method that is not the request's own.
func appendOther(dst []byte, method, other string) []byte {
	if n := len(other); n == 0 || n > longestMethod || strings.IndexByte(other, 0) >= 0 || other == method {
		return dst
	}
	return append(append(dst, 0), other...)
}
