package house

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"testing"

	"github.com/spillgate/spillgate/proof/internal/workspace"
)

// tree is the repository as the rules see it.
type tree struct {
	*workspace.Workspace
	fset     *token.FileSet
	packages []*pkg // in order of their folders
	texts    []text // every file that a person can read, Go files too
}

// pkg is a folder with Go files. Its external test package belongs to it.
type pkg struct {
	folder string // relative to the repository, with slashes; "." for the root
	module workspace.Module
	files  []*source
}

// source is one Go file.
type source struct {
	text
	ast  *ast.File
	test bool // name ends in _test.go
}

// text is one file; its name is relative to the repository, with slashes.
type text struct {
	name string
	data []byte
}

// name returns the package's name, that of its external tests apart.
func (p *pkg) name() string {
	return strings.TrimSuffix(p.files[0].ast.Name.Name, "_test")
}

var load = sync.OnceValues(func() (*tree, error) {
	w, err := workspace.Open()
	if err != nil {
		return nil, err
	}
	t := &tree{Workspace: w, fset: token.NewFileSet()}
	folders := make(map[string]*pkg)
	err = filepath.WalkDir(w.Root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(w.Root, name)
		if err != nil {
			return err
		}
		relative = filepath.ToSlash(relative)
		if entry.IsDir() {
			if relative == ".git" || relative == "bin" {
				return filepath.SkipDir
			}
			return nil
		}
		if !entry.Type().IsRegular() || relative == ".git" { // a file in a linked work tree
			return nil
		}
		return t.add(relative, folders)
	})
	if err != nil {
		return nil, err
	}
	for _, p := range folders {
		t.packages = append(t.packages, p)
	}
	sort.Slice(t.packages, func(i, j int) bool { return t.packages[i].folder < t.packages[j].folder })
	return t, nil
})

func (t *tree) add(name string, folders map[string]*pkg) error {
	data, err := os.ReadFile(filepath.Join(t.Root, filepath.FromSlash(name)))
	if err != nil {
		return err
	}
	if bytes.IndexByte(data, 0) >= 0 {
		return nil // not for people
	}
	file := text{name, data}
	t.texts = append(t.texts, file)
	if !strings.HasSuffix(name, ".go") || ignoredByGo(name) {
		return nil
	}
	syntax, err := parser.ParseFile(t.fset, name, data, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	folder := path.Dir(name)
	if folders[folder] == nil {
		folders[folder] = &pkg{folder: folder, module: t.moduleOf(folder)}
	}
	p := folders[folder]
	p.files = append(p.files, &source{file, syntax, strings.HasSuffix(name, "_test.go")})
	return nil
}

// ignoredByGo reports whether the go command passes over a file.
func ignoredByGo(name string) bool {
	for part := range strings.SplitSeq(name, "/") {
		if part == "testdata" || part == "vendor" || strings.HasPrefix(part, ".") || strings.HasPrefix(part, "_") {
			return true
		}
	}
	return false
}

// moduleOf returns the innermost module of the workspace that holds folder.
func (t *tree) moduleOf(folder string) workspace.Module {
	var found workspace.Module
	for _, m := range t.Modules {
		if within(folder, m.Folder) && (found.Path == "" || len(m.Path) > len(found.Path)) {
			found = m
		}
	}
	return found
}

// within reports whether folder is outer or lies in it.
func within(folder, outer string) bool {
	return outer == "." || folder == outer || strings.HasPrefix(folder, outer+"/")
}

func open(t *testing.T) *tree {
	t.Helper()
	found, err := load()
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// imports lists what a file imports.
func (s *source) imports() []string {
	var paths []string
	for _, spec := range s.ast.Imports {
		paths = append(paths, strings.Trim(spec.Path.Value, "`\""))
	}
	return paths
}
