package cases

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spillgate/spillgate/proof/internal/workspace"
)

// catalogue lists the cases: bugs that were reported in public.
var catalogue = strings.Fields(`
	B001 B002 B003 B007 B009 B011 B013 B015 B016 B019 B020 B021 B022 B025 B029 B031 B032 B035 B036 B039 B040 B041 B042
	B044 B046 B047 B048 B049 B053 B054 B056 B058 B059 B060 B062 B067 B070 B072 B074 B076 B079 B081 B083 B084 B086 B088
	B089 B092 B094 B096 B098 B100 B102 B104 B105 B107 B108 B109 B112 B114 B116 B118 B119 B121 B124 B126 B129 B131 B133
	B135 B136 B138 B140 B141 B143 B144 B145 B147 B149 B151 B153 B155 B161 B162 B163 B165 B167`)

var (
	row  = regexp.MustCompile(`(?m)^\| (B\d{3}) \| [a-z]+ \| (.+) \|$`)
	test = regexp.MustCompile("`([\\w/.]+): (\\w+)(?:/([^`]+))?`")
)

// TestEachCaseHasATest holds docs/proof.md against the sources: each case of
// the catalogue has a row, which names its tests or says why the case can't
// apply; and all tests that the page names exist.
func TestEachCaseHasATest(t *testing.T) {
	ws, err := workspace.Open()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(ws.Root, "docs", "proof.md"))
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, m := range row.FindAllStringSubmatch(string(text), -1) {
		listed = append(listed, m[1])
		if !test.MatchString(m[2]) && !strings.HasPrefix(m[2], "can't apply: ") {
			t.Errorf("%s: no test, and no reason why it can't apply", m[1])
		}
	}
	sources := map[string]*source{}
	for _, n := range test.FindAllStringSubmatch(string(text), -1) {
		folder, function, sub := n[1], n[2], n[3]
		if sources[folder] == nil {
			if sources[folder], err = readTests(filepath.Join(ws.Root, folder)); err != nil {
				t.Fatal(err)
			}
		}
		if s := sources[folder]; !s.functions[function] || sub != "" && !s.texts[sub] {
			t.Errorf("%s has no test %s %q", folder, function, sub)
		}
	}
	slices.Sort(listed)
	if !slices.Equal(listed, catalogue) {
		t.Errorf("docs/proof.md lists %v, want %v", listed, catalogue)
	}
}

// A source is what the test files of a folder hold.
type source struct{ functions, texts map[string]bool }

func readTests(folder string) (*source, error) {
	names, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	if err != nil {
		return nil, err
	}
	s := &source{map[string]bool{}, map[string]bool{}}
	for _, name := range names {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			return nil, err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				s.functions[n.Name.Name] = n.Recv == nil && strings.HasPrefix(n.Name.Name, "Test")
			case *ast.BasicLit:
				if text, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING {
					s.texts[text] = true
				}
			}
			return true
		})
	}
	return s, nil
}
