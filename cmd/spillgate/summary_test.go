package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/spillgate/spillgate/policyfile"
)

// Of long lists the first values are shown, and how many there are; long values
// don't push the others' columns out of sight.
func TestLongListsAreShownInShort(t *testing.T) {
	var list []string
	for i := range 30_000 {
		list = append(list, fmt.Sprintf("10.0.%d.%d", i/200, i%200))
	}
	text := fmt.Sprintf("rules:\n  - {name: many, key: client.ip, limit: 1/s, match: {client.ip: [%s]}}\n  - {name: long, key: client.ip, limit: 1/s, match: {host: %s}}\n",
		strings.Join(list, ", "), strings.Repeat("a", 2_000_000))
	f, err := policyfile.Parse("limits.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := summarise(&b, "limits.yaml", f); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(b.String(), "\n")
	if len(lines[2]) > 300 || !strings.HasPrefix(lines[2], "  RULE  REQUESTS ") {
		t.Errorf("the head has %d bytes: %.100s", len(lines[2]), lines[2])
	}
	if want := "  many  client.ip 10.0.0.0|10.0.0.1|10.0.0.2|... (30000 in all) "; !strings.HasPrefix(lines[3], want) || len(lines[3]) > 300 {
		t.Errorf("%.300s, want %s", lines[3], want)
	}
	if strings.Contains(b.String(), "BADWIDTH") {
		t.Error("a width that fmt does not know")
	}
}
