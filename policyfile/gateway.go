package policyfile

import (
	"fmt"
	"slices"

	"github.com/spillgate/spillgate/clientip"
	"github.com/spillgate/spillgate/policy"
	"go.yaml.in/yaml/v4"
)

// offers reports whether the gateway knows a. The others come from a program, or
// from certificates of clients, or are for one connection only.
func (s *Server) offers(a policy.Attribute) bool {
	switch a.Kind {
	case policy.TLSClient:
		return s.unread || s.TLS.ClientCAFile != ""
	case policy.Proxy:
		return (s.unread || s.trusts()) && !hop(a)
	case policy.ClientIP, policy.Method, policy.Path, policy.Host, policy.Header, policy.Cookie, policy.Query, policy.ContentLength:
		return !hop(a)
	}
	return false
}

// trusts reports whether the gateway trusts some peer: it listens at no unix
// socket.
func (s *Server) trusts() bool {
	return slices.ContainsFunc(s.ClientIP.Trusted, func(name string) bool { return name != clientip.Unix })
}

// hop reports whether a is a field that no proxy passes on, so that the gateway
// takes it away before rules see the request.
func hop(a policy.Attribute) bool {
	if a.Kind != policy.Header && a.Kind != policy.Proxy {
		return false
	}
	switch a.Name {
	case "connection", "proxy-connection", "keep-alive", "proxy-authenticate", "proxy-authorization":
		return true
	}
	return false
}

// beyondGateway returns what is wrong with the rules in the gateway.
func (d *decoder) beyondGateway(doc *document) (errs []*Error) {
	for i := 0; i < len(doc.rules) && len(errs) <= maxErrors; i++ {
		r, m := &doc.rules[i], &doc.places[i]
		for j := range r.Key {
			for _, a := range r.Key[j].Attributes {
				if doc.server.offers(a) {
					continue
				}
				says := fmt.Sprintf("key: the gateway knows no %s, so this tells no callers apart", a)
				if len(r.Key[j].Attributes) > 1 {
					says = fmt.Sprintf("key: the gateway knows no %s, so this is never used", a)
				}
				errs = append(errs, d.beyond(entry(m.at("key"), j), a, says))
			}
		}
		of := func(key string, at *yaml.Node, match policy.Match) {
			for _, c := range match {
				if !doc.server.offers(c.Attribute) {
					errs = append(errs, d.beyond(condition(at, c.Attribute), c.Attribute,
						fmt.Sprintf("%s: the gateway knows no %s, so this says nothing about a request", key, c.Attribute)))
				}
			}
		}
		of("match", m.at("match"), r.Match)
		of("peek", m.at("peek"), r.Peek)
		if r.Backup != nil {
			of("backup", m.at("backup"), r.Backup.Match)
		}
		for j := range r.Lanes {
			of("lanes: match", under(entry(m.at("lanes"), j), "match"), r.Lanes[j].Match)
		}
		for j := range r.Prices {
			p, at := &r.Prices[j], entry(m.at("cost"), j)
			of("cost: match", under(at, "match"), p.Match)
			if !doc.server.offers(p.From) { // none is one that is offered
				errs = append(errs, d.beyond(under(at, "from"), p.From,
					fmt.Sprintf("cost: from: the gateway knows no %s, so every request would cost the same", p.From)))
			}
		}
	}
	for i := range doc.usage {
		for _, c := range doc.usage[i].Match {
			if !doc.server.offers(c.Attribute) {
				errs = append(errs, d.beyond(condition(doc.usagePlaces[i].at("match"), c.Attribute), c.Attribute,
					fmt.Sprintf("match: the gateway knows no %s, so this says nothing about a request", c.Attribute)))
			}
		}
	}
	return errs
}

// under returns the value of a key of a mapping, else n itself.
func under(n *yaml.Node, key string) *yaml.Node {
	m := target(n)
	for i := 0; m.Kind == yaml.MappingNode && i+1 < len(m.Content); i += 2 {
		if m.Content[i].Value == key {
			return m.Content[i+1]
		}
	}
	return n
}

// beyond says that the gateway does not know a.
func (d *decoder) beyond(at *yaml.Node, a policy.Attribute, says string) *Error {
	fix := "use client.ip, host, method, path, content-length, header.NAME, cookie.NAME, query.NAME, proxy.NAME or tls.client; a file for a program has no server part"
	switch {
	case hop(a):
		fix = "this field is for one connection, and the gateway does not pass it on; use one that the server behind gets, too"
	case a.Kind == policy.Proxy:
		fix = "name the proxies that set this field, whatever their clients send under its name: server: {client_ip: {trusted: 10.0.0.0/8, from: x-forwarded-for}}"
	case a.Kind == policy.TLSClient:
		fix = "name those who sign the certificates of clients: server: {tls: {client_ca_file: /etc/spillgate/clients.pem}}, beside the server's own"
	}
	return d.src.errorAt(at.Line, at.Column, says, fix)
}

// entry returns the i-th of one or more values.
func entry(n *yaml.Node, i int) *yaml.Node {
	if n = target(n); n.Kind == yaml.SequenceNode && i < len(n.Content) {
		return n.Content[i]
	}
	return n
}

// condition returns the key of the condition on a.
func condition(n *yaml.Node, a policy.Attribute) *yaml.Node {
	n = target(n)
	for i := 0; n.Kind == yaml.MappingNode && i < len(n.Content); i += 2 {
		if b, err := policy.ParseAttribute(n.Content[i].Value); err == nil && a == b {
			return n.Content[i]
		}
	}
	return n
}

// target follows an alias.
func target(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode && n.Alias != nil {
		return n.Alias
	}
	return n
}
