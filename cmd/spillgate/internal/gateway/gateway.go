// Package gateway is the reverse proxy that limits: it stands in front of one
// upstream, asks the policy about every request, and passes on what may pass,
// byte for byte.
package gateway

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/spillgate/spillgate/clientip"
	"github.com/spillgate/spillgate/httplimit"
	"github.com/spillgate/spillgate/policy"
)

// Config says what a gateway stands in front of and how it decides.
type Config struct {
	// Engine decides. It is needed. [Gateway.Serve] closes it at the stop.
	Engine *policy.Engine
	// Upstream is where requests go: scheme http, https, or h2c, which is HTTP/2
	// without TLS, a host, and perhaps a path that stands before every request's
	// own.
	Upstream *url.URL
	// UpstreamCAs are those who sign the certificates of https upstreams; nil is
	// those whom the system trusts.
	UpstreamCAs *x509.CertPool
	// Client finds the client's address; nil trusts nobody and takes the
	// peer's.
	Client *clientip.Resolver
	// TLS is how connections are encrypted: then HTTP/2 is spoken, too. It must
	// have a certificate. Nil is plain HTTP/1.1.
	TLS *tls.Config
	// H2C says that without TLS, too, HTTP/2 is spoken with those who begin
	// with it (RFC 9113, 3.3). With TLS it is an error.
	H2C bool
	// Headers says which answers carry RateLimit fields.
	Headers httplimit.HeaderMode
	// Answers says more of what clients are told.
	Answers []httplimit.Option
	// Logger gets a line a refusal and a line a fault, sampled; nil is the
	// default logger.
	Logger *slog.Logger
	// Timeouts bounds waits; zero fields have their defaults.
	Timeouts Timeouts
}

// Timeouts bound how long a gateway waits, so that nobody holds a connection
// for nothing. A stream that moves may last for ever. Zero means the default.
type Timeouts struct {
	Header   time.Duration // until a request's header is read; 10 s
	Idle     time.Duration // between the requests of a connection; 2 min
	Stall    time.Duration // for a client to send more of a body or to take more of an answer, or to answer a ping; 1 min
	Dial     time.Duration // to connect to the upstream, and again for TLS; 5 s
	Response time.Duration // until the upstream's answer begins, once it has the request; 5 min
}

func (t Timeouts) filled() Timeouts {
	for _, f := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&t.Header, 10 * time.Second},
		{&t.Idle, 2 * time.Minute},
		{&t.Stall, time.Minute},
		{&t.Dial, 5 * time.Second},
		{&t.Response, 5 * time.Minute},
	} {
		if *f.field <= 0 {
			*f.field = f.value
		}
	}
	return t
}

// A Gateway proxies to one upstream under a policy. Make one with [New].
type Gateway struct {
	engine    *policy.Engine
	handler   http.Handler
	main      target
	buffers   *buffers
	transport *http.Transport // to http and https
	prior     *http.Transport // to h2c
	client    *clientip.Resolver
	tls       *tls.Config
	h2c       bool
	timeouts  Timeouts
	logger    *slog.Logger
	journal   *policy.Journal // of the upstream's faults
	underway  tally
	names     names
	cookies   []string // those that the rules read
	hosted    bool     // the rules read the host
	hops      []string // those of hopFields that they read
	from      string   // the field in which trusted proxies tell of the client, "" for none
}

// Bounds of what is held for one connection or one upstream.
const (
	maxIdle           = 512       // connections to the upstream that wait for use
	maxHeader         = 64 << 10  // bytes of a request's header
	maxResponseHeader = 256 << 10 // bytes of the upstream's
	bufferSize        = 32 << 10  // bytes of a copy buffer
	connBuffer        = 16 << 10  // bytes of each buffer of a connection to the upstream

	// flushAfter is how long a part of an answer of known length waits for
	// more. Answers of unknown length, and events, don't wait.
	flushAfter = 50 * time.Millisecond
)

