package grpclimit_test

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/client"
	"github.com/spillgate/spillgate/grpclimit"
	"github.com/spillgate/spillgate/policy"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"
)

// A server that admits one call in 50 ms, and a client that comes back when it
// was told to.
func Example() {
	every := spillgate.Limit{Rate: 1, Period: 50 * time.Millisecond, Burst: 1}
	rules, err := policy.Compile([]policy.Rule{{Name: "everybody", Limit: every}})
	if err != nil {
		fmt.Println(err)
		return
	}
	srv := grpc.NewServer(grpclimit.Server(policy.NewEngine(rules, spillgate.NewMemory()))...)
	pb.RegisterTestServiceServer(srv, &service{})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	go srv.Serve(ln)
	defer srv.Stop()

	obey := grpclimit.Client(grpclimit.Obey(client.Patience{}), grpclimit.OnWait(
		func(_ context.Context, _ string, tried int, wait time.Duration) {
			fmt.Println("told to wait:", wait > 0)
		}))
	conn, err := grpc.NewClient(ln.Addr().String(), append(obey, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()
	for range 2 {
		_, err := pb.NewTestServiceClient(conn).UnaryCall(context.Background(), &pb.SimpleRequest{})
		fmt.Println(err)
	}
	// Output:
	// <nil>
	// told to wait: true
	// <nil>
}
