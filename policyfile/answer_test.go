package policyfile

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spillgate/spillgate/policy"
)

func TestAnswerFiles(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"busy.html": "<h1>Busy</h1>", "pages/busy.JSON": `{"busy": true}`, "none.txt": "", "broken.json": "{", "latin.html": "<p>Sp\xe4ter", "secret.key": "x",
		"large.txt": strings.Repeat("x", policy.MaxAnswer+1), "most.txt": strings.Repeat("x", policy.MaxAnswer),
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "folder.html"), 0o700); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		"busy.html":                     `"text/html; charset=utf-8" 13`,
		"pages/busy.JSON":               `"application/json" 14`,
		"none.txt":                      `"text/plain; charset=utf-8" 0`,
		"most.txt":                      `"text/plain; charset=utf-8" 1048576`,
		"missing.html":                  "no such file",
		"broken.json":                   "not valid JSON",
		"latin.html":                    "not in UTF-8",
		"large.txt":                     "more than 1048576 bytes",
		"folder.html":                   "is no file",
		"secret.key":                    "does not say what it holds",
		"../busy.html":                  "no path from the policy file's folder",
		filepath.Join(dir, "busy.html"): "no path from the policy file's folder",
	} {
		path := filepath.Join(dir, "limits.yaml")
		text := fmt.Sprintf("rules: [{name: a, limit: 10/s, answer: {file: %s}}]", file)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		pol, err := Load(path)
		if err != nil {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %s", file, err, want)
			}
			continue
		}
		a := pol.Rules()[0].Answer
		if got := fmt.Sprintf("%q %d", a.Type, len(a.Body)); got != want {
			t.Errorf("%s: %s, want %s", file, got, want)
		}
	}
}
