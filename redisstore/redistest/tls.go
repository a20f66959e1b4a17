package redistest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// An Authority signs certificates.
type Authority struct {
	// File holds its own certificate, in PEM.
	File string

	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority makes one, whose files are gone when the test ends.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{t: t, key: newKey(t)}
	a.File, a.cert = a.sign(&x509.Certificate{
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, a.key)
	return a
}

// Issue makes a certificate for a server at an address, or for a client, and its key.
func (a *Authority) Issue(ip string) (certFile, keyFile string) {
	a.t.Helper()
	key := newKey(a.t)
	certFile, _ = a.sign(&x509.Certificate{
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.ParseIP(ip)},
	}, key)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal("redistest:", err)
	}
	return certFile, a.write("key.pem", "PRIVATE KEY", secret)
}

// Config is that of a client with a certificate, who trusts those of a.
func (a *Authority) Config() *tls.Config {
	a.t.Helper()
	certFile, keyFile := a.Issue("127.0.0.1")
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		a.t.Fatal("redistest:", err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	return &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
}

// server returns the options of a server at an address that lets only those in
// over TLS who show a certificate of a.
func (a *Authority) server(ip, port string) []string {
	certFile, keyFile := a.Issue(ip)
	return []string{"--tls-port", port, "--tls-cert-file", certFile, "--tls-key-file", keyFile, "--tls-ca-cert-file", a.File}
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal("redistest:", err)
	}
	return key
}

// sign writes the certificate of a key, signed by a: its own if it has none yet.
func (a *Authority) sign(c *x509.Certificate, key *ecdsa.PrivateKey) (file string, cert *x509.Certificate) {
	a.t.Helper()
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		a.t.Fatal("redistest:", err)
	}
	c.SerialNumber, c.NotBefore, c.NotAfter = serial, time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	c.Subject.CommonName = fmt.Sprint("redistest ", serial)
	parent := a.cert
	if parent == nil {
		parent = c
	}
	signed, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, a.key)
	if err != nil {
		a.t.Fatal("redistest:", err)
	}
	if cert, err = x509.ParseCertificate(signed); err != nil {
		a.t.Fatal("redistest:", err)
	}
	return a.write("cert.pem", "CERTIFICATE", signed), cert
}

func (a *Authority) write(name, kind string, content []byte) string {
	a.t.Helper()
	file := filepath.Join(a.t.TempDir(), name)
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}), 0o600); err != nil {
		a.t.Fatal("redistest:", err)
	}
	return file
}

// StartTLS runs a server that also listens at addr, for TLS alone, and lets
// only those in who show the certificate that config has.
func StartTLS(t testing.TB) (s *Server, addr string, config *tls.Config) {
	t.Helper()
	a := NewAuthority(t)
	addr = freeAddr(t)
	_, port, _ := net.SplitHostPort(addr)
	return Start(t, a.server("127.0.0.1", port)...), addr, a.Config()
}

// ClusterTLS starts a cluster of two whose servers speak TLS to each other, and at
// addrs to those who show a certificate of the authority: 127.0.0.1 and 127.0.0.2,
// each with a certificate for that address alone.
func ClusterTLS(t testing.TB) (servers []*Server, addrs []string, a *Authority) {
	t.Helper()
	a = NewAuthority(t)
	servers = cluster(t, 2, func(i int) []string {
		_, port, _ := net.SplitHostPort(freeAddr(t))
		ip := fmt.Sprintf("127.0.0.%d", 1+i)
		addrs = append(addrs, net.JoinHostPort(ip, port))
		return append(a.server(ip, port), "--tls-cluster", "yes", "--cluster-announce-ip", ip)
	})
	return servers, addrs, a
}
