package gateway_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/cmd/spillgate/internal/gateway"
	"github.com/spillgate/spillgate/policy"
)

// client2 is a client of HTTP/2 that asks nobody else than the gateway.
func client2(t testing.TB) *http.Client {
	t.Helper()
	tr := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableCompression: true}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 20 * time.Second}
}

func TestHTTP2IsServed(t *testing.T) {
	addr := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "</a.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Trailer", "X-Sum")
		fmt.Fprintf(w, "%s %s %s %s %s %s", r.Proto, r.Method, r.Host, r.RequestURI, r.Header.Get("X-Forwarded-Proto"), body)
		w.Header().Set("X-Sum", r.Trailer.Get("X-Theirs"))
	})
	f := open(t, addr, overTLS(t))
	target := "https://" + f.addr + "/a%2Fb?q=1"
	r := request(t, http.MethodPost, target, io.MultiReader(strings.NewReader("hello")), "Host", "shop.test")
	r.Trailer = http.Header{"X-Theirs": {"42"}}
	hints := ""
	r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
		hints = fmt.Sprint(code, h)
		return nil
	}}))
	got := do(t, client2(t), r)
	if want := "HTTP/1.1 POST shop.test /a%2Fb?q=1 https hello"; got.ProtoMajor != 2 || got.body != want {
		t.Errorf("%s: %q, want %q", got.Proto, got.body, want)
	}
	if got.Trailer.Get("X-Sum") != "42" || hints != "103 map[Link:[</a.css>; rel=preload]]" || got.Header.Get("RateLimit") == "" {
		t.Errorf("trailer %v, hints %s, header %v", got.Trailer, hints, got.Header)
	}

	// HTTP/1.1 goes on beside it, and nothing unencrypted.
	c := encrypted(t, "127.0.0.1", f.addr, "http/1.1")
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(statuses(c)); got != "[103 200]" {
		t.Errorf("over HTTP/1.1: %s", got)
	}
	c = encrypted(t, "127.0.0.1", f.addr, "http/1.1")
	if _, err := io.WriteString(c, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(statuses(c)); got != "[505]" {
		t.Errorf("the preface over HTTP/1.1: %s", got)
	}
	if got := fmt.Sprint(statuses(raw(t, f.addr, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"))); got != "[400]" {
		t.Errorf("without TLS: %s", got)
	}
}

// Refusals say over HTTP/2 what they say over HTTP/1.
func TestHTTP2IsLimited(t *testing.T) {
	f := serve(t, upstream(t, func(http.ResponseWriter, *http.Request) {}), compile(t, rule(t, "r", "1/h burst 1", []string{"client.ip"})), overTLS(t))
	c := client2(t)
	get(t, c, "https://"+f.addr)
	got := get(t, c, "https://"+f.addr)
	if got.ProtoMajor != 2 || got.StatusCode != 429 || got.Header.Get("Retry-After") != "3600" || !strings.Contains(got.body, `"violated-policies":["r"]`) {
		t.Errorf("%s %d %v %s", got.Proto, got.StatusCode, got.Header, got.body)
	}
}

// A client that opens no window, or not again, holds nothing for longer than the
// stall time: neither the upstream nor a refusal.
func TestStalledStreamsAreCut(t *testing.T) {
	cut := make(chan struct{})
	addr := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		defer close(cut)
		for {
			if _, err := w.Write(make([]byte, 1<<20)); err != nil {
				return
			}
		}
	})
	f := serve(t, addr, compile(t, rule(t, "r", "1/h burst 1", nil)), overTLS(t), func(g *gateway.Config) { g.Timeouts.Stall = 200 * time.Millisecond })
	w := dial2(t, "127.0.0.1", f.addr, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	for _, status := range []int{http.StatusOK, http.StatusTooManyRequests} {
		id, start := w.ask(login2()...), time.Now()
		out := w.await(id)
		if took := time.Since(start); out.over || out.status[id] != status || took < 200*time.Millisecond || took > 10*time.Second {
			t.Errorf("%v after %s, want %d and a stream that was reset", out, took, status)
		}
	}
	<-cut
}

// A body that stalls is answered with 408, and a stream that has pauses goes on.
func TestStreamsMayPause(t *testing.T) {
	addr := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			_, _ = io.Copy(io.Discard, r.Body)
			return
		}
		for i := range 3 {
			fmt.Fprintf(w, "%d", i)
			_ = http.NewResponseController(w).Flush()
			<-time.After(300 * time.Millisecond)
		}
	})
	f := serve(t, addr, compile(t, rule(t, "r", "100/h burst 100", nil)), overTLS(t), func(g *gateway.Config) { g.Timeouts.Stall = 150 * time.Millisecond })
	if got := get(t, client2(t), "https://"+f.addr); got.StatusCode != 200 || got.body != "012" {
		t.Errorf("%d %q", got.StatusCode, got.body)
	}
	w := dial2(t, "127.0.0.1", f.addr)
	id := w.stream()
	if err := w.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: w.pack(login2("content-length", "9")...), EndHeaders: true}); err != nil {
		t.Fatal(err)
	}
	if out := w.await(id); out.status[id] != http.StatusRequestTimeout {
		t.Errorf("a body that stalls: %v", out)
	}
}

