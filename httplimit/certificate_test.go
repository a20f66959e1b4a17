package httplimit_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/spillgate/spillgate/httplimit"
	"github.com/spillgate/spillgate/policy"
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
	cert.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
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

func TestClientCertificates(t *testing.T) {
	authority := issue(t, &x509.Certificate{Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, nil)
	spiffe, err := url.Parse("spiffe://example.org/billing")
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(authority.Leaf)
	guard := rule(t, "r", "1/h burst 1", "tls.client")
	guard.Missing = policy.Skip
	guard.Match = policy.Match{{Attribute: policy.Attribute{Kind: policy.TLSClient}, Values: []string{"spiffe://example.org/*", "a.example", "a@example.org", "CN=alice,O=Example"}}}
	for name, c := range map[string]struct {
		cert   *x509.Certificate
		by     *tls.Certificate
		limits bool
	}{
		"URI":         {&x509.Certificate{URIs: []*url.URL{spiffe}, DNSNames: []string{"other.example"}}, &authority, true},
		"DNS name":    {&x509.Certificate{DNSNames: []string{"a.example"}}, &authority, true},
		"e-mail":      {&x509.Certificate{EmailAddresses: []string{"a@example.org"}}, &authority, true},
		"subject":     {&x509.Certificate{Subject: pkix.Name{CommonName: "alice", Organization: []string{"Example"}}}, &authority, true},
		"another":     {&x509.Certificate{DNSNames: []string{"b.example"}}, &authority, false},
		"self-signed": {&x509.Certificate{DNSNames: []string{"a.example"}}, nil, false},
		"none":        {nil, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewUnstartedServer(httplimit.Policy(engine(t, guard))(trivial))
			// RequestClientCert takes any certificate without a look at it.
			server.TLS = &tls.Config{ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: pool}
			if name == "self-signed" {
				server.TLS.ClientAuth = tls.RequestClientCert
			}
			server.StartTLS()
			defer server.Close()
			client := server.Client()
			if c.cert != nil {
				mine := issue(t, c.cert, c.by)
				config := client.Transport.(*http.Transport).TLSClientConfig
				config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &mine, nil }
			}
			for i := range 2 {
				resp, err := client.Get(server.URL)
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
				if limited := resp.StatusCode == 429; limited != (c.limits && i == 1) {
					t.Errorf("request %d: status %d", i, resp.StatusCode)
				}
			}
		})
	}
}
