package grpclimit_test

import (
	"context"
	"net"
	"net/netip"
	"testing"

	"github.com/spillgate/spillgate/grpclimit"
	"github.com/spillgate/spillgate/policy"
	"google.golang.org/grpc"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
)

var (
	info    = &grpc.UnaryServerInfo{FullMethod: unaryCall}
	request = &pb.SimpleRequest{}
	reply   = &pb.SimpleResponse{}
)

func answers(context.Context, any) (any, error) { return reply, nil }

// incoming is the context of a call, as a server has it.
func incoming(ctx context.Context) context.Context {
	ctx = peer.NewContext(ctx, &peer.Peer{Addr: net.TCPAddrFromAddrPort(netip.MustParseAddrPort("203.0.113.7:4000"))})
	return metadata.NewIncomingContext(ctx, metadata.Pairs(":authority", "limits.example", "x-plan", "free", "user-agent", "grpc-go"))
}

func oneRule(t testing.TB) []policy.Rule {
	return []policy.Rule{{Name: "everybody", Key: key(t, "client.ip"), Limit: limit(t, "1000000/s")}}
}

func intercept(t testing.TB, opts ...grpclimit.Option) func() {
	in := grpclimit.UnaryServer(engineOf(t, oneRule(t)...), opts...)
	ctx := incoming(t.Context())
	return func() {
		if _, err := in(ctx, request, info, answers); err != nil {
			t.Fatal(err)
		}
	}
}

// What the interceptor adds to a call, without the network.
func BenchmarkUnary(b *testing.B) {
	for _, c := range []struct {
		name string
		do   func()
	}{
		{"bare", func() { _, _ = answers(b.Context(), request) }},
		{"one rule", intercept(b)},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.do()
			}
		})
	}
}

// The same as a client sees it, over loopback.
func BenchmarkCall(b *testing.B) {
	for _, c := range []struct {
		name string
		opts []grpc.ServerOption
	}{{"bare", nil}, {"one rule", limited(engineOf(b, oneRule(b)...))}} {
		b.Run(c.name, func(b *testing.B) {
			client := serveTCP(b, &service{}, c.opts)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := client.UnaryCall(b.Context(), request); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
