package policyfile

import (
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"
)

// TestDocuments reads the policies that the other documents show.
func TestDocuments(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(repository(t), "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Base(name) == "policy.md" {
			continue // see TestManual
		}
		beside := fstest.MapFS{}
		for _, m := range list.FindAllSubmatch(text, -1) {
			beside["lists/pardoned.txt"] = &fstest.MapFile{Data: m[1]}
		}
		for _, m := range block.FindAllSubmatch(text, -1) {
			if string(m[1]) != " policy" {
				continue
			}
			found++
			if _, err := ParseFS(beside, filepath.Base(name), m[2]); err != nil {
				t.Errorf("%v in the example\n%s", err, m[2])
			}
		}
	}
	if found == 0 {
		t.Error("no examples found")
	}
}
