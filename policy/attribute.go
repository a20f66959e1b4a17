package policy

import (
	"fmt"
	"net/netip"
	"strings"
)

// A Kind groups attributes by where they come from.
type Kind uint8

const (
	// ClientIP is the client's address; text in any form netip reads.
	ClientIP Kind = iota
	// Method is the request's method in the form of [AppendMethod]. Where some
	// program may serve the request as one of another method, by a field that
	// says so, that follows after a NUL: rules speak of both, as with a path's
	// readings.
	Method
	// Path is the request's path in the form of [AppendPath].
	Path
	// Host is the host asked for, in the form of [AppendHost].
	Host
	// Route is the pattern that the program's router matched.
	Route
	// User is who the program says the caller is.
	User
	// Tenant is the customer that the program says the caller belongs to.
	Tenant
	// Device is the device that the program says the caller uses.
	Device
	// Header is a request header, named in lower case.
	Header
	// Cookie is a cookie's value.
	Cookie
	// Query is a query parameter's value.
	Query
	// Claim is a claim of a token that the program verified.
	Claim
	// Own is whatever else the program says, named by itself.
	Own
	// ContentLength is how many bytes the body has, in decimal digits, where
	// that is known before it is read.
	ContentLength
	// TLSClient names whom the certificate is for that the client proved to
	// have, if the server verified it: its [CertificateName].
	TLSClient
	// Proxy is a request header, named in lower case, that a trusted proxy set.
	// Of all other peers no request has it.
	Proxy

	kinds
)

var kindNames = [kinds]string{
	"client.ip", "method", "path", "host", "route", "user", "tenant", "device",
	"header.", "cookie.", "query.", "claim.", "attr.", "content-length", "tls.client", "proxy.",
}

// named reports whether attributes of kind k carry a name of their own.
func (k Kind) named() bool { return k >= Header && k <= Own || k == Proxy }

// field reports whether values of kind k stand in a field of the header.
func (k Kind) field() bool { return k == Header || k == Proxy }

// read reports whether a value of kind k may have several readings.
func (k Kind) read() bool { return k == Path || k == Method }

// Claimed reports whether the value is whatever the client says it is. A rule
// with such a part in its key is walked around with a new value each time.
// (Path, host, method and length are the client's choice too, but they are what it
// asks for: with another path it gets something else. With another host, method or
// length it may get the same, so [Policy.Warnings] has a word for such keys.)
func (k Kind) Claimed() bool { return k == Header || k == Cookie || k == Query }

// An Attribute names one thing that is known of a request: "client.ip",
// "host", "header.x-user-id".
type Attribute struct {
	Kind Kind
	Name string // for header, cookie, query, claim, attr and proxy
}

// String returns the attribute as it is written in a policy.
func (a Attribute) String() string {
	if a.Kind >= kinds {
		return fmt.Sprintf("attribute(%d)", a.Kind)
	}
	return kindNames[a.Kind] + a.Name
}

// ParseAttribute reads an attribute's name. Header names are taken in any
// case. The error lists what is known.
func ParseAttribute(s string) (Attribute, error) {
	for k := range kinds {
		if !k.named() {
			if s == kindNames[k] {
				return Attribute{Kind: k}, nil
			}
			continue
		}
		name, ok := strings.CutPrefix(s, kindNames[k])
		if !ok {
			continue
		}
		if name == "" || strings.ContainsAny(name, " \t\r\n") {
			return Attribute{}, fmt.Errorf("policy: attribute %q: want a name after the dot, such as %sx-user-id", s, kindNames[k])
		}
		if k.field() {
			name = strings.ToLower(name)
			if name == "transfer-encoding" || name == "trailer" {
				return Attribute{}, fmt.Errorf("policy: attribute %q: net/http takes this field away, so no request has it; use content-length, which a body without a length lacks", s)
			}
			if instead := passedOn(name); k == Proxy && instead != "" {
				return Attribute{}, fmt.Errorf("policy: attribute %q: clients send this field themselves, and proxies pass it on, so it is not the proxy's word; use %s", s, instead)
			}
		}
		return Attribute{Kind: k, Name: name}, nil
	}
	return Attribute{}, fmt.Errorf("policy: unknown attribute %q%s; known are client.ip, method, path, host, route, user, tenant, device, header.NAME, cookie.NAME, query.NAME, claim.NAME, attr.NAME, content-length, tls.client, proxy.NAME",
		s, meant(s))
}

