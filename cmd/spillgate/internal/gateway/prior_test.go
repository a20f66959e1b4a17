package gateway_test

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/spillgate/spillgate/cmd/spillgate/internal/gateway"
	"github.com/spillgate/spillgate/policy"
)

// behindH2C has the upstream spoken to in HTTP/2 without TLS.
func behindH2C(c *gateway.Config) {
	u := *c.Upstream
	u.Scheme = "h2c"
	c.Upstream = &u
}

// grpcEcho starts a server of gRPC without TLS. It answers each message by itself,
// with metadata before and after, and ends with an error if one says so.
func grpcEcho(t *testing.T) (addr string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
		if err := s.SendHeader(metadata.Pairs("x-before", "b")); err != nil {
			return err
		}
		s.SetTrailer(metadata.Pairs("x-after", "a"))
		for {
			m := new(wrapperspb.StringValue)
			if err := s.RecvMsg(m); err == io.EOF {
				return nil
			} else if err != nil {
				return err
			}
			if m.Value == "fail" {
				return status.Error(codes.FailedPrecondition, "as asked")
			}
			if err := s.SendMsg(m); err != nil {
				return err
			}
		}
	}))
	ended := make(chan struct{})
	go func() { defer close(ended); _ = srv.Serve(ln) }()
	t.Cleanup(func() { srv.Stop(); <-ended })
	return ln.Addr().String()
}

func grpcConn(t *testing.T, addr string) (*grpc.ClientConn, context.Context) {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return conn, ctx
}

// A server of gRPC without TLS stands behind the gateway: calls and streams pass with
// their metadata, before and after, and refusals are gRPC's.
func TestGRPCWithoutTLSBehind(t *testing.T) {
	p := compile(t, rule(t, "few", "2/h burst 2", []string{"client.ip"}, "path", "/shop.Cart/Few"))
	conn, ctx := grpcConn(t, serve(t, grpcEcho(t), p, overH2C, behindH2C).addr)

	for _, c := range []struct {
		method, say string
		want        codes.Code
	}{
		{"Few", "one", codes.OK},
		{"Few", "fail", codes.FailedPrecondition},
		{"Few", "three", codes.ResourceExhausted},
		{"Other", strings.Repeat("long ", 1<<17), codes.OK},
	} {
		var before, after metadata.MD
		var got wrapperspb.StringValue
		err := conn.Invoke(ctx, "/shop.Cart/"+c.method, wrapperspb.String(c.say), &got, grpc.Header(&before), grpc.Trailer(&after))
		if status.Code(err) != c.want || (c.want == codes.OK) != (got.Value == c.say) {
			t.Fatalf("%s %.9s: %v", c.method, c.say, err)
		}
		if passed := c.want != codes.ResourceExhausted; passed != (len(after["x-after"]) == 1) || passed != (len(before["x-before"]) == 1) {
			t.Errorf("%s %.9s: %v, %v", c.method, c.say, before, after)
		}
	}

	open := func(method string) grpc.ClientStream {
		s, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/shop.Cart/"+method)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := open("Talk")
	for i := range 3 { // each is answered while the stream stays open
		var got wrapperspb.StringValue
		if err := errors.Join(s.SendMsg(wrapperspb.String(fmt.Sprint(i))), s.RecvMsg(&got)); err != nil || got.Value != fmt.Sprint(i) {
			t.Fatalf("%d: %v %v", i, err, got.Value)
		}
	}
	if err := errors.Join(s.CloseSend(), func() error {
		if err := s.RecvMsg(new(wrapperspb.StringValue)); err != io.EOF {
			return fmt.Errorf("the end: %w", err)
		}
		return nil
	}()); err != nil || len(s.Trailer()["x-after"]) != 1 {
		t.Errorf("%v, %v", err, s.Trailer())
	}
	if err := open("Few").RecvMsg(new(wrapperspb.StringValue)); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a stream beyond the limit: %v", err)
	}
}

