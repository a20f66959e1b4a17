package main

import (
	"net"
	"testing"

	"github.com/spillgate/spillgate/policyfile"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

func TestMethodsAreLimited(t *testing.T) {
	pol, err := policyfile.Load("limits.yaml")
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := server(pol)
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(ln) }()
	defer func() {
		srv.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	conn, err := grpc.NewClient(ln.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := pb.NewHealthClient(conn)
	for i, want := range []codes.Code{codes.OK, codes.OK, codes.ResourceExhausted} {
		_, err := client.Check(t.Context(), &pb.HealthCheckRequest{})
		if status.Code(err) != want {
			t.Errorf("call %d: %v", i, err)
		}
		told := false
		for _, d := range status.Convert(err).Details() {
			info, ok := d.(*errdetails.RetryInfo)
			told = told || ok && info.GetRetryDelay().AsDuration() > 0
		}
		if told != (want != codes.OK) {
			t.Errorf("call %d: told when to come back: %t", i, told)
		}
	}
	// One stream at a time.
	first, err := client.Watch(t.Context(), &pb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := first.Recv(); err != nil {
		t.Error(err)
	}
	second, err := client.Watch(t.Context(), &pb.HealthCheckRequest{})
	if err == nil {
		_, err = second.Recv()
	}
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a second stream: %v", err)
	}
}
