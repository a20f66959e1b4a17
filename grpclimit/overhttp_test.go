package grpclimit_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/grpclimit"
	"github.com/spillgate/spillgate/httplimit"
	"github.com/spillgate/spillgate/policy"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
)

// behind starts svc behind middleware of HTTP.
func behind(t testing.TB, wrap func(http.Handler) http.Handler, svc *service, dial ...grpc.DialOption) pb.TestServiceClient {
	t.Helper()
	ln := bufconn.Listen(1 << 20)
	srv := grpc.NewServer()
	pb.RegisterTestServiceServer(srv, svc)
	front := &http.Server{Handler: wrap(srv), Protocols: new(http.Protocols)}
	front.Protocols.SetUnencryptedHTTP2(true)
	ended := make(chan error, 1)
	go func() { ended <- front.Serve(ln) }()
	dial = append(dial, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return ln.DialContext(ctx) }))
	conn, err := grpc.NewClient("passthrough:///limits.example:443", dial...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		front.Close()
		srv.Stop()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return pb.NewTestServiceClient(conn)
}

// bare returns s without what differs each time, and whether it had that.
func bare(s *status.Status) (*spb.Status, bool) {
	p := proto.CloneOf(s.Proto())
	rest, named := p.Details[:0], false
	for _, d := range p.Details {
		if d.MessageIs((*errdetails.RequestInfo)(nil)) {
			named = true
		} else {
			rest = append(rest, d)
		}
	}
	p.Details = rest
	return p, named
}

// A call that is refused by middleware of HTTP is told what one that meets the
// interceptor is told.
func TestRefusalsOverHTTPAreThoseOfTheInterceptor(t *testing.T) {
	limited := policy.Rule{Name: "slow", Key: key(t, "user", "path"), Limit: limit(t, "1/7s burst 2"), Unit: "calls"}
	hidden := policy.Rule{Name: "hidden", Limit: limit(t, "1/10s burst 2"), Hide: true}
	shut := policy.Rule{Name: "shut", Limit: limit(t, "1/s"), OnFault: policy.Shut}
	for _, c := range []struct {
		name  string
		rules []policy.Rule
		over  []policy.Override
		store spillgate.Store
		cost  int64
		twice string
		code  codes.Code
	}{
		{name: "two rules", rules: []policy.Rule{limited, hidden}, code: codes.ResourceExhausted},
		{name: "denied", rules: []policy.Rule{{Name: "closed", Deny: true}}, code: codes.PermissionDenied},
		{name: "a missing key", rules: []policy.Rule{{Name: "who", Key: key(t, "tenant"), Missing: policy.Refuse, Limit: limit(t, "1/s")}}, code: codes.PermissionDenied},
		{name: "never fits", rules: []policy.Rule{{Name: "large", Limit: limit(t, "1/s burst 2")}}, cost: 3, code: codes.ResourceExhausted},
		{name: "nothing is earned", rules: []policy.Rule{{Name: "once", Limit: spillgate.Limit{Algorithm: spillgate.Bucket, Burst: 1, Period: time.Second}, TTL: time.Hour}}, code: codes.ResourceExhausted},
		{name: "a negative cost", rules: []policy.Rule{shut}, cost: -1, code: codes.InvalidArgument},
		{name: "a fault", rules: []policy.Rule{shut}, store: &scripted{errors.New("broken")}, code: codes.Unavailable},
		{name: "a fault with an answer of HTTP", rules: []policy.Rule{{Name: "shut", Limit: limit(t, "1/s"), OnFault: policy.Shut, FaultAnswer: &policy.Answer{Status: 200, Type: "text/html", Body: "<p>"}}}, store: &scripted{errors.New("broken")}, code: codes.Unavailable},
		{name: "an override", over: []policy.Override{{Deny: true, Rules: []string{"shut"}, Match: match(t, "method", "POST")}}, rules: []policy.Rule{shut}, code: codes.PermissionDenied},
		{name: "an override of all", over: []policy.Override{{Deny: true, Match: match(t, "method", "POST"), Until: time.Date(2000, 1, 2, 0, 0, 0, 0, time.UTC)}}, rules: []policy.Rule{shut}, code: codes.PermissionDenied},
		{name: "a penalty", rules: []policy.Rule{{Name: "a", Key: key(t, "user"), Limit: limit(t, "1/m burst 1"), Penalty: policy.Penalty{After: 1, Within: time.Minute, Block: time.Hour}}}, code: codes.ResourceExhausted},
		{name: "an answer of HTTP", rules: []policy.Rule{{Name: "page", Limit: limit(t, "1/m burst 1"), Answer: &policy.Answer{Status: 200, Type: "text/html", Body: "<p>", Header: map[string]string{"X-Own": "1"}}}}, code: codes.ResourceExhausted},
		{name: "metadata twice", rules: []policy.Rule{{Name: "a", Key: key(t, "client.ip"), Limit: limit(t, "1/s burst 9")}, {Name: "b", Key: key(t, "header.x-user"), Limit: limit(t, "1/s burst 9")}}, twice: "x-user", code: codes.InvalidArgument},
		{name: "slots", rules: []policy.Rule{{Name: "slots", Limit: limit(t, "1 at once")}}, cost: 2, code: codes.ResourceExhausted},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // begins at 2000-01-01
				engine := func() *policy.Engine {
					p, err := policy.Compile(c.rules)
					if err == nil && c.over != nil {
						p, err = p.WithOverrides(c.over)
					}
					if err != nil {
						t.Fatal(err)
					}
					if c.store != nil {
						return policy.NewEngine(p, c.store)
					}
					return policy.NewEngine(p, spillgate.NewMemory())
				}
				cost := c.cost
				if cost == 0 {
					cost = 1
				}
				unit := c.rules[0].Unit
				if unit == "" {
					unit = policy.Requests
				}
				interceptor := serve(t, &service{}, grpclimit.Server(engine(), grpclimit.Headers(grpclimit.Refusals),
					grpclimit.User(func(context.Context) string { return "alice" }), grpclimit.Cost(unit, func(context.Context, any) int64 { return cost })))
				middleware := behind(t, httplimit.Policy(engine(), httplimit.User(func(*http.Request) string { return "alice" }), httplimit.Cost(unit, func(*http.Request) int64 { return cost })), &service{})
				var want, got *status.Status
				var there, here metadata.MD
				for range 3 {
					ctx := t.Context()
					if c.twice != "" {
						ctx = metadata.AppendToOutgoingContext(ctx, c.twice, "1", c.twice, "2")
					}
					there, here = nil, nil // a refusal over HTTP has no header, and all is its trailer
					want, got = call(ctx, interceptor, grpc.Header(&there)), call(ctx, middleware, grpc.Trailer(&here))
					if want.Code() != got.Code() {
						t.Fatalf("%v, want %v", got, want)
					}
					time.Sleep(time.Millisecond)
				}
				w, _ := bare(want)
				g, named := bare(got)
				if !proto.Equal(w, g) || !named || got.Code() != c.code {
					t.Errorf("got  %v\nwant %v", g, w)
				}
				if id := here["spillgate-refusal"]; len(id) != 1 || id[0] != idOf(got) {
					t.Errorf("refusal %q, status %q", id, idOf(got))
				}
				for _, name := range []string{"ratelimit", "ratelimit-policy"} {
					if strings.Join(there[name], ", ") != strings.Join(here[name], ", ") {
						t.Errorf("%s: %q, want %q", name, here[name], there[name])
					}
				}
				retry, _ := details(got)
				if (retry != nil) != (len(here["retry-after"]) == 1) || here["x-own"] != nil {
					t.Errorf("header %v", here)
				}
			})
		})
	}
}

