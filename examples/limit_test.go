// Package examples holds what the examples claim together.
package examples

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestTwentyLinesAreEnough: to put a whole policy file in front of a framework
// takes the functions and types of a file limit.go, which is short.
func TestTwentyLinesAreEnough(t *testing.T) {
	files, err := filepath.Glob("*/limit.go")
	if err != nil || len(files) < 6 {
		t.Fatalf("%d examples with a limit.go, %v", len(files), err)
	}
	for _, name := range files {
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		lines := 0
		for _, d := range file.Decls {
			if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.IMPORT {
				continue
			}
			lines += fset.Position(d.End()).Line - fset.Position(d.Pos()).Line + 1
		}
		if lines > 20 {
			t.Errorf("%s takes %d lines to add a limit; at most 20", name, lines)
		}
		rules, err := os.ReadFile(filepath.Join(filepath.Dir(name), "limits.yaml"))
		if err != nil || !strings.Contains(string(rules), "rules:") {
			t.Errorf("%s has no limits.yaml beside it: %v", name, err)
		}
	}
}
