package main

import (
	"github.com/spillgate/spillgate/grpclimit"
	"github.com/spillgate/spillgate/policy"
	"google.golang.org/grpc"
)

// limit makes a server that asks the policy about every call.
func limit(eng *policy.Engine, opts ...grpc.ServerOption) *grpc.Server {
	return grpc.NewServer(append(opts, grpclimit.Server(eng)...)...)
}
