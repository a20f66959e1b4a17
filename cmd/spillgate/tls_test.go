package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// certify writes a certificate with that number, and its key.
func certify(t *testing.T, number int64, certificate, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(number), DNSNames: []string{"x"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, c, c, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	for file, b := range map[string]*pem.Block{certificate: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(b), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// The gateway speaks HTTPS by the certificate that the file names, and by
// another one when that is renewed.
func TestServeOverTLS(t *testing.T) {
	dir := t.TempDir()
	certificate, key := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	certify(t, 1, certificate, key)
	p := start(t, fmt.Sprintf(`
server:
  tls: {certificate_file: %s, key_file: %s}
rules:
  - {name: everybody, limit: 1000/s, key: client.ip}
`, certificate, key), "--demo")
	if !strings.HasPrefix(p.url, "https://") {
		t.Errorf("it serves %s", p.url)
	}
	p.out.await(t, p.exited, "curl -k -i "+p.url)
	number := func() int64 {
		tr := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
		defer tr.CloseIdleConnections()
		resp, err := (&http.Client{Transport: tr, Timeout: 20 * time.Second}).Get(p.url)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != 200 || resp.ProtoMajor != 2 {
			t.Errorf("%s %s", resp.Proto, resp.Status)
		}
		return resp.TLS.PeerCertificates[0].SerialNumber.Int64()
	}
	if n := number(); n != 1 {
		t.Errorf("certificate %d", n)
	}
	if err := os.WriteFile(key, []byte("broken"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.log.await(t, p.exited, "the last good one holds")
	if n := number(); n != 1 {
		t.Errorf("certificate %d while the file is broken", n)
	}
	certify(t, 2, certificate, key)
	p.log.await(t, p.exited, "certificate read anew")
	if n := number(); n != 2 {
		t.Errorf("certificate %d after it was renewed", n)
	}
}
