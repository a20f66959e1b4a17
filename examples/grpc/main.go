// Command grpc limits a gRPC server by a policy file, whose rules name its
// methods.
package main

import (
	"log"
	"net"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/policy"
	"github.com/spillgate/spillgate/policyfile"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
)

func main() { // start it in this folder
	pol, err := policyfile.Load("limits.yaml")
	if err != nil {
		log.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:8080")
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(server(pol).Serve(ln))
}

func server(pol *policy.Policy) *grpc.Server {
	srv := limit(policy.NewEngine(pol, spillgate.NewMemory()))
	grpc_health_v1.RegisterHealthServer(srv, health.NewServer())
	return srv
}
