package gateway_test

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/spillgate/spillgate/cmd/spillgate/internal/gateway"
)

// A header over HTTP/2 ends within the bounds of one over HTTP/1: whoever sends
// more hears 431, or loses the connection if it comes in further frames.
func TestHeadersOverHTTP2AreBounded(t *testing.T) {
	var seen witness
	f := serve(t, upstream(t, seen.ServeHTTP), compile(t, rule(t, "r", "1000/h burst 1000", []string{"client.ip"})), overTLS(t))
	long := strings.Repeat("a", 5000)
	w := dial2(t, "127.0.0.1", f.addr)
	ask := func(first, fields int) (id uint32) { // so many fields in a frame of their own
		id = w.stream()
		_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: w.pack(login2("a", long)...), EndStream: true, EndHeaders: fields == 0})
		for i := range fields {
			if w.WriteContinuation(id, i == fields-1, w.pack(fmt.Sprintf("a%d", first+i), long)) != nil {
				break // it hung up
			}
		}
		return id
	}
	id := ask(0, 11) // 60 KB
	if out := w.await(id); out.over || out.status[id] != 200 {
		t.Errorf("60 KB: %v", out)
	}
	id = w.stream() // 70 KB, of which the last 10 are one frame's
	_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: w.pack(login2("a", strings.Repeat("b", 15000))...), EndStream: true})
	for i := range 4 {
		_ = w.WriteContinuation(id, i == 3, w.pack(fmt.Sprintf("b%d", i), strings.Repeat("b", 14000)))
	}
	if out := w.await(id); out.over || out.status[id] != 431 {
		t.Errorf("70 KB: %v", out)
	}
	start := time.Now()
	if out := w.await(ask(100, 1000)); !out.over || len(out.status) > 0 {
		t.Errorf("5 MB in frames: %v", out)
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("hung up after %s", took)
	}
	// A few bytes that stand for many, by the table of those that were sent before.
	w = dial2(t, "127.0.0.1", f.addr)
	w.await(w.ask(login2("bomb", long[:4000])...))
	var fields []string
	for range 1000 {
		fields = append(fields, "bomb", long[:4000])
	}
	id = w.ask(login2(fields...)...)
	if out := w.await(id); out.over || out.status[id] != 431 {
		t.Errorf("4 MB in one frame: %v", out)
	}
	if n := len(seen.take()); n != 2 {
		t.Errorf("%d requests came through", n)
	}
}

// A header that never ends, in small frames or in empty ones, is cut in the idle
// time, or in twice the stall time if a stream is open beside it. However many
// frames come till then, they take no memory, and others are served.
func TestEndlessHeadersAreCut(t *testing.T) {
	began := make(chan struct{}, 9)
	addr := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/events" {
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			began <- struct{}{}
			<-r.Context().Done()
		}
	})
	for name, c := range map[string]struct {
		pause       time.Duration
		beside      bool
		idle, stall time.Duration
	}{
		"a flood of empty frames":           {0, false, 400 * time.Millisecond, time.Minute},
		"a trickle":                         {20 * time.Millisecond, false, 400 * time.Millisecond, time.Minute},
		"a trickle beside a stream":         {20 * time.Millisecond, true, time.Minute, 300 * time.Millisecond},
		"a flood of frames beside a stream": {0, true, time.Minute, 300 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			f := open(t, addr, overTLS(t), func(g *gateway.Config) {
				g.Timeouts.Idle, g.Timeouts.Stall = c.idle, c.stall
			})
			w := dial2(t, "127.0.0.1", f.addr)
			if c.beside {
				w.ask(login2(":path", "/events")...)
				<-began
			}
			before, start := memory(), time.Now()
			id, block := w.stream(), w.pack(login2("a", strings.Repeat("long", 10_000))...)
			err := w.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block[:100], EndStream: true})
			rest := block[100:]
			flood := bytes.Repeat([]byte{0, 0, 0, byte(http2.FrameContinuation), 0, 0, 0, 0, byte(id)}, 1000)
			for n := 1; err == nil && time.Since(start) < 15*time.Second; n++ {
				if c.pause == 0 {
					_, err = w.conn.Write(flood)
				} else {
					err = w.WriteContinuation(id, false, rest[:1])
					rest = rest[1:]
					<-time.After(c.pause)
				}
				if frames := 1000 * n; c.pause == 0 && n == 5 {
					if grown := memory() - before; grown > 1<<20 {
						t.Errorf("%d frames take %d bytes", frames, grown)
					}
					if got := get(t, client2(t), "https://"+f.addr); got.StatusCode != 200 {
						t.Errorf("meanwhile: %d", got.StatusCode)
					}
				}
			}
			if took := time.Since(start); err == nil || took > 10*time.Second {
				t.Errorf("after %s the connection still stands", took)
			}
		})
	}
}

// The gateway does not say that it takes WebSockets over HTTP/2 (RFC 8441), so
// that browsers open them over HTTP/1.1. Who tries all the same, or asks for a
// tunnel, gets none: the former is a stream that is no request, and the latter
// is one like any other, with its limit.
func TestNoTunnelOverHTTP2(t *testing.T) {
	var seen witness
	f := serve(t, upstream(t, seen.ServeHTTP), compile(t, rule(t, "r", "3/h burst 3", []string{"client.ip"})), overTLS(t))
	w := dial2(t, "127.0.0.1", f.addr)
	id := w.ask(":method", "CONNECT", ":protocol", "websocket", ":scheme", "https", ":authority", "x", ":path", "/login", "sec-websocket-version", "13")
	if out := w.await(id); out.over || len(out.status) > 0 || w.connects {
		t.Errorf("an extended CONNECT: %v, announced: %t", out, w.connects)
	}
	for i := range 5 {
		want := http.StatusNotImplemented
		if i >= 3 {
			want = http.StatusTooManyRequests
		}
		id := w.ask(":method", "CONNECT", ":authority", "x:443")
		if out := w.await(id); out.over || out.status[id] != want {
			t.Errorf("CONNECT %d: %v, want %d", i, out, want)
		}
	}
	if came := seen.take(); len(came) > 0 {
		t.Errorf("the upstream saw %q", came)
	}
}
