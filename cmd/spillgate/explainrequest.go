package main

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spillgate/spillgate/httplimit"
	"github.com/spillgate/spillgate/policy"
	"github.com/spillgate/spillgate/policyfile"
)

// request makes the request that the flags describe, as a server reads it.
func (f *explainFlags) request() (r *http.Request, raw string, err error) {
	if f.ip != "" && f.peer != "" {
		return nil, "", errors.New("--ip and --peer exclude each other: --ip is the client, --peer who connects, maybe a proxy")
	}
	for name, s := range map[string]string{"--ip": f.ip, "--peer": f.peer} {
		if _, err := netip.ParseAddr(s); s != "" && err != nil {
			return nil, "", fmt.Errorf("%s %q: want an address such as 203.0.113.7", name, s)
		}
	}
	if !strings.HasPrefix(f.path, "/") {
		return nil, "", fmt.Errorf("--path %q: a path begins with /, such as /login", f.path)
	}
	if f.method == "" || strings.ContainsFunc(f.method, notInWord) {
		return nil, "", fmt.Errorf("--method %q: want a method such as GET", f.method)
	}
	if strings.ContainsFunc(f.host, notInWord) {
		return nil, "", fmt.Errorf("--host %q: want a host such as shop.example", f.host)
	}
	u, err := url.ParseRequestURI("http://host" + f.path)
	if err != nil || strings.ContainsFunc(f.path, notInWord) {
		return nil, "", fmt.Errorf("--path %q: no path that a server would read; encode what is special, such as a blank as %%20", f.path)
	}
	u.Scheme, u.Host = "", ""
	r = &http.Request{Method: f.method, URL: u, Host: f.host, Header: make(http.Header), RemoteAddr: cmp.Or(f.ip, f.peer)}
	if f.client != "" {
		r.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{{DNSNames: []string{f.client}}}}}
	}
	for _, h := range f.headers {
		name, value, ok := strings.Cut(h, ":")
		if name = strings.TrimSpace(name); !ok || name == "" || strings.ContainsAny(name, " \t\r\n") {
			return nil, "", fmt.Errorf("--header %q: want 'Name: value'", h)
		}
		switch value = strings.TrimSpace(value); http.CanonicalHeaderKey(name) {
		case "Host":
			r.Host = value
			continue
		case "Content-Length":
			if r.ContentLength, err = strconv.ParseInt(value, 10, 64); err != nil || r.ContentLength < 0 {
				return nil, "", fmt.Errorf("--header %q: want how many bytes the body has", h)
			}
		case "Transfer-Encoding": // a body whose length is not known before
			r.ContentLength = -1
			continue
		}
		r.Header.Add(name, value)
	}
	raw, _, _ = strings.Cut(f.path, "?")
	return r, raw, nil
}

// notInWord reports whether c can't stand in a word of a request's first line.
func notInWord(c rune) bool { return c <= ' ' || c == 0x7f }

// program says what a program would. What nothing in the file reads is a slip.
func (f *explainFlags) program(p *policy.Policy) ([]httplimit.Option, error) {
	say := func(s string) func(*http.Request) string { return func(*http.Request) string { return s } }
	opts := []httplimit.Option{httplimit.User(say(f.user)), httplimit.Tenant(say(f.tenant)), httplimit.Device(say(f.device)), httplimit.Route(say(f.route))}
	for _, a := range f.attrs {
		name, value, ok := strings.Cut(a, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("--attr %q: want NAME=VALUE", a)
		}
		if own := (policy.Attribute{Kind: policy.Own, Name: name}); !reads(p, own) {
			flag := ""
			if other, err := policy.ParseAttribute(name); err == nil {
				flag = fmt.Sprintf("; %s has a flag of its own, see --help", other)
			}
			return nil, fmt.Errorf("--attr %q: nothing in the file reads %s%s", a, own, flag)
		}
		opts = append(opts, httplimit.Attr(name, say(value)))
	}
	claims := make(map[string]string)
	for _, c := range f.claims {
		name, value, ok := strings.Cut(c, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("--claim %q: want NAME=VALUE", c)
		}
		if claim := (policy.Attribute{Kind: policy.Claim, Name: name}); !reads(p, claim) {
			return nil, fmt.Errorf("--claim %q: nothing in the file reads %s", c, claim)
		}
		claims[name] = value
	}
	return append(opts, httplimit.Claim(func(_ *http.Request, name string) (string, bool) {
		v, ok := claims[name]
		return v, ok
	})), nil
}

// reads reports whether something in p speaks of an attribute.
func reads(p *policy.Policy, a policy.Attribute) bool {
	in := func(m policy.Match) bool {
		return slices.ContainsFunc(m, func(c policy.Condition) bool { return c.Attribute == a })
	}
	return slices.ContainsFunc(p.Rules(), func(r policy.Rule) bool { return slices.Contains(r.Attributes(), a) }) ||
		slices.ContainsFunc(p.Usage(), func(u policy.Usage) bool { return in(u.Match) }) ||
		slices.ContainsFunc(p.Overrides().All(), func(o *policy.Override) bool { return in(o.Match) || slices.Contains(o.Key.Attributes, a) })
}

// options says when the request comes and what it costs.
func (f *explainFlags) options(file *policyfile.File) (opts []policy.Option, err error) {
	for _, c := range f.costs {
		unit, number, ok := strings.Cut(c, "=")
		n, err := strconv.ParseInt(number, 10, 64)
		if !ok || err != nil || n < 0 {
			return nil, fmt.Errorf("--cost %q: want a unit and a whole number, such as tokens=500", c)
		}
		if !slices.ContainsFunc(file.Policy.Rules(), func(r policy.Rule) bool { return cmp.Or(r.Unit, policy.Requests) == unit }) {
			return nil, fmt.Errorf("--cost %q: no rule counts %q", c, unit)
		}
		opts = append(opts, policy.Cost(unit, n))
	}
	if f.at != "" {
		at, err := time.Parse(time.RFC3339, f.at)
		if err != nil {
			return nil, fmt.Errorf("--at %q: want an instant such as 2026-03-29T03:00:00+02:00", f.at)
		}
		opts = append(opts, policy.At(at))
	}
	return opts, nil
}
