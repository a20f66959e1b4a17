package gateway_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/spillgate/spillgate/cmd/spillgate/internal/gateway"
	"github.com/spillgate/spillgate/cmd/spillgate/internal/nginxtest"
)

func TestStreamsArriveWhileTheyAreSent(t *testing.T) {
	for _, c := range []struct{ name, contentType, length string }{
		{"chunked", "text/plain", ""},
		{"events", "text/event-stream", ""},
		{"known length", "text/plain", "30"},
	} {
		t.Run(c.name, func(t *testing.T) {
			next := make(chan struct{})
			addr := upstream(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", c.contentType)
				if c.length != "" {
					w.Header().Set("Content-Length", c.length)
				}
				for i := range 3 {
					fmt.Fprintf(w, "data: %d\n\n\n", i)
					_ = http.NewResponseController(w).Flush()
					select {
					case <-next:
					case <-r.Context().Done():
						return
					}
				}
			})
			resp, err := visitor(t, "127.0.0.1").Do(request(t, "GET", open(t, addr).url, nil))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			piece := make([]byte, 10)
			for i := range 3 { // the upstream goes on only when the last piece was seen
				if _, err := io.ReadFull(resp.Body, piece); err != nil || string(piece) != fmt.Sprintf("data: %d\n\n\n", i) {
					t.Fatalf("piece %d: %q, %v", i, piece, err)
				}
				next <- struct{}{}
			}
			if rest, err := io.ReadAll(resp.Body); err != nil || len(rest) > 0 {
				t.Errorf("rest %q, %v", rest, err)
			}
		})
	}
}

func TestUploadsStreamBothWays(t *testing.T) {
	addr := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		_ = rc.EnableFullDuplex()
		in := bufio.NewReader(r.Body)
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			_, _ = io.WriteString(w, "echo "+line)
			_ = rc.Flush()
		}
	})
	f := open(t, addr)
	body, send := io.Pipe()
	go func() { _, _ = io.WriteString(send, "one\n") }()
	resp, err := visitor(t, "127.0.0.1").Do(request(t, "POST", f.url, body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	out := bufio.NewReader(resp.Body)
	for _, word := range []string{"one", "two", "three"} {
		if word != "one" {
			if _, err := io.WriteString(send, word+"\n"); err != nil {
				t.Fatal(err)
			}
		}
		if line, err := out.ReadString('\n'); err != nil || line != "echo "+word+"\n" {
			t.Fatalf("%q, %v", line, err)
		}
	}
	send.Close()
	if rest, err := io.ReadAll(out); err != nil || len(rest) > 0 {
		t.Errorf("rest %q, %v", rest, err)
	}
}

func TestTrailersBothWays(t *testing.T) {
	addr := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "X-Sum")
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s|%s", body, r.Trailer.Get("X-Check"))
		w.Header().Set("X-Sum", "42")
		w.Header().Set(http.TrailerPrefix+"X-Late", "unannounced")
	})
	f := open(t, addr)
	r := request(t, "POST", f.url, struct{ io.Reader }{strings.NewReader("hello")}, "TE", "trailers")
	r.Trailer = http.Header{"X-Check": {"right"}}
	got := do(t, visitor(t, "127.0.0.1"), r)
	if got.body != "hello|right" {
		t.Errorf("the upstream got %q", got.body)
	}
	if got.Trailer.Get("X-Sum") != "42" || got.Trailer.Get("X-Late") != "unannounced" {
		t.Errorf("trailers %v", got.Trailer)
	}
}

func TestEarlyHintsComeFirstAndTheFieldsLast(t *testing.T) {
	addr := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "</style.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Del("Link")
		_, _ = io.WriteString(w, "page")
	})
	f := open(t, addr)
	var hints textproto.MIMEHeader
	r := request(t, "GET", f.url, nil)
	r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
		Got1xxResponse: func(code int, h textproto.MIMEHeader) error { hints = h; return nil },
	}))
	got := do(t, visitor(t, "127.0.0.1"), r)
	if hints.Get("Link") == "" || hints.Get("RateLimit") != "" {
		t.Errorf("hints %v, want a Link and no RateLimit", hints)
	}
	if got.body != "page" || got.Header.Get("Link") != "" || len(got.Header.Values("RateLimit")) != 1 || len(got.Header.Values("RateLimit-Policy")) != 1 {
		t.Errorf("%q with %v", got.body, got.Header)
	}
}

