package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Serve answers the connections of ln until ctx ends. Then it takes no more,
// tells those who are held to come again, lets what is under way finish within
// the drain time, cuts what is left, and returns nil. It closes ln.
func (g *Gateway) Serve(ctx context.Context, ln net.Listener, drain time.Duration) error {
	base, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	srv := &http.Server{
		Handler:           g,
		ReadHeaderTimeout: g.timeouts.Header,
		IdleTimeout:       g.timeouts.Idle,
		MaxHeaderBytes:    maxHeader,
		// A connection of HTTP/2 with an open stream is never idle. Whoever is
		// gone, or in the middle of a header that never ends, answers no ping.
		HTTP2: &http.HTTP2Config{SendPingTimeout: g.timeouts.Stall, PingTimeout: g.timeouts.Stall},
		// OPTIONS * is a request like any other: it has its limit.
		DisableGeneralOptionsHandler: true,
		BaseContext:                  func(net.Listener) context.Context { return base },
		ErrorLog:                     slog.NewLogLogger(serverLog{g.logger.Handler()}, slog.LevelError),
	}
	defer g.Close()
	srv.RegisterOnShutdown(g.engine.Close)
	ended := make(chan error, 1)
	ln = listener{ln, g.timeouts.Stall}
	serve := func() error { return srv.Serve(ln) }
	if g.tls != nil {
		srv.TLSConfig = g.tls.Clone()
		serve = func() error { return srv.ServeTLS(ln, "", "") }
	}
	if g.h2c {
		srv.Protocols = new(http.Protocols)
		srv.Protocols.SetHTTP1(true)
		srv.Protocols.SetUnencryptedHTTP2(true)
	}
	go func() { ended <- serve() }()
	select {
	case err := <-ended:
		srv.Close()
		return fmt.Errorf("gateway: %w", err)
	case <-ctx.Done():
	}

	until, cancel := context.WithTimeout(base, drain)
	defer cancel()
	err := srv.Shutdown(until)
	if err == nil {
		// Switched connections (WebSockets) are no longer the server's.
		err = g.underway.none(until)
	}
	if err != nil {
		g.logger.Warn("requests still under way after the drain time were cut", "drain", drain, "requests", g.underway.count())
		srv.Close()
		cut()
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = g.underway.none(last) // they end now; a second is for a busy machine
	}
	<-ended
	g.engine.Close() // what was refused meanwhile is told, too
	return nil
}

// A tally counts what is under way.
type tally struct {
	mu   sync.Mutex
	n    int
	zero chan struct{} // if somebody waits for it: closed when n is 0
}

func (t *tally) add(d int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.n += d
	if t.n == 0 && t.zero != nil {
		close(t.zero)
		t.zero = nil
	}
}

func (t *tally) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.n
}

// none waits until nothing is under way, or for ctx's error.
func (t *tally) none(ctx context.Context) error {
	t.mu.Lock()
	if t.n == 0 {
		t.mu.Unlock()
		return nil
	}
	if t.zero == nil {
		t.zero = make(chan struct{})
	}
	zero := t.zero
	t.mu.Unlock()
	select {
	case <-zero:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A listener's connections are cut when the client takes nothing for the
// stall time.
type listener struct {
	net.Listener
	stall time.Duration
}

func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c, stall: l.stall, start: time.Now()}, nil
}

type conn struct {
	net.Conn
	stall time.Duration
	start time.Time
	until atomic.Int64 // the write deadline, counted from start
}

// Write moves the deadline for writes on when an eighth of it has passed.
func (c *conn) Write(p []byte) (int, error) {
	now := time.Since(c.start)
	if time.Duration(c.until.Load())-now < c.stall-c.stall/8 {
		c.until.Store(int64(now + c.stall))
		if err := c.Conn.SetWriteDeadline(c.start.Add(now + c.stall)); err != nil {
			return 0, err
		}
	}
	return c.Conn.Write(p)
}

// SetDeadline is how net/http takes the deadlines off a connection that it
// hands over; the next write sets its own again.
func (c *conn) SetDeadline(t time.Time) error {
	c.until.Store(0)
	return c.Conn.SetDeadline(t)
}

// CloseWrite lets a switched connection be closed one way.
func (c *conn) CloseWrite() error {
	if w, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return c.Close()
}

// serverLog sorts what net/http has to say: our own faults are errors, what
// clients do wrong is for debugging, and the aborts that the proxy asks for
// are nothing.
type serverLog struct{ slog.Handler }

// Enabled is asked before the message is known.
func (h serverLog) Enabled(context.Context, slog.Level) bool { return true }

// Handle passes a record on at its true level.
func (h serverLog) Handle(ctx context.Context, r slog.Record) error {
	switch {
	case strings.Contains(r.Message, http.ErrAbortHandler.Error()):
		return nil
	case strings.Contains(r.Message, "panic serving"), strings.Contains(r.Message, "Accept error"):
	default:
		r.Level = slog.LevelDebug
	}
	if !h.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}
