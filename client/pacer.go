package client

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/spillgate/spillgate"
)

// A Pacer is a round tripper that keeps the program's own calls below a limit:
// a call that comes too early waits for its turn, in the order in which they
// came. Use it as a pointer. It is safe for concurrent use.
type Pacer struct {
	// Base sends the requests; nil means http.DefaultTransport.
	Base http.RoundTripper
	// Limiter is the limit, for each key its own. A Concurrency limit bounds
	// how many calls are under way: one is until the body of its answer is
	// closed or read to the end. It is needed.
	Limiter *spillgate.Limiter
	// Key says what is counted together; nil means each host (with its
	// port, where that is not the scheme's own) by itself, however it is
	// spelled.
	Key func(*http.Request) string
	// MaxWait is the longest wait for a turn; 0 means as long as the
	// request's context lasts.
	MaxWait time.Duration
}

// ErrNoLimiter is returned by a [Pacer] without a Limiter.
var ErrNoLimiter = errors.New("client: a Pacer needs a Limiter")

// RoundTrip sends r when it is its turn. If that would be too late the error
// is that of [spillgate.Limiter.Wait], a [*spillgate.DeadlineError] as a rule,
// at once; nothing was sent.
func (p *Pacer) RoundTrip(r *http.Request) (*http.Response, error) {
	if p.Limiter == nil {
		discard(r.Body)
		return nil, ErrNoLimiter
	}
	var key string
	if p.Key != nil {
		key = p.Key(r)
	} else {
		key = host(r.URL)
	}
	ctx := r.Context()
	if p.MaxWait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, p.MaxWait)
		defer cancel()
	}
	d, err := p.Limiter.Wait(ctx, key, 1)
	if err != nil {
		discard(r.Body)
		return nil, err
	}
	base := p.Base
	if base == nil {
		base = http.DefaultTransport
	}
	if d.Slot == 0 {
		return base.RoundTrip(r)
	}
	free := sync.OnceFunc(func() { p.Limiter.GiveBack(key, d) })
	resp, err := base.RoundTrip(r)
	if err != nil || resp.Body == nil || resp.Body == http.NoBody {
		free()
		return resp, err
	}
	b := body{resp.Body, free}
	resp.Body = &b
	if w, ok := b.ReadCloser.(io.Writer); ok { // a connection that was switched
		resp.Body = struct {
			*body
			io.Writer
		}{&b, w}
	}
	return resp, nil
}

// host returns the host of a URL, and its port if that is not its scheme's: one
// text for A.example:80, a.example. and a.example.
func host(u *url.URL) string {
	name, port := strings.ToLower(strings.TrimSuffix(u.Hostname(), ".")), u.Port()
	if a, err := netip.ParseAddr(name); err == nil {
		name = a.Unmap().String()
	}
	switch scheme := strings.ToLower(u.Scheme); {
	case port == "", port == "80" && scheme == "http", port == "443" && scheme == "https":
		return name
	}
	return net.JoinHostPort(name, port)
}

// A body frees the place of its call when it is done.
type body struct {
	io.ReadCloser
	free func()
}

// Read frees the place at the end, also one that is an error.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.free()
	}
	return n, err
}

// Close frees the place.
func (b *body) Close() error {
	defer b.free()
	return b.ReadCloser.Close()
}
