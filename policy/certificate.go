package policy

import "crypto/x509"

// CertificateName returns whom cert is for, which is the value of [TLSClient]:
// its first URI, DNS name or e-mail address, or else its subject; "" if it says
// nothing. The front sees to it that the server verified cert: one that was
// only shown proves nothing, for anybody can write one.
func CertificateName(cert *x509.Certificate) string {
	switch {
	case len(cert.URIs) > 0:
		return cert.URIs[0].String()
	case len(cert.DNSNames) > 0:
		return cert.DNSNames[0]
	case len(cert.EmailAddresses) > 0:
		return cert.EmailAddresses[0]
	}
	return cert.Subject.String()
}
