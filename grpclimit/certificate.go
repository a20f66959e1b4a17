package grpclimit

import (
	"context"

	"github.com/spillgate/spillgate/policy"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// certified returns whom the client's certificate is for, "" if the server's
// TLS credentials verified none.
func certified(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return ""
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.VerifiedChains) == 0 || len(info.State.VerifiedChains[0]) == 0 {
		return ""
	}
	return policy.CertificateName(info.State.VerifiedChains[0][0])
}
