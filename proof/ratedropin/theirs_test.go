package ratedropin

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spillgate/spillgate/proof/internal/workspace"
)

const (
	theirs = "golang.org/x/time/rate"
	ours   = workspace.Path + "/rate"
)

// otherwise lists the tests of that package that do not pass here, each with
// its reason. It is empty: whatever of those tests uses the exported API alone
// passes, and so does the rest, once helper.go.txt takes the place of helpers
// that reach into a limiter or into its clock.
var otherwise = map[string]string{}

// replaced are the declarations that helper.go.txt takes the place of, each
// with what it uses that is not exported.
var replaced = map[string]string{
	"testTime":      "a clock for Limiter.wait",
	"testTimer":     "a clock for Limiter.wait",
	"makeTestTime":  "a clock for Limiter.wait",
	"runReserveMax": "Limiter.reserveN and the fields of a Reservation",
	"runWait":       "Limiter.wait",
}

// unexported fields that tests print; such a statement is left out.
var fields = []string{"tokens", "last", "lastEvent"}

func TestTheirTestsPassAgainstOurs(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs another module")
	}
	w, err := workspace.Open()
	if err != nil {
		t.Fatal(err)
	}
	source := filepath.Join(theirModule(t), "rate")
	dir := t.TempDir()
	write(t, filepath.Join(dir, "go.mod"), fmt.Sprintf(
		"module dropin\n\ngo 1.26.0\n\nrequire %s v0.0.0\n\nreplace %s v0.0.0 => %s\n",
		workspace.Path, workspace.Path, strconv.Quote(filepath.ToSlash(w.Root))))
	helper, err := os.ReadFile("helper.go.txt")
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "helper_test.go"), string(helper))

	names, err := filepath.Glob(filepath.Join(source, "*_test.go"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no tests in %s: %v", source, err)
	}
	want := []string{} // all that has to pass
	for _, name := range names {
		text, tests, err := rewrite(name)
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, filepath.Base(name)), text)
		want = append(want, tests...)
	}
	if len(want) < 40 {
		t.Errorf("only %d tests, examples and benchmarks were found", len(want))
	}
	results, output := goTest(t, dir)
	failed := false
	for _, name := range want {
		why, listed := otherwise[name]
		passed := results[name] == "pass" ||
			results[name] == "run" && strings.HasPrefix(name, "Benchmark") && results[""] == "pass" // no event tells of its end
		switch {
		case passed && listed:
			t.Errorf("%s passes: strike it from the list of differences", name)
		case !passed && !listed:
			t.Errorf("%s: %q", name, results[name])
			failed = true
		case listed:
			t.Logf("%s fails, as it should: %s", name, why)
		}
	}
	for name := range otherwise {
		if !slices.Contains(want, name) {
			t.Errorf("the list of differences has %s, which does not exist", name)
		}
	}
	if failed {
		t.Log(output)
	}
	t.Logf("%d of %d pass", len(want)-len(otherwise), len(want))
}