// At a stop those who are held over HTTP/2 are told so, and the connection ends.
func TestStopOverHTTP2(t *testing.T) {
	delay := rule(t, "delay", "1/min burst 1", []string{"client.ip"})
	delay.Delay = policy.Delay{Most: policy.MaxDelay}
	store := asked{spillgate.NewMemory(), make(chan struct{}, 9)}
	f := serve(t, upstream(t, func(http.ResponseWriter, *http.Request) {}), compile(t, delay), overTLS(t),
		func(g *gateway.Config) { g.Engine = policy.NewEngine(g.Engine.Policy(), store) })
	w := dial2(t, "127.0.0.1", f.addr)
	w.await(w.ask(login2()...))
	<-store.times
	held := []uint32{w.ask(login2()...), w.ask(login2()...)}
	if err := w.WritePing(false, [8]byte{}); err != nil {
		t.Fatal(err)
	}
	<-store.times
	w.await(0) // then both were taken
	ended := make(chan error, 1)
	go func() { ended <- f.stop() }()
	if out := w.await(held...); out.status[held[0]] != 503 || out.status[held[1]] != 503 {
		t.Errorf("%v", out)
	}
	w.conn.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// Handshakes and headers that never end are cut in the time for a header, and
// while they last others are served.
func TestSlowHandshakesAreCut(t *testing.T) {
	f := open(t, upstream(t, func(http.ResponseWriter, *http.Request) {}), overTLS(t), func(g *gateway.Config) {
		g.Timeouts.Header, g.Timeouts.Idle = 300*time.Millisecond, 300*time.Millisecond
	})
	hello := "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
	var slow []net.Conn
	for i := range 200 {
		slow = append(slow, raw(t, f.addr, hello[:i%len(hello)]))
	}
	for range 20 {
		w := dial2(t, "127.0.0.1", f.addr)
		_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: w.pack(login2()...)[:3], EndStream: true})
		slow = append(slow, w.conn)
	}
	if got := get(t, client2(t), "https://"+f.addr); got.StatusCode != 200 {
		t.Errorf("meanwhile: %d", got.StatusCode)
	}
	areCut(t, slow)
}

// areCut waits until the gateway has closed all of them.
func areCut(t *testing.T, slow []net.Conn) {
	t.Helper()
	start := time.Now()
	for i, c := range slow {
		if _, err := io.Copy(io.Discard, c); err != nil && strings.Contains(err.Error(), "timeout") {
			t.Fatalf("connection %d still stands: %v", i, err)
		}
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("cut after %s", took)
	}
}
