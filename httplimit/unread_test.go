package httplimit_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/httplimit"
	"github.com/spillgate/spillgate/policy"
)

// one is a listener of a single connection.
type one struct{ conns chan net.Conn }

func (o one) Accept() (net.Conn, error) {
	if c, ok := <-o.conns; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (o one) Close() error   { return nil }
func (o one) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "pipe"} }

// A conversation is what a client saw of its connection: its answers, how long
// the first took and how long the connection lasted. It lasts for ever if the
// server had not ended it within an hour.
type conversation struct {
	statuses string
	closing  bool // the first answer said so
	answered time.Duration
	lasted   time.Duration
}

// talk has h serve a client who says that, piece by piece and a second apart.
func talk(t *testing.T, h http.Handler, pieces ...string) (x conversation) {
	client, server := net.Pipe()
	defer client.Close()
	conns := make(chan net.Conn, 1)
	conns <- server
	srv := &http.Server{Handler: h, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)}
	served := make(chan struct{})
	go func() { defer close(served); _ = srv.Serve(one{conns}) }()
	defer func() { close(conns); srv.Close(); <-served }()

	start := time.Now()
	if err := client.SetDeadline(start.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	written := make(chan struct{})
	go func() {
		defer close(written)
		for i, piece := range pieces {
			if i > 0 {
				<-time.After(time.Second)
			}
			if _, err := io.WriteString(client, piece); err != nil {
				return // the server hung up
			}
		}
	}()
	var statuses []int
	in := bufio.NewReader(client)
	for {
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			break
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			break
		}
		if len(statuses) == 0 {
			x.answered, x.closing = time.Since(start), resp.Close
		}
		statuses = append(statuses, resp.StatusCode)
	}
	x.statuses, x.lasted = fmt.Sprint(statuses), time.Since(start)
	client.Close()
	<-written
	return x
}

func TestRefusalsDoNotWaitForBodies(t *testing.T) {
	const silence = time.Hour
	deny := rule(t, "closed", "")
	deny.Deny = true
	shut := rule(t, "shut", "1/h burst 1")
	shut.OnFault = policy.Shut
	denied := httplimit.Denied(func(w http.ResponseWriter, r *http.Request, f httplimit.Refusal) {
		if r.Context().Err() != nil {
			t.Error("the context is over before the answer is written")
		}
		http.Error(w, "no", f.Status)
	})
	for name, refusing := range map[string]struct {
		status int
		wrap   func() func(http.Handler) http.Handler
	}{
		"limiter": {429, func() func(http.Handler) http.Handler {
			return httplimit.New(spillgate.Must("1/h burst 1"), httplimit.Cost("requests", func(*http.Request) int64 { return 2 }))
		}},
		"policy": {403, func() func(http.Handler) http.Handler { return httplimit.Policy(engine(t, deny)) }},
		"own":    {403, func() func(http.Handler) http.Handler { return httplimit.Policy(engine(t, deny), denied) }},
		"fault": {503, func() func(http.Handler) http.Handler {
			return httplimit.Policy(engineOn(t, &scripted{decide: fails(errors.New("down"))}, shut))
		}},
	} {
		const head = "POST / HTTP/1.1\r\nHost: x\r\n"
		next := "GET /next HTTP/1.1\r\nHost: x\r\n\r\n"
		for _, c := range []struct {
			what    string
			pieces  []string
			answers int
			closing bool
			most    time.Duration // that the connection may last
		}{
			{"silence in the body", []string{head + "Content-Length: 100000\r\n\r\nx"}, 1, true, 6 * time.Second},
			{"silence before the body", []string{head + "Content-Length: 100000\r\n\r\n"}, 1, true, 6 * time.Second},
			{"a large body", []string{head + "Content-Length: 1000000000\r\n\r\n", strings.Repeat("x", 1<<20)}, 1, true, 6 * time.Second},
			{"silence in a chunk", []string{head + "Transfer-Encoding: chunked\r\n\r\n5\r\nhe"}, 1, true, 6 * time.Second},
			{"a bad chunk", []string{head + "Transfer-Encoding: chunked\r\n\r\nzz\r\n" + next}, 1, true, 6 * time.Second},
			{"never-ending chunks", []string{head + "Transfer-Encoding: chunked\r\n\r\n" + strings.Repeat("1000\r\n"+strings.Repeat("x", 4096)+"\r\n", 1000)}, 1, true, 6 * time.Second},
			{"a drop a second", append([]string{head + "Content-Length: 100000\r\n\r\n"}, strings.Split(strings.Repeat("x", 100), "")...), 1, true, 6 * time.Second},
			{"a request where the body should go on", []string{head + "Content-Length: 1000\r\n\r\n", next, next, next, next, next, next, next, next, next}, 1, true, 6 * time.Second},
			{"waits to be told to continue", []string{head + "Content-Length: 4\r\nExpect: 100-continue\r\n\r\n"}, 1, true, 6 * time.Second},
			{"no body", []string{head + "Content-Length: 0\r\n\r\n", next}, 2, false, silence},
			{"a whole body", []string{head + "Content-Length: 5\r\n\r\nhello", next}, 2, false, silence},
			{"a whole chunked body", []string{head + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", next}, 2, false, silence},
			{"pipelined", []string{head + "Content-Length: 5\r\n\r\nhello" + next + next}, 3, false, silence},
		} {
			t.Run(name+"/"+c.what, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					h := refusing.wrap()(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the handler ran") }))
					x := talk(t, h, c.pieces...)
					var want []int
					for range c.answers {
						want = append(want, refusing.status)
					}
					if x.statuses != fmt.Sprint(want) || x.closing != c.closing {
						t.Errorf("answers %s, closing %t; want %v, %t", x.statuses, x.closing, want, c.closing)
					}
					if x.answered > 100*time.Millisecond {
						t.Errorf("the answer took %s", x.answered)
					}
					if x.lasted > c.most {
						t.Errorf("the connection lasted %s, want %s at most", x.lasted, c.most)
					}
					if c.most == silence && x.lasted < silence {
						t.Errorf("the connection ended after %s, want it kept", x.lasted)
					}
				})
			})
		}
	}
}

// hidden hides what a ResponseWriter can do.
type hidden struct{ http.ResponseWriter }

// Where no deadline can be set the answer must not wait all the same.
func TestUnreadBehindAWriterThatHidesTheServer(t *testing.T) {
	body, never := io.Pipe()
	defer never.Close()
	w := httptest.NewRecorder()
	r := httptest.NewRequest("POST", "/", body)
	if httplimit.Unread(hidden{w}, r) || w.Header().Get("Connection") != "close" {
		t.Errorf("%v; want Connection: close", w.Header())
	}
	if r := httptest.NewRequest("GET", "/", nil); !httplimit.Unread(hidden{w}, r) {
		t.Error("no body is not whole")
	}
}
