package gateway_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/spillgate/spillgate/cmd/spillgate/internal/gateway"
)

// early answers without reading, and with a length if that is asked for.
func early(rw http.ResponseWriter, r *http.Request) {
	c := http.NewResponseController(rw)
	_ = c.EnableFullDuplex()
	if r.Header.Get("Length") != "" {
		rw.Header().Set("Content-Length", "2")
	}
	_, _ = io.WriteString(rw, "no")
	_ = c.Flush()
}

// Who sends half a body is answered at once, and can't hold the connection.
func TestAnswersDoNotWaitForBodies(t *testing.T) {
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	up := upstream(t, early)
	refusing := serve(t, up, compile(t, closed(t)))
	passing, based, down := open(t, up), open(t, up+"/base"), open(t, gone.Addr().String())
	var all sync.WaitGroup // together, since each takes seconds to end
	for name, c := range map[string]struct {
		head   string
		front  *front
		status int
	}{
		"refused by a rule":            {"POST / HTTP/1.1", refusing, 403},
		"no tunnel":                    {"CONNECT x:1 HTTP/1.1", passing, 501},
		"no path":                      {"POST x:y HTTP/1.1", passing, 400},
		"above the base":               {"POST /../x HTTP/1.1", based, 400},
		"upstream down":                {"POST / HTTP/1.1", down, 502},
		"answered early":               {"POST / HTTP/1.1", passing, 200},
		"answered early with a length": {"POST / HTTP/1.1\r\nLength: yes", passing, 200},
	} {
		for _, body := range []string{
			"Content-Length: 100000\r\n\r\nx",
			"Content-Length: 300000\r\n\r\nx",
			"Transfer-Encoding: chunked\r\n\r\n5\r\nx",
		} {
			conn := raw(t, c.front.addr, c.head+"\r\nHost: x\r\n"+body)
			all.Go(func() {
				start := time.Now()
				in := bufio.NewReader(conn)
				resp, err := http.ReadResponse(in, nil)
				if err != nil {
					t.Errorf("%s, %q: %v", name, body, err)
					return
				}
				if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != c.status {
					t.Errorf("%s, %q: %d, %v; want %d", name, body, resp.StatusCode, err, c.status)
				}
				if took := time.Since(start); took > 4*time.Second {
					t.Errorf("%s, %q: answered after %s", name, body, took)
				}
				if rest, err := io.ReadAll(in); errors.Is(err, os.ErrDeadlineExceeded) || len(rest) > 0 {
					t.Errorf("%s, %q: more came, %q, or the connection was held: %v", name, body, rest, err)
				}
			})
		}
	}
	all.Wait()
}

// The rest of a body that comes too late must not become a request.
func TestLateBodyIsNoRequest(t *testing.T) {
	for _, body := range []string{"Content-Length: 1000\r\n\r\nx", "Transfer-Encoding: chunked\r\n\r\n3e8\r\nx", "Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\nzz\r\n"} {
		var w witness
		f := open(t, upstream(t, func(rw http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/early" {
				early(rw, r)
				return
			}
			w.ServeHTTP(rw, r)
		}), func(c *gateway.Config) { c.Timeouts.Stall = 300 * time.Millisecond })
		conn := raw(t, f.addr, "POST /early HTTP/1.1\r\nHost: x\r\nLength: yes\r\n"+body)
		in := bufio.NewReader(conn)
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		if resp.StatusCode != 200 && resp.StatusCode != 400 { // 400 if the bad chunk is seen first
			t.Errorf("%q: %d", body, resp.StatusCode)
		}
		for range 40 { // until the gateway hangs up
			if _, err := io.WriteString(conn, "GET /late HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
				break
			}
			<-time.After(50 * time.Millisecond)
		}
		if rest, _ := io.ReadAll(in); len(rest) > 0 {
			t.Errorf("%q: more came: %q", body, rest)
		}
		if seen := w.take(); len(seen) > 0 {
			t.Errorf("%q: the upstream saw %q", body, seen)
		}
	}
}

func TestWholeBodiesKeepTheConnection(t *testing.T) {
	up := upstream(t, func(rw http.ResponseWriter, r *http.Request) {}) // reads nothing
	for name, f := range map[string]*front{
		"refused":        serve(t, up, compile(t, closed(t))),
		"answered early": open(t, up),
	} {
		conn := raw(t, f.addr, "")
		in := bufio.NewReader(conn)
		for i, body := range []string{"Content-Length: 5\r\n\r\nhello", "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", "Content-Length: 0\r\n\r\n"} {
			if _, err := io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\n"+body); err != nil {
				t.Fatal(name, i, err)
			}
			resp, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatal(name, i, err)
			}
			if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.Close {
				t.Errorf("%s, request %d: closing %t, %v", name, i, resp.Close, err)
			}
		}
	}
}
