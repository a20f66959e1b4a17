package grpclimit_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/clientip"
	"github.com/spillgate/spillgate/grpclimit"
	"github.com/spillgate/spillgate/policy"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

func TestRefusalSaysAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		eng := engineOf(t,
			policy.Rule{Name: "slow", Key: key(t, "client.ip", "route"), Limit: limit(t, "1/7s burst 2"), Unit: "calls"},
			policy.Rule{Name: "slower", Limit: limit(t, "1/10s burst 2")},
			policy.Rule{Name: "wide", Limit: limit(t, "100/s")},
		)
		future := func(r *policy.Rule) (int64, bool) { return 20, r.Name == "slower" }
		c := serve(t, &service{}, limited(eng, grpclimit.FutureQuota(future)))
		if got := calls(t.Context(), c, 2); got[1] != codes.OK {
			t.Fatalf("codes %v", got)
		}
		time.Sleep(2500 * time.Millisecond)
		got := call(t.Context(), c)
		if got.Code() != codes.ResourceExhausted || !strings.Contains(got.Message(), `rule "slow"`) {
			t.Errorf("%v", got)
		}
		retry, quota := details(got)
		if retry.GetRetryDelay().AsDuration() != 7500*time.Millisecond {
			t.Errorf("retry after %v", retry)
		}
		twenty := int64(20)
		want := &errdetails.QuotaFailure{Violations: []*errdetails.QuotaFailure_Violation{{
			Subject: "client.ip + route", Description: "1/7s burst 2: used up; retry after 4.5s",
			ApiService: "grpc.testing.TestService", QuotaMetric: "calls", QuotaId: "slow",
			QuotaDimensions: map[string]string{"method": unaryCall}, QuotaValue: 2,
		}, {
			Subject: "everybody", Description: "1/10s burst 2: used up; retry after 7.5s",
			ApiService: "grpc.testing.TestService", QuotaMetric: "requests", QuotaId: "slower",
			QuotaDimensions: map[string]string{"method": unaryCall}, QuotaValue: 2, FutureQuotaValue: &twenty,
		}}}
		if !proto.Equal(quota, want) {
			t.Errorf("got  %v\nwant %v", quota, want)
		}
		// What it says is true, to the nanosecond.
		time.Sleep(retry.GetRetryDelay().AsDuration() - 1)
		if got := call(t.Context(), c); got.Code() != codes.ResourceExhausted {
			t.Errorf("a nanosecond early: %v", got)
		}
		time.Sleep(time.Nanosecond)
		if got := call(t.Context(), c); got.Code() != codes.OK {
			t.Errorf("after the wait: %v", got)
		}
	})
}

// A store that answers what a test says.
type scripted struct{ err error }

func (s *scripted) Take(context.Context, time.Time, []spillgate.Charge, []spillgate.Decision) error {
	return s.err
}
func (s *scripted) Settle(context.Context, time.Time, []spillgate.Correction) error { return s.err }

func TestOtherRefusals(t *testing.T) {
	broken := &scripted{errors.New("broken")}
	negative := grpclimit.Cost("requests", func(context.Context, any) int64 { return -1 })
	large := grpclimit.Cost("requests", func(_ context.Context, msg any) int64 { return int64(msg.(*pb.SimpleRequest).ResponseSize) + 6 })
	for _, c := range []struct {
		name        string
		eng         *policy.Engine
		opts        []grpclimit.Option
		code        codes.Code
		retry, told bool
	}{
		{"a fault", engineOn(t, broken, policy.Rule{Name: "a", Limit: limit(t, "1/s"), OnFault: policy.Shut}), nil, codes.Unavailable, true, false},
		{"a fault, open", engineOn(t, broken, policy.Rule{Name: "a", Limit: limit(t, "1/s"), OnFault: policy.Open}), nil, codes.OK, false, false},
		{"a negative cost", engineOf(t, policy.Rule{Name: "a", Limit: limit(t, "1/s")}), []grpclimit.Option{negative}, codes.InvalidArgument, false, false},
		{"a cost that never fits", engineOf(t, policy.Rule{Name: "a", Limit: limit(t, "1/s burst 5")}), []grpclimit.Option{large}, codes.ResourceExhausted, false, true},
		{"denied", engineOf(t, policy.Rule{Name: "a", Deny: true}), nil, codes.PermissionDenied, false, false},
		{"on trial", engineOf(t, policy.Rule{Name: "a", Deny: true, Spare: 100}), nil, codes.OK, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := call(t.Context(), serve(t, &service{}, limited(c.eng, c.opts...)))
			retry, quota := details(got)
			if got.Code() != c.code || (retry != nil) != c.retry || (quota != nil) != c.told {
				t.Errorf("%v, retry %v, quota %v", got, retry, quota)
			}
		})
	}
}

