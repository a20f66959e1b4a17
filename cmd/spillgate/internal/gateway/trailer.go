package gateway

import (
	"net/http"
	"slices"
	"strings"

	"github.com/spillgate/spillgate/httplimit"
	"github.com/spillgate/spillgate/policy"
)

// Some programs put trailers among the fields of the header, so those that name
// what was said there are not passed on.

// fieldsRead returns the names of the fields that p reads of a header, as
// net/http spells its keys, those among them that only a trusted proxy may set, in
// their plain form, those of the cookies, and whether it reads the host.
func fieldsRead(p *policy.Policy) (read, proxied map[string]bool, cookies []string, hosted bool) {
	read, proxied = make(map[string]bool), make(map[string]bool)
	attribute := func(a policy.Attribute) {
		if a.Kind == policy.Proxy {
			proxied[plain(http.CanonicalHeaderKey(a.Name))] = true
		}
		switch a.Kind {
		case policy.Header, policy.Proxy:
			read[http.CanonicalHeaderKey(a.Name)] = true
		case policy.Host:
			hosted = true
		case policy.Cookie:
			read["Cookie"] = true
			if !slices.Contains(cookies, a.Name) {
				cookies = append(cookies, a.Name)
			}
		}
	}
	match := func(m policy.Match) {
		for _, c := range m {
			attribute(c.Attribute)
		}
	}
	rules := p.Rules()
	for i := range rules {
		for _, a := range rules[i].Attributes() {
			attribute(a)
		}
	}
	for _, o := range p.Overrides().All() {
		match(o.Match)
		for _, a := range o.Key.Attributes {
			attribute(a)
		}
	}
	for i := range p.Usage() {
		match(p.Usage()[i].Match)
	}
	return read, proxied, cookies, hosted
}

// prune takes out of a request's trailers what was said in its header, and what says
// how the message is framed: net/http refuses that only where it was announced.
func (g *Gateway) prune(trailer http.Header) {
	for name := range trailer {
		if g.names.said(name) || slices.Contains([]string{"Content-Length", "Trailer", "Transfer-Encoding"}, name) {
			delete(trailer, name)
		}
	}
}

// pruneAnswer takes out of an answer's trailers what tells of limits. Those that
// were announced are pruned by check. An answer of known length over HTTP/1.1,
// as most are, has none.
func (t *target) pruneAnswer(h http.Header) {
	if _, whole := h["Content-Length"]; whole && !t.http2 {
		return
	}
	for name := range h {
		if rest, ok := strings.CutPrefix(name, http.TrailerPrefix); ok && httplimit.IsField(rest) {
			delete(h, name)
		}
	}
}
