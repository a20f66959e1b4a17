package gateway

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillgate/spillgate/httplimit"
	"github.com/spillgate/spillgate/policy"
)

// pass hands a request that may pass to the upstream.
func (g *Gateway) pass(w http.ResponseWriter, r *http.Request) { g.passTo(&g.main, w, r) }

// passTo hands a request to an upstream.
func (g *Gateway) passTo(t *target, w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method == http.MethodConnect:
		refuse(w, r, http.StatusNotImplemented, "this gateway is no tunnel")
		return
	case r.Method == "PRI": // the preface of HTTP/2, where it is not spoken
		w.Header().Set("Connection", "close")
		refuse(w, r, http.StatusHTTPVersionNotSupported, "this gateway does not speak HTTP/2 here")
		return
	case r.Host == "":
		// Rules have seen none, and the upstream would be told its own name.
		refuse(w, r, http.StatusBadRequest, "the request names no host")
		return
	case r.ProtoMajor != 1 && malformed(r) != "":
		refuse(w, r, http.StatusBadRequest, malformed(r))
		return
	case r.URL.Opaque != "":
		// "x:http://host/login" would be sent as it is, and the upstream might
		// read another path in it than the rules did.
		refuse(w, r, http.StatusBadRequest, "the request's target has no path")
		return
	case t.based && climbs(r.URL.Path):
		// "/../base/login" is /base/login for the rules and /login below base.
		refuse(w, r, http.StatusBadRequest, `the request's path has a ".." segment`)
		return
	}
	var up *upload
	if r.Body != nil && r.Body != http.NoBody {
		up = &upload{ReadCloser: r.Body, client: http.NewResponseController(w), stall: g.timeouts.Stall}
		defer up.end()
		r.Body = up
		// The upstream may answer while it still reads. Without this net/http
		// would first wait for the rest of the body.
		_ = up.client.EnableFullDuplex()
		if r.Trailer != nil {
			g.prune(r.Trailer)
			up.trailer = func() { g.prune(r.Trailer) } // HTTP/1 adds what was not announced
		}
	}
	a := &answer{ResponseWriter: w, own: ownFields(w.Header()), older: olderFields(w.Header()), upload: up}
	t.proxy.ServeHTTP(a, r)
	t.pruneAnswer(w.Header())
	if up != nil && !a.hijacked {
		up.finish(w, r)
	}
}

// climbs reports whether a decoded path has a segment that some server takes
// for "..": between slashes or backslashes, with or without parameters.
func climbs(path string) bool {
	for seg := range strings.FieldsFuncSeq(path, func(c rune) bool { return c == '/' || c == '\\' }) {
		if seg, _, _ = strings.Cut(seg, ";"); seg == ".." {
			return true
		}
	}
	return false
}

// refuse answers a request that the gateway itself doesn't pass on.
func refuse(w http.ResponseWriter, r *http.Request, status int, title string) {
	httplimit.Unread(w, r)
	problem(w, r, status, title)
	httplimit.Linger(w, r)
}

// check refuses an answer that can't be passed on, and keeps the names of
// fields from being announced as trailers, too: net/http would then send the
// field again as a trailer. What comes under such a name after the body is
// passed on nevertheless, unannounced, but for what tells of limits.
func check(resp *http.Response) error {
	if resp.StatusCode < 100 {
		return fmt.Errorf("upstream answered with status %03d", resp.StatusCode)
	}
	for name := range resp.Trailer {
		if resp.Header[name] != nil || httplimit.IsField(name) {
			delete(resp.Trailer, name)
		}
	}
	return nil
}

// mayUpgrade reports whether a protocol that a client wants to switch to may
// be offered to the upstream. One that carries requests may not: they would go
// past the policy.
func mayUpgrade(lines []string) bool {
	if len(lines) == 1 {
		name, _, _ := strings.Cut(strings.ToLower(lines[0]), "/")
		return name != "" && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-._") == "" && // one, not a list
			!strings.HasPrefix(name, "h2") && name != "http" && name != "tls"
	}
	return false
}