func TestAttributes(t *testing.T) {
	user := func(ctx context.Context) string {
		v := metadata.ValueFromIncomingContext(ctx, "x-user")
		return strings.Join(v, "")
	}
	claim := func(_ context.Context, name string) (string, bool) { return "gold", name == "plan" }
	opts := []grpclimit.Option{
		grpclimit.User(user), grpclimit.Claim(claim), grpclimit.Attr("zone", func(context.Context) string { return "eu" }),
		grpclimit.Tenant(func(context.Context) string { return "" }), grpclimit.Device(func(context.Context) string { return "phone" }),
	}
	md := metadata.Pairs("X-User", "alice", "x-plan", "free", "x-plan", "more")
	for _, c := range []struct {
		attribute, value string
		denied           bool
	}{
		{"path", unaryCall, true},
		{"path", "/grpc.testing.*/**", true},
		{"path", emptyCall, false},
		{"route", unaryCall, true},
		{"method", "POST", true},
		{"method", "GET", false},
		{"host", "limits.example", true},
		{"header.host", "Limits.Example.:443", true}, // as sent
		{"header.x-plan", "free, more", true},
		{"header.X-User", "alice", true},
		{"header.none", "x", false},
		{"user", "alice", true},
		{"tenant", "alice", false},
		{"device", "phone", true},
		{"attr.zone", "eu", true},
		{"attr.other", "eu", false},
		{"claim.plan", "gold", true},
		{"claim.none", "gold", false},
		{"client.ip", "127.0.0.0/8", true},
		{"client.ip", "10.0.0.0/8", false},
		{"query.x", "1", false},
	} {
		eng := engineOf(t, policy.Rule{Name: "a", Match: match(t, c.attribute, c.value), Deny: true})
		client := serveTCP(t, &service{}, limited(eng, opts...), grpc.WithAuthority("Limits.Example.:443"))
		want := codes.OK
		if c.denied {
			want = codes.PermissionDenied
		}
		if got := call(metadata.NewOutgoingContext(t.Context(), md), client); got.Code() != want {
			t.Errorf("%s %q: %v", c.attribute, c.value, got)
		}
	}
}

