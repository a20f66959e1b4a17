package gateway

import (
	"net/http"
	"net/textproto"
	"slices"
	"strings"
)

// Some fields are for one connection only: the proxy drops them, and all that
// Connection names. So they go before the rules see the request: else these
// would read what the upstream never gets, such as a token that is none.

// hopFields are those that are dropped whether Connection names them or not. A
// change of protocol, and trailers in Te, are passed on.
var hopFields = [...]string{"Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Te"}

// hop takes the fields of this connection out of a request's header, and leaves
// of Connection only that the protocol is to change.
func (g *Gateway) hop(h http.Header) {
	upgrade := false
	if lines := h["Connection"]; lines != nil {
		for _, line := range lines {
			for name := range strings.SplitSeq(line, ",") {
				name = http.CanonicalHeaderKey(textproto.TrimString(name))
				switch {
				case name == "Upgrade":
					upgrade = true
				case !g.needed(name):
					delete(h, name)
				}
			}
		}
		delete(h, "Connection")
	}
	if lines := h["Upgrade"]; lines != nil {
		if upgrade && mayUpgrade(lines) {
			h["Connection"] = []string{"Upgrade"}
		} else {
			delete(h, "Upgrade") // the request goes on without it (RFC 9110, 7.8)
		}
	}
	for _, name := range g.hops {
		if name == "Te" && trailing(h["Te"]) {
			h["Te"] = []string{"trailers"}
			continue
		}
		delete(h, name)
	}
}

// needed reports whether a field stays though the client names it in Connection:
// it says what a trusted proxy tells of the client, or where the body ends, and
// is passed on all the same.
func (g *Gateway) needed(name string) bool {
	return name == g.from || name == "Content-Length" || slices.Contains(forwarding[:], name) ||
		len(g.names.proxied) > 0 && g.names.proxied[plain(name)]
}

// trailing reports whether a client takes trailers.
func trailing(lines []string) bool {
	for _, line := range lines {
		for word := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(textproto.TrimString(word), "trailers") {
				return true
			}
		}
	}
	return false
}
