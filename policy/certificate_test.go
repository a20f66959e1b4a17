package policy_test

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"net/url"
	"testing"

	"github.com/spillgate/spillgate/policy"
)

func TestCertificateName(t *testing.T) {
	uris := []*url.URL{{Scheme: "spiffe", Host: "example.org", Path: "/billing"}, {Scheme: "spiffe", Host: "example.org", Path: "/other"}}
	names, mails := []string{"a.example", "b.example"}, []string{"a@example.org", "b@example.org"}
	subject := pkix.Name{CommonName: "alice", Organization: []string{"Example"}}
	for want, cert := range map[string]*x509.Certificate{
		"spiffe://example.org/billing": {URIs: uris, DNSNames: names, EmailAddresses: mails, Subject: subject},
		"a.example":                    {DNSNames: names, EmailAddresses: mails, Subject: subject},
		"a@example.org":                {EmailAddresses: mails, Subject: subject},
		"CN=alice,O=Example":           {Subject: subject},
		"":                             {},
	} {
		if got := policy.CertificateName(cert); got != want {
			t.Errorf("%q; want %q", got, want)
		}
	}
}
