package httplimit

import (
	"crypto/tls"

	"github.com/spillgate/spillgate/policy"
)

// certified returns whom the client's certificate is for, "" if the server
// verified none.
func certified(state *tls.ConnectionState) string {
	if state == nil || len(state.VerifiedChains) == 0 || len(state.VerifiedChains[0]) == 0 {
		return ""
	}
	return policy.CertificateName(state.VerifiedChains[0][0])
}
