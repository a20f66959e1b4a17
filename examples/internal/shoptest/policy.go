package shoptest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/policy"
	"github.com/spillgate/spillgate/policyfile"
)

// Policy tests that what a rule may say holds beside a framework. mount puts h
// under /do of a router of that framework, and the limit where it belongs.
// answered is the status with which those are refused whom a rule answers with 418.
func Policy(t *testing.T, answered int, mount func(eng *policy.Engine, h http.Handler) http.Handler) {
	for _, c := range []struct {
		name, file string
		ask        func(t *testing.T, s *site)
	}{
		{"bytes", `
rules: [{name: r, unit: bytes, limit: 1000/h burst 1000}]`,
			func(t *testing.T, s *site) { // the second leaves a debt
				s.expect(t, "/do?big", 200, 200, 429)
			}},
		{"failures of the framework", `
rules: [{name: r, limit: 1/h burst 3, failures: [404]}]`,
			func(t *testing.T, s *site) {
				s.expect(t, "/do", 200, 200, 200, 200)
				s.expect(t, "/none", 404, 404, 404, 429)
			}},
		{"failures of a handler", `
rules: [{name: r, limit: 1/h burst 2, failures: [5xx]}]`,
			func(t *testing.T, s *site) {
				s.expect(t, "/do", 200, 200, 200)
				s.expect(t, "/do?fail", 503, 503, 429)
			}},
		{"usage", `
rules: [{name: r, unit: tokens, limit: 100/h burst 100}]
usage: [{format: {output: usage.out}, input: 0, output: 10}]`,
			func(t *testing.T, s *site) { // each used 60, and 10 were thought of
				s.expect(t, "/do?tokens", 200, 200, 429)
			}},
		{"delay", `
rules: [{name: r, limit: 20/s burst 1, delay: {most: 10s}}]`,
			func(t *testing.T, s *site) {
				start := time.Now()
				s.expect(t, "/do", 200, 200, 200)
				if took := time.Since(start); took < 100*time.Millisecond {
					t.Errorf("three of 20/s in %s", took)
				}
			}},
		{"answer", `
rules: [{name: r, limit: 1/h, answer: {status: 418, text: "Later."}}]`,
			func(t *testing.T, s *site) {
				s.expect(t, "/do", 200)
				if r := s.get(t, "/do"); r.StatusCode != answered || (r.text == "Later.") != (answered == 418) || r.Header.Get("Retry-After") == "" {
					t.Errorf("%d %q %v", r.StatusCode, r.text, r.Header)
				}
			}},
		{"a slot of an answer that lasts", `
rules: [{name: r, limit: 1 at once}]`,
			func(t *testing.T, s *site) {
				r, err := s.Client().Get(s.URL + "/do?last")
				if err != nil {
					t.Fatal(err)
				}
				defer r.Body.Close()
				if _, err := io.ReadFull(r.Body, make([]byte, 5)); err != nil { // it is flushed
					t.Fatal(err)
				}
				s.expect(t, "/do", 429)
				close(s.release)
				if _, err := io.Copy(io.Discard, r.Body); err != nil {
					t.Fatal(err)
				}
				s.await(t, "/do", 200)
			}},
		{"a slot of a connection that is taken over", `
rules: [{name: r, limit: 1 at once}]`,
			func(t *testing.T, s *site) {
				conn, err := net.Dial("tcp", s.Listener.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				fmt.Fprint(conn, "GET /do?take HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
				back := bufio.NewReader(conn)
				if r, err := http.ReadResponse(back, nil); err != nil || r.StatusCode != http.StatusSwitchingProtocols {
					t.Fatal(r, err)
				}
				fmt.Fprint(conn, "hello\n")
				if line, err := back.ReadString('\n'); err != nil || line != "hello\n" {
					t.Fatalf("%q, %v", line, err)
				}
				s.expect(t, "/do", 429)
				conn.Close()
				s.await(t, "/do", 200)
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, err := policyfile.Parse("limits.yaml", []byte(c.file))
			if err != nil {
				t.Fatal(err)
			}
			s := &site{release: make(chan struct{})}
			s.Server = httptest.NewServer(mount(policy.NewEngine(f.Policy, spillgate.NewMemory()), s))
			defer s.Close()
			c.ask(t, s)
		})
	}
}

// A site is what stands under /do, and its server.
type site struct {
	*httptest.Server
	release chan struct{} // closed when answers that last may end
}

// ServeHTTP does as the query says.
func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.RawQuery {
	case "big":
		_, _ = io.WriteString(w, strings.Repeat("x", 900))
	case "fail":
		w.WriteHeader(http.StatusServiceUnavailable)
	case "tokens":
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"usage": {"out": 60}}`)
	case "last":
		_, _ = io.WriteString(w, "begun")
		_ = http.NewResponseController(w).Flush()
		<-s.release
	case "take":
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		defer conn.Close()
		fmt.Fprint(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		for err == nil {
			var line string
			if err = rw.Flush(); err == nil {
				line, err = rw.ReadString('\n')
			}
			fmt.Fprint(rw, line)
		}
	}
}

type reply struct {
	*http.Response
	text string
}

func (s *site) get(t *testing.T, path string) reply {
	t.Helper()
	r, err := s.Client().Get(s.URL + path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{r, string(text)}
}

func (s *site) expect(t *testing.T, path string, statuses ...int) {
	t.Helper()
	for i, want := range statuses {
		if r := s.get(t, path); r.StatusCode != want {
			t.Errorf("%s, request %d: %d %s; want %d", path, i, r.StatusCode, r.text, want)
		}
	}
}

// await asks until that status is answered: a server notices a moment later that
// a request is over.
func (s *site) await(t *testing.T, path string, status int) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); ; {
		if r := s.get(t, path); r.StatusCode == status {
			return
		} else if time.Now().After(end) {
			t.Fatalf("%s: still %d", path, r.StatusCode)
		}
	}
}
