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
	proxy     *httputil.ReverseProxy
	based     bool // its own path is more than "/"
	encrypted bool // so that HTTP/2 may be spoken
}

// proper reports what is wrong with the URL of an upstream.
func proper(u *url.URL) error {
	switch {
	case u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
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
	return target{based: strings.Trim(u.Path, "/") != "", encrypted: u.Scheme == "https", proxy: &httputil.ReverseProxy{
		Rewrite:        func(p *httputil.ProxyRequest) { g.rewrite(p, u) },
		Transport:      g.transport,
		FlushInterval:  flushAfter,
		BufferPool:     g.buffers,
		ModifyResponse: check,
		ErrorHandler:   g.fault,
		ErrorLog:       slog.NewLogLogger(g.logger.Handler(), slog.LevelDebug),
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
