package httplimit_test

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/httplimit"
	"github.com/spillgate/spillgate/policy"
)

// holding are middlewares that hold the second request for 10 s.
func holding(t *testing.T) map[string]func(http.Handler) http.Handler {
	r := rule(t, "a", "1/10s burst 1")
	r.Delay = policy.Delay{Most: time.Minute, Queue: 1}
	return map[string]func(http.Handler) http.Handler{
		"delay":   httplimit.Policy(engine(t, r)),
		"bare":    httplimit.Policy(engine(t, r), httplimit.NoVerdict()),
		"queue":   httplimit.Policy(engine(t, rule(t, "a", "1/10s queue 1"))),
		"limiter": httplimit.New(spillgate.Must("1/10s queue 1"), httplimit.User(func(*http.Request) string { return "ann" })),
	}
}

// say has h serve a client who says text on a connection of its own; end is
// what the client does then.
func say(h http.Handler, text string, end func(client net.Conn)) {
	client, server := net.Pipe()
	conns := make(chan net.Conn, 1)
	conns <- server
	srv := &http.Server{Handler: h, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)}
	served := make(chan struct{})
	go func() { defer close(served); _ = srv.Serve(one{conns}) }()
	if _, err := io.WriteString(client, text); err == nil {
		end(client)
	}
	client.Close()
	close(conns)
	srv.Close()
	<-served
	synctest.Wait()
}

// Who sends a body and leaves while the request is held is seen to leave:
// neither is the handler asked nor the place kept.
func TestClientThatSentABodyLeavesItsPlace(t *testing.T) {
	for name := range holding(t) {
		for _, text := range []string{
			"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
			"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9000\r\n\r\n" + strings.Repeat("x", 9000),
			"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n",
			"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9000\r\n\r\nhalf",
		} {
			synctest.Test(t, func(t *testing.T) {
				hold := holding(t)[name]
				asked := 0
				h := hold(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
				begun := time.Now()
				get(h)
				say(h, text, func(net.Conn) { <-time.After(time.Second) })
				if took := time.Since(begun); asked != 1 || took >= 2*time.Second {
					t.Errorf("%s, %.60q: %d asked, the last over after %s", name, text, asked, took)
				}
				if get(h); asked != 2 || time.Since(begun) != 10*time.Second {
					t.Errorf("%s, %.60q: the next: %d asked, after %s", name, text, asked, time.Since(begun))
				}
			})
		}
	}
}

// The handler of a request that was held has its body as it came, also what
// came later.
func TestBodyOfAHeldRequestIsWhole(t *testing.T) {
	for name := range holding(t) {
		for _, size := range []int{1, 511, 512, 16 << 10, 16<<10 + 1, 100_000} {
			synctest.Test(t, func(t *testing.T) {
				hold := holding(t)[name]
				body := strings.Repeat("0123456789", size/10+1)[:size]
				var got string
				h := hold(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					b, err := io.ReadAll(r.Body)
					if err != nil {
						t.Error(err)
					}
					got = string(b)
				}))
				get(h)
				half := size / 2
				say(h, fmt.Sprintf("POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: %d\r\n\r\n", size), func(client net.Conn) {
					go func() {
						_, _ = io.WriteString(client, body[:half])
						<-time.After(20 * time.Second) // after the time that it is held
						_, _ = io.WriteString(client, body[half:])
					}()
					_, _ = io.ReadAll(client)
				})
				if got != body {
					t.Errorf("%s: of %d bytes %d came", name, size, len(got))
				}
			})
		}
	}
}

// A handler that wants nothing of a body answers, though the client of the
// held request stopped sending.
func TestHeldRequestIsAnsweredWithoutItsBody(t *testing.T) {
	for name := range holding(t) {
		synctest.Test(t, func(t *testing.T) {
			hold := holding(t)[name]
			h := hold(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
			get(h)
			begun := time.Now()
			say(h, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\nhalf", func(client net.Conn) {
				answer, _ := io.ReadAll(client)
				if took := time.Since(begun); !strings.Contains(string(answer), "418") || took > 11*time.Second {
					t.Errorf("%s: %q after %s", name, answer, took)
				}
			})
		})
	}
}
