package gateway

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"

	"github.com/spillgate/spillgate/httplimit"
	"github.com/spillgate/spillgate/policy"
)

// A target is an upstream and the way to it.
type target struct {
	proxy *httputil.ReverseProxy
	based bool // its own path is more than "/"
	http2 bool // may be spoken
}

// h2c is the scheme of an upstream that is spoken to in HTTP/2 without TLS.
const h2c = "h2c"

// proper reports what is wrong with the URL of an upstream.
func proper(u *url.URL) error {
	switch {
	case u.Scheme != "http" && u.Scheme != "https" && u.Scheme != h2c || u.Hostname() == "":
		return fmt.Errorf("gateway: upstream %q: want a URL such as http://127.0.0.1:9000", u.Redacted())
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || u.User != nil:
		return fmt.Errorf("gateway: upstream %q: a query, fragment or user can't be passed on; leave it out", u.Redacted())
	case strings.HasPrefix(u.Path, "//"):
		return fmt.Errorf("gateway: upstream %q: a path that begins with two slashes is a host to many servers; write one", u.Redacted())
	}
	return nil
}

// target makes the way to an upstream.
func (g *Gateway) target(u *url.URL) target {
	to, transport, prior := *u, g.transport, u.Scheme == h2c
	if prior {
		to.Scheme, transport = "http", g.prior
	}
	return target{based: strings.Trim(u.Path, "/") != "", http2: u.Scheme != "http", proxy: &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			g.rewrite(p, &to)
			if prior { // nobody changes the protocol there; the request goes on without that (RFC 9110, 7.8)
				delete(p.Out.Header, "Connection")
				delete(p.Out.Header, "Upgrade")
			}
		},
		Transport:      transport,
		FlushInterval:  flushAfter,
		BufferPool:     g.buffers,
		ModifyResponse: check,
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if u.Scheme == "http" {
				g.fault(w, r, err, advice(r, err))
			} else {
				g.fault(w, r, err, "")
			}
		},
		ErrorLog: slog.NewLogLogger(g.logger.Handler(), slog.LevelDebug),
	}}
}

// spares makes the ways to the backups that rules name.
func (g *Gateway) spares(p *policy.Policy) (httplimit.Option, error) {
	spares := make(map[string]*target)
	rules := p.Rules()
	for i := range rules {
		b := rules[i].Backup
		if b == nil || spares[b.Upstream] != nil {
			continue
		}
		u, err := url.Parse(b.Upstream)
		if err == nil {
			err = proper(u)
		}
		if err != nil {
			return nil, fmt.Errorf("gateway: rule %q: backup: %w", rules[i].Name, err)
		}
		t := g.target(u)
		spares[b.Upstream] = &t
	}
	if len(spares) == 0 {
		return httplimit.Backup(nil), nil
	}
	return httplimit.Backup(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.passTo(spares[policy.FromContext(r.Context()).Backup().Upstream], w, r)
	})), nil
}
