package policyfile

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"unicode/utf8"
)

// FuzzParse holds Parse to its word for any text: no panic, and each error at
// a place within the file, in order, with something to say.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	for _, s := range []string{
		"rules: [{name: a, limit: 10/s burst 20, key: client.ip}]",
		"rules: [{name: a, limit: 5/s burst 0}]",
		"rules: [{name: a, limit: 0/s burst 1}]",
		"rules: [{name: a, limit: 10/s, ttl: '1 minute'}, {name: b, limit: 10/s, ttl: 1e3s}]",
		"rules: [{name: a, limit: 10/s, cost: 9223372036854775807}, {name: b, limit: 10/s, cost: -1}]",
		"rules: [{name: a, limit: 10/s, key: {header: X-Tenant}}, {name: b, limit: 10/s, key: {ip: null}}]",
		"rules: &a\n- &b {name: &c d, limit: &d 10/s, match: {user: [*c, *c]}}\n- *b\n- *a\n",
		"\uFEFFrules:\r\n  - name: é\r\n    limit: \"10/s\\u0020x\"\r\n",
		"%YAML 1.2\n---\nserver: {listen: ':0', client_ip: {trusted: any, from: forwarded}}\n...\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := Parse("x", data)
		if err == nil {
			if len(file.Policy.Rules()) == 0 {
				t.Error("a policy without rules")
			}
			return
		}
		var errs Errors
		if !errors.As(err, &errs) || len(errs) == 0 || len(errs) > maxErrors+1 {
			t.Fatalf("error %v, want Errors", err)
		}
		text := newText(data)
		line, column := 1, 1
		for _, e := range errs {
			if e.Line < line || e.Line == line && e.Column < column {
				t.Errorf("%v comes after line %d, column %d", e, line, column)
			}
			line, column = e.Line, e.Column
			if line > len(text.starts) || column > utf8.RuneCountInString(text.line(line))+1 {
				t.Errorf("%v is outside of the file", e)
			}
			if e.Msg == "" || !utf8.ValidString(e.Error()) {
				t.Errorf("an error says %q", e.Error())
			}
		}
		if err := errs.Report(io.Discard, data); err != nil {
			t.Error(err)
		}
	})
}
