package policyfile

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/policy"
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

// FuzzFixes holds the guesses at what a text means to their word: what they
// say to write is taken.
func FuzzFixes(f *testing.F) {
	for _, c := range slips {
		f.Add(strings.Trim(c.slip, `"'`))
	}
	f.Fuzz(func(t *testing.T, s string) {
		told := func(fix string) (string, bool) {
			w, ok := strings.CutPrefix(fix, "write ")
			if u, err := strconv.Unquote(w); err == nil {
				w = u
			}
			return w, ok && !strings.Contains(w, ", ") && !strings.Contains(w, " or ") && !strings.Contains(w, " such as ")
		}
		if w, ok := told(fixLimit(s)); ok {
			if _, err := spillgate.ParseLimit(w); err != nil {
				t.Errorf("limit %q: told to write %q: %v", s, w, err)
			}
		}
		if w, ok := told(timeSpan{1, maxPeriod, "10m", ""}.fix(s)); ok {
			if l, err := spillgate.ParseLimit("1/" + w); err != nil || FormatPeriod(l.Period) != w {
				t.Errorf("ttl %q: told to write %q: %v", s, w, err)
			}
		}
		if w, ok := told(fixListen(s)); ok && !listenAt(w) {
			t.Errorf("listen %q: told to write %q", s, w)
		}
		if w, ok := told(fixUpstream(s)); ok && !server(w) {
			t.Errorf("upstream %q: told to write %q", s, w)
		}
		if w, ok := told(fixPart(s)); ok {
			if _, err := policy.ParsePart(w); err != nil {
				t.Errorf("key %q: told to write %q: %v", s, w, err)
			}
		}
		for _, k := range []policy.Kind{policy.ClientIP, policy.Method, policy.Path, policy.Host} {
			a := policy.Attribute{Kind: k}
			if w, ok := told(fixValue(a, s)); ok {
				if err := valueError(a, w); err != nil {
					t.Errorf("%s %q: told to write %q: %v", a, s, w, err)
				}
			}
		}
	})
}
