package grpclimit_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net/url"
	"testing"
	"time"

	"github.com/spillgate/spillgate/policy"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
)

// issue makes a certificate, signed by the authority or by itself.
func issue(t *testing.T, cert *x509.Certificate, by *tls.Certificate) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert.SerialNumber = big.NewInt(time.Now().UnixNano())
	cert.NotBefore, cert.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := cert, any(key)
	if by != nil {
		parent, signer = by.Leaf, by.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// A rule knows whom a client's certificate is for, as it does over HTTP: if the
// server verified it.
func TestClientCertificates(t *testing.T) {
	authority := issue(t, &x509.Certificate{Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, nil)
	pool := x509.NewCertPool()
	pool.AddCert(authority.Leaf)
	server := issue(t, &x509.Certificate{DNSNames: []string{"limits.example"}}, &authority)
	spiffe, err := url.Parse("spiffe://example.org/billing")
	if err != nil {
		t.Fatal(err)
	}
	guard := policy.Rule{Name: "a", Deny: true, Match: match(t, "tls.client", "spiffe://example.org/*", "a.example", "a@example.org", "CN=alice,O=Example")}
	for name, c := range map[string]struct {
		cert *x509.Certificate
		by   *tls.Certificate
		want codes.Code
	}{
		"URI":         {&x509.Certificate{URIs: []*url.URL{spiffe}, DNSNames: []string{"other.example"}}, &authority, codes.PermissionDenied},
		"DNS name":    {&x509.Certificate{DNSNames: []string{"a.example"}}, &authority, codes.PermissionDenied},
		"e-mail":      {&x509.Certificate{EmailAddresses: []string{"a@example.org"}}, &authority, codes.PermissionDenied},
		"subject":     {&x509.Certificate{Subject: pkix.Name{CommonName: "alice", Organization: []string{"Example"}}}, &authority, codes.PermissionDenied},
		"another":     {&x509.Certificate{DNSNames: []string{"b.example"}}, &authority, codes.OK},
		"self-signed": {&x509.Certificate{DNSNames: []string{"a.example"}}, nil, codes.OK},
		"none":        {nil, nil, codes.OK},
	} {
		t.Run(name, func(t *testing.T) {
			mine := &tls.Config{RootCAs: pool, ServerName: "limits.example"}
			if c.cert != nil {
				cert := issue(t, c.cert, c.by)
				mine.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil }
			}
			theirs := &tls.Config{Certificates: []tls.Certificate{server}, ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: pool}
			if name == "self-signed" {
				theirs.ClientAuth = tls.RequestClientCert // takes any without a look at it
			}
			opts := append(limited(engineOf(t, guard)), grpc.Creds(credentials.NewTLS(theirs)))
			if got := call(t.Context(), serve(t, &service{}, opts, grpc.WithTransportCredentials(credentials.NewTLS(mine)))); got.Code() != c.want {
				t.Errorf("%v", got)
			}
		})
	}
	if got := call(t.Context(), serve(t, &service{}, limited(engineOf(t, guard)))); got.Code() != codes.OK {
		t.Errorf("without TLS: %v", got)
	}
}