// rewrite makes the upstream's request. The Host stays the client's, since an
// upstream that serves many hosts tells them apart by it. What the client
// claims of proxies before it is passed on only if it is a trusted proxy.
func (g *Gateway) rewrite(p *httputil.ProxyRequest, to *url.URL) {
	p.SetURL(to)
	p.Out.Host = p.In.Host
	p.Out.URL.RawQuery = p.In.URL.RawQuery // also what Go can't parse
	if p.In.URL.Path == "*" {
		p.Out.URL.Path, p.Out.URL.RawPath, p.Out.URL.Opaque = "", "", "*" // OPTIONS *
	}
	p.Out.Trailer = p.In.Trailer // one map: its values come after the body

	for name := range p.Out.Header {
		if g.names.poses(name) {
			delete(p.Out.Header, name)
		}
	}
	for _, name := range mounting {
		delete(p.Out.Header, name)
	}
	client := netip.Addr{}
	if g.client.Trusts(p.In.RemoteAddr) {
		client = g.passForwarded(p)
	} else {
		for _, name := range repathing {
			delete(p.Out.Header, name)
		}
		delete(p.Out.Header, g.from)
	}
	setForwarded(p, client)
	httplimit.Tell(p.Out.Header, policy.FromContext(p.In.Context()))
}

// passForwarded passes on what a trusted proxy told of those before it. Of the two
// lists of addresses the one that rules don't read may be what some client has
// claimed; then it returns the client's address, of which the other tells. A field
// of one address that stands there twice tells nothing.
func (g *Gateway) passForwarded(p *httputil.ProxyRequest) (client netip.Addr) {
	for _, name := range forwarding {
		if v := p.In.Header[name]; v != nil && (name == g.from || name != "X-Forwarded-For" && name != "Forwarded") {
			p.Out.Header[name] = v
		}
	}
	if g.hosted {
		sameHost(p)
	}
	if g.from == "X-Forwarded-For" {
		return client
	}
	if g.from != "Forwarded" && len(p.In.Header[g.from]) > 1 {
		delete(p.Out.Header, g.from)
	}
	return g.client.Addr(p.In.RemoteAddr, p.In.Header)
}

// setForwarded tells the upstream of the client as [httputil.ProxyRequest.SetXForwarded]
// does, behind what a trusted proxy told already, in X-Forwarded-For or of that
// client. The names are spelled as they
// are in the map: to look that up for each would cost as much as deciding.
func setForwarded(p *httputil.ProxyRequest, client netip.Addr) {
	h, lines := p.Out.Header, make([]string, 3)
	if peer, _, err := net.SplitHostPort(p.In.RemoteAddr); err != nil {
		delete(h, "X-Forwarded-For") // a unix socket
	} else {
		if prior := h["X-Forwarded-For"]; len(prior) > 0 {
			peer = strings.Join(prior, ", ") + ", " + peer
		} else if told := client.String(); client.IsValid() && told != peer {
			peer = told + ", " + peer
		}
		lines[0], h["X-Forwarded-For"] = peer, lines[:1:1]
	}
	if h["X-Forwarded-Host"] == nil {
		lines[1], h["X-Forwarded-Host"] = p.In.Host, lines[1:2:2]
	}
	if h["X-Forwarded-Proto"] == nil {
		lines[2], h["X-Forwarded-Proto"] = "http", lines[2:]
		if p.In.TLS != nil {
			lines[2] = "https"
		}
	}
}