// Whoever obeys comes through, calls and streams, and none before its time; with
// jitter the detail is spread as the field is.
func TestObeyOverHTTP(t *testing.T) {
	for name, wrap := range map[string]func(jitter int) func(http.Handler) http.Handler{
		"policy": func(jitter int) func(http.Handler) http.Handler {
			return httplimit.Policy(engineOf(t, policy.Rule{Name: "slow", Limit: limit(t, "1/10s burst 1")}), httplimit.Jitter(jitter))
		},
		"limiter": func(jitter int) func(http.Handler) http.Handler {
			return httplimit.New(spillgate.Must("1/10s burst 1"), httplimit.Jitter(jitter))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cl := behind(t, wrap(0), &service{}, grpclimit.Client(grpclimit.Obey(exact))...)
				start := time.Now()
				for i := range 3 {
					if got := call(t.Context(), cl); got.Code() != codes.OK || time.Since(start) != time.Duration(i)*10*time.Second {
						t.Fatalf("call %d: %v after %s", i, got, time.Since(start))
					}
				}
				s, err := cl.StreamingOutputCall(t.Context(), &pb.StreamingOutputCallRequest{})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := s.Recv(); err != nil || time.Since(start) != 30*time.Second {
					t.Errorf("stream: %v after %s", err, time.Since(start))
				}
			})
			synctest.Test(t, func(t *testing.T) {
				cl := behind(t, wrap(50), &service{})
				call(t.Context(), cl)
				waits := map[time.Duration]bool{}
				for range 50 {
					retry, quota := details(call(t.Context(), cl))
					wait := retry.GetRetryDelay().AsDuration()
					if wait < 10*time.Second || wait > 15*time.Second || len(quota.GetViolations()) != 1 {
						t.Errorf("%v, %v", retry, quota)
					}
					waits[wait] = true
				}
				if len(waits) < 2 {
					t.Errorf("waits %v", waits)
				}
			})
		})
	}
}

// A stream whose client sends on is refused like any call.
func TestOpenStreamsAreRefusedOverHTTP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cl := behind(t, httplimit.Policy(engineOf(t, policy.Rule{Name: "closed", Deny: true})), &service{})
		s, err := cl.FullDuplexCall(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Recv(); status.Code(err) != codes.PermissionDenied {
			t.Error(err)
		}
	})
}

// What is said of many rules stays within what clients take of a header.
func TestStatusesOverHTTPAreBounded(t *testing.T) {
	var rules []policy.Rule
	for i := range 60 {
		rules = append(rules, policy.Rule{Name: "rule-" + strings.Repeat("x", i%40) + string(rune('a'+i%26)) + string(rune('a'+i/26)), Limit: limit(t, "1/h burst 1")})
	}
	cl := behind(t, httplimit.Policy(engineOf(t, rules...), httplimit.Headers(httplimit.Off)), &service{})
	call(t.Context(), cl)
	got := call(t.Context(), cl)
	retry, quota := details(got)
	if n := len(quota.GetViolations()); got.Code() != codes.ResourceExhausted || retry == nil || idOf(got) == "" || n < 5 || proto.Size(got.Proto()) > 4<<10 {
		t.Errorf("%d violations, %d bytes, %v", n, proto.Size(got.Proto()), got)
	}
}
