package gateway_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillgate/spillgate/cmd/spillgate/internal/gateway"
	"github.com/spillgate/spillgate/policy"
)

// A witness is an upstream that notes what reaches it.
type witness struct {
	mu   sync.Mutex
	seen []string
}

func (w *witness) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	w.mu.Lock()
	w.seen = append(w.seen, fmt.Sprintf("%s %s %s %s", r.Method, r.Host, r.RequestURI, body))
	w.mu.Unlock()
	_, _ = io.WriteString(rw, "ok")
}

// take returns what was seen and forgets it.
func (w *witness) take() (seen []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	seen, w.seen = w.seen, nil
	return seen
}

// statuses reads answers until the gateway closes the connection.
func statuses(c net.Conn) (all []int) {
	in := bufio.NewReader(c)
	for {
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			return all
		}
		all = append(all, resp.StatusCode)
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			return all
		}
	}
}

// Whatever stands on the wire, the gateway answers with 4xx or passes it under
// the rules: what reaches the upstream was counted, and it keeps serving.
func TestRawRequests(t *testing.T) {
	for _, c := range []struct {
		name, text string
		statuses   string // "" is a connection closed without a word
		seen       string // joined with ", "
	}{
		{"fine", "GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "[200]", "GET x /a "},
		{"HTTP/1.0", "GET /a HTTP/1.0\r\nHost: x\r\n\r\n", "[200]", "GET x /a "},
		{"HTTP/1.0 without host", "GET /a HTTP/1.0\r\n\r\n", "[400]", ""},
		{"pipelined", "GET /1 HTTP/1.1\r\nHost: x\r\n\r\nGET /2 HTTP/1.1\r\nHost: x\r\n\r\nGET /3 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
			"[200 200 200]", "GET x /1 , GET x /2 , GET x /3 "},
		{"absolute form", "GET http://real.test/a HTTP/1.1\r\nHost: other.test\r\nConnection: close\r\n\r\n", "[200]", "GET real.test /a "},
		{"absolute form without path", "GET http://real.test HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "[200]", "GET real.test / "},
		{"asterisk", "OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "[200]", "OPTIONS x * "},
		{"CONNECT", "CONNECT inside.test:443 HTTP/1.1\r\nHost: inside.test:443\r\nConnection: close\r\n\r\n", "[501]", ""},
		{"own method", "BREW /pot HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "[200]", "BREW x /pot "},
		{"no HTTP", "hello\r\n\r\n", "[400]", ""},
		{"TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", "[400]", ""},
		{"HTTP/2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "[505]", ""},
		{"bad method", "GE T / HTTP/1.1\r\nHost: x\r\n\r\n", "[400]", ""},
		{"method with control", "GET\x01 / HTTP/1.1\r\nHost: x\r\n\r\n", "[400]", ""},
		{"bad version", "GET / HTTP/9.9\r\nHost: x\r\n\r\n", "[505]", ""},
		{"no host", "GET / HTTP/1.1\r\n\r\n", "[400]", ""},
		{"two hosts", "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "[400]", ""},
		{"bad host", "GET / HTTP/1.1\r\nHost: a b\r\n\r\n", "[400]", ""},
		{"host with a path", "GET / HTTP/1.1\r\nHost: a/../b\r\n\r\n", "[400]", ""},
		{"bad escape", "GET /%zz HTTP/1.1\r\nHost: x\r\n\r\n", "[400]", ""},
		{"bare CR in a field", "GET / HTTP/1.1\r\nHost: x\r\nA: b\rc\r\n\r\n", "[400]", ""},
		{"blank before the colon", "GET / HTTP/1.1\r\nHost: x\r\nContent-Length : 5\r\n\r\nhello", "[400]", ""},
		{"two lengths", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!", "[400]", ""},
		{"negative length", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", "[400]", ""},
		{"length with a sign", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: +5\r\n\r\nhello", "[400]", ""},
		{"odd coding", "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\nhello", "[501]", ""},
		{"coding list", "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", "[501]", ""},
		{"coding hidden by a tab", "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n", "[400]", ""},
		{"coding and HTTP/1.0", "POST / HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", "[200]", "POST x / 0\r\n\r\n"}, // the length counts
		{"chunk size beyond", "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n", "[400]", ""},
		{"chunk size no number", "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "[400]", ""},
		{"field without a name", "GET / HTTP/1.1\r\nHost: x\r\n: v\r\n\r\n", "[400]", ""},
		{"large header", "GET / HTTP/1.1\r\nHost: x\r\nA: " + strings.Repeat("a", 100<<10) + "\r\n\r\n", "[431]", ""},
		{"long target", "GET /" + strings.Repeat("a", 100<<10) + " HTTP/1.1\r\nHost: x\r\n\r\n", "[431]", ""},
		{"large but allowed", "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nA: " + strings.Repeat("a", 60<<10) + "\r\n\r\n", "[200]", "GET x / "},
	} {
		t.Run(c.name, func(t *testing.T) {
			var w witness // of its own: what is broken off may be seen late
			addr := upstream(t, w.ServeHTTP)
			f := open(t, addr)
			if got := fmt.Sprint(statuses(raw(t, f.addr, c.text))); got != c.statuses {
				t.Errorf("answers %s, want %s", got, c.statuses)
			}
			seen := strings.Join(w.take(), ", ")
			if !strings.HasPrefix(c.name, "chunk size") && seen != c.seen {
				t.Errorf("the upstream saw %q, want %q", seen, c.seen)
			}
			if text := f.log.String(); strings.Contains(text, "panic") || strings.Contains(text, "goroutine") {
				t.Errorf("log: %s", text)
			}
			if got := get(t, visitor(t, "127.0.0.1"), f.url+"/after"); got.StatusCode != 200 {
				t.Errorf("afterwards: %d", got.StatusCode)
			}
			w.take()
		})
	}
}

// Two requests where one counts would be one that no rule saw.
func TestNoRequestIsSmuggledPastTheRules(t *testing.T) {
	var w witness
	addr := upstream(t, w.ServeHTTP)
	hidden := "GET /hidden HTTP/1.1\r\nHost: x\r\n\r\n"
	for name, text := range map[string]string{
		"CL and TE": fmt.Sprintf("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n%s", 5+len(hidden), hidden),
		"TE and CL": fmt.Sprintf("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(hidden), hidden),
		"TE twice":  "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n0\r\n\r\n" + hidden,
		"GET body":  fmt.Sprintf("GET / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(hidden), hidden),
		"length dropped by Connection": fmt.Sprintf("POST / HTTP/1.1\r\nHost: x\r\nConnection: Content-Length\r\nContent-Length: %d\r\n\r\n%s",
			len(hidden), hidden),
		"chunk extension": fmt.Sprintf("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n%x;a=\"\n\"\r\n%s\r\n0\r\n\r\n", len(hidden), hidden),
		"field in target": "GET /a%0d%0aHost:%20y%0d%0a%0d%0aGET%20/hidden HTTP/1.1\r\nHost: x\r\n\r\n",
		"trailer":         "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTrailer: Content-Length\r\n\r\n0\r\nContent-Length: 99\r\n\r\n" + hidden,
	} {
		t.Run(name, func(t *testing.T) {
			// One request a rule and hour: whatever comes second is refused.
			f := serve(t, addr, compile(t, rule(t, "one", "1/h", nil)), func(g *gateway.Config) {
				g.Timeouts.Idle, g.Timeouts.Header, g.Timeouts.Stall = 300*time.Millisecond, 300*time.Millisecond, 300*time.Millisecond
			})
			answers := statuses(raw(t, f.addr, text))
			seen := w.take()
			if len(seen) > 1 {
				t.Errorf("one request may pass, the upstream saw %q", seen)
			}
			for _, one := range seen {
				if strings.HasPrefix(one, "GET x /hidden") {
					t.Errorf("the hidden request came through: %q", seen)
				}
			}
			for i, status := range answers {
				if i > 0 && status == 200 {
					t.Errorf("answers %v: more than one passed", answers)
				}
			}
		})
	}
}

// closed is a rule that refuses all that it matches.
func closed(t testing.TB, match ...string) policy.Rule {
	return policy.Rule{Name: "closed", Deny: true, Match: when(t, match...)}
}

func TestOneRuleHoldsForEverySpelling(t *testing.T) {
	var w witness
	addr := upstream(t, w.ServeHTTP)
	for _, target := range []string{
		"/login", "//login", "/login/", "/./login", "/a/../login", "/%6Cogin", "/log%69n?x=1", "/login;v=1", "http://x/login", "\\login", "/x/..\\login",
	} {
		f := serve(t, addr, compile(t, closed(t, "path", "/login")))
		conn := raw(t, f.addr, "POST "+target+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		for _, status := range statuses(conn) {
			if status != 403 && status != 400 {
				t.Errorf("%s: %d", target, status)
			}
		}
		if seen := w.take(); len(seen) > 0 {
			t.Errorf("%s came through as %q", target, seen)
		}
	}
	// What the server answers by itself elsewhere is under the rules here.
	f := serve(t, addr, compile(t, closed(t)))
	for _, head := range []string{"PRI * HTTP/2.0", "OPTIONS * HTTP/1.1", "CONNECT a:1 HTTP/1.1", "HEAD / HTTP/1.1", "TRACE / HTTP/1.1"} {
		if got := fmt.Sprint(statuses(raw(t, f.addr, head+"\r\nHost: x\r\nConnection: close\r\n\r\n"))); got != "[403]" {
			t.Errorf("%s: %s", head, got)
		}
	}
}

func TestSlowClientsAreCut(t *testing.T) {
	release := make(chan struct{})
	addr := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			for { // more than all buffers on the way can hold
				if _, err := w.Write(make([]byte, 1<<20)); err != nil {
					close(release)
					return
				}
			}
		}
		_, _ = io.Copy(io.Discard, r.Body)
	})
	f := open(t, addr, func(g *gateway.Config) {
		g.Timeouts.Header, g.Timeouts.Stall, g.Timeouts.Idle = 200*time.Millisecond, 200*time.Millisecond, 200*time.Millisecond
	})
	for name, c := range map[string]struct{ text, want string }{
		"header": {"GET / HTTP/1.1\r\nHost: x\r\nA: ", "[]"},
		"body":   {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf", "[408]"},
		"idle":   {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", "[200]"},
	} {
		start := time.Now()
		if got := fmt.Sprint(statuses(raw(t, f.addr, c.text))); got != c.want && !(name == "header" && got == "[408]") {
			t.Errorf("%s: answers %s, want %s", name, got, c.want)
		}
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("%s: cut after %s", name, took)
		}
	}
	reader := raw(t, f.addr, "GET / HTTP/1.1\r\nHost: x\r\n\r\n") // and never reads
	defer reader.Close()
	select {
	case <-release:
	case <-time.After(15 * time.Second):
		t.Error("a client that takes nothing holds the upstream")
	}
}
