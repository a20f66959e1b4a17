package gateway_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/cmd/spillgate/internal/gateway"
	"github.com/spillgate/spillgate/policy"
)

// pipes is a listener of connections in memory.
type pipes struct {
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.once.Do(func() { close(p.done) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "pipe"} }

// FuzzRequest sends any bytes as what a client says. The gateway never fails
// by itself (500), never panics, and nothing that a rule closes reaches the
// upstream, in whatever spelling.
func FuzzRequest(f *testing.F) {
	for _, seed := range []string{
		"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
		"GET /closed HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
		"GET //closed/./a?b;c HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
		"GET /a/..%2Fclosed HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
		"GET /%63losed;v=1/ HTTP/1.0\r\n\r\n",
		"GET http://y/closed HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
		"OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
		"CONNECT y:1 HTTP/1.1\r\nHost: y:1\r\nConnection: close\r\n\r\n",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\nConnection: close\r\n\r\n5\r\nhello\r\n0\r\nX-T: 1\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhelloGET /closed HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz",
		"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nExpect: 100-continue\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: x\r\nCookie: a=b; a=\"c\"\r\nX-Forwarded-For: 1.2.3.4, x, [::1\r\nRange: bytes=0-0\r\nConnection: close, Host\r\n\r\n",
		"\x16\x03\x01\x00", "\r\n\r\n", "",
	} {
		f.Add([]byte(seed))
	}
	closed := closed(f, "path", "/closed /closed/**")
	addr := upstream(f, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		path := string(policy.AppendPath(nil, r.URL.EscapedPath()))
		if path == "/closed" || strings.HasPrefix(path, "/closed/") {
			w.Header().Set("X-Escaped", r.RequestURI)
		}
		_, _ = io.WriteString(w, "ok")
	})
	log := &journal{}
	const patience = 20 * time.Millisecond
	g, err := gateway.New(gateway.Config{
		Engine: policy.NewEngine(compile(f, closed,
			rule(f, "odd", "1000000/s", []string{"header.x-forwarded-for", "cookie.a", "query.b", "host"}),
			rule(f, "wide", "1000000/s", []string{"client.ip"})), spillgate.NewMemory()),
		Upstream: &url.URL{Scheme: "http", Host: addr},
		Logger:   slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelError})),
		Timeouts: gateway.Timeouts{Header: patience, Idle: patience, Stall: patience},
	})
	if err != nil {
		f.Fatal(err)
	}
	ln := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- g.Serve(ctx, ln, time.Second) }()
	f.Cleanup(func() { stop(); <-ended })

	f.Fuzz(func(t *testing.T, data []byte) {
		client, server := net.Pipe()
		defer client.Close()
		ln.conns <- server
		if err := client.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		written := make(chan struct{})
		go func() {
			defer close(written)
			_, _ = client.Write(data) // the gateway may hang up before the end
		}()
		answers, err := io.ReadAll(client)
		if err != nil {
			t.Errorf("the connection was not closed: %v", err)
		}
		client.Close()
		<-written
		for line := range strings.Lines(string(answers)) {
			if strings.HasPrefix(line, "HTTP/1.1 500") || strings.HasPrefix(line, "X-Escaped:") {
				t.Errorf("%q was answered with\n%s", data, answers)
			}
		}
		if text := log.String(); strings.Contains(text, "panic") {
			t.Errorf("%q: %s", data, text)
		}
	})
}
