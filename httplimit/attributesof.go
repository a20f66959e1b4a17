package httplimit

import (
	"net/http"

	"github.com/spillgate/spillgate/policy"
)

// Attributes returns what [Policy] with these options would offer to p's rules
// of a request: the names, the normal forms and the client's address are found
// by the same code. It is for tools that say what a policy does with a request.
func Attributes(p *policy.Policy, r *http.Request, opts ...Option) policy.Attributes {
	a := &attributes{}
	a.begin(sharedOf(p, opts), r)
	return a
}