// Who is not trusted is known by the peer's address, whatever the metadata
// says.
func TestClientBehindProxies(t *testing.T) {
	resolver := func(trusted string) *clientip.Resolver {
		r, err := clientip.New(clientip.Options{Trusted: []string{trusted}, Header: clientip.XForwardedFor})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	md := func(i int) context.Context {
		return metadata.AppendToOutgoingContext(t.Context(), "x-forwarded-for", "192.0.2."+string(rune('0'+i)))
	}
	for _, c := range []struct {
		name string
		opts []grpclimit.Option
		want codes.Code // of a second client
	}{
		{"nobody trusted", nil, codes.ResourceExhausted},
		{"another trusted", []grpclimit.Option{grpclimit.TrustedProxies(resolver("10.0.0.0/8"))}, codes.ResourceExhausted},
		{"the peer trusted", []grpclimit.Option{grpclimit.TrustedProxies(resolver("loopback"))}, codes.OK},
	} {
		client := serveTCP(t, &service{}, limited(engineOf(t, policy.Rule{Name: "a", Key: key(t, "client.ip"), Limit: limit(t, "1/h")}), c.opts...))
		if got := call(md(1), client); got.Code() != codes.OK {
			t.Errorf("%s: %v", c.name, got)
		}
		if got := call(md(2), client); got.Code() != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
		if got := call(md(1), client); got.Code() != codes.ResourceExhausted {
			t.Errorf("%s: the same again: %v", c.name, got)
		}
	}
}

func TestOnlyFailuresCount(t *testing.T) {
	var answer error
	svc := &service{unary: func(ctx context.Context) error { return answer }}
	eng := engineOf(t, policy.Rule{Name: "login", Limit: limit(t, "1/h burst 3"), Failures: []string{"UNAUTHENTICATED", "DEADLINE_EXCEEDED"}})
	c := serve(t, svc, limited(eng))
	for _, answer = range []error{nil, status.Error(codes.NotFound, ""), errors.New("plain")} {
		if got := calls(t.Context(), c, 5); slices.Contains(got, codes.ResourceExhausted) {
			t.Errorf("%v was counted: %v", answer, got)
		}
	}
	answer = status.Error(codes.Unauthenticated, "")
	calls(t.Context(), c, 1)
	answer = context.DeadlineExceeded // as grpc tells it
	calls(t.Context(), c, 1)
	answer = status.Error(codes.Unauthenticated, "")
	if got := calls(t.Context(), c, 2); got[0] != codes.Unauthenticated || got[1] != codes.ResourceExhausted {
		t.Errorf("codes %v", got)
	}
}

// Who leaves before the answer has tried: else a try would cost nothing.
func TestWhoLeavesHasTried(t *testing.T) {
	started, ended := make(chan struct{}), make(chan struct{})
	svc := &service{unary: func(ctx context.Context) error {
		close(started)
		<-ctx.Done()
		defer close(ended)
		return status.Error(codes.Internal, "interrupted")
	}}
	eng := engineOf(t, policy.Rule{Name: "login", Limit: limit(t, "1/h"), Failures: []string{"UNAUTHENTICATED"}})
	c := serve(t, svc, limited(eng))
	ctx, leave := context.WithCancel(t.Context())
	go func() { <-started; leave() }()
	if got := call(ctx, c); got.Code() != codes.Canceled {
		t.Errorf("%v", got)
	}
	<-ended
	if got := call(t.Context(), c); got.Code() != codes.ResourceExhausted {
		t.Errorf("%v", got)
	}
}

// recovered stands outside the limit, as a program's own recovery does.
func recovered(ctx context.Context, req any, _ *grpc.UnaryServerInfo, h grpc.UnaryHandler) (resp any, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = status.Errorf(codes.Internal, "%v", p)
		}
	}()
	return h(ctx, req)
}

func TestPanicsAreSettled(t *testing.T) {
	svc := &service{unary: func(ctx context.Context) error { panic("oh") }}
	eng := engineOf(t,
		policy.Rule{Name: "slots", Limit: limit(t, "1 at once")},
		policy.Rule{Name: "errors", Limit: limit(t, "1/h burst 2"), Failures: []string{"error"}},
		policy.Rule{Name: "others", Limit: limit(t, "1/h"), Failures: []string{"UNAUTHENTICATED"}},
	)
	c := serve(t, svc, append([]grpc.ServerOption{grpc.ChainUnaryInterceptor(recovered)}, limited(eng)...))
	want := []codes.Code{codes.Internal, codes.Internal, codes.ResourceExhausted}
	got := calls(t.Context(), c, 2)
	last := call(t.Context(), c)
	if got = append(got, last.Code()); !slices.Equal(got, want) || !strings.Contains(last.Message(), `"errors"`) {
		t.Errorf("codes %v, last %v", got, last)
	}
}

