// Command connect limits a server of Connect by a policy file, whose rules name
// its procedures.
package main

import (
	"context"
	"errors"
	"log"
	"net/http"
	"time"

	"connectrpc.com/connect"
	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/policy"
	"github.com/spillgate/spillgate/policyfile"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

func main() { // start it in this folder
	pol, err := policyfile.Load("limits.yaml")
	if err != nil {
		log.Fatal(err)
	}
	server := &http.Server{Addr: "127.0.0.1:8080", Handler: handler(pol), ReadHeaderTimeout: 10 * time.Second}
	log.Fatal(server.ListenAndServe())
}

// The procedures of a shop, as generated code would have them.
const (
	procedureOrder = "/shop.v1.Shop/Order"
	procedureLook  = "/shop.v1.Shop/Look"
	procedureLogin = "/shop.v1.Shop/Login"
)

func handler(pol *policy.Policy) http.Handler {
	mux, codes := http.NewServeMux(), connect.WithInterceptors(connect.UnaryInterceptorFunc(code))
	mux.Handle(procedureOrder, connect.NewUnaryHandler(procedureOrder, answer("ordered "), codes))
	mux.Handle(procedureLook, connect.NewUnaryHandler(procedureLook, answer("here is "), codes))
	mux.Handle(procedureLogin, connect.NewUnaryHandler(procedureLogin, login, codes))
	return limit(policy.NewEngine(pol, spillgate.NewMemory()), mux)
}

type text = wrapperspb.StringValue

func answer(words string) func(context.Context, *connect.Request[text]) (*connect.Response[text], error) {
	return func(_ context.Context, r *connect.Request[text]) (*connect.Response[text], error) {
		return connect.NewResponse(wrapperspb.String(words + r.Msg.GetValue())), nil
	}
}

func login(_ context.Context, r *connect.Request[text]) (*connect.Response[text], error) {
	if r.Msg.GetValue() != "open sesame" {
		return nil, connect.NewError(connect.CodeUnauthenticated, errors.New("wrong password"))
	}
	return connect.NewResponse(wrapperspb.String("welcome")), nil
}
