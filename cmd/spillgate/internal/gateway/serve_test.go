package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/cmd/spillgate/internal/gateway"
	"github.com/spillgate/spillgate/cmd/spillgate/internal/nginxtest"
	"github.com/spillgate/spillgate/policy"
)

func TestDrainLetsWhatIsUnderWayFinish(t *testing.T) {
	began, release := make(chan struct{}), make(chan struct{})
	addr := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		close(began)
		select {
		case <-release:
			_, _ = io.WriteString(w, "finished")
		case <-r.Context().Done():
		}
	})
	f := open(t, addr)
	done := make(chan reply, 1)
	go func() { done <- get(t, visitor(t, "127.0.0.1"), f.url) }()
	<-began
	ended := make(chan error, 1)
	go func() { ended <- f.stop() }()
	refused(t, f.addr)
	select {
	case err := <-ended:
		t.Fatal("serving ended before the request did:", err)
	default:
	}
	close(release)
	if got := <-done; got.StatusCode != 200 || got.body != "finished" {
		t.Errorf("%d %q", got.StatusCode, got.body)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// refused waits until nobody listens at addr any more.
func refused(t *testing.T, addr string) {
	t.Helper()
	for range 2000 {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			return
		}
		c.Close()
		<-time.After(time.Millisecond)
	}
	t.Error("new connections are still taken")
}

func TestDrainTimeCutsWhatDoesNotEnd(t *testing.T) {
	for _, kind := range []string{"request", "websocket"} {
		t.Run(kind, func(t *testing.T) {
			began, cut := make(chan struct{}), make(chan struct{})
			addr := upstream(t, func(w http.ResponseWriter, r *http.Request) {
				if kind == "request" {
					close(began)
					<-r.Context().Done()
				} else {
					c, err := websocket.Accept(w, r, nil)
					if err != nil {
						return
					}
					defer c.CloseNow()
					close(began)
					_, _, _ = c.Read(context.WithoutCancel(r.Context())) // until the connection breaks
				}
				close(cut)
			})
			u := &url.URL{Scheme: "http", Host: addr}
			log := &journal{}
			g, err := gateway.New(gateway.Config{
				Engine:   policy.NewEngine(compile(t, rule(t, "r", "5/s burst 5", nil)), spillgate.NewMemory()),
				Upstream: u, Logger: slog.New(slog.NewTextHandler(log, nil)),
			})
			if err != nil {
				t.Fatal(err)
			}
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- g.Serve(ctx, ln, 50*time.Millisecond) }()

			head := "GET / HTTP/1.1\r\nHost: x\r\n"
			if kind == "websocket" {
				head += "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
			}
			client := raw(t, ln.Addr().String(), head+"\r\n")
			<-began
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			<-cut
			if _, err := io.ReadAll(client); errors.Is(err, context.DeadlineExceeded) {
				t.Error("the client's connection still stands")
			}
			if !strings.Contains(log.String(), "were cut") {
				t.Errorf("nothing was said of it: %s", log)
			}
		})
	}
}

