package policyfile

import (
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// Each name of a file counts from the folder of the policy file.
func TestFileNamesCountFromThePolicyFile(t *testing.T) {
	const text = `
server:
  upstream: https://127.0.0.1:9000
  upstream_ca_file: ca.pem
  fingerprint_key_file: ../keys/print
  tls: {certificate_file: tls/a.crt, key_file: /etc/a.key, client_ca_file: clients.pem}
  store:
    redis: rediss://127.0.0.1
    sentinel: s
    password_file: pw
    sentinel_password_file: spw
    ca_file: rca.pem
    certificate_file: r.crt
    key_file: r.key
    seed_file: seed
rules: [{name: a, limit: 10/s}]
`
	for dir, up := range map[string]string{"/etc/limits": "/etc/keys/print", "x": "keys/print", ".": "../keys/print"} {
		f, err := Parse(filepath.Join(dir, "limits.yaml"), []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		s := &f.Server
		for got, want := range map[string]string{
			s.UpstreamCAFile: "ca.pem", s.TLS.CertificateFile: "tls/a.crt", s.TLS.ClientCAFile: "clients.pem",
			s.Store.PasswordFile: "pw", s.Store.SentinelPasswordFile: "spw", s.Store.CAFile: "rca.pem", s.Store.CertificateFile: "r.crt", s.Store.KeyFile: "r.key", s.Store.SeedFile: "seed",
		} {
			if want = filepath.Join(dir, want); got != want {
				t.Errorf("%q, want %q", got, want)
			}
		}
		if s.TLS.KeyFile != "/etc/a.key" || s.FingerprintKeyFile != up || s.State != "" {
			t.Errorf("%+v", s)
		}
	}
	f, err := Parse("/x/limits.yaml", []byte("server: {state: state}\nrules: [{name: a, limit: 10/s}]"))
	if err != nil || f.Server.State != "/x/state" {
		t.Errorf("%v %+v", err, f)
	}
}

// No name of a file is left out above.
func TestFileNamesAreAll(t *testing.T) {
	var s Server
	known := s.fileNames()
	var visit func(v reflect.Value)
	visit = func(v reflect.Value) {
		for i := range v.NumField() {
			f, name := v.Field(i), v.Type().Field(i).Name
			switch {
			case f.Kind() == reflect.Struct && f.CanAddr() && v.Type().Field(i).IsExported():
				visit(f)
			case f.Kind() == reflect.String && (strings.HasSuffix(name, "File") || name == "State"):
				if !slices.Contains(known, f.Addr().Interface().(*string)) {
					t.Errorf("%s.%s is not among them", v.Type(), name)
				}
			}
		}
	}
	visit(reflect.ValueOf(&s).Elem())
}

// Whose signatures are believed says something only of an upstream over TLS.
func TestUpstreamCAFile(t *testing.T) {
	for text, ok := range map[string]bool{
		"server: {upstream: 'https://a', upstream_ca_file: ca.pem}\nrules: [{name: a, limit: 10/s}]":                                 true,
		"server: {upstream_ca_file: ca.pem}\nrules: [{name: a, limit: 10/s}]":                                                        true,
		"server: {upstream: 'http://a', upstream_ca_file: ca.pem}\nrules: [{name: a, limit: 10/s}]":                                  false,
		"server: {upstream: 'h2c://a', upstream_ca_file: ca.pem}\nrules: [{name: a, limit: 10/s, backup: {upstream: 'http://b'}}]":   false,
		"server: {upstream: 'http://a', upstream_ca_file: ca.pem}\nrules: [{name: a, limit: 10/s, backup: {upstream: 'https://b'}}]": true,
	} {
		_, err := Parse("x", []byte(text))
		if (err == nil) != ok || err != nil && !strings.Contains(err.Error(), "x:1:") {
			t.Errorf("%s: %v", text, err)
		}
	}
}
