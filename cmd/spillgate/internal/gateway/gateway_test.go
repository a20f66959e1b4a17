package gateway_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/cmd/spillgate/internal/gateway"
	"github.com/spillgate/spillgate/policy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rule makes a rule of policy text: the key's parts, then what must match as
// attribute and value in turn.
func rule(t testing.TB, name, limit string, key []string, match ...string) policy.Rule {
	t.Helper()
	l, err := spillgate.ParseLimit(limit)
	if err != nil {
		t.Fatal(err)
	}
	r := policy.Rule{Name: name, Limit: l}
	for _, k := range key {
		part, err := policy.ParsePart(k)
		if err != nil {
			t.Fatal(err)
		}
		r.Key = append(r.Key, part)
	}
	r.Match = when(t, match...)
	return r
}

func when(t testing.TB, match ...string) (m policy.Match) {
	t.Helper()
	for i := 0; i < len(match); i += 2 {
		a, err := policy.ParseAttribute(match[i])
		if err != nil {
			t.Fatal(err)
		}
		m = append(m, policy.Condition{Attribute: a, Values: strings.Split(match[i+1], " ")})
	}
	return m
}

func compile(t testing.TB, rules ...policy.Rule) *policy.Policy {
	t.Helper()
	p, err := policy.Compile(rules)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A front is a gateway that serves on loopback until its test ends.
type front struct {
	addr string
	url  string
	log  *journal
	stop func() error // stops it early and returns what Serve returned
}

// serve starts a gateway in front of the upstream at addr.
func serve(t testing.TB, upstream string, p *policy.Policy, change ...func(*gateway.Config)) *front {
	t.Helper()
	u, err := url.Parse("http://" + upstream)
	if err != nil {
		t.Fatal(err)
	}
	f := &front{log: &journal{}}
	c := gateway.Config{
		Engine: policy.NewEngine(p, spillgate.NewMemory()), Upstream: u,
		Logger: slog.New(slog.NewTextHandler(f.log, nil)),
	}
	for _, one := range change {
		one(&c)
	}
	g, err := gateway.New(c)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.addr, f.url = ln.Addr().String(), "http://"+ln.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- g.Serve(ctx, ln, 5*time.Second) }()
	f.stop = sync.OnceValue(func() error { cancel(); return <-ended })
	t.Cleanup(func() {
		if err := f.stop(); err != nil {
			t.Error("serve:", err)
		}
	})
	return f
}

// upstream starts a Go server for what nginx can't be made to do.
func upstream(t testing.TB, h http.HandlerFunc) (addr string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: h, DisableGeneralOptionsHandler: true, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = srv.Serve(ln) }()
	t.Cleanup(func() { srv.Close(); <-ended })
	return ln.Addr().String()
}

// visitor is a client whose address is that: any of 127.0.0.0/8.
func visitor(t testing.TB, addr string) *http.Client {
	t.Helper()
	d := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(addr)}}
	tr := &http.Transport{DialContext: d.DialContext, DisableCompression: true, ExpectContinueTimeout: 5 * time.Second}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 20 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// request makes a request; fields are names and values in turn, of which Host
// is the host.
func request(t testing.TB, method, url string, body io.Reader, fields ...string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(fields); i += 2 {
		if fields[i] == "Host" {
			r.Host = fields[i+1]
		} else {
			r.Header.Add(fields[i], fields[i+1])
		}
	}
	return r
}

// A reply is an answer that was read whole.
type reply struct {
	*http.Response
	body string
}

func do(t testing.TB, c *http.Client, r *http.Request) reply {
	t.Helper()
	resp, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s %s: body: %v", r.Method, r.URL, err)
	}
	return reply{resp, string(body)}
}

func get(t testing.TB, c *http.Client, url string, fields ...string) reply {
	t.Helper()
	return do(t, c, request(t, http.MethodGet, url, nil, fields...))
}

// passes tells how many of n equal requests pass.
func passes(t testing.TB, n int, one func() reply) (passed int) {
	t.Helper()
	for range n {
		switch status := one().StatusCode; status {
		case http.StatusOK:
			passed++
		case http.StatusTooManyRequests:
		default:
			t.Fatalf("status %d", status)
		}
	}
	return passed
}

// A journal keeps what is logged.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// raw sends bytes on a connection of its own and returns it.
func raw(t testing.TB, addr, text string) net.Conn {
	t.Helper()
	return rawFrom(t, "127.0.0.1", addr, text)
}

// rawFrom is raw from another address than the usual one.
func rawFrom(t testing.TB, from, to, text string) net.Conn {
	t.Helper()
	d := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := d.Dial("tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	return c
}
