package gateway

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// What net/http says is sorted by its words, so a Go that says it otherwise
// must fail here.
func TestServersWordsAreSorted(t *testing.T) {
	for _, c := range []struct {
		name, request string
		handler       http.HandlerFunc
		want          string // the level of the line, "" for none
	}{
		{"our fault", "GET / HTTP/1.1\r\nHost: x\r\n\r\n", func(http.ResponseWriter, *http.Request) { panic("a bug") }, "ERROR"},
		{"an abort that was asked for", "GET / HTTP/1.1\r\nHost: x\r\n\r\n", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, ""},
		{"a client's fault", "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(200)
			w.WriteHeader(200) // superfluous, which net/http logs
		}, "DEBUG"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var text bytes.Buffer
			handler := slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug})
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			srv := &http.Server{Handler: c.handler, ErrorLog: slog.NewLogLogger(serverLog{handler}, slog.LevelError)}
			var serving sync.WaitGroup
			serving.Go(func() { _ = srv.Serve(ln) })
			client, err := net.Dial("tcp", ln.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			if _, err := io.WriteString(client, c.request); err != nil {
				t.Fatal(err)
			}
			answer, err := io.ReadAll(client) // until the server closes, after it logged
			if err != nil {
				t.Fatal(err)
			}
			srv.Close()
			serving.Wait()
			got := text.String()
			if c.want == "" && got != "" || c.want != "" && !strings.Contains(got, "level="+c.want) {
				t.Errorf("log %q, want level %q", got, c.want)
			}
			if strings.Contains(string(answer), "goroutine") || strings.Contains(string(answer), "a bug") {
				t.Errorf("the client was told %q", answer)
			}
		})
	}
	quiet := serverLog{slog.NewTextHandler(io.Discard, nil)}
	if err := quiet.Handle(t.Context(), slog.NewRecord(time.Now(), slog.LevelError, "http: TLS handshake error", 0)); err != nil {
		t.Error(err)
	}
}

// A connection that a switched protocol takes over keeps its write deadline.
func TestWritesHaveADeadlineAgainAfterItWasTakenOff(t *testing.T) {
	client, server := net.Pipe()
	defer client.Close()
	defer server.Close()
	c := &conn{Conn: server, stall: 50 * time.Millisecond, start: time.Now()}
	for range 2 {
		if _, err := c.Write([]byte("nobody reads")); err == nil || !err.(net.Error).Timeout() {
			t.Fatalf("%v, want a timeout", err)
		}
		if err := c.SetDeadline(time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
}
