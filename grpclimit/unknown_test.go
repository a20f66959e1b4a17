package grpclimit_test

import (
	"context"
	"net"
	"testing"

	"github.com/spillgate/spillgate/policy"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
)

// Methods that nobody serves meet interceptors only where a handler for them
// is named: what the manual says.
func TestUnknownMethodsMeetRulesIfTheyAreHandled(t *testing.T) {
	handled := grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error {
		return status.Error(codes.Unimplemented, "no such method")
	})
	for name, c := range map[string]struct {
		opts []grpc.ServerOption
		want codes.Code // of the second
	}{
		"by default": {nil, codes.Unimplemented},
		"handled":    {[]grpc.ServerOption{handled}, codes.ResourceExhausted},
	} {
		eng := engineOf(t, policy.Rule{Name: "address", Key: key(t, "client.ip"), Limit: limit(t, "1/h burst 1")})
		srv := grpc.NewServer(append(limited(eng), c.opts...)...)
		pb.RegisterTestServiceServer(srv, &service{})
		ln := bufconn.Listen(1 << 16)
		served := make(chan error, 1)
		go func() { served <- srv.Serve(ln) }()
		conn, err := grpc.NewClient("passthrough:///limits.example:443", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return ln.DialContext(ctx) }))
		if err != nil {
			t.Fatal(err)
		}
		for i, method := range []string{"/grpc.testing.TestService/None", "/none.at.All/None"} {
			want := codes.Unimplemented
			if i > 0 {
				want = c.want
			}
			if err := conn.Invoke(t.Context(), method, &pb.SimpleRequest{}, &pb.SimpleResponse{}); status.Code(err) != want {
				t.Errorf("%s, %s: %v, want %v", name, method, err, want)
			}
		}
		conn.Close()
		srv.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}
}
