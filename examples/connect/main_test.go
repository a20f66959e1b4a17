package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/examples/internal/shoptest"
	"github.com/spillgate/spillgate/policy"
	"github.com/spillgate/spillgate/policyfile"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

var protocols = map[string]connect.ClientOption{
	"Connect": connect.WithProtoJSON(), "gRPC": connect.WithGRPC(), "gRPC-Web": connect.WithGRPCWeb(),
}

func start(t *testing.T) *httptest.Server {
	t.Helper()
	pol, err := policyfile.Load("limits.yaml")
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(handler(pol))
	srv.EnableHTTP2 = true
	srv.StartTLS()
	t.Cleanup(srv.Close)
	return srv
}

func TestProceduresAreLimited(t *testing.T) {
	for name, protocol := range protocols {
		t.Run(name, func(t *testing.T) {
			srv := start(t)
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

// A call fails with status 401, or with 200 and a code in a trailer or in the body.
func TestOnlyWrongPasswordsCount(t *testing.T) {
	for name, protocol := range protocols {
		t.Run(name, func(t *testing.T) {
			srv := start(t)
			login := connect.NewClient[text, text](srv.Client(), srv.URL+procedureLogin, protocol)
			for i, want := range []connect.Code{0, 0, 0, 0, connect.CodeUnauthenticated, connect.CodeUnauthenticated, connect.CodeUnauthenticated, connect.CodeResourceExhausted} {
				password := "open sesame"
				if i >= 4 {
					password = "open barley"
				}
				_, err := login.CallUnary(t.Context(), connect.NewRequest(wrapperspb.String(password)))
				if (err == nil) != (want == 0) || err != nil && connect.CodeOf(err) != want {
					t.Errorf("call %d: %v", i, err)
				}
			}
		})
	}
}

// Beside its procedures a server has other handlers. They are limited in the same
// way, but refused in the words of Connect, not in those of a rule's answer.
func TestWholePolicy(t *testing.T) {
	shoptest.Policy(t, http.StatusTooManyRequests, func(eng *policy.Engine, h http.Handler) http.Handler {
		mux := http.NewServeMux()
		mux.Handle("/do", h)
		return limit(eng, mux)
	})
}

// A store that can't answer.
type down struct{ spillgate.Store }

func (down) Take(context.Context, time.Time, []spillgate.Charge, []spillgate.Decision) error {
	return errors.New("no route to the store")
}

// Nobody who hears of our fault is told of a limit.
func TestFaultsAreNoLimits(t *testing.T) {
	pol, err := policy.Compile([]policy.Rule{{Name: "shut", Limit: spillgate.Limit{Rate: 1, Burst: 1, Period: time.Hour}, OnFault: policy.Shut}})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(limit(policy.NewEngine(pol, down{spillgate.NewMemory()}), http.NotFoundHandler()))
	defer srv.Close()
	for name, protocol := range protocols {
		if name == "gRPC" { // needs HTTP/2
			continue
		}
		look := connect.NewClient[text, text](srv.Client(), srv.URL+procedureLook, protocol)
		_, err := look.CallUnary(t.Context(), connect.NewRequest(wrapperspb.String("tea")))
		if connect.CodeOf(err) != connect.CodeUnavailable || strings.Contains(err.Error(), "limited by") || !strings.Contains(err.Error(), "could not be asked") {
			t.Errorf("%s: %v", name, err)
		}
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
