package policyfile

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestTLS(t *testing.T) {
	f, err := Parse("x", []byte("server: {tls: {certificate_file: a.crt, key_file: /b/a.key}}\nrules: [{name: a, limit: 10/s}]"))
	if err != nil {
		t.Fatal(err)
	}
	if want := (TLS{CertificateFile: "a.crt", KeyFile: "/b/a.key"}); f.Server.TLS != want {
		t.Errorf("%+v, want %+v", f.Server.TLS, want)
	}
	if f, err = Parse("x", []byte("server: {headers: off}\nrules: [{name: a, limit: 10/s}]")); err != nil || f.Server.TLS != (TLS{}) {
		t.Errorf("%+v, %v", f, err)
	}
}

// A file for the gateway may speak of the certificates of clients if it says who
// signs them.
func TestTLSClientInTheGateway(t *testing.T) {
	const rules = `
rules:
  - {name: partner, key: tls.client, limit: 10/s, missing: skip}
  - {name: others, key: client.ip, match: {tls.client: "!*.partner.example"}, limit: 1/s}
tests:
  - {name: a partner, requests: [{tls.client: a.partner.example, client.ip: 203.0.113.7, expect: {rules: partner}}]}
`
	f, err := Parse("x", []byte("server: {tls: {certificate_file: a.crt, key_file: a.key, client_ca_file: ca.pem}}"+rules))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.BeyondGateway(), f.TestAll()); err != nil || f.Server.TLS.ClientCAFile != "ca.pem" {
		t.Errorf("%+v, %v", f.Server.TLS, err)
	}
	for _, server := range []string{"server: {headers: off}", "server: {tls: {certificate_file: a.crt, key_file: a.key}}"} {
		if _, err := Parse("x", []byte(server+rules)); err == nil || strings.Count(fmt.Sprint(err), "the gateway knows no tls.client") != 3 {
			t.Errorf("%s: %v", server, err)
		}
	}
	f, err = Parse("x", []byte(rules))
	if err != nil || f.BeyondGateway() == nil {
		t.Errorf("for a program: %v, beyond the gateway: %v", err, f.BeyondGateway())
	}
}
