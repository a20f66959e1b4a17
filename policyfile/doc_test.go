package policyfile

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"go.yaml.in/yaml/v4"
)

var (
	block   = regexp.MustCompile("(?ms)^```yaml(.*?)\n(.*?)^```$")
	list    = regexp.MustCompile("(?ms)^```text list\n(.*?)^```$")
	refused = regexp.MustCompile("(?ms)^```yaml refused\n(.*?)^```\n\n```text\n(.*?)^```$")
)

// repository returns the folder of the whole repository. The module alone, as
// it is released, has no documents to test.
func repository(t *testing.T) string {
	t.Helper()
	if _, err := os.Stat(filepath.Join("..", "go.work")); err != nil {
		t.Skip("not in the repository")
	}
	return ".."
}

func manual(t *testing.T) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(repository(t), "docs", "policy.md"))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestManual reads each example of the manual, and holds the reports on the
// refused ones against what the manual shows. What is to be copied has no
// warnings.
func TestManual(t *testing.T) {
	text := manual(t)
	for _, name := range []string{"docs/grpc.md", "docs/operations.md", "README.md"} {
		data, err := os.ReadFile(filepath.Join(repository(t), name))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range block.FindAll(data, -1) {
			if !bytes.HasPrefix(m, []byte("```yaml refused")) {
				text = append(append(text, '\n'), bytes.Replace(m, []byte("```yaml\n"), []byte("```yaml policy\n"), 1)...)
			}
		}
	}
	beside := fstest.MapFS{"pages/busy.html": {Data: []byte("<h1>Busy</h1>")}, "lists/agents.txt": {Data: []byte("curl/8\n")}, "lists/pardoned.txt": {}}
	for _, m := range list.FindAllSubmatch(text, -1) {
		beside["lists/deny.txt"] = &fstest.MapFile{Data: m[1]}
	}
	policies := 0
	for _, m := range block.FindAllSubmatch(text, -1) {
		switch string(m[1]) {
		case " policy":
			policies++
			f, err := ParseFS(beside, "policy.md", m[2])
			if err != nil {
				t.Errorf("%v in the example\n%s", err, m[2])
				continue
			}
			if len(f.Warnings) > 0 {
				t.Errorf("%v in the example\n%s", f.Warnings, m[2])
			}
			for _, test := range f.Tests {
				if fails := test.Run().Failures; len(fails) > 0 {
					t.Errorf("%v in the example\n%s", fails, m[2])
				}
			}
		case " refused":
		default:
			t.Errorf("an example is marked neither policy nor refused:\n%s", m[2])
		}
	}
	if policies == 0 {
		t.Error("no examples found")
	}
	reports := refused.FindAllSubmatch(text, -1)
	if len(reports) == 0 {
		t.Error("no refused examples found")
	}
	for _, m := range reports {
		_, err := Parse("limits.yaml", m[1])
		var errs Errors
		if !errors.As(err, &errs) {
			t.Errorf("error %v, want Errors, in\n%s", err, m[1])
			continue
		}
		var got bytes.Buffer
		if err := errs.Report(&got, m[1]); err != nil {
			t.Fatal(err)
		}
		if got.String() != string(m[2]) {
			t.Errorf("the report is\n%s\nbut the manual says\n%s", &got, m[2])
		}
	}
}

// TestOneSlipIsOneError spoils the manual's examples in one place after the
// other, each key and each plain value. There is one error each time, since all
// others would only come of it.
func TestOneSlipIsOneError(t *testing.T) {
	beside := fstest.MapFS{"pages/busy.html": {Data: []byte("<h1>Busy</h1>")}, "lists/agents.txt": {Data: []byte("curl/8\n")}, "lists/deny.txt": {}}
	slips := 0
	for _, m := range block.FindAllSubmatch(manual(t), -1) {
		if string(m[1]) != " policy" {
			continue
		}
		lines := strings.Split(string(m[2]), "\n")
		spoil := func(n *yaml.Node) {
			line := []rune(lines[n.Line-1])
			before, rest := string(line[:n.Column-1]), string(line[n.Column-1:])
			after, ok := strings.CutPrefix(rest, n.Value)
			if !ok {
				return // in quotes
			}
			spoilt := slices.Clone(lines)
			spoilt[n.Line-1] = before + "Q ?" + after
			_, err := ParseFS(beside, "x", []byte(strings.Join(spoilt, "\n")))
			var errs Errors
			if errors.As(err, &errs) {
				slips++
			}
			if len(errs) > 1 {
				t.Errorf("%s in place of %s:\n%v", spoilt[n.Line-1], n.Value, errs)
			}
		}
		var walk func(n *yaml.Node)
		walk = func(n *yaml.Node) {
			if n.Kind == yaml.ScalarNode {
				spoil(n)
			}
			for _, c := range n.Content {
				walk(c)
			}
		}
		var root yaml.Node
		if err := yaml.Load(m[2], &root); err != nil {
			t.Fatal(err)
		}
		walk(&root)
	}
	if slips < 500 {
		t.Errorf("%d slips, want many", slips)
	}
}

// TestManualShowsEachKey finds each key of the format in an example.
func TestManualShowsEachKey(t *testing.T) {
	var examples []byte
	for _, m := range block.FindAllSubmatch(manual(t), -1) {
		if string(m[1]) == " policy" {
			examples = append(examples, m[2]...)
		}
	}
	for _, keys := range [][]string{documentForm.keys(), serverForm.keys(), clientIPForm.keys(), ruleForm.keys(), testForm.keys(), requestForm.keys(), expectForm.keys(), penaltyForm.keys(), overrideForm.keys(),
		answerForm.keys(), onFaultForm.keys(), delayForm.keys(), backupForm.keys(), pathsForm.keys(), tlsForm.keys(), laneForm.keys(), costForm.keys(), usageForm.keys(), usagePathsForm.keys(),
		connectionsForm.keys(), storeForm.keys(), tlsForm.keys()} {
		for _, key := range keys {
			if !regexp.MustCompile(`(?m)(^|[ {])` + key + `:`).Match(examples) {
				t.Errorf("no example uses %q", key)
			}
		}
	}
}

// TestExamples reads the policies of the examples and plays their tests. They
// are without warnings.
func TestExamples(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(repository(t), "examples", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	for _, file := range files {
		f, err := LoadFile(file)
		if err != nil {
			t.Error(err)
			continue
		}
		if len(f.Warnings) > 0 {
			t.Errorf("%v", f.Warnings)
		}
		if err := f.TestAll(); err != nil {
			t.Error(err)
		}
	}
}
