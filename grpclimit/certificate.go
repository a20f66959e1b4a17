package grpclimit

import (
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// appendCertified appends who the client's certificate is for, in the words of
// httplimit, if the server's TLS credentials verified it. One that was only
// shown proves nothing: anybody can write one.
func (a *attributes) appendCertified(dst []byte) ([]byte, bool) {
	p, ok := peer.FromContext(a.ctx)
	if !ok {
		return dst, false
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.VerifiedChains) == 0 || len(info.State.VerifiedChains[0]) == 0 {
		return dst, false
	}
	start, cert := len(dst), info.State.VerifiedChains[0][0]
	switch {
	case len(cert.URIs) > 0:
		dst = append(dst, cert.URIs[0].String()...)
	case len(cert.DNSNames) > 0:
		dst = append(dst, cert.DNSNames[0]...)
	case len(cert.EmailAddresses) > 0:
		dst = append(dst, cert.EmailAddresses[0]...)
	default:
		dst = append(dst, cert.Subject.String()...)
	}
	return dst, len(dst) > start
}
