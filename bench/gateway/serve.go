package main

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/httplimit"
	"github.com/spillgate/spillgate/policy"
)

// serve answers until the process is ended.
func serve(role, upstream string) error {
	var h http.Handler
	switch role {
	case "floor":
		h = reverse(upstream)
	case "trivial":
		h = trivial
	case "refusing":
		p, err := policy.Compile([]policy.Rule{{Name: "nobody", Limit: spillgate.Limit{Rate: 1, Period: 24 * time.Hour, Burst: 1}}})
		if err != nil {
			return err
		}
		h = httplimit.Policy(policy.NewEngine(p, spillgate.NewMemory()))(trivial)
	default:
		return fmt.Errorf("-serve %q: want floor, trivial or refusing", role)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Printf("serves http://%s \n", ln.Addr())
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// trivial is a short reply, as a handler would give it that has an error to
// tell.
var trivial = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	_, _ = w.Write(reply) // the client's loss
})

var reply = []byte(`{"type":"about:blank","title":"Teapot","status":200}` + "\n")

// reverse is the least reverse proxy with the gateway's buffers and transport.
func reverse(upstream string) http.Handler {
	to := &url.URL{Scheme: "http", Host: upstream}
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.Host = r.In.Host
			r.SetXForwarded()
		},
		Transport: &http.Transport{
			MaxIdleConns: 512, MaxIdleConnsPerHost: 512, IdleConnTimeout: time.Minute,
			DisableCompression: true, ResponseHeaderTimeout: 5 * time.Minute,
			WriteBufferSize: 16 << 10, ReadBufferSize: 16 << 10,
		},
		FlushInterval: 50 * time.Millisecond,
		BufferPool:    &buffers{},
		ErrorLog:      log.New(io.Discard, "", 0), // wrk leaves in the middle of its last requests
	}
}

type buffers struct{ pool sync.Pool }

func (b *buffers) Get() []byte {
	if p, ok := b.pool.Get().(*[32 << 10]byte); ok {
		return p[:]
	}
	return make([]byte, 32<<10)
}

func (b *buffers) Put(p []byte) { b.pool.Put((*[32 << 10]byte)(p)) }
