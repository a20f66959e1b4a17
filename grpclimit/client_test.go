package grpclimit_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/client"
	"github.com/spillgate/spillgate/grpclimit"
	"github.com/spillgate/spillgate/policy"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// exact waits as told, to the nanosecond.
var exact = client.Patience{MaxWait: time.Minute, Spread: -1}

func refusal(t *testing.T, code codes.Code, wait time.Duration) error {
	s, err := status.New(code, "not now").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(wait)})
	if err != nil {
		t.Fatal(err)
	}
	return s.Err()
}

func TestObey(t *testing.T) {
	for _, c := range []struct {
		name    string
		answers []error // nil at the end
		code    codes.Code
		tries   int
		after   time.Duration
	}{
		{"not refused", nil, codes.OK, 1, 0},
		{"refused once", []error{refusal(t, codes.ResourceExhausted, 3*time.Second)}, codes.OK, 2, 3 * time.Second},
		{"refused three times", slices.Repeat([]error{refusal(t, codes.ResourceExhausted, time.Second)}, 3), codes.ResourceExhausted, 3, 2 * time.Second},
		{"as long as may be", []error{refusal(t, codes.ResourceExhausted, time.Minute)}, codes.OK, 2, time.Minute},
		{"for too long", []error{refusal(t, codes.ResourceExhausted, time.Minute+1)}, codes.ResourceExhausted, 1, 0},
		{"for ever", []error{refusal(t, codes.ResourceExhausted, spillgate.Never)}, codes.ResourceExhausted, 1, 0},
		{"negative", []error{refusal(t, codes.ResourceExhausted, -time.Second)}, codes.ResourceExhausted, 1, 0},
		{"no RetryInfo", []error{status.Error(codes.ResourceExhausted, "")}, codes.ResourceExhausted, 1, 0},
		{"unavailable", []error{refusal(t, codes.Unavailable, time.Second)}, codes.OK, 2, time.Second},
		{"unavailable, no RetryInfo", []error{status.Error(codes.Unavailable, "")}, codes.Unavailable, 1, 0},
		{"another error", []error{refusal(t, codes.Internal, time.Second)}, codes.Internal, 1, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tries := 0
				svc := &service{unary: func(context.Context) error {
					if tries++; tries <= len(c.answers) {
						return c.answers[tries-1]
					}
					return nil
				}}
				cl := serve(t, svc, nil, grpclimit.Client(grpclimit.Obey(exact))...)
				start := time.Now()
				if got := call(t.Context(), cl); got.Code() != c.code || tries != c.tries || time.Since(start) != c.after {
					t.Errorf("%v after %s and %d tries", got, time.Since(start), tries)
				}
			})
		})
	}
}

func TestObeyGivesUpInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := &service{unary: func(context.Context) error { return refusal(t, codes.ResourceExhausted, 10*time.Second) }}
		var waits []time.Duration
		cl := serve(t, svc, nil, grpclimit.Client(grpclimit.Obey(exact),
			grpclimit.OnWait(func(_ context.Context, method string, tried int, wait time.Duration) {
				if method != unaryCall || tried != 1 {
					t.Errorf("%s, try %d", method, tried)
				}
				waits = append(waits, wait)
			}))...)
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 9*time.Second)
		defer cancel()
		if got := call(ctx, cl); got.Code() != codes.ResourceExhausted || time.Since(start) != 0 || len(waits) != 0 {
			t.Errorf("%v after %s", got, time.Since(start))
		}
		ctx, leave := context.WithCancel(t.Context())
		time.AfterFunc(4*time.Second, leave)
		if got := call(ctx, cl); got.Code() != codes.Canceled || time.Since(start) != 4*time.Second || len(waits) != 1 {
			t.Errorf("%v after %s, waits %v", got, time.Since(start), waits)
		}
	})
}

// A server and a client of this package: all get through, none before its time.
func TestClientAndServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		eng := engineOf(t, policy.Rule{Name: "slow", Limit: limit(t, "1/s burst 5")})
		cl := serve(t, &service{}, limited(eng), grpclimit.Client(grpclimit.Obey(client.Patience{Tries: 50, MaxWait: time.Minute}))...)
		start := time.Now()
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				if got := call(t.Context(), cl); got.Code() != codes.OK {
					t.Error(got)
				}
			})
		}
		wg.Wait()
		if took := time.Since(start); took < 15*time.Second || took > 5*time.Minute {
			t.Errorf("20 calls of 1/s burst 5 took %s", took)
		}
	})
}

func TestObeyStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		eng := engineOf(t, policy.Rule{Name: "slow", Limit: limit(t, "1/10s burst 1")})
		cl := serve(t, &service{}, limited(eng), grpclimit.Client(grpclimit.Obey(exact))...)
		start := time.Now()
		for i := range 3 {
			s, err := cl.StreamingOutputCall(t.Context(), &pb.StreamingOutputCallRequest{})
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			for ; err == nil; n++ {
				_, err = s.Recv()
			}
			if !errors.Is(err, io.EOF) || n != 3 || time.Since(start) != time.Duration(i)*10*time.Second {
				t.Errorf("stream %d: %d messages, %v after %s", i, n-1, err, time.Since(start))
			}
			if _, err := s.Header(); err != nil || s.Context().Err() == nil || s.Trailer() == nil {
				t.Errorf("stream %d: header %v, context %v", i, err, s.Context().Err())
			}
		}
		// A stream of many requests is its caller's to repeat.
		if n, end := echo(t.Context(), t, cl, 1); n != 0 || end.Code() != codes.ResourceExhausted || time.Since(start) != 20*time.Second {
			t.Errorf("%d messages, %v after %s", n, end, time.Since(start))
		}
	})
}

// What was received stays received: a stream that is refused in its middle is
// not begun anew.
func TestBegunStreamsAreNotRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var opened atomic.Int64
		svc := &service{stream: func(ss grpc.ServerStream) error {
			opened.Add(1)
			if err := ss.SendMsg(&pb.StreamingOutputCallResponse{}); err != nil {
				return err
			}
			return refusal(t, codes.ResourceExhausted, time.Second)
		}}
		cl := serve(t, svc, nil, grpclimit.Client(grpclimit.Obey(exact))...)
		s, err := cl.StreamingOutputCall(t.Context(), &pb.StreamingOutputCallRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Recv(); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Recv(); status.Code(err) != codes.ResourceExhausted || opened.Load() != 1 {
			t.Errorf("%v, opened %d times", err, opened.Load())
		}
	})
}

func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cl := serve(t, &service{}, nil, grpclimit.Client(grpclimit.Pace(spillgate.Must("1/s burst 2"), nil))...)
		start := time.Now()
		if got := calls(t.Context(), cl, 4); !slices.Equal(got, make([]codes.Code, 4)) || time.Since(start) != 2*time.Second {
			t.Errorf("codes %v after %s", got, time.Since(start))
		}
		if n, end := echo(t.Context(), t, cl, 3); n != 3 || end.Code() != codes.OK || time.Since(start) != 3*time.Second {
			t.Errorf("%d messages, %v after %s", n, end, time.Since(start))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		if got := call(ctx, cl); got.Code() != codes.ResourceExhausted || time.Since(start) != 3*time.Second {
			t.Errorf("%v after %s", got, time.Since(start))
		}
		ctx, leave := context.WithCancel(t.Context())
		time.AfterFunc(300*time.Millisecond, leave)
		if got := call(ctx, cl); got.Code() != codes.Canceled {
			t.Errorf("%v", got)
		}
	})
}

func TestPaceByKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		byMethod := func(_ context.Context, method string) string { return method }
		cl := serve(t, &service{}, nil, grpclimit.Client(grpclimit.Pace(spillgate.Must("1/s burst 1"), byMethod))...)
		start := time.Now()
		call(t.Context(), cl)
		if _, err := cl.EmptyCall(t.Context(), &pb.Empty{}); err != nil || time.Since(start) != 0 {
			t.Errorf("%v after %s", err, time.Since(start))
		}
	})
}

// Slots are held for as long as a call, or a stream, lasts.
func TestPaceHoldsSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := spillgate.Must("1 at once")
		all := func(context.Context, string) string { return "all" }
		left := func() int64 { synctest.Wait(); return lim.Peek("all").Remaining }
		svc := &service{unary: func(context.Context) error {
			if lim.Peek("all").Remaining != 0 {
				t.Error("not held during the call")
			}
			return nil
		}}
		cl := serve(t, svc, nil, grpclimit.Client(grpclimit.Pace(lim, all))...)
		if call(t.Context(), cl); left() != 1 {
			t.Error("held after the call")
		}
		ctx, cancel := context.WithCancel(t.Context())
		s, err := cl.FullDuplexCall(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if left() != 0 {
			t.Error("not held during a stream")
		}
		if err := s.CloseSend(); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Recv(); !errors.Is(err, io.EOF) || left() != 1 {
			t.Errorf("%v, held after the stream", err)
		}
		if _, err = cl.FullDuplexCall(ctx); err != nil {
			t.Fatal(err)
		}
		if cancel(); left() != 1 {
			t.Error("held after a stream that was left")
		}
	})
}
