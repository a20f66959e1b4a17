package policyfile

import "testing"

func TestTLS(t *testing.T) {
	f, err := Parse("x", []byte("server: {tls: {certificate_file: a.crt, key_file: /b/a.key}}\nrules: [{name: a, limit: 10/s}]"))
	if err != nil {
		t.Fatal(err)
	}
	if want := (TLS{"a.crt", "/b/a.key"}); f.Server.TLS != want {
		t.Errorf("%+v, want %+v", f.Server.TLS, want)
	}
	if f, err = Parse("x", []byte("server: {headers: off}\nrules: [{name: a, limit: 10/s}]")); err != nil || f.Server.TLS != (TLS{}) {
		t.Errorf("%+v, %v", f, err)
	}
}
