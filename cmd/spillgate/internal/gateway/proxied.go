package gateway

import (
	"net/http"
	"strings"
)

// unproven takes out of a request what only a trusted proxy may set, if the peer
// is none: the upstream takes that for proven, as the rules do. It goes before
// they see the request, so that they read nothing that the upstream never gets.
func (g *Gateway) unproven(r *http.Request) {
	if len(g.proxied) == 0 || g.client.Trusts(r.RemoteAddr) {
		return
	}
	for name := range r.Header {
		if g.proxied[hyphened(name)] {
			delete(r.Header, name)
		}
	}
}

// mistaken reports whether a program that gets fields as variables may take a
// field of that name for one that a trusted proxy has set: it is the client's, and
// the proxy overwrites the other one only.
func (g *Gateway) mistaken(name string) bool {
	return len(g.proxied) > 0 && !g.read[name] && g.proxied[hyphened(name)]
}

// hyphened is the one name of all fields that such programs take for the same.
func hyphened(name string) string {
	return http.CanonicalHeaderKey(strings.ReplaceAll(name, "_", "-"))
}
