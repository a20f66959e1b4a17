package connlimit_test

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/connlimit"
)

// flood opens n connections from one loopback address and reports how many
// could shake hands. They stay open until end.
func flood(t *testing.T, from, to string, n int) (shaken int64, reset int64, end func()) {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: 10 * time.Second}
	var ok, cut atomic.Int64
	var mu sync.Mutex
	var conns []net.Conn
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			raw, err := dialer.Dial("tcp", to)
			if err == nil {
				mu.Lock()
				conns = append(conns, raw)
				mu.Unlock()
				_ = raw.SetDeadline(time.Now().Add(20 * time.Second))
				err = tls.Client(raw, &tls.Config{InsecureSkipVerify: true}).Handshake()
			}
			switch {
			case err == nil:
				ok.Add(1)
			case errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, io.EOF):
				cut.Add(1)
			default:
				t.Errorf("neither shaken nor cut: %v", err)
			}
		})
	}
	wg.Wait()
	return ok.Load(), cut.Load(), func() {
		for _, c := range conns {
			c.Close()
		}
	}
}

// One address floods a server with handshakes; it gets its share, the server
// spends nothing on the rest, and others are served meanwhile.
func TestHandshakeFlood(t *testing.T) {
	var handshakes atomic.Int64
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln := connlimit.New(inner, connlimit.Open(10), connlimit.Accepts(spillgate.Must("1/h burst 25")), connlimit.Reset())
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(make([]byte, 1<<20)))
	}))
	srv.Listener.Close()
	srv.Listener = ln
	srv.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		handshakes.Add(1)
		return nil, nil
	}}
	srv.StartTLS()
	defer srv.Close()
	addr := inner.Addr().String()

	shaken, cut, end := flood(t, "127.0.0.2", addr, 200)
	if shaken != 10 || cut != 190 || handshakes.Load() != 10 {
		t.Errorf("%d shaken, %d cut, %d handshakes at the server; want 10, 190, 10", shaken, cut, handshakes.Load())
	}
	// Another address is served while those are held.
	client := srv.Client()
	client.Transport.(*http.Transport).DialContext = (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP("127.0.0.3")}}).DialContext
	resp, err := client.Get("https://" + addr)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, resp.Body); n != 1<<20 || err != nil {
		t.Errorf("read %d bytes, %v", n, err)
	}
	resp.Body.Close()
	client.CloseIdleConnections()
	end()
	for wait := time.NewTicker(time.Millisecond); ln.Stats().Open > 0; <-wait.C { // the server sees the ends
	}

	// The slots are free again, and what was refused has cost nothing.
	shaken, cut, end = flood(t, "127.0.0.2", addr, 30)
	end()
	if s := ln.Stats(); shaken != 10 || cut != 20 || s.TooMany != 210 || s.TooFast != 0 {
		t.Errorf("%d shaken, %d cut, %+v", shaken, cut, s)
	}
}

// What a *net.TCPConn can, one that is counted can too.
func TestConnectionsKeepTheirAbilities(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln := connlimit.New(inner, connlimit.Open(1), connlimit.Exempt(func(a netip.Addr) bool { return !a.IsLoopback() }))
	defer ln.Close()
	c, err := net.Dial("tcp", inner.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := s.(io.ReaderFrom); !ok {
		t.Error("no ReadFrom: sendfile is lost")
	}
	if err := s.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Error(err)
	}
	if b, err := io.ReadAll(c); len(b) != 0 || err != nil {
		t.Errorf("read %q, %v", b, err)
	}
	if ln.Stats().Open != 1 {
		t.Error("closed by CloseWrite")
	}
	s.Close()
	if ln.Stats().Open != 0 {
		t.Error("not closed")
	}
}
