package grpclimit_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate/grpclimit"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// Servers that give no RetryInfo may tell in their metadata when to come again.
func TestObeyMetadata(t *testing.T) {
	for _, c := range []struct {
		name            string
		code            codes.Code
		header, trailer []string
		tries           int
		after           time.Duration
	}{
		{"retry-after in the header", codes.ResourceExhausted, []string{"retry-after", "7"}, nil, 2, 7 * time.Second},
		{"retry-after in the trailer", codes.ResourceExhausted, nil, []string{"retry-after", "7"}, 2, 7 * time.Second},
		{"the longer one", codes.ResourceExhausted, []string{"retry-after", "7", "retry-after", "9"}, []string{"retry-after", "8"}, 2, 9 * time.Second},
		{"unavailable", codes.Unavailable, []string{"retry-after", "7"}, nil, 2, 7 * time.Second},
		{"another code", codes.Internal, []string{"retry-after", "7"}, []string{"retry-after", "7"}, 1, 0},
		{"a quota that is used up", codes.ResourceExhausted, nil, []string{"ratelimit", `"a";r=0;t=7, "b";r=1;t=9`}, 2, 7 * time.Second},
		{"one that is not", codes.ResourceExhausted, nil, []string{"ratelimit", `"a";r=1;t=7`}, 1, 0},
		{"one that any answer tells", codes.ResourceExhausted, []string{"ratelimit", `"a";r=0;t=7`}, nil, 1, 0},
		{"one while something else fails", codes.Unavailable, nil, []string{"ratelimit", `"a";r=0;t=7`}, 1, 0},
		{"nonsense", codes.ResourceExhausted, []string{"retry-after", "soon"}, []string{"retry-after", "-1"}, 1, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tries := 0
				refuse := func(ctx context.Context) error {
					if tries++; tries > 1 {
						return nil
					}
					_, _ = grpc.SetHeader(ctx, metadata.Pairs(c.header...)), grpc.SetTrailer(ctx, metadata.Pairs(c.trailer...))
					return status.Error(c.code, "not now")
				}
				cl := serve(t, &service{unary: refuse, stream: func(ss grpc.ServerStream) error { return refuse(ss.Context()) }}, nil,
					grpclimit.Client(grpclimit.Obey(exact))...)
				start := time.Now()
				var header metadata.MD
				call(t.Context(), cl, grpc.Header(&header)) // the caller's own is served, too
				if tries != c.tries || time.Since(start) != c.after || c.tries == 2 && header == nil {
					t.Errorf("%d tries after %s, header %v", tries, time.Since(start), header)
				}
				start, tries = time.Now(), 0
				s, err := cl.StreamingOutputCall(t.Context(), &pb.StreamingOutputCallRequest{})
				if err == nil {
					_, err = s.Recv()
				}
				if tries != c.tries || time.Since(start) != c.after || errors.Is(err, io.EOF) != (c.tries == 2) {
					t.Errorf("a stream: %d tries after %s, %v", tries, time.Since(start), err)
				}
			})
		})
	}
}

// An answer that the client finds too large has cost the server its work: it is
// not asked for again, whatever its header tells.
func TestWhatWasDoneIsNotDoneAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		svc := &service{unary: func(ctx context.Context) error {
			tries++
			return grpc.SetHeader(ctx, metadata.Pairs("ratelimit", `"a";r=0;t=1`, "x", strings.Repeat("x", 100)))
		}}
		cl := serve(t, svc, nil, grpclimit.Client(grpclimit.Obey(exact))...)
		if got := call(t.Context(), cl, grpc.MaxCallRecvMsgSize(1)); got.Code() != codes.ResourceExhausted || tries != 1 {
			t.Errorf("%v after %d tries", got, tries)
		}
	})
}