func TestExpectationsAreTheUpstreams(t *testing.T) {
	bodies := make(chan string, 3)
	addr := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/no" {
			http.Error(w, "too large", http.StatusRequestEntityTooLarge)
			bodies <- ""
			return
		}
		b, _ := io.ReadAll(r.Body)
		bodies <- string(b)
	})
	f := serve(t, addr, compile(t, rule(t, "two", "2/h burst 2", nil)))

	// ask sends the head alone, and the body only if it is told to.
	ask := func(path string) (status, told int) {
		c := raw(t, f.addr, "POST "+path+" HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n")
		in := bufio.NewReader(c)
		for {
			resp, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != http.StatusContinue {
				_, _ = io.Copy(io.Discard, resp.Body)
				return resp.StatusCode, told
			}
			told++
			_, _ = io.WriteString(c, "body")
		}
	}
	if status, told := ask("/yes"); status != 200 || told != 1 || <-bodies != "body" {
		t.Errorf("accepted: %d, told to continue %d times", status, told)
	}
	if status, told := ask("/no"); status != http.StatusRequestEntityTooLarge || told != 0 {
		t.Errorf("refused by the upstream: %d, told to continue %d times", status, told)
	}
	<-bodies
	if status, told := ask("/yes"); status != http.StatusTooManyRequests || told != 0 {
		t.Errorf("refused by the policy: %d, told to continue %d times", status, told)
	}
}

func TestClientThatLeavesEndsTheUpstreamsWork(t *testing.T) {
	began, ended := make(chan struct{}), make(chan struct{})
	addr := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		close(began)
		<-r.Context().Done()
		close(ended)
	})
	f := open(t, addr)
	ctx, leave := context.WithCancel(t.Context())
	go func() { <-began; leave() }()
	if _, err := visitor(t, "127.0.0.1").Do(request(t, "GET", f.url, nil).WithContext(ctx)); err == nil {
		t.Error("the request was answered")
	}
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Error("the upstream still works for nobody")
	}
	if err := f.stop(); err != nil {
		t.Error(err)
	}
	if text := f.log.String(); text != "" {
		t.Errorf("a client that leaves is no fault: %s", text)
	}
}

func TestUpstreamThatDiesMidwayIsSeen(t *testing.T) {
	for name, head := range map[string]string{
		"chunked":      "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
		"known length": "Content-Length: 100\r\n\r\nhello",
	} {
		t.Run(name, func(t *testing.T) {
			addr := upstream(t, func(w http.ResponseWriter, r *http.Request) {
				c, b, err := http.NewResponseController(w).Hijack()
				if err != nil {
					return
				}
				defer c.Close()
				_, _ = io.WriteString(b, "HTTP/1.1 200 OK\r\n"+head)
				b.Flush()
			})
			resp, err := visitor(t, "127.0.0.1").Do(request(t, "GET", open(t, addr).url, nil))
			if err != nil {
				return // also right: the gateway had sent nothing yet
			}
			defer resp.Body.Close()
			if body, err := io.ReadAll(resp.Body); err == nil {
				t.Errorf("a broken answer looks whole: %q", body)
			}
		})
	}
}

func TestUpstreamFaultsAreNeverDenials(t *testing.T) {
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	// answers sends that in place of an answer, or nothing and waits.
	answers := func(text string) string {
		return upstream(t, func(w http.ResponseWriter, r *http.Request) {
			c, b, err := http.NewResponseController(w).Hijack()
			if err != nil {
				return
			}
			defer c.Close()
			_, _ = b.WriteString(text)
			b.Flush()
			if text == "" {
				_, _ = b.ReadByte() // until the gateway gives up
			}
		})
	}
	for _, c := range []struct {
		name, addr string
		status     int
	}{
		{"down", gone.Addr().String(), 502},
		{"no such host", "no-such-host.invalid:80", 502},
		{"no HTTP", answers("220 mail.example ESMTP\r\n"), 502},
		{"closes at once", answers("HTTP/1.1 200 OK\r\nX-Half: "), 502},
		{"endless header", answers("HTTP/1.1 200 OK\r\nX-Long: " + strings.Repeat("a", 1<<20) + "\r\n\r\n"), 502},
		{"switches unasked", answers("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"), 502},
		{"says nothing", answers(""), 504},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := open(t, c.addr, func(g *gateway.Config) {
				if c.status == 504 {
					g.Timeouts.Response = 100 * time.Millisecond
				}
			})
			v := visitor(t, "127.0.0.1")
			for range 3 {
				got := get(t, v, f.url)
				if got.StatusCode != c.status || got.Header.Get("Content-Type") != "application/problem+json" || !strings.Contains(got.body, fmt.Sprint(c.status)) {
					t.Errorf("%d %s %q, want %d", got.StatusCode, got.Header.Get("Content-Type"), got.body, c.status)
				}
				if got.Header.Get("Retry-After") != "" || strings.Contains(got.body, "quota") {
					t.Errorf("a fault told as a denial: %v %s", got.Header, got.body)
				}
				if strings.Contains(got.body, "127.0.0.1") || strings.Contains(got.body, "goroutine") {
					t.Errorf("the answer tells of our insides: %s", got.body)
				}
			}
			if n := strings.Count(f.log.String(), "upstream fault"); n < 1 || n > 2 {
				t.Errorf("%d lines for 3 faults in a row, want them sampled:\n%s", n, f.log)
			}
			if head := do(t, v, request(t, "HEAD", f.url, nil)); head.StatusCode != c.status {
				t.Errorf("HEAD: %d", head.StatusCode)
			}
		})
	}
}

