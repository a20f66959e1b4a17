package main

import (
	"context"
	"errors"
	"net/http"

	"connectrpc.com/connect"
	"github.com/spillgate/spillgate/httplimit"
	"github.com/spillgate/spillgate/policy"
)

// limit puts the policy in front of Connect's handlers. A refusal is an error
// of the protocol that the client speaks: Connect, gRPC or gRPC-Web.
func limit(eng *policy.Engine, handlers http.Handler) http.Handler {
	writer := connect.NewErrorWriter()
	return httplimit.Policy(eng, httplimit.Denied(func(w http.ResponseWriter, r *http.Request, f httplimit.Refusal) {
		why := errors.New("limited by rule " + f.Rule)
		if f.Err != nil {
			why = errors.New("the limits could not be asked")
		}
		_ = writer.Write(w, r, connect.NewError(connect.Code(f.Code()), why)) // the client's loss
	}))(handlers)
}

// code is an interceptor of handlers: rules that count failures hear of the
// code, which gRPC-Web has in the body. A stream's, unless of gRPC, stays unheard.
func code(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
		resp, err := next(ctx, r)
		if err != nil {
			policy.FromContext(ctx).Code(uint32(connect.CodeOf(err)))
		}
		return resp, err
	}
}
