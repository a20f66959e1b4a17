package house

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// maxLines is where a file has become two.
const maxLines = 600

// mayPanic lists the functions that may panic, by folder and name, each with
// its reason. Nothing that a client, a file or a flag says may cause a panic.
var mayPanic = map[string]string{
	". Must": "for limits written in the source: a typo there is a bug, found at start",
}

// A finding is something that a file must not contain.
type finding struct {
	line int
	what string
}

var (
	// The first letters stand apart so that this file passes its own rules.
	unfinished   = regexp.MustCompile(`\b(T` + `ODO|F` + `IXME|X` + `XX|H` + `ACK)\b`)
	machinePath  = regexp.MustCompile(`(^|[^\w.~/-])/(work|root|home/\w+|Users/\w+)/\w|(\.\./)+shared/`)
	issueNumber  = regexp.MustCompile(`(?i)\bissues?\s+#?[0-9]|(^|[\s(])#[0-9]+\b`)
	codeSuffixes = regexp.MustCompile(`\.(go|lua|js|css|sh)$|^scripts/|^Makefile$`)
)

// inText finds what no text may contain.
func inText(file text) (found []finding) {
	for i, line := range strings.Split(string(file.data), "\n") {
		if m := unfinished.FindString(line); m != "" {
			found = append(found, finding{i + 1, m + ": finish it, or file an issue"})
		}
		if m := machinePath.FindString(line); m != "" {
			found = append(found, finding{i + 1, "a path of one machine: " + strings.TrimSpace(m)})
		}
		if path.Ext(file.name) == ".md" && issueNumber.MatchString(line) {
			found = append(found, finding{i + 1, "an issue number: say what it is about"})
		}
	}
	return found
}

// inGo finds what no Go file may contain, whose folder names its package.
func inGo(fset *token.FileSet, syntax *ast.File, folder string, test bool) (found []finding) {
	add := func(pos token.Pos, what string) {
		found = append(found, finding{fset.Position(pos).Line, what})
	}
	for _, group := range syntax.Comments {
		for _, comment := range group.List {
			text := strings.TrimLeft(comment.Text, "/* ")
			if issueNumber.MatchString(text) {
				add(comment.Pos(), "an issue number in a comment: say what it is about")
			}
		}
	}
	for _, declaration := range syntax.Decls {
		ast.Inspect(declaration, func(node ast.Node) bool {
			call, ok := node.(*ast.CallExpr)
			if !ok {
				return true
			}
			switch {
			case calls(call, "synctest", "Test"):
				return false // time is virtual in there, and Sleep costs nothing
			case test && calls(call, "time", "Sleep"):
				add(call.Pos(), "time.Sleep in a test: use testing/synctest, or wait for the event")
			case !test && isPanic(call) && mayPanic[folder+" "+functionName(declaration)] == "":
				add(call.Pos(), "panic: return an error, or add the function with a reason to mayPanic in proof/house/code_test.go")
			}
			return true
		})
	}
	return found
}

// calls reports whether call is to a package's function.
func calls(call *ast.CallExpr, pkg, name string) bool {
	selector, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || selector.Sel.Name != name {
		return false
	}
	x, ok := selector.X.(*ast.Ident)
	return ok && x.Name == pkg
}

// isPanic reports whether call is a panic, other than the one by which
// net/http wants a handler to abort a response.
func isPanic(call *ast.CallExpr) bool {
	name, ok := call.Fun.(*ast.Ident)
	if !ok || name.Name != "panic" || len(call.Args) != 1 {
		return false
	}
	selector, ok := call.Args[0].(*ast.SelectorExpr)
	return !ok || selector.Sel.Name != "ErrAbortHandler"
}

// functionName names a declared function, a method as Type.Method.
func functionName(declaration ast.Decl) string {
	function, ok := declaration.(*ast.FuncDecl)
	if !ok {
		return ""
	}
	if function.Recv == nil || len(function.Recv.List) != 1 {
		return function.Name.Name
	}
	receiver := function.Recv.List[0].Type
	if star, ok := receiver.(*ast.StarExpr); ok {
		receiver = star.X
	}
	if index, ok := receiver.(*ast.IndexExpr); ok {
		receiver = index.X
	}
	name, ok := receiver.(*ast.Ident)
	if !ok {
		return function.Name.Name
	}
	return name.Name + "." + function.Name.Name
}