func TestSlowUpstreamIsWaitedFor(t *testing.T) {
	// The stall time is for clients, and must not end what only takes long.
	addr := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		select {
		case <-time.After(400 * time.Millisecond):
			_, _ = w.Write(b)
		case <-r.Context().Done():
		}
	})
	f := open(t, addr, func(g *gateway.Config) { g.Timeouts.Stall = 100 * time.Millisecond })
	got := do(t, visitor(t, "127.0.0.1"), request(t, "POST", f.url, strings.NewReader("patience")))
	if got.StatusCode != 200 || got.body != "patience" {
		t.Errorf("%d %q", got.StatusCode, got.body)
	}
}

func TestWebSocketThroughNginx(t *testing.T) {
	echo := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer c.CloseNow()
		c.SetReadLimit(1 << 20)
		for {
			kind, data, err := c.Read(r.Context())
			if err != nil || c.Write(r.Context(), kind, data) != nil {
				return
			}
		}
	})
	ng := nginxtest.Start(t, `location / {
		proxy_pass http://`+echo+`; proxy_http_version 1.1; proxy_set_header Host $http_host;
		proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection "upgrade";
	}`)
	// Twice: through the plain way, and through the one that notes the status.
	counted := rule(t, "counted", "3/h burst 3", nil)
	failing := rule(t, "failing", "3/h burst 3", nil)
	failing.Failures = []string{"4xx"}
	f := serve(t, ng.Addr, compile(t, counted, failing))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	v := visitor(t, "127.0.0.1")
	v.Timeout = 0
	for range 3 {
		c, _, err := websocket.Dial(ctx, "ws://"+f.addr, &websocket.DialOptions{HTTPClient: v})
		if err != nil {
			t.Fatal(err)
		}
		c.SetReadLimit(1 << 20)
		for _, message := range []string{"hello", strings.Repeat("long ", 20000), ""} {
			if err := c.Write(ctx, websocket.MessageText, []byte(message)); err != nil {
				t.Fatal(err)
			}
			if _, data, err := c.Read(ctx); err != nil || string(data) != message {
				t.Fatalf("%d bytes came back of %d, %v", len(data), len(message), err)
			}
		}
		if err := c.Close(websocket.StatusNormalClosure, "done"); err != nil {
			t.Error("close:", err)
		}
	}
	_, resp, err := websocket.Dial(ctx, "ws://"+f.addr, &websocket.DialOptions{HTTPClient: v})
	if err == nil || resp == nil || resp.StatusCode != http.StatusTooManyRequests {
		t.Errorf("the fourth: %v, %v; want 429", resp, err)
	}
}

func TestOtherProtocolsAreSwitchedToButNoneThatCarriesRequests(t *testing.T) {
	addr := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		up := r.Header.Get("Upgrade")
		if up == "" {
			_, _ = io.WriteString(w, "plain")
			return
		}
		c, b, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		fmt.Fprintf(b, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", up)
		b.Flush()
		_, _ = io.Copy(c, b) // until the client closes its way
	})
	f := open(t, addr)
	for protocol, want := range map[string]int{
		"echo": 101, "SPDY/3.1": 101,
		"h2c": 200, "H2C": 200, "h2": 200, "HTTP/2.0": 200, "TLS/1.2": 200, "websocket, h2c": 200, "h2c, websocket": 200, "\xff": 200,
	} {
		c := raw(t, f.addr, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\nUpgrade: "+protocol+"\r\n\r\n")
		in := bufio.NewReader(c)
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(protocol, err)
		}
		if resp.StatusCode != want {
			t.Errorf("%s: %d, want %d", protocol, resp.StatusCode, want)
		}
		if resp.StatusCode == http.StatusSwitchingProtocols {
			_, _ = io.WriteString(c, "ping\n")
			_ = c.(*net.TCPConn).CloseWrite()
			if back, err := io.ReadAll(in); err != nil || string(back) != "ping\n" {
				t.Errorf("%s: %q came back, %v", protocol, back, err)
			}
		}
	}
}