// theirModule returns where the version of their module lies that this
// workspace requires.
func theirModule(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-json", "golang.org/x/time").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var module struct{ Dir, Version string }
	if err := json.Unmarshal(out, &module); err != nil || module.Dir == "" {
		t.Fatalf("golang.org/x/time is not in the module cache (%v): run go mod download", err)
	}
	t.Logf("golang.org/x/time %s", module.Version)
	return module.Dir
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// rewrite returns a test file of theirs as one about ours, and the names of
// the tests, examples and benchmarks in it.
//
// A test inside the package becomes one outside, so that all it sees is
// exported. Where it has a clock of its own it runs in virtual time.
func rewrite(name string) (text string, tests []string, err error) {
	source, err := os.ReadFile(name)
	if err != nil {
		return "", nil, err
	}
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return "", nil, err
	}
	edits := new(edits)
	at := func(p token.Pos) int { return fset.Position(p).Offset }
	inside := file.Name.Name == "rate"
	if inside {
		edits.replace(at(file.Name.Pos()), at(file.Name.End()), "rate_test\n\nimport . "+strconv.Quote(ours))
	}
	for _, i := range file.Imports {
		if i.Path.Value == strconv.Quote(theirs) {
			edits.replace(at(i.Path.Pos()), at(i.Path.End()), strconv.Quote(ours))
		}
	}
	for _, declaration := range file.Decls {
		if replaced[declared(declaration)] != "" {
			edits.replace(at(declaration.Pos()), at(declaration.End()), "")
			continue
		}
		function, ok := declaration.(*ast.FuncDecl)
		if !ok {
			continue
		}
		for _, prefix := range []string{"Test", "Example", "Benchmark"} {
			if strings.HasPrefix(function.Name.Name, prefix) {
				tests = append(tests, function.Name.Name)
			}
		}
		for _, statement := range function.Body.List {
			if _, ok := statement.(*ast.ExprStmt); ok && mentions(statement, fields...) {
				edits.replace(at(statement.Pos()), at(statement.End()), "")
			}
		}
		if mentions(function, "makeTestTime") {
			edits.replace(at(function.Body.Lbrace), at(function.Body.Lbrace)+1, "{ virtually(t, func(t *testing.T) {")
			edits.replace(at(function.Body.Rbrace), at(function.Body.Rbrace)+1, "}) }")
		}
	}
	text = edits.apply(string(source))
	if inside { // imports that only what was replaced has used
		text += "\nvar _ = sync.Mutex{}\nvar _ = math.Abs\nvar _ = context.Background\n"
	}
	return text, tests, nil
}

// declared returns the name that is declared, of a method its receiver's.
func declared(declaration ast.Decl) string {
	switch d := declaration.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			return d.Name.Name
		}
		receiver := d.Recv.List[0].Type
		if star, ok := receiver.(*ast.StarExpr); ok {
			receiver = star.X
		}
		if name, ok := receiver.(*ast.Ident); ok {
			return name.Name
		}
	case *ast.GenDecl:
		if len(d.Specs) == 1 {
			if spec, ok := d.Specs[0].(*ast.TypeSpec); ok {
				return spec.Name.Name
			}
		}
	}
	return ""
}

// mentions reports whether node calls or selects one of the names.
func mentions(node ast.Node, names ...string) (found bool) {
	ast.Inspect(node, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			found = found || slices.Contains(names, n.Sel.Name)
		case *ast.CallExpr:
			name, ok := n.Fun.(*ast.Ident)
			found = found || ok && slices.Contains(names, name.Name)
		}
		return true
	})
	return found
}

// edits are replacements of parts of a text.
type edits []edit

type edit struct {
	from, to int
	text     string
}

func (e *edits) replace(from, to int, text string) { *e = append(*e, edit{from, to, text}) }

func (e *edits) apply(text string) string {
	slices.SortFunc(*e, func(a, b edit) int { return b.from - a.from })
	for _, x := range *e {
		text = text[:x.from] + x.text + text[x.to:]
	}
	return text
}

// goTest runs all tests, examples and benchmarks of a module and returns what
// became of each, by name; "" is the whole.
func goTest(t *testing.T, dir string) (results map[string]string, output string) {
	t.Helper()
	cmd := exec.Command("go", "test", "-json", "-count=1", "-bench=.", "-benchtime=10x", ".")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod", "GOPROXY=off")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output() // an error is told by what has not passed
	results = make(map[string]string)
	var all strings.Builder
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		var event struct{ Action, Test, Output string }
		if json.Unmarshal(lines.Bytes(), &event) != nil {
			continue
		}
		all.WriteString(event.Output)
		switch event.Action {
		case "run", "pass", "fail", "skip":
			results[event.Test] = event.Action
		}
	}
	if len(results) == 0 {
		t.Fatalf("go test: %v\n%s%s", err, all.String(), stderr.String())
	}
	return results, all.String() + stderr.String()
}
