package gateway_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/spillgate/spillgate/client"
	"github.com/spillgate/spillgate/cmd/spillgate/internal/gateway"
	"github.com/spillgate/spillgate/grpclimit"
)

// A call of gRPC that the gateway answers is told so in gRPC, over TLS and
// without, by a client that others wrote; and ours comes again when it is told.
func TestCallsAreRefusedInGRPC(t *testing.T) {
	addr := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Trailer", "Grpc-Status")
		_, _ = w.Write(make([]byte, 5)) // an empty message
		w.Header().Set("Grpc-Status", "0")
	})
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	hourly := rule(t, "hourly", "1/h burst 1", []string{"client.ip"}, "path", "/shop.Cart/Hourly")
	shut := closed(t, "path", "/shop.Cart/Closed")
	p := compile(t, hourly, shut, rule(t, "often", "1/s burst 1", []string{"client.ip"}, "path", "/shop.Cart/Often"))
	for name, c := range map[string]struct {
		change func(*gateway.Config)
		creds  credentials.TransportCredentials
	}{
		"TLS": {overTLS(t), credentials.NewTLS(&tls.Config{InsecureSkipVerify: true})},
		"h2c": {overH2C, insecure.NewCredentials()},
	} {
		t.Run(name, func(t *testing.T) {
			dial := func(f *front, opts ...grpc.DialOption) func(method string) *status.Status {
				conn, err := grpc.NewClient(f.addr, append(opts, grpc.WithTransportCredentials(c.creds))...)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { conn.Close() })
				return func(method string) *status.Status {
					ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
					defer cancel()
					return status.Convert(conn.Invoke(ctx, "/shop.Cart/"+method, &emptypb.Empty{}, &emptypb.Empty{}))
				}
			}
			f := serve(t, addr, p, c.change)
			call := dial(f)
			if got := call("Hourly"); got.Code() != codes.OK {
				t.Fatal(got)
			}
			var retry *errdetails.RetryInfo
			var quota *errdetails.QuotaFailure
			got := call("Hourly")
			for _, d := range got.Details() {
				switch d := d.(type) {
				case *errdetails.RetryInfo:
					retry = d
				case *errdetails.QuotaFailure:
					quota = d
				}
			}
			if wait := retry.GetRetryDelay().AsDuration(); got.Code() != codes.ResourceExhausted || wait <= 0 || wait > time.Hour ||
				len(quota.GetViolations()) != 1 || quota.Violations[0].QuotaId != "hourly" || !strings.Contains(got.Message(), "retry after") {
				t.Errorf("%v, %v, %v", got, retry, quota)
			}
			if got := call("Closed"); got.Code() != codes.PermissionDenied || !strings.Contains(got.Message(), `"closed"`) {
				t.Error(got)
			}
			if got := dial(serve(t, gone.Addr().String(), p, c.change))("Other"); got.Code() != codes.Unavailable || !strings.Contains(got.Message(), "could not be reached") {
				t.Errorf("the upstream is down: %v", got)
			}

			waits := 0
			obeying := dial(f, grpclimit.Client(grpclimit.Obey(client.Patience{Tries: 20}),
				grpclimit.OnWait(func(context.Context, string, int, time.Duration) { waits++ }))...)
			for i := 0; waits == 0 && i < 50; i++ {
				if got := obeying("Often"); got.Code() != codes.OK {
					t.Fatalf("call %d: %v", i, got)
				}
			}
			if waits == 0 {
				t.Error("nobody was told to wait")
			}
		})
	}
}