// fault answers when the upstream could not. A client that went away is not
// the upstream's fault, and hears nothing; one that sent half a body is told so.
func (g *Gateway) fault(w http.ResponseWriter, r *http.Request, err error, advice string) {
	var client *uploadError
	if !errors.As(err, &client) && r.Context().Err() != nil {
		// A body that can't be read cancels the request, and then it is
		// chance which of both the transport tells.
		if a, ok := w.(*answer); !ok || !errors.As(a.upload.failure(), &client) {
			panic(http.ErrAbortHandler) // closes the connection without an answer
		}
		err = client
	}
	status, title := http.StatusBadGateway, "the upstream could not be reached, or its answer not be read"
	var timeout interface{ Timeout() bool }
	switch {
	case client != nil && errors.Is(err, os.ErrDeadlineExceeded):
		status, title = http.StatusRequestTimeout, "the request's body did not come in time"
	case client != nil:
		status, title = http.StatusBadRequest, "the request's body could not be read"
	case errors.As(err, &timeout) && timeout.Timeout():
		status, title = http.StatusGatewayTimeout, "the upstream took too long"
	}
	if client != nil {
		w.Header().Set("Connection", "close") // what follows is no request
	} else {
		g.journal.Fault("upstream fault", errors.New(clipped(err.Error())+advice),
			slog.Int("status", status), slog.String("method", r.Method), slog.String("host", clipped(r.Host)))
	}
	problem(w, r, status, title)
}

// advice says what to do about a fault of an upstream that is asked in HTTP/1.1, if a
// word in the policy file mends it.
func advice(r *http.Request, err error) string {
	kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	call := kind == "application/grpc" || strings.HasPrefix(kind, "application/grpc+")
	// An HTTP/2 server begins with a frame of settings (RFC 9113, 3.4): its length
	// in three bytes, the first of which is 0, and its type. net/http finds either no
	// status line in it or, if it came before the request was sent, something unasked.
	text := err.Error()
	if call || strings.Contains(text, `malformed HTTP response "\x00\x00`) || strings.Contains(text, "readLoopPeekFailLocked") {
		return "; if the upstream speaks HTTP/2, as servers of gRPC do, write h2c:// in place of http://"
	}
	return ""
}

// problem answers with an error of the gateway's own (RFC 9457), calls of gRPC
// with a status of theirs.
func problem(w http.ResponseWriter, r *http.Request, status int, title string) {
	if httplimit.AnswerGRPC(w, r, codeOf(status), title) {
		return
	}
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		fmt.Fprintf(w, "{\"type\":\"about:blank\",\"title\":%q,\"status\":%d}\n", title, status)
	}
}

// codeOf returns the code of gRPC for a status that the gateway itself gives.
func codeOf(status int) uint32 {
	switch status {
	case http.StatusBadRequest:
		return 3 // INVALID_ARGUMENT
	case http.StatusRequestTimeout, http.StatusGatewayTimeout:
		return 4 // DEADLINE_EXCEEDED
	}
	return 14 // UNAVAILABLE
}

// clipped bounds what somebody else writes into our log.
func clipped(s string) string {
	const most = 256
	if len(s) <= most {
		return s
	}
	return s[:most] + "…"
}

// An upload is the body of a request. Each read of it may take no longer than
// stall, and its errors are told from the upstream's.
type upload struct {
	io.ReadCloser
	client *http.ResponseController
	stall  time.Duration

	trailer func() // is called when the trailers are there; may be nil

	mu   sync.Mutex
	over bool // the handler returned; the deadline is the server's again

	reading sync.Mutex // held by Read
	err     error      // why a read failed
	whole   atomic.Bool
	broken  atomic.Bool // err is not nil
}

// An uploadError is a client's fault.
type uploadError struct{ err error }

func (e *uploadError) Error() string { return "reading the request's body: " + e.err.Error() }
func (e *uploadError) Unwrap() error { return e.err }

// Read reads what comes within the stall time.
func (u *upload) Read(p []byte) (int, error) {
	u.reading.Lock()
	defer u.reading.Unlock()
	if u.err != nil {
		return 0, u.err
	}
	u.deadline(time.Now().Add(u.stall))
	n, err := u.ReadCloser.Read(p)
	switch {
	case err == io.EOF:
		u.whole.Store(true)
		if u.trailer != nil {
			u.trailer()
		}
		u.deadline(time.Time{}) // from here on the upstream may take its time
	case err != nil:
		err = &uploadError{err}
		u.err = err
		u.broken.Store(true)
	}
	return n, err
}

