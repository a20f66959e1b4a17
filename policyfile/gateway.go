package policyfile

import (
	"fmt"

	"github.com/spillgate/spillgate/policy"
	"go.yaml.in/yaml/v4"
)

// offered reports whether the gateway knows attributes of kind k. The others
// come from a program.
func offered(k policy.Kind) bool {
	switch k {
	case policy.ClientIP, policy.Method, policy.Path, policy.Host, policy.Header, policy.Cookie, policy.Query:
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
				if offered(a.Kind) {
					continue
				}
				says := fmt.Sprintf("key: the gateway knows no %s, so this tells no callers apart", a)
				if len(r.Key[j].Attributes) > 1 {
					says = fmt.Sprintf("key: the gateway knows no %s, so this is never used", a)
				}
				errs = append(errs, d.beyond(entry(m.at("key"), j), says))
			}
		}
		var spare policy.Match
		if r.Backup != nil {
			spare = r.Backup.Match
		}
		for _, side := range []struct {
			key   string
			match policy.Match
		}{{"match", r.Match}, {"peek", r.Peek}, {"backup", spare}} {
			for _, c := range side.match {
				if !offered(c.Attribute.Kind) {
					errs = append(errs, d.beyond(condition(m.at(side.key), c.Attribute),
						fmt.Sprintf("%s: the gateway knows no %s, so this says nothing about a request", side.key, c.Attribute)))
				}
			}
		}
	}
	return errs
}

func (d *decoder) beyond(at *yaml.Node, says string) *Error {
	return d.src.errorAt(at.Line, at.Column, says,
		"use client.ip, host, method, path, header.NAME, cookie.NAME or query.NAME; a file for a program has no server part")
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
