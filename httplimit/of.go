package httplimit

import (
	"net/http"

	"github.com/spillgate/spillgate/policy"
)

// Attributes returns what [Policy] with these options would offer of a
// request: the names, the normal forms and the client's address are found by
// the same code. It is for tools that say what a policy does with a request.
func Attributes(r *http.Request, opts ...Option) policy.Attributes {
	a := &attributes{}
	a.begin(&shared{options: optionsOf(opts)}, r)
	return a
}
