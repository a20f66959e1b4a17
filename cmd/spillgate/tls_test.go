package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/policyfile"
)

// certify writes a certificate with that number and for that name, and its key.
func certify(t *testing.T, number int64, name, certificate, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(number), DNSNames: []string{name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
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
	certify(t, 1, "x", certificate, key)
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
	certify(t, 2, "x", certificate, key)
	p.log.await(t, p.exited, "certificate read anew")
	if n := number(); n != 2 {
		t.Errorf("certificate %d after it was renewed", n)
	}
}

// Rules know whom the certificate of a client is for, over both versions of HTTP,
// and nobody is believed whom none of those named has signed.
func TestServeKnowsClientsByCertificate(t *testing.T) {
	dir := t.TempDir()
	var believed []byte
	for i, name := range []string{"x", "ann", "bob", "mallory"} {
		certify(t, int64(i), name, filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key"))
		if name == "ann" || name == "bob" {
			text, err := os.ReadFile(filepath.Join(dir, name+".crt"))
			if err != nil {
				t.Fatal(err)
			}
			believed = append(believed, text...)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "clients.pem"), believed, 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, fmt.Sprintf(`
server:
  tls: {certificate_file: %[1]s/x.crt, key_file: %[1]s/x.key, client_ca_file: %[1]s/clients.pem}
rules:
  - {name: partner, key: tls.client, limit: 1/h burst 2, missing: deny}
`, dir), "--demo")
	ask := func(name, version string) (int, error) {
		tr := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{version}}}
		defer tr.CloseIdleConnections()
		if name != "" {
			c, err := tls.LoadX509KeyPair(filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key"))
			if err != nil {
				t.Fatal(err)
			}
			tr.TLSClientConfig.Certificates = []tls.Certificate{c}
			// Also if the server says that it would not believe it.
			tr.TLSClientConfig.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &c, nil }
		}
		resp, err := (&http.Client{Transport: tr, Timeout: 20 * time.Second}).Get(p.url)
		if err != nil {
			return 0, err
		}
		resp.Body.Close()
		return resp.StatusCode, nil
	}
	for i, c := range []struct {
		name, version string
		status        int
	}{
		{"", "h2", 403}, {"ann", "h2", 200}, {"ann", "http/1.1", 200}, {"ann", "h2", 429}, {"bob", "http/1.1", 200}, {"", "http/1.1", 403}, {"mallory", "h2", 0}, {"mallory", "http/1.1", 0},
	} {
		if status, err := ask(c.name, c.version); status != c.status {
			t.Errorf("request %d of %q over %s: %d, %v; want %d", i, c.name, c.version, status, err, c.status)
		}
	}
}

func TestCertificatesThatCantBeUsed(t *testing.T) {
	dir := t.TempDir()
	crt, key, other := filepath.Join(dir, "a.crt"), filepath.Join(dir, "a.key"), filepath.Join(dir, "b.key")
	certify(t, 1, "a", crt, key)
	certify(t, 2, "b", filepath.Join(dir, "b.crt"), other)
	for says, c := range map[string]policyfile.TLS{
		"key_file " + other + ": tls: private key does not match": {CertificateFile: crt, KeyFile: other},
		"certificate_file " + key + ", ":                          {CertificateFile: key, KeyFile: key},
		"client_ca_file " + key + ": no certificate in it":        {CertificateFile: crt, KeyFile: key, ClientCAFile: key},
		"client_ca_file: open " + dir + "/none":                   {CertificateFile: crt, KeyFile: key, ClientCAFile: dir + "/none"},
	} {
		if _, _, err := certificates(t.Context(), c, slog.New(slog.DiscardHandler)); err == nil || !strings.HasPrefix(err.Error(), "tls: ") || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
}

// By a line of the file the gateway speaks HTTP/2 without TLS, and check says so.
func TestServeH2C(t *testing.T) {
	p := start(t, "server: {h2c: true}\nrules:\n  - {name: everybody, limit: 1000/s, key: client.ip}\n", "--demo")
	for version := 1; version <= 2; version++ {
		tr := &http.Transport{Protocols: new(http.Protocols)}
		tr.Protocols.SetHTTP1(version == 1)
		tr.Protocols.SetUnencryptedHTTP2(version == 2)
		resp, err := (&http.Client{Transport: tr, Timeout: 20 * time.Second}).Get(p.url)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		tr.CloseIdleConnections()
		if resp.StatusCode != 200 || resp.ProtoMajor != version || resp.Header.Get("RateLimit") == "" {
			t.Errorf("%s %s %v", resp.Proto, resp.Status, resp.Header)
		}
	}
	f, err := policyfile.Parse("x", []byte("server: {h2c: true}\nrules: [{name: a, limit: 10/s}]"))
	if err != nil {
		t.Fatal(err)
	}
	if text := fmt.Sprint(serverText(&f.Server)); !strings.Contains(text, "no TLS; HTTP/1.1, and HTTP/2 with those who begin with it (h2c)") || !serverJSON(&f.Server).H2C {
		t.Errorf("check says %s", text)
	}
}

// An upstream over TLS is believed if one of those has signed its certificate whom the
// file names, from the policy file's folder.
func TestServeKnowsWhoSignsForTheUpstream(t *testing.T) {
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	srv.StartTLS()
	t.Cleanup(srv.Close)
	dir := t.TempDir()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
	if err := os.WriteFile(filepath.Join(dir, "ca.pem"), ca, 0o600); err != nil {
		t.Fatal(err)
	}
	for more, want := range map[string]int{", upstream_ca_file: ca.pem": 200, "": 502} {
		policy := filepath.Join(dir, "limits.yaml")
		text := fmt.Sprintf("server: {upstream: %q%s}\nrules: [{name: all, limit: 100/s, key: client.ip}]\n", srv.URL, more)
		if err := os.WriteFile(policy, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		p := start(t, policy)
		if got := status(t, p.url); got != want {
			t.Errorf("%q: %d, want %d", more, got, want)
		}
	}
}
