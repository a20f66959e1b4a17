package grpclimit_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/spillgate/spillgate/policy"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// A rule that counts bytes pays for the messages of the answer, and an answer
// that is an error has none.
func TestBytesOfAnswers(t *testing.T) { synctest.Test(t, bytesOfAnswers) }

func bytesOfAnswers(t *testing.T) {
	var fails error
	chunk := &pb.StreamingOutputCallResponse{Payload: &pb.Payload{Body: make([]byte, 100)}}
	svc := &service{
		unary: func(context.Context) error { return fails },
		stream: func(ss grpc.ServerStream) error {
			for range 3 {
				if err := ss.SendMsg(chunk); err != nil {
					return err
				}
			}
			return nil
		},
	}
	eng := engineOf(t, policy.Rule{Name: "traffic", Unit: policy.Bytes, Cost: 500, Limit: limit(t, "1/s burst 1000000")})
	c := serve(t, svc, limited(eng))
	left := int64(1_000_000)
	want := func(what string, spent int64) {
		t.Helper()
		left -= spent
		synctest.Wait() // it is settled when the client has its answer already
		v := eng.Decide(t.Context(), policy.Attrs{}, policy.Cost(policy.Bytes, 0))
		if got := v.Of("traffic").Decision.Remaining; got != left {
			t.Errorf("%s: %d bytes remain, want %d", what, got, left)
		}
	}
	if got := call(t.Context(), c); got.Code() != codes.OK {
		t.Fatal(got)
	}
	want("one answer", int64(proto.Size(&pb.SimpleResponse{Username: "done"})))
	fails = status.Error(codes.NotFound, "")
	call(t.Context(), c)
	want("an error", 0)
	s, err := c.StreamingOutputCall(t.Context(), &pb.StreamingOutputCallRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = s.Recv()
	}
	want("a stream", 3*int64(proto.Size(chunk)))
}
