package gateway_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/cmd/spillgate/internal/gateway"
	"github.com/spillgate/spillgate/policy"
)

func overH2C(c *gateway.Config) { c.H2C = true }

// clientH2C is a client that begins with HTTP/2.
func clientH2C(t testing.TB) *http.Client {
	t.Helper()
	tr := &http.Transport{DisableCompression: true, Protocols: new(http.Protocols)}
	tr.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 20 * time.Second}
}

// Without TLS HTTP/2 is spoken with those who begin with it, HTTP/1.1 with all
// others, and a limit counts both.
func TestH2CIsServedAndLimited(t *testing.T) {
	addr := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s %s %q", r.Proto, r.Host, r.Header.Get("X-Forwarded-Proto"), r.Header["Upgrade"])
	})
	f := serve(t, addr, compile(t, rule(t, "r", "3/h burst 3", []string{"client.ip"})), overH2C)
	c := clientH2C(t)
	if got := get(t, c, f.url); got.ProtoMajor != 2 || got.body != "HTTP/1.1 "+f.addr+" http []" || got.Header.Get("RateLimit") == "" {
		t.Errorf("%s %q %v", got.Proto, got.body, got.Header)
	}
	if got := get(t, visitor(t, "127.0.0.1"), f.url); got.ProtoMajor != 1 || got.StatusCode != 200 {
		t.Errorf("over HTTP/1.1: %s %d", got.Proto, got.StatusCode)
	}
	upgrade := "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings, close\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n\r\n"
	if got, err := io.ReadAll(raw(t, f.addr, upgrade)); err != nil || !strings.HasPrefix(string(got), "HTTP/1.1 200 ") || !strings.HasSuffix(string(got), " []") {
		t.Errorf("a change to it: %v %s", err, got)
	}
	if got := get(t, c, f.url); got.ProtoMajor != 2 || got.StatusCode != 429 || got.Header.Get("Retry-After") != "1200" {
		t.Errorf("%s %d %v", got.Proto, got.StatusCode, got.Header)
	}
	if got := fmt.Sprint(statuses(raw(t, f.addr, "PRI * HTTP/2.0\r\n\r\nSX\r\n\r\n"))); got != "[429]" {
		t.Errorf("half a preface: %s", got)
	}
}

func TestH2CExcludesTLS(t *testing.T) {
	c := gateway.Config{
		Engine:   policy.NewEngine(compile(t, rule(t, "r", "1/s", nil)), spillgate.NewMemory()),
		Upstream: &url.URL{Scheme: "http", Host: "127.0.0.1:9"}, H2C: true,
	}
	overTLS(t)(&c)
	if _, err := gateway.New(c); err == nil {
		t.Error("no error")
	}
}

// Whoever says nothing, or stops somewhere on the way to HTTP/2, is cut in the
// time for a header, and meanwhile others are served.
func TestSlowBeginningsAreCut(t *testing.T) {
	f := open(t, upstream(t, func(http.ResponseWriter, *http.Request) {}), overH2C, func(g *gateway.Config) {
		g.Timeouts.Header, g.Timeouts.Idle = 300*time.Millisecond, 300*time.Millisecond
	})
	var slow []net.Conn
	for i := range len(http2.ClientPreface) + 1 {
		slow = append(slow, raw(t, f.addr, http2.ClientPreface[:i]))
	}
	w := dialH2C(t, "127.0.0.1", f.addr)
	_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: w.pack(login2()...)[:3], EndStream: true})
	slow = append(slow, w.conn)
	if got := get(t, clientH2C(t), f.url); got.StatusCode != 200 {
		t.Errorf("meanwhile: %d", got.StatusCode)
	}
	areCut(t, slow)
}

// At a stop those who are under way are answered, and the connection ends.
func TestStopOverH2C(t *testing.T) {
	began, release := make(chan struct{}), make(chan struct{})
	f := open(t, upstream(t, func(http.ResponseWriter, *http.Request) { close(began); <-release }), overH2C)
	w := dialH2C(t, "127.0.0.1", f.addr)
	id := w.ask(login2()...)
	<-began
	ended := make(chan error, 1)
	go func() { ended <- f.stop() }()
	refused(t, f.addr)
	close(release)
	if out := w.await(id); out.status[id] != 200 {
		t.Errorf("%v", out)
	}
	w.conn.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
