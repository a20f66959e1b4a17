//go:build !race

// What is as large as it may be is read by one goroutine: the race detector has
// nothing to look at there, and would make it ten times as dear.

package policyfile

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/policy"
)

// TestLargeFiles holds the worst files that may be read, as far as we know
// them, under the bound on memory that the manual tells.
func TestLargeFiles(t *testing.T) {
	var realistic, many, laugh strings.Builder
	realistic.WriteString("rules:\n")
	for i := range policy.MaxRules {
		fmt.Fprintf(&realistic, "  - name: r%d\n    match: {host: \"*.tunnel.example\", path: /login/**, method: [POST, PUT]}\n", i)
		fmt.Fprintf(&realistic, "    limit: 10/s\n    key: client.ip\n    # %s\n", strings.Repeat("a comment ", 50))
	}
	many.WriteString("rules:\n")
	for i := range policy.MaxRules + 1 {
		fmt.Fprintf(&many, "- {name: r%d, limit: 1/s}\n", i)
	}
	laugh.WriteString("rules:\n  - {name: first, limit: 1/s, key: &k [" + strings.Repeat("host,", 5000) + "]}\n")
	for i := range 9000 {
		fmt.Fprintf(&laugh, "  - {name: r%d, limit: 1/s, key: *k}\n", i)
	}
	for name, c := range map[string]struct {
		text string
		want string // in the error; "" for none
	}{
		"ten thousand rules": {realistic.String(), ""},
		"one rule more":      {many.String(), "more than 10000 rules"},
		"small pieces":       {"[" + strings.Repeat("a: b,", maxPieces-10) + "]", "want a policy file"},
		"smaller pieces":     {"[" + strings.Repeat("a,", maxPieces) + "]", "more than 300000 lines"},
		"aliases":            {laugh.String(), "too many values"},
		"one long value":     {"rules: [{name: a, limit: 1/s, match: {path: /" + strings.Repeat("x", MaxSize-100) + "}}]", ""},
		"one long limit":     {"rules: [{name: a, limit: " + strings.Repeat("1", MaxSize-100) + "}]", "limit: 111"},
		"deep":               {strings.Repeat("[", MaxSize/100), "deeper than 20"},
		"deep by dashes":     {strings.Repeat("- ", MaxSize/2), "deeper than 20"},
		"documents":          {strings.Repeat("---\n", maxPieces), "second document"},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := Parse("x", []byte(c.text))
			runtime.ReadMemStats(&after)
			if got := fmt.Sprint(err); c.want == "" && err != nil || !strings.Contains(got, c.want) {
				t.Errorf("error %.300s, want %q", got, c.want)
			}
			// What is allocated in all is more than what is held at once.
			if mb := (after.TotalAlloc - before.TotalAlloc) >> 20; mb > 1500 {
				t.Errorf("allocated %d MB", mb)
			}
		})
	}
}

func TestLargeList(t *testing.T) {
	var b strings.Builder
	for i := range 200_000 {
		fmt.Fprintf(&b, "10.%d.%d.%d # %d\r\n", i>>16, i>>8&255, i&255, i)
	}
	f, err := ParseFS(fstest.MapFS{"deny.txt": {Data: []byte(b.String())}}, "p.yaml", []byte("rules: [{name: a, key: client.ip, limit: 10/s}]\noverrides: [{deny: true, list: deny.txt}]"))
	if err != nil {
		t.Fatal(err)
	}
	if n := f.Policy.Overrides().Len(); n != 200_000 {
		t.Errorf("%d entries", n)
	}
	m := spillgate.NewMemory()
	defer m.Close()
	e := policy.NewEngine(f.Policy, m)
	for ip, want := range map[string]bool{"10.0.0.0": false, "10.3.13.63": false, "10.3.13.64": true, "9.255.255.255": true} {
		v := e.Decide(t.Context(), policy.Attrs{"client.ip": ip})
		if v.Allowed != want {
			t.Errorf("%s: allowed %t", ip, v.Allowed)
		}
		if !want && v.Refusing().Line() == 0 {
			t.Errorf("%s: by no line", ip)
		}
	}
}