// finish sees to it that what is left of the body of an answered request is
// not taken for the next one: in full duplex net/http doesn't.
func (u *upload) finish(w http.ResponseWriter, r *http.Request) {
	u.end()
	if u.whole.Load() || !u.broken.Load() && httplimit.Unread(w, r) {
		if !u.whole.Load() {
			httplimit.Linger(w, r)
		}
		return
	}
	for {
		inner, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			break
		}
		w = inner.Unwrap()
	}
	// The header may be out. A MaxBytesReader beyond its limit still tells the
	// server to close the connection.
	_, _ = io.ReadAll(http.MaxBytesReader(w, io.NopCloser(strings.NewReader("x")), 0))
}

// failure returns why the body could not be read, nil if it could. A read
// that is under way is waited for; the request must be cancelled.
func (u *upload) failure() error {
	if u == nil {
		return nil
	}
	u.reading.Lock()
	defer u.reading.Unlock()
	return u.err
}

// deadline is best effort: a connection without deadlines has other bounds.
func (u *upload) deadline(t time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.over {
		_ = u.client.SetReadDeadline(t)
	}
}

func (u *upload) end() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.over = true
}

// An answer is the way of the upstream's answer to the client.
type answer struct {
	http.ResponseWriter
	own   [2][]string         // the RateLimit fields, which stand in the header already
	older map[string][]string // those of other dialects; nil without
	lost  bool                // the proxy cleared them with an interim answer's

	hijacked bool // the connection switched to another protocol

	upload *upload // the request's body, if it has one
}

// rateLimitFields are those of the draft, as net/http spells its keys.
var rateLimitFields = [2]string{"Ratelimit-Policy", "Ratelimit"}

func ownFields(h http.Header) (own [2][]string) {
	for i, name := range rateLimitFields {
		own[i] = h[name]
	}
	return own
}

// olderFields returns those of h that the dialects before the draft tell of
// limits in, nil if there are none.
func olderFields(h http.Header) (older map[string][]string) {
	for name, lines := range h {
		if isOlder(name) {
			if older == nil {
				older = make(map[string][]string)
			}
			older[name] = lines
		}
	}
	return older
}

func isOlder(name string) bool {
	return httplimit.IsField(name) && !slices.Contains(rateLimitFields[:], name)
}

// Unwrap leads [http.ResponseController] to the rest.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// Hijack hands the connection over.
func (a *answer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, b, err := http.NewResponseController(a.ResponseWriter).Hijack()
	a.hijacked = err == nil
	return c, b, err
}

// WriteHeader keeps interim answers (103 Early Hints) free of fields that are
// about the final one, and keeps net/http from guessing a Content-Type where
// the upstream names none.
func (a *answer) WriteHeader(status int) {
	h := a.Header()
	if status < 400 {
		delete(h, httplimit.RefusalHeader) // the upstream's; nothing was refused
	}
	switch {
	case status == http.StatusContinue:
		// net/http says so itself when the body is read first, which the
		// upstream's word for it sets off; both would be two.
		a.lost = true
		return
	case status < 200 && status != http.StatusSwitchingProtocols:
		for _, name := range rateLimitFields {
			delete(h, name)
		}
		for name := range a.older {
			delete(h, name)
		}
		a.lost = true
	default:
		for i, name := range rateLimitFields {
			theirs, own := h[name], a.own[i]
			if !a.lost {
				theirs = theirs[min(len(own), len(theirs)):]
			}
			if own != nil && (a.lost || len(theirs) > 0) {
				h[name] = httplimit.Join(own, theirs)
			}
		}
		a.lost = false
		if a.older != nil { // these are ours alone, also those in which we say nothing
			maps.DeleteFunc(h, func(name string, _ []string) bool { return isOlder(name) })
			maps.Copy(h, a.older)
		}
		if _, ok := h["Content-Type"]; !ok {
			h["Content-Type"] = nil
		}
	}
	a.ResponseWriter.WriteHeader(status)
}
