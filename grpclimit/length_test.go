package grpclimit_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/spillgate/spillgate/grpclimit"
	"github.com/spillgate/spillgate/policy"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// A rule may charge by content-length: in a call that is its message's size, of
// each message where they are charged one by one, and none when a stream opens.
func TestContentLengthIsThatOfTheMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		price := policy.Price{From: policy.Attribute{Kind: policy.ContentLength}, Per: 1024, Default: 7}
		calls := policy.Rule{Name: "calls", Unit: "kib", Prices: []policy.Price{price}, Limit: limit(t, "1/d burst 1000")}
		messages := policy.Rule{Name: "messages", Unit: "messages", Prices: []policy.Price{price}, Limit: limit(t, "1/d burst 1000")}
		large := policy.Rule{
			Name: "large", Match: match(t, "content-length", "5000"), Limit: limit(t, "1/d burst 1"),
		}
		eng := engineOf(t, calls, messages, large)
		c := serve(t, &service{}, limited(eng, grpclimit.Messages("messages")))
		left := func(rule string, want int64) {
			t.Helper()
			v := eng.Decide(context.Background(), policy.Attrs{}, policy.Cost("kib", 0), policy.Cost("messages", 0))
			if got := v.Of(rule).Decision.Remaining; got != want {
				t.Errorf("%s: %d are left, want %d", rule, got, want)
			}
		}
		of := func(size int) *pb.SimpleRequest {
			r := &pb.SimpleRequest{Payload: &pb.Payload{Body: make([]byte, size)}}
			for proto.Size(r) > size {
				r.Payload.Body = r.Payload.Body[1:]
			}
			return r
		}
		ask := func(r *pb.SimpleRequest) codes.Code {
			_, err := c.UnaryCall(t.Context(), r)
			return status.Code(err)
		}
		if got := ask(&pb.SimpleRequest{}); got != codes.OK { // 0 bytes: one unit at least
			t.Error(got)
		}
		left("calls", 999)
		for _, size := range []int{1024, 1025} {
			if got := ask(of(size)); got != codes.OK {
				t.Error(got)
			}
		}
		left("calls", 996)
		left("messages", 996) // a call with one request is one message
		if got := []codes.Code{ask(of(5000)), ask(of(5000))}; got[0] != codes.OK || got[1] != codes.ResourceExhausted {
			t.Errorf("by match: %v", got)
		}
		left("calls", 991)

		s, err := c.FullDuplexCall(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, size := range []int{3000, 10} {
			if err := s.Send(&pb.StreamingOutputCallRequest{Payload: &pb.Payload{Body: make([]byte, size)}}); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Recv(); err != nil {
				t.Fatal(err)
			}
		}
		_ = s.CloseSend()
		left("calls", 984)    // it was opened
		left("messages", 987) // 3 and 1
		_, _ = s.Recv()
	})
}

// A codec that knows no proto.Message leaves the default.
func TestContentLengthOfOtherCodecs(t *testing.T) {
	price := policy.Price{From: policy.Attribute{Kind: policy.ContentLength}, Default: 7}
	eng := engineOf(t, policy.Rule{Name: "a", Prices: []policy.Price{price}, Limit: limit(t, "1/d burst 10")})
	unary := grpclimit.UnaryServer(eng)
	var left int64
	_, err := unary(t.Context(), struct{ text string }{"hello"}, &grpc.UnaryServerInfo{FullMethod: "/a.B/C"}, func(ctx context.Context, _ any) (any, error) {
		left = policy.FromContext(ctx).Of("a").Decision.Remaining
		return nil, nil
	})
	if err != nil || left != 3 {
		t.Errorf("%v, %d are left, want 3", err, left)
	}
}