// meant guesses at a misspelt attribute.
func meant(s string) string {
	low := strings.ToLower(s)
	switch low {
	case "header", "cookie", "query", "claim", "attr", "proxy":
		return fmt.Sprintf(` (did you mean "%s.NAME"?)`, low)
	}
	for _, k := range kindNames {
		word := strings.TrimSuffix(k, ".")
		if low == word && low != s || strings.ReplaceAll(low, "_", ".") == word || strings.ReplaceAll(low, "_", "-") == word || low == strings.ReplaceAll(word, ".", "") {
			return fmt.Sprintf(" (did you mean %q?)", word)
		}
	}
	switch low {
	case "ip", "client", "clientip", "remote_addr", "address":
		return ` (did you mean "client.ip"?)`
	}
	guess := ""
	if head, name, dotted := strings.Cut(s, "."); !dotted && usualHeader(strings.ReplaceAll(low, "_", "-")) {
		guess = "header." + strings.ReplaceAll(low, "_", "-")
	} else if kind := otherHeads[strings.ToLower(head)]; kind == "" {
	} else if guess = kind + name; kind == "header." || kind == "proxy." {
		guess = kind + strings.ToLower(name)
	}
	if guess == "" {
		return ""
	}
	if _, err := ParseAttribute(guess); err != nil {
		return ""
	}
	return fmt.Sprintf(" (did you mean %q?)", guess)
}

// otherHeads are the fronts of named attributes, also as others call them.
var otherHeads = map[string]string{
	"header": "header.", "headers": "header.", "http": "header.", "cookie": "cookie.", "cookies": "cookie.",
	"query": "query.", "queries": "query.", "param": "query.", "params": "query.", "arg": "query.", "args": "query.",
	"claim": "claim.", "claims": "claim.", "jwt": "claim.", "token": "claim.", "attr": "attr.", "attrs": "attr.", "attribute": "attr.", "proxy": "proxy.",
}

// usualHeader reports whether a word without a dot is surely a header's name.
func usualHeader(low string) bool {
	switch low {
	case "user-agent", "referer", "authorization", "origin", "accept", "accept-encoding", "accept-language", "content-type":
		return true
	}
	return strings.HasPrefix(low, "x-") && low != "x-"
}

// Attributes is what a front knows of a request. Values are asked for at most
// a few times each, and only if a rule wants them.
type Attributes interface {
	// AppendAttr appends the value of a to dst and returns the extended
	// slice, or reports false if the request has no such attribute. A value
	// that is empty, or has blanks and tabs only, counts as none.
	AppendAttr(dst []byte, a Attribute) ([]byte, bool)
}

// Addressed is what [Attributes] may be besides: those who know the client's
// address as such spare its way through text. The zero Addr means none.
type Addressed interface {
	ClientAddr() netip.Addr
}

// Attrs is a set of attributes by name, as written in a policy: the
// application's own words about a request. The names are those that
// [ParseAttribute] takes, header names in lower case. A rule asks for those that
// it speaks of, so of a misspelt one ("clientip") nobody hears: to such a rule
// the request lacks the attribute.
type Attrs map[string]string

// AppendAttr implements [Attributes].
func (m Attrs) AppendAttr(dst []byte, a Attribute) ([]byte, bool) {
	var v string
	var ok bool
	if a.Kind.named() {
		var room [64]byte
		name := append(append(room[:0], kindNames[a.Kind]...), a.Name...)
		v, ok = m[string(name)]
	} else if a.Kind < kinds {
		v, ok = m[kindNames[a.Kind]]
	}
	return append(dst, v...), ok
}
