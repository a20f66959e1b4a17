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
	// mostMethods is how many lines of one field are looked at, the last among
	// them: programs take the first, or the last.
	mostMethods = 4
)

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
			if i >= mostMethods-1 && i < len(lines)-1 {
				continue // what one field says crowds out nothing of the others
			}
			other := strings.ToUpper(strings.TrimSpace(line))
			if n := len(other); n == 0 || n > longestMethod || strings.IndexByte(other, 0) >= 0 || other == r.Method {
				continue
			}
			dst = append(append(dst, 0), other...)
		}
	}
	return dst
}
