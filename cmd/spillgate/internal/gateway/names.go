package gateway

import (
	"net/http"
	"net/http/httputil"
	"strings"

	"github.com/spillgate/spillgate/httplimit"
	"github.com/spillgate/spillgate/policy"
)

// Fields that would have the upstream serve something else than the rules have
// seen, or that it may take for what they have, are not passed on.

// forwarding are the fields in which proxies tell of those before them.
var forwarding = [...]string{"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "Forwarded"}

// repathing are the fields in which proxies tell which path was asked of them,
// or what to cut from the front of it; some programs (behind IIS, of Symfony, of
// Zend, of Flask) serve that in place of the request's own, which is what the
// rules have seen.
var repathing = [...]string{"X-Original-Url", "X-Rewrite-Url", "X-Script-Name", "X-Forwarded-Prefix"}

// mounting are the fields by which servers of Python (gunicorn, Daphne) cut the
// path, whoever sends them. Nobody needs them, since both have a setting for it.
var mounting = [...]string{"Script-Name", "Path-Info", "Daphne-Root-Path"}

// names are those of fields that mean something to us, as net/http spells its keys.
type names struct {
	read map[string]bool // the rules read them, or who finds the client
	own  map[string]bool // we set them, or drop them; in their plain form
	// Both in their plain form; the latter if they are not spelled so.
	plain, odd map[string]bool

	proxied map[string]bool // those that only a trusted proxy may set, in their plain form
}

// namesOf returns the names for what rules read, for what of that only trusted
// proxies may set, and for the field in which these tell of the client.
func namesOf(read, proxied map[string]bool, from string) names {
	n := names{read: read, proxied: proxied, own: make(map[string]bool), plain: make(map[string]bool), odd: make(map[string]bool)}
	if from != "" {
		read[from] = true
	}
	for _, known := range [...][]string{forwarding[:], repathing[:], mounting[:], {httplimit.RemainingHeader}} {
		for _, name := range known {
			n.own[plain(name)] = true
		}
	}
	for name := range read {
		p := plain(name)
		n.plain[p] = true
		if p != name && !n.own[p] {
			n.odd[p] = true
		}
	}
	return n
}

// said reports whether the upstream may take a field of that name for one that
// the gateway sets or drops, or that the rules have read.
func (n *names) said(name string) bool {
	p := plain(name)
	return n.read[name] || n.plain[p] || n.own[p] || httplimit.OverridesMethod(p)
}

// poses reports whether the upstream may take a field of that name for another
// one of which [names.said] speaks.
func (n *names) poses(name string) bool {
	if !isPlain(name) {
		return !n.read[name] && n.said(name)
	}
	return len(n.odd) > 0 && n.odd[name] && !n.read[name]
}

// plain returns a name as programs see it that get fields as variables (CGI,
// WSGI, PHP): they can't tell an underscore, a dot or another sign from a hyphen.
func plain(name string) string {
	if isPlain(name) {
		return name
	}
	b := []byte(name)
	for i, c := range b {
		if !alphanumeric(c) {
			b[i] = '-'
		}
	}
	return http.CanonicalHeaderKey(string(b))
}

// isPlain reports whether a name has no other sign than hyphens.
func isPlain(name string) bool {
	for i := range len(name) {
		if c := name[i]; c != '-' && !alphanumeric(c) {
			return false
		}
	}
	return true
}

func alphanumeric(c byte) bool {
	return 'a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9'
}

// sameHost leaves of what a trusted proxy told, where rules go by the host, only
// what names the one that they have seen: proxies pass on what some client claims.
func sameHost(p *httputil.ProxyRequest) {
	want := string(policy.AppendHost(nil, p.In.Host))
	delete(p.Out.Header, "X-Forwarded-Host") // and then it is the request's own
	for _, line := range p.Out.Header["Forwarded"] {
		if !namesHost(line, want) {
			delete(p.Out.Header, "Forwarded")
			return
		}
	}
}

// namesHost reports whether all that some program may take for a host in a line
// of Forwarded is that one. Not all of them know what is quoted.
func namesHost(line, want string) bool {
	const blanks, ends = " \t\"", ";,"
	line = strings.ToLower(line)
	for {
		_, rest, found := strings.Cut(line, "host")
		if !found {
			return true
		}
		line = rest
		if rest, found = strings.CutPrefix(strings.TrimLeft(rest, blanks), "="); !found {
			continue
		}
		if i := strings.IndexAny(rest, ends); i >= 0 {
			rest = rest[:i]
		}
		if string(policy.AppendHost(nil, strings.Trim(rest, blanks))) != want {
			return false
		}
	}
}