// Whoever forgot to say that the upstream speaks HTTP/2 is told by the log, each time:
// how the connection ends depends on who speaks first.
func TestLogSaysThatTheUpstreamSpeaksHTTP2(t *testing.T) {
	upstream, p := grpcEcho(t), compile(t, rule(t, "r", "9/s", nil))
	for range 20 {
		f := serve(t, upstream, p, overH2C)
		conn, ctx := grpcConn(t, f.addr)
		if err := conn.Invoke(ctx, "/shop.Cart/Few", wrapperspb.String(""), new(wrapperspb.StringValue)); status.Code(err) != codes.Unavailable {
			t.Errorf("%v", err)
		}
		if got := f.log.String(); !strings.Contains(got, "write h2c:// in place of http://") {
			t.Error(got)
		}
	}
}

// So is whoever asks it something else than a call.
func TestLogKnowsTheBeginningOfHTTP2(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c, err := ln.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = c.Read(make([]byte, 4096))
		_, _ = io.WriteString(c, "\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x05\x00\x00@\x00")
	}()
	t.Cleanup(func() { ln.Close(); <-ended })
	f := serve(t, ln.Addr().String(), compile(t, rule(t, "r", "9/s", nil)))
	if got := get(t, visitor(t, "127.0.0.1"), f.url); got.StatusCode != http.StatusBadGateway {
		t.Errorf("%d", got.StatusCode)
	}
	if got := f.log.String(); !strings.Contains(got, "write h2c:// in place of http://") {
		t.Error(got)
	}
}

// What asks such an upstream for another protocol goes on without that, as HTTP says,
// and the path below which it stands holds as for others.
func TestUpgradesEndBeforeH2C(t *testing.T) {
	f := serve(t, onlyH2C(t), compile(t, rule(t, "r", "9/s", nil)), behindH2C, func(c *gateway.Config) { c.Upstream.Path = "/base" })
	got, err := io.ReadAll(raw(t, f.addr, "GET /x HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nGET /y HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"))
	if want := "HTTP/2.0 x /base/x []"; err != nil || !strings.Contains(string(got), want) || !strings.Contains(string(got), "HTTP/2.0 x /base/y []") {
		t.Errorf("%v %s", err, got)
	}
}

// onlyH2C starts a server that speaks nothing but HTTP/2 without TLS.
func onlyH2C(t *testing.T) (addr string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Protocols: new(http.Protocols), ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "%s %s %s %q", r.Proto, r.Host, r.URL.Path, r.Header["Upgrade"])
		})}
	srv.Protocols.SetUnencryptedHTTP2(true)
	ended := make(chan struct{})
	go func() { defer close(ended); _ = srv.Serve(ln) }()
	t.Cleanup(func() { srv.Close(); <-ended })
	return ln.Addr().String()
}

// A backup is spoken to as its own URL says, whatever the upstream's does.
func TestBackupsHaveTheirOwnProtocol(t *testing.T) {
	says := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Proto) })
	encrypted := httptest.NewUnstartedServer(says)
	encrypted.EnableHTTP2 = true
	encrypted.StartTLS()
	t.Cleanup(encrypted.Close)
	cas := x509.NewCertPool()
	cas.AddCert(encrypted.Certificate())
	main := upstream(t, says)
	for to, want := range map[string]string{
		"h2c://" + onlyH2C(t): "HTTP/2.0 ",
		encrypted.URL:         "HTTP/2.0",
		"http://" + main:      "HTTP/1.1",
	} {
		r := rule(t, "one", "1/h burst 1", nil)
		r.Backup = &policy.Backup{Upstream: to}
		f := serve(t, main, compile(t, r), func(c *gateway.Config) { c.UpstreamCAs = cas })
		if got := get(t, visitor(t, "127.0.0.1"), f.url); got.body != "HTTP/1.1" {
			t.Errorf("the upstream: %q", got.body)
		}
		if got := get(t, visitor(t, "127.0.0.1"), f.url); got.StatusCode != 200 || !strings.HasPrefix(got.body, want) {
			t.Errorf("%s: %d %q", to, got.StatusCode, got.body)
		}
	}
}
