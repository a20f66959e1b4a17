package grpclimit_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate/grpclimit"
	"github.com/spillgate/spillgate/policy"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
)

// echo sends n messages on a stream, one after the other's answer, and returns
// how many were answered and how the stream ended.
func echo(ctx context.Context, t *testing.T, c pb.TestServiceClient, n int) (answered int, end *status.Status) {
	t.Helper()
	s, err := c.FullDuplexCall(ctx)
	if err != nil {
		return 0, status.Convert(err)
	}
	for ; answered < n; answered++ {
		if err = s.Send(&pb.StreamingOutputCallRequest{}); err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		if _, err = s.Recv(); err != nil {
			return answered, status.Convert(err)
		}
	}
	if err = s.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err = s.Recv(); errors.Is(err, io.EOF) {
		err = nil
	}
	return answered, status.Convert(err)
}

func TestStreamsAreCalls(t *testing.T) {
	c := serve(t, &service{}, limited(engineOf(t, policy.Rule{Name: "calls", Limit: limit(t, "1/h burst 2")})))
	for i, want := range []codes.Code{codes.OK, codes.OK, codes.ResourceExhausted} {
		n, end := echo(t.Context(), t, c, 5)
		if end.Code() != want || (n == 5) != (want == codes.OK) {
			t.Errorf("stream %d: %d messages, %v", i, n, end)
		}
	}
	s, err := c.StreamingOutputCall(t.Context(), &pb.StreamingOutputCallRequest{})
	if err == nil {
		_, err = s.Recv()
	}
	if retry, quota := details(status.Convert(err)); retry == nil || quota.GetViolations()[0].QuotaDimensions["method"] != outputCall {
		t.Errorf("%v", err)
	}
}

func messageRules(t *testing.T) []policy.Rule {
	return []policy.Rule{
		{Name: "calls", Limit: limit(t, "1/h burst 100")},
		{Name: "messages", Unit: "messages", Limit: limit(t, "1/10s burst 3")},
		{Name: "slots", Limit: limit(t, "1 at once")},
	}
}

func TestMessagesAreCharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		eng := engineOf(t, messageRules(t)...)
		c := serve(t, &service{}, limited(eng, grpclimit.Messages("messages")))
		n, end := echo(t.Context(), t, c, 10)
		retry, quota := details(end)
		if n != 3 || end.Code() != codes.ResourceExhausted || retry.GetRetryDelay().AsDuration() != 10*time.Second || quota.GetViolations()[0].QuotaMetric != "messages" {
			t.Errorf("%d messages, then %v", n, end)
		}
		time.Sleep(10 * time.Second)
		if n, end := echo(t.Context(), t, c, 1); n != 1 || end.Code() != codes.OK {
			t.Errorf("%d messages, then %v", n, end)
		}
		// A call with one request is one message.
		if got := call(t.Context(), c); got.Code() != codes.ResourceExhausted {
			t.Errorf("%v", got)
		}
		if v := eng.Decide(t.Context(), policy.Attrs{}, policy.Cost("requests", 0)); v.Of("calls").Decision.Remaining != 98 {
			t.Errorf("calls: %+v", v.Of("calls").Decision)
		}
	})
}

// A handler can't go on with a stream that was refused, nor hide why.
func TestRefusedStreamsEnd(t *testing.T) {
	received := 0
	svc := &service{stream: func(ss grpc.ServerStream) error {
		for range 10 {
			if err := ss.RecvMsg(&pb.StreamingOutputCallRequest{}); err == nil {
				received++
				_ = ss.SendMsg(&pb.StreamingOutputCallResponse{})
			}
		}
		return nil
	}}
	c := serve(t, svc, limited(engineOf(t, messageRules(t)...), grpclimit.Messages("messages")))
	if n, end := echo(t.Context(), t, c, 10); n != 3 || received != 3 || end.Code() != codes.ResourceExhausted {
		t.Errorf("%d answered, %d received, then %v", n, received, end)
	}
}

func TestMessagesCost(t *testing.T) {
	cost := grpclimit.Cost("messages", func(_ context.Context, msg any) int64 {
		if m, ok := msg.(*pb.StreamingOutputCallRequest); ok && m.GetPayload() == nil {
			return 2
		}
		return -1
	})
	c := serve(t, &service{}, limited(engineOf(t, messageRules(t)...), cost, grpclimit.Messages("messages")))
	if n, end := echo(t.Context(), t, c, 10); n != 1 || end.Code() != codes.ResourceExhausted {
		t.Errorf("%d messages, then %v", n, end)
	}
	if got := call(t.Context(), c); got.Code() != codes.InvalidArgument {
		t.Errorf("%v", got)
	}
}

func TestShapedMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := serve(t, &service{}, limited(engineOf(t, messageRules(t)...), grpclimit.ShapedMessages("messages", 15*time.Second)))
		start := time.Now()
		n, end := echo(t.Context(), t, c, 6)
		if n != 6 || end.Code() != codes.OK || time.Since(start) != 30*time.Second {
			t.Errorf("%d messages in %s, then %v", n, time.Since(start), end)
		}
		// A deadline that can't be met is told at once.
		start = time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if n, end = echo(ctx, t, c, 1); n != 0 || end.Code() != codes.ResourceExhausted || time.Since(start) != 0 {
			t.Errorf("%d messages in %s, then %v", n, time.Since(start), end)
		}
		// Who leaves meanwhile leaves.
		ctx, leave := context.WithCancel(t.Context())
		time.AfterFunc(3*time.Second, leave)
		if n, end = echo(ctx, t, c, 1); n != 0 || end.Code() != codes.Canceled || time.Since(start) != 3*time.Second {
			t.Errorf("%d messages in %s, then %v", n, time.Since(start), end)
		}
		synctest.Wait()
		// No longer than most.
		c = serve(t, &service{}, limited(engineOf(t, messageRules(t)...), grpclimit.ShapedMessages("messages", 9*time.Second)))
		if n, end := echo(t.Context(), t, c, 4); n != 3 || end.Code() != codes.ResourceExhausted {
			t.Errorf("%d messages, then %v", n, end)
		}
	})
}

// A message that is held is no refusal: whoever sends faster than the limit, as
// shaping allows, is not blocked for it. Whoever is refused is.
func TestHeldMessagesCountForNoPenalty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := policy.Rule{Name: "messages", Unit: "messages", Limit: limit(t, "1/10s burst 1"), Key: []policy.Part{{Attributes: []policy.Attribute{{Kind: policy.Host}}}}}
		r.Penalty = policy.Penalty{After: 2, Within: time.Minute, Block: time.Hour}
		eng := engineOf(t, r)
		c := serve(t, &service{}, limited(eng, grpclimit.ShapedMessages("messages", 15*time.Second)))
		if n, end := echo(t.Context(), t, c, 6); n != 6 || end.Code() != codes.OK || len(eng.Blocked("messages", 9)) != 0 {
			t.Errorf("%d messages, then %v; blocked: %v", n, end, eng.Blocked("messages", 9))
		}
		for range 2 { // in less time than a message needs
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if n, end := echo(ctx, t, c, 1); n != 0 || end.Code() != codes.ResourceExhausted {
				t.Errorf("%d messages, then %v", n, end)
			}
			cancel()
		}
		if len(eng.Blocked("messages", 9)) != 1 {
			t.Errorf("blocked: %v", eng.Blocked("messages", 9))
		}
	})
}
