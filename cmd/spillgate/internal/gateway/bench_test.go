package gateway

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/httplimit"
	"github.com/spillgate/spillgate/policy"
)

// An upstream without a network, so that what is measured is the proxy.
type canned struct{}

func (canned) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r, ContentLength: 6,
		Header: http.Header{"Content-Type": {"text/plain"}, "Content-Length": {"6"}},
		Body:   io.NopCloser(strings.NewReader("hello\n")),
	}, nil
}

// A sink takes an answer and keeps nothing of it.
type sink struct{ header http.Header }

func (s *sink) Header() http.Header         { return s.header }
func (s *sink) Write(b []byte) (int, error) { return len(b), nil }
func (s *sink) WriteHeader(int)             {}

// cpu returns the processor time that the process has used, which others on
// the machine disturb less than the wall's.
func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkOverhead measures the gateway's handler beside the bare reverse
// proxy that it has inside, with the same buffers and the same transport.
func BenchmarkOverhead(b *testing.B) {
	// A server has more memory in use than the 4 MiB at which Go begins to
	// collect: without this the collector would never rest.
	ballast := make([]byte, 64<<20)
	defer runtime.KeepAlive(ballast)
	upstream := &url.URL{Scheme: "http", Host: "127.0.0.1:9000"}
	rule := func(name string, key ...policy.Attribute) policy.Rule {
		r := policy.Rule{Name: name, Limit: spillgate.Limit{Rate: 1e9, Period: time.Second, Burst: 1e9}}
		for _, a := range key {
			r.Key = append(r.Key, policy.Part{Attributes: []policy.Attribute{a}})
		}
		return r
	}
	client, host, path := policy.Attribute{Kind: policy.ClientIP}, policy.Attribute{Kind: policy.Host}, policy.Attribute{Kind: policy.Path}
	five := []policy.Rule{rule("client", client), rule("host", host), rule("path", path), rule("both", client, host), rule("all")}
	limited := func(mode httplimit.HeaderMode, rules ...policy.Rule) http.Handler {
		p, err := policy.Compile(rules)
		if err != nil {
			b.Fatal(err)
		}
		g, err := New(Config{
			Engine: policy.NewEngine(p, spillgate.NewMemory()), Upstream: upstream, Headers: mode,
			Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		})
		if err != nil {
			b.Fatal(err)
		}
		g.main.proxy.Transport = canned{}
		return g
	}
	for _, way := range []struct {
		name    string
		handler http.Handler
	}{
		{"bare", &httputil.ReverseProxy{
			Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(upstream); r.SetXForwarded() },
			Transport: canned{}, BufferPool: &buffers{}, FlushInterval: flushAfter,
		}},
		{"one-rule", limited(httplimit.Off, five[0])},
		{"five-rules-and-fields", limited(httplimit.Always, five...)},
	} {
		b.Run(way.name, func(b *testing.B) {
			r, err := http.NewRequest("GET", "http://alice.example/page?q=1", nil)
			if err != nil {
				b.Fatal(err)
			}
			r.RemoteAddr = "203.0.113.9:51234"
			w := &sink{http.Header{}}
			b.ReportAllocs()
			began := cpu(b)
			for b.Loop() {
				way.handler.ServeHTTP(w, r)
				clear(w.header)
			}
			b.ReportMetric(float64(cpu(b)-began)/float64(b.N), "cpu-ns/op")
		})
	}
}
