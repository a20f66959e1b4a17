package main

import (
	"cmp"
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
	codes := map[int]connect.Code{http.StatusTooManyRequests: connect.CodeResourceExhausted, http.StatusForbidden: connect.CodePermissionDenied}
	return httplimit.Policy(eng, httplimit.Denied(func(w http.ResponseWriter, r *http.Request, f httplimit.Refusal) {
		code := cmp.Or(codes[f.Status], connect.CodeUnavailable)                              // a fault, never told as a denial
		_ = writer.Write(w, r, connect.NewError(code, errors.New("limited by rule "+f.Rule))) // the client's loss
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
