package policyfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFingerprintKey(t *testing.T) {
	dir := t.TempDir()
	for text, want := range map[string]string{
		"0123456789abcdef\n":      "0123456789abcdef",
		"  0123456789abcdef0123 ": "0123456789abcdef0123",
		"short":                   "error",
		"":                        "error",
		strings.Repeat("x", 4097): "error",
	} {
		path := filepath.Join(dir, "key")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := Parse("x", []byte("server: {fingerprint_key_file: "+path+"}\nrules: [{name: a, limit: 10/s}]"))
		if err != nil {
			t.Fatal(err)
		}
		key, err := f.Server.FingerprintKey()
		if want == "error" {
			if err == nil || !strings.Contains(err.Error(), "want 16 to 4096") || text != "" && strings.Contains(err.Error(), text) {
				t.Errorf("%.20q: error %v", text, err)
			}
		} else if err != nil || string(key) != want {
			t.Errorf("%q: key %q, error %v", text, key, err)
		}
	}
	none := Server{FingerprintKeyFile: filepath.Join(dir, "none")}
	if _, err := none.FingerprintKey(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if key, err := new(Server).FingerprintKey(); key != nil || err != nil {
		t.Errorf("not named: %q, %v", key, err)
	}
}
