package grpclimit_test

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/grpclimit"
	"github.com/spillgate/spillgate/policy"
	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	unaryCall  = "/grpc.testing.TestService/UnaryCall"
	emptyCall  = "/grpc.testing.TestService/EmptyCall"
	outputCall = "/grpc.testing.TestService/StreamingOutputCall"
)

// A service does what a test says.
type service struct {
	pb.UnimplementedTestServiceServer
	unary  func(context.Context) error
	stream func(grpc.ServerStream) error
}

func (s *service) UnaryCall(ctx context.Context, _ *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	if s.unary != nil {
		if err := s.unary(ctx); err != nil {
			return nil, err
		}
	}
	return &pb.SimpleResponse{Username: "done"}, nil
}

func (s *service) EmptyCall(context.Context, *pb.Empty) (*pb.Empty, error) { return &pb.Empty{}, nil }

func (s *service) StreamingOutputCall(_ *pb.StreamingOutputCallRequest, ss grpc.ServerStreamingServer[pb.StreamingOutputCallResponse]) error {
	if s.stream != nil {
		return s.stream(ss)
	}
	for range 2 {
		if err := ss.Send(&pb.StreamingOutputCallResponse{}); err != nil {
			return err
		}
	}
	return nil
}

func (s *service) FullDuplexCall(ss grpc.BidiStreamingServer[pb.StreamingOutputCallRequest, pb.StreamingOutputCallResponse]) error {
	if s.stream != nil {
		return s.stream(ss)
	}
	for { // echoes
		if _, err := ss.Recv(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := ss.Send(&pb.StreamingOutputCallResponse{}); err != nil {
			return err
		}
	}
}

// engineOf makes an engine of rules in memory.
func engineOf(t testing.TB, rules ...policy.Rule) *policy.Engine {
	t.Helper()
	return engineOn(t, spillgate.NewMemory(), rules...)
}

func engineOn(t testing.TB, store spillgate.Store, rules ...policy.Rule) *policy.Engine {
	t.Helper()
	p, err := policy.Compile(rules)
	if err != nil {
		t.Fatal(err)
	}
	return policy.NewEngine(p, store)
}

func limit(t testing.TB, text string) spillgate.Limit {
	t.Helper()
	l, err := spillgate.ParseLimit(text)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func key(t testing.TB, parts ...string) (key []policy.Part) {
	t.Helper()
	for _, s := range parts {
		p, err := policy.ParsePart(s)
		if err != nil {
			t.Fatal(err)
		}
		key = append(key, p)
	}
	return key
}

func match(t testing.TB, attribute string, values ...string) policy.Match {
	t.Helper()
	a, err := policy.ParseAttribute(attribute)
	if err != nil {
		t.Fatal(err)
	}
	return policy.Match{{Attribute: a, Values: values}}
}

// serve starts svc in memory and returns a client of it.
func serve(t testing.TB, svc *service, opts []grpc.ServerOption, dial ...grpc.DialOption) pb.TestServiceClient {
	t.Helper()
	ln := bufconn.Listen(1 << 20)
	dial = append(dial, grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return ln.DialContext(ctx) }))
	return serveOn(t, ln, "passthrough:///limits.example:443", svc, opts, dial...)
}

// serveTCP starts svc on a loopback address.
func serveTCP(t testing.TB, svc *service, opts []grpc.ServerOption, dial ...grpc.DialOption) pb.TestServiceClient {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return serveOn(t, ln, ln.Addr().String(), svc, opts, dial...)
}

func serveOn(t testing.TB, ln net.Listener, target string, svc *service, opts []grpc.ServerOption, dial ...grpc.DialOption) pb.TestServiceClient {
	t.Helper()
	srv := grpc.NewServer(opts...)
	pb.RegisterTestServiceServer(srv, svc)
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(ln) }()
	conn, err := grpc.NewClient(target, append([]grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}, dial...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		srv.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return pb.NewTestServiceClient(conn)
}

// call makes a call with one request and returns how it ended.
func call(ctx context.Context, c pb.TestServiceClient, opts ...grpc.CallOption) *status.Status {
	_, err := c.UnaryCall(ctx, &pb.SimpleRequest{}, opts...)
	return status.Convert(err)
}

// calls makes n calls and returns their codes.
func calls(ctx context.Context, c pb.TestServiceClient, n int) (all []codes.Code) {
	for range n {
		all = append(all, call(ctx, c).Code())
	}
	return all
}

func details(s *status.Status) (retry *errdetails.RetryInfo, quota *errdetails.QuotaFailure) {
	for _, d := range s.Details() {
		switch d := d.(type) {
		case *errdetails.RetryInfo:
			retry = d
		case *errdetails.QuotaFailure:
			quota = d
		}
	}
	return retry, quota
}

// idOf returns the id of a refusal, "" if it has none or several.
func idOf(s *status.Status) (id string) {
	for _, d := range s.Details() {
		if d, ok := d.(*errdetails.RequestInfo); ok {
			if id != "" {
				return ""
			}
			id = d.RequestId
		}
	}
	return id
}

func limited(eng *policy.Engine, opts ...grpclimit.Option) []grpc.ServerOption {
	return grpclimit.Server(eng, opts...)
}