func TestSlotsAreHeldForTheCall(t *testing.T) {
	inside, leave := make(chan struct{}), make(chan struct{})
	svc := &service{
		unary:  func(context.Context) error { inside <- struct{}{}; <-leave; return nil },
		stream: func(grpc.ServerStream) error { inside <- struct{}{}; <-leave; return nil },
	}
	c := serve(t, svc, limited(engineOf(t, policy.Rule{Name: "slots", Limit: limit(t, "2 at once")})))
	done := make(chan error, 2)
	go func() { done <- call(t.Context(), c).Err() }()
	<-inside
	go func() {
		s, err := c.StreamingOutputCall(t.Context(), &pb.StreamingOutputCallRequest{})
		if err == nil {
			_, err = s.Recv()
		}
		done <- err
	}()
	<-inside
	got := call(t.Context(), c)
	_, quota := details(got)
	if got.Code() != codes.ResourceExhausted || quota.GetViolations()[0].QuotaValue != 2 {
		t.Errorf("%v", got)
	}
	close(leave)
	<-done
	<-done
	svc.unary = nil
	for try := 0; ; try++ { // a handler may end after its client heard
		if got := call(t.Context(), c); got.Code() == codes.OK {
			break
		} else if try == 1000 {
			t.Fatalf("%v", got)
		}
	}
}

func TestVerdictInTheContext(t *testing.T) {
	svc := &service{unary: func(ctx context.Context) error {
		v := policy.FromContext(ctx)
		if v.Of("tokens") == nil {
			return status.Error(codes.Internal, "no verdict")
		}
		return v.Spent("tokens", 2)
	}}
	eng := engineOf(t, policy.Rule{Name: "tokens", Unit: "tokens", Cost: 5, Limit: limit(t, "1/h burst 10")})
	c := serve(t, svc, limited(eng))
	if got := calls(t.Context(), c, 4); !slices.Equal(got, []codes.Code{0, 0, 0, codes.ResourceExhausted}) { // 2, 4, 6, and 5 more don't fit
		t.Errorf("codes %v", got)
	}
}

func TestDelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := serve(t, &service{}, limited(engineOf(t, policy.Rule{Name: "queue", Limit: limit(t, "1/s queue 5")})))
		start := time.Now()
		if got := calls(t.Context(), c, 3); slices.ContainsFunc(got, func(c codes.Code) bool { return c != codes.OK }) || time.Since(start) != 2*time.Second {
			t.Errorf("codes %v after %s", got, time.Since(start))
		}
		// Who leaves while it is held gives its place back.
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		if got := call(ctx, c); got.Code() != codes.DeadlineExceeded {
			t.Errorf("%v", got)
		}
		synctest.Wait()
		if got := call(t.Context(), c); got.Code() != codes.OK || time.Since(start) != 3*time.Second {
			t.Errorf("%v after %s", got, time.Since(start))
		}
	})
}

func TestHeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rules := []policy.Rule{
			{Name: "wide", Limit: limit(t, "100/s burst 200"), Unit: "calls"},
			{Name: "slow", Limit: limit(t, "1/10s burst 1")},
			{Name: "slots", Limit: limit(t, "3 at once")},
			{Name: "week", Limit: limit(t, "1000/calendar week")},
			{Name: "trial", Limit: limit(t, "1/h"), Spare: 100},
			{Name: "free", Limit: limit(t, "unlimited")},
			{Name: "volume", Limit: limit(t, "1000/m burst 1000"), Unit: policy.Bytes},
		}
		ask := func(c pb.TestServiceClient) (code codes.Code, policies, limits string) {
			var md metadata.MD
			code = call(t.Context(), c, grpc.Header(&md)).Code()
			return code, strings.Join(md["ratelimit-policy"], "|"), strings.Join(md["ratelimit"], "|")
		}
		c := serve(t, &service{}, limited(engineOf(t, rules...), grpclimit.Headers(grpclimit.Always)))
		code, policies, limits := ask(c)
		if code != codes.OK || policies != `"wide";q=200;qu="calls";w=2, "slow";q=1;w=10, "slots";q=3;qu="concurrent-requests", "week";q=1000;w=604800, "volume";q=1000;qu="content-bytes";w=60` ||
			!strings.HasPrefix(limits, `"wide";r=199;t=1, "slow";r=0;t=10, "slots";r=2, "week";r=999;t=`) {
			t.Errorf("%v\n%s\n%s", code, policies, limits)
		}
		code, policies, limits = ask(c)
		if code != codes.ResourceExhausted || !strings.HasPrefix(policies, `"slow";q=1;w=10, "wide"`) || !strings.HasPrefix(limits, `"slow";r=0;t=10, "wide";r=199;t=1, `) {
			t.Errorf("%v\n%s\n%s", code, policies, limits)
		}
		c = serve(t, &service{}, limited(engineOf(t, rules...), grpclimit.Headers(grpclimit.Refusals)))
		if code, policies, limits = ask(c); code != codes.OK || policies+limits != "" {
			t.Errorf("%v %s %s", code, policies, limits)
		}
		if code, policies, limits = ask(c); code != codes.ResourceExhausted || policies == "" || limits == "" {
			t.Errorf("%v %s %s", code, policies, limits)
		}
	})
}

// The log says who was refused and why, and no secret.
func TestLogs(t *testing.T) {
	var out bytes.Buffer
	eng := engineOf(t, policy.Rule{Name: "token", Key: key(t, "header.authorization secret"), Limit: limit(t, "1/h")},
		policy.Rule{Name: "all", Key: key(t, "client.ip"), Limit: limit(t, "100/h")})
	c := serveTCP(t, &service{}, limited(eng, grpclimit.Headers(grpclimit.Always), grpclimit.Logger(slog.New(slog.NewTextHandler(&out, nil)))))
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer s3cr3t")
	calls(ctx, c, 3)
	got := call(ctx, c)
	log := out.String()
	if !strings.Contains(log, "call refused") || !strings.Contains(log, ` rule=token why="over limit" key="header.authorization=hmac:`) ||
		!strings.Contains(log, " code=RESOURCE_EXHAUSTED client=127.0.0.1 method="+unaryCall+" retry_after=59m59.") || strings.Count(log, "\n") != 3 {
		t.Errorf("log:\n%s", log)
	}
	if all := log + got.String() + got.Proto().String(); strings.Contains(all, "s3cr3t") {
		t.Errorf("the token is told: %s", all)
	}
	out.Reset()
	broken := &scripted{errors.New("broken")}
	c = serve(t, &service{}, limited(engineOn(t, broken, policy.Rule{Name: "a", Limit: limit(t, "1/s"), OnFault: policy.Shut}), grpclimit.Logger(slog.New(slog.NewTextHandler(&out, nil)))))
	call(t.Context(), c)
	if log := out.String(); !strings.Contains(log, "store unavailable") || !strings.Contains(log, `level=WARN msg="call not decided"`) || !strings.Contains(log, "code=UNAVAILABLE client=unknown") {
		t.Errorf("log:\n%s", log)
	}
	out.Reset()
	debt := grpclimit.Cost(policy.Requests, func(context.Context, any) int64 { return -1 })
	c = serve(t, &service{}, limited(engineOf(t, policy.Rule{Name: "a", Limit: limit(t, "1/s")}), debt, grpclimit.Logger(slog.New(slog.NewTextHandler(&out, nil)))))
	call(t.Context(), c)
	if log := out.String(); !strings.Contains(log, `level=INFO msg="call not decided"`) || !strings.Contains(log, "code=INVALID_ARGUMENT") { // the client's fault
		t.Errorf("log:\n%s", log)
	}
}
