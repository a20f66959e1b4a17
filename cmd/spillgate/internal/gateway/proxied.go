package gateway

import "net/http"

// unproven takes out of a request what only a trusted proxy may set, if the peer
// is none: the upstream takes that for proven, as the rules do. It goes before
// they see the request, so that they read nothing that the upstream never gets.
func (g *Gateway) unproven(r *http.Request) {
	if len(g.names.proxied) == 0 || g.client.Trusts(r.RemoteAddr) {
		return
	}
	for name := range r.Header {
		if g.names.proxied[plain(name)] {
			delete(r.Header, name)
		}
	}
}