func TestServeSaysWhyItCannot(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	g, err := gateway.New(gateway.Config{
		Engine:   policy.NewEngine(compile(t, rule(t, "r", "5/s burst 5", nil)), spillgate.NewMemory()),
		Upstream: &url.URL{Scheme: "http", Host: "127.0.0.1:1"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Serve(t.Context(), ln, time.Second); err == nil || !strings.HasPrefix(err.Error(), "gateway: ") {
		t.Errorf("a closed listener: %v", err)
	}
}

func TestConfigIsChecked(t *testing.T) {
	engine := policy.NewEngine(compile(t, rule(t, "r", "5/s burst 5", nil)), spillgate.NewMemory())
	for text, ok := range map[string]bool{
		"http://127.0.0.1:9000": true, "https://app.test": true, "http://[::1]:80/base": true,
		"": false, "127.0.0.1:9000": false, "ftp://x": false, "http://": false, "http://:80": false,
		"http://x/?a=1": false, "http://x/?": false, "http://x/#a": false, "http://ann:secret@x": false, "http://x//": false, "http://x//a": false,
	} {
		u, err := url.Parse(text)
		if err != nil {
			u = &url.URL{Opaque: text}
		}
		_, err = gateway.New(gateway.Config{Engine: engine, Upstream: u})
		if (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
		if err != nil && (!strings.HasPrefix(err.Error(), "gateway: ") || strings.Contains(err.Error(), "secret")) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := gateway.New(gateway.Config{Engine: engine}); err == nil {
		t.Error("no upstream passed")
	}
	if _, err := gateway.New(gateway.Config{Upstream: &url.URL{Scheme: "http", Host: "x"}}); err == nil {
		t.Error("no engine passed")
	}
}

func TestUpstreamsOwnPathStandsBefore(t *testing.T) {
	var w witness
	addr := upstream(t, w.ServeHTTP)
	f := open(t, addr+"/base/")
	get(t, visitor(t, "127.0.0.1"), f.url+"/a%2Fb?q=1")
	if seen := fmt.Sprint(w.take()); !strings.Contains(seen, "/base/a%2Fb?q=1") {
		t.Errorf("the upstream saw %s", seen)
	}
}

func TestKeysCostNoGoroutines(t *testing.T) {
	ng := nginxtest.Start(t, everywhere)
	f := serve(t, ng.Addr, compile(t,
		rule(t, "key", "1/h", []string{"header.x-key", "host"}),
		rule(t, "wide", "1000000/s", []string{"client.ip"})))
	c := visitor(t, "127.0.0.1")
	for range 10 {
		get(t, c, f.url, "X-Key", "warm")
	}
	before := runtime.NumGoroutine()
	const keys = 10_000 / raced
	for i := range keys {
		if got := get(t, c, f.url, "X-Key", fmt.Sprint(i)); got.StatusCode != 200 {
			t.Fatalf("key %d: %d", i, got.StatusCode)
		}
	}
	if after := runtime.NumGoroutine(); after > before+5 {
		t.Errorf("%d goroutines before %d keys, %d after", before, keys, after)
	}
}

func TestForwardingFields(t *testing.T) {
	addr := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		for _, name := range []string{"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "Forwarded", "Spillgate-Remaining", "X_Forwarded_For", "Spillgate_Remaining", "X_HTTP-Method_Override", "X_Other"} {
			if v := r.Header.Values(name); len(v) > 0 {
				fmt.Fprintf(w, "%s: %s\n", name, strings.Join(v, ", "))
			}
		}
	})
	claims := []string{
		"Host", "shop.test", "X-Forwarded-For", "203.0.113.7", "X-Forwarded-Host", "claimed.test", "X-Forwarded-Proto", "https",
		"Forwarded", "for=203.0.113.7", "Spillgate-Remaining", `"password";r=99`, "X_Forwarded_For", "203.0.113.8", "spillgate_remaining", "99", "x_http-method_override", "DELETE", "X_Other", "stays",
		"Connection", "X-Forwarded-For, Spillgate-Remaining",
	}
	untrusted := get(t, visitor(t, "127.0.0.1"), open(t, addr).url, claims...)
	if want := "X-Forwarded-For: 127.0.0.1\nX-Forwarded-Host: shop.test\nX-Forwarded-Proto: http\nX_Other: stays\n"; untrusted.body != want {
		t.Errorf("from anybody the upstream was told\n%swant\n%s", untrusted.body, want)
	}
	f := open(t, addr, trusting(t, "127.0.0.2"))
	trusted := get(t, visitor(t, "127.0.0.2"), f.url, claims[:len(claims)-2]...)
	if want := "X-Forwarded-For: 203.0.113.7, 127.0.0.2\nX-Forwarded-Host: claimed.test\nX-Forwarded-Proto: https\nX_Other: stays\n"; trusted.body != want {
		t.Errorf("from a trusted proxy the upstream was told\n%swant\n%s", trusted.body, want)
	}
}
