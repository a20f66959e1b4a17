package main

import (
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
		code := connect.CodeUnavailable // a fault, never told as a denial
		switch f.Status {
		case http.StatusTooManyRequests:
			code = connect.CodeResourceExhausted
		case http.StatusForbidden:
			code = connect.CodePermissionDenied
		}
		_ = writer.Write(w, r, connect.NewError(code, errors.New("limited by rule "+f.Rule))) // the client's loss
	}))(handlers)
}
