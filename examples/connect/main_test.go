package main

import (
	"net/http/httptest"
	"testing"

	"connectrpc.com/connect"
	"github.com/spillgate/spillgate/policy"
	"github.com/spillgate/spillgate/policyfile"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

func TestProceduresAreLimited(t *testing.T) {
	for name, protocol := range map[string]connect.ClientOption{
		"Connect": connect.WithProtoJSON(), "gRPC": connect.WithGRPC(), "gRPC-Web": connect.WithGRPCWeb(),
	} {
		t.Run(name, func(t *testing.T) {
			pol, err := policyfile.Load("limits.yaml")
			if err != nil {
				t.Fatal(err)
			}
			srv := httptest.NewUnstartedServer(handler(pol))
			srv.EnableHTTP2 = true
			srv.StartTLS()
			defer srv.Close()
			order := connect.NewClient[text, text](srv.Client(), srv.URL+procedureOrder, protocol)
			for i, want := range []connect.Code{0, 0, connect.CodeResourceExhausted} {
				resp, err := order.CallUnary(t.Context(), connect.NewRequest(wrapperspb.String("tea")))
				if (err == nil) != (want == 0) || err != nil && connect.CodeOf(err) != want {
					t.Errorf("call %d: %v", i, err)
				}
				if err == nil && resp.Msg.GetValue() != "ordered tea" {
					t.Errorf("call %d: %v", i, resp.Msg)
				}
			}
			look := connect.NewClient[text, text](srv.Client(), srv.URL+procedureLook, protocol)
			if resp, err := look.CallUnary(t.Context(), connect.NewRequest(wrapperspb.String("tea"))); err != nil || resp.Msg.GetValue() != "here is tea" {
				t.Errorf("another procedure: %v", err)
			}
		})
	}
}

// To ask again would not help.
func TestDeniedProceduresAreNotUnavailable(t *testing.T) {
	pol, err := policy.Compile([]policy.Rule{{Name: "closed", Deny: true}})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(handler(pol))
	defer srv.Close()
	look := connect.NewClient[text, text](srv.Client(), srv.URL+procedureLook)
	if _, err := look.CallUnary(t.Context(), connect.NewRequest(wrapperspb.String("tea"))); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Error(err)
	}
}