func TestTextsAreFinishedAndPortable(t *testing.T) {
	for _, file := range open(t).texts {
		if strings.Contains("/"+file.name, "/testdata/") {
			continue
		}
		for _, f := range inText(file) {
			t.Errorf("%s:%d: %s", file.name, f.line, f.what)
		}
	}
}

func TestGoFilesKeepTheRules(t *testing.T) {
	tree := open(t)
	for _, p := range tree.packages {
		for _, file := range p.files {
			for _, f := range inGo(tree.fset, file.ast, p.folder, file.test) {
				t.Errorf("%s:%d: %s", file.name, f.line, f.what)
			}
		}
	}
}

func TestMayPanicIsNoLongerThanNeeded(t *testing.T) {
	panics := make(map[string]bool)
	for _, p := range open(t).packages {
		for _, file := range p.files {
			for _, declaration := range file.ast.Decls {
				ast.Inspect(declaration, func(node ast.Node) bool {
					if call, ok := node.(*ast.CallExpr); ok && isPanic(call) && !file.test {
						panics[p.folder+" "+functionName(declaration)] = true
					}
					return true
				})
			}
		}
	}
	for name := range mayPanic {
		if !panics[name] {
			t.Errorf("mayPanic lists %q, which does not panic: strike it", name)
		}
	}
}

func TestFilesAreShort(t *testing.T) {
	tree := open(t)
	generated := make(map[string]bool)
	for _, p := range tree.packages {
		for _, file := range p.files {
			generated[file.name] = ast.IsGenerated(file.ast)
		}
	}
	for _, file := range tree.texts {
		n := strings.Count(string(file.data), "\n")
		if codeSuffixes.MatchString(file.name) && !generated[file.name] && n > maxLines {
			t.Errorf("%s has %d lines; more than %d are two files", file.name, n, maxLines)
		}
	}
}

func TestFindingsInText(t *testing.T) {
	for _, c := range []struct {
		text  string
		found bool
	}{
		{"// T" + "ODO: later", true},
		{"F" + "IXME", true},
		{"methods and todos", false},
		{"see /ro" + "ot/go/pkg", true},
		{"`/ho" + "me/ann/x`", true},
		{"cd /wo" + "rk/main", true},
		{"from ../sh" + "ared/cases", true},
		{"https://example.com/work/main", false},
		{"the path /login", false},
		{"docs/work/x", false},
		{"as iss" + "ue 12 says", true},
		{"fixed in #" + "12", true},
		{"golang/go#" + "12 says", false},
		{"# 1. First", false},
	} {
		if got := inText(text{"x.md", []byte(c.text)}); (len(got) > 0) != c.found {
			t.Errorf("%q: %v, want a finding: %t", c.text, got, c.found)
		}
	}
}

func TestFindingsInGo(t *testing.T) {
	for _, c := range []struct {
		body  string
		test  bool
		found string // lines
	}{
		{"func F() { panic(1) }", false, "3"},
		{"func F() { panic(1) }", true, ""},
		{"func Must() { panic(1) }", false, ""},
		{"func (t *T) Must() { panic(1) }", false, "3"},
		{"var f = func() { panic(1) }", false, "3"},
		{"func F() { panic(http.ErrAbortHandler) }", false, ""},
		{"func F() { time.Sleep(1) }", true, "3"},
		{"func F() { time.Sleep(1) }", false, ""},
		{"func F() {\ngo func() { time.Sleep(1) }()\n}", true, "4"},
		{"func F() { synctest.Test(t, func(t *testing.T) { time.Sleep(1) }) }", true, ""},
		{"// As iss" + "ue 12 says.\nfunc F() {}", false, "3"},
		{"// See #" + "12.\nfunc F() {}", true, "3"},
		{"// See golang/go#" + "12.\nfunc F() {}", true, ""},
		{"const color = \"#" + "123456\"", false, ""},
	} {
		fset := token.NewFileSet()
		syntax, err := parser.ParseFile(fset, "x.go", "package x\n\n"+c.body, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatalf("%q: %v", c.body, err)
		}
		var lines []string
		for _, f := range inGo(fset, syntax, ".", c.test) {
			lines = append(lines, strconv.Itoa(f.line))
		}
		if got := strings.Join(lines, " "); got != c.found {
			t.Errorf("%q, test %t: findings in lines [%s], want [%s]", c.body, c.test, got, c.found)
		}
	}
}

func (f finding) String() string { return fmt.Sprintf("line %d: %s", f.line, f.what) }
