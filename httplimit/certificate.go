package httplimit

import "crypto/tls"

// appendCertified appends who the client's certificate is for, if the server
// verified it. One that was only shown proves nothing: anybody can write one.
func appendCertified(dst []byte, state *tls.ConnectionState) ([]byte, bool) {
	if state == nil || len(state.VerifiedChains) == 0 || len(state.VerifiedChains[0]) == 0 {
		return dst, false
	}
	start, cert := len(dst), state.VerifiedChains[0][0]
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