// New makes a gateway.
func New(c Config) (*Gateway, error) {
	u := c.Upstream
	switch {
	case c.Engine == nil:
		return nil, errors.New("gateway: no engine")
	case u == nil:
		return nil, errors.New("gateway: no upstream: want a URL such as http://127.0.0.1:9000")
	case c.TLS != nil && c.H2C:
		return nil, errors.New("gateway: with TLS there is no HTTP/2 without it: leave out one of the two")
	}
	if err := proper(u); err != nil {
		return nil, err
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	g := &Gateway{engine: c.Engine, client: c.Client, tls: c.TLS, h2c: c.H2C, timeouts: c.Timeouts.filled(), logger: c.Logger, journal: c.Engine.Journal(c.Logger)}
	g.transport, g.prior = g.newTransport(), g.newTransport()
	g.transport.TLSClientConfig = &tls.Config{RootCAs: c.UpstreamCAs}
	g.transport.Protocols.SetHTTP1(true)
	g.transport.Protocols.SetHTTP2(true)
	g.prior.Protocols.SetUnencryptedHTTP2(true)
	g.buffers = &buffers{}
	g.from = c.Client.Header()
	read, proxied, cookies, hosted := fieldsRead(c.Engine.Policy())
	g.names, g.cookies, g.hosted = namesOf(read, proxied, g.from), cookies, hosted && !proxied["X-Forwarded-Host"]
	for _, name := range hopFields {
		if read[name] {
			g.hops = append(g.hops, name)
		}
	}
	g.main = g.target(u)
	spare, err := g.spares(c.Engine.Policy())
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(c.Engine.Policy().Rules(), func(r policy.Rule) bool { return r.Tell }) {
		c.Answers = append([]httplimit.Option{httplimit.NoVerdict()}, c.Answers...) // nobody looks for it
	}
	g.handler = httplimit.Policy(c.Engine, append([]httplimit.Option{
		httplimit.TrustedProxies(c.Client),
		httplimit.Headers(c.Headers),
		httplimit.Logger(c.Logger),
		spare,
		httplimit.BodyStall(g.timeouts.Stall),
		httplimit.AnyServer(),
	}, c.Answers...)...)(http.HandlerFunc(g.pass))
	return g, nil
}

// ServeHTTP decides about r and proxies it if it may pass.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.underway.add(1)
	defer g.underway.add(-1)
	if r.ProtoMajor != 1 {
		s := g.stream(w)
		defer s.begin() // what is left to be written has a last deadline
		w = s
	}
	if r.Trailer == nil && r.ContentLength < 0 && r.ProtoMajor == 1 {
		r.Trailer = make(http.Header) // for those that come and were not announced
	}
	httplimit.KeepEscapes(r.URL)
	g.hop(r.Header)
	g.unproven(r)
	httplimit.FirstCookies(r.Header, g.cookies, g.engine.Policy().Paths().AnyCase)
	g.handler.ServeHTTP(w, r)
}

// newTransport makes a transport to upstreams. Which protocols it speaks is left open.
func (g *Gateway) newTransport() *http.Transport {
	return &http.Transport{
		Protocols:           new(http.Protocols),
		DialContext:         (&net.Dialer{Timeout: g.timeouts.Dial}).DialContext,
		TLSHandshakeTimeout: g.timeouts.Dial,
		// There is one host, or few, so the whole pool is its.
		MaxIdleConns:        maxIdle,
		MaxIdleConnsPerHost: maxIdle,
		IdleConnTimeout:     time.Minute,
		// The upstream's word is passed on as it is.
		DisableCompression: true,
		// A client that asks before it sends is answered by the upstream.
		ExpectContinueTimeout:  time.Second,
		ResponseHeaderTimeout:  g.timeouts.Response,
		MaxResponseHeaderBytes: maxResponseHeader,
		WriteBufferSize:        connBuffer,
		ReadBufferSize:         connBuffer,
	}
}

// Close drops the idle connections to the upstream.
func (g *Gateway) Close() {
	g.transport.CloseIdleConnections()
	g.prior.CloseIdleConnections()
}

// buffers is the pool of those by which bodies are copied.
type buffers struct{ pool sync.Pool }

// Get returns a buffer of bufferSize.
func (b *buffers) Get() []byte {
	if p, ok := b.pool.Get().(*[bufferSize]byte); ok {
		return p[:]
	}
	return make([]byte, bufferSize)
}

// Put takes a buffer back.
func (b *buffers) Put(p []byte) {
	if len(p) == bufferSize {
		b.pool.Put((*[bufferSize]byte)(p))
	}
}
