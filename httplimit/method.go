package httplimit

import (
	"net/http"
	"strings"

	"github.com/spillgate/spillgate/policy"
)

// overrides are the fields by which some programs let a request have another
// method than it was sent with, as net/http spells the keys of its maps.
var overrides = [...]string{"X-Http-Method-Override", "X-Http-Method", "X-Method-Override"}

// longestMethod is how long a method in such a field is at most.
const longestMethod = 24

// appendMethod appends the method, and, after a NUL, each other one that the
// request may be served as: by [policy.AppendMethod], or by a field.
func appendMethod(dst []byte, r *http.Request) []byte {
	start := len(dst)
	dst = policy.AppendMethod(dst, r.Method)
	for _, name := range overrides {
		for _, line := range r.Header[name] {
			other := strings.ToUpper(strings.TrimSpace(line))
			if n := len(other); n == 0 || n > longestMethod || len(dst)-start > 8*longestMethod || strings.IndexByte(other, 0) >= 0 || other == r.Method {
				continue
			}
			dst = append(append(dst, 0), other...)
		}
	}
	return dst
}
