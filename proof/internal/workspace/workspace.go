// Package workspace finds the repository that a proof runs in and the modules
// that its go.work lists.
package workspace

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/mod/modfile"
)

// Path is the module path of the root; every sibling's begins with it.
const Path = "github.com/spillgate/spillgate"

// unreleased modules serve this repository alone: they get no version, and no
// released module may require them.
var unreleased = map[string]bool{
	Path + "/bench":    true,
	Path + "/examples": true,
	Path + "/proof":    true,
}

// Module is one module of the workspace.
type Module struct {
	Dir      string // absolute
	Folder   string // relative to the repository, with slashes; "." for the root
	Path     string
	Released bool
	File     *modfile.File // its go.mod
}

// Workspace is the repository with its modules.
type Workspace struct {
	Root    string // absolute
	Modules []Module
	File    *modfile.WorkFile // its go.work
}

// Open finds the nearest go.work at or above the working directory and reads
// it with the go.mod of every module that it uses.
func Open() (*Workspace, error) {
	root, err := find()
	if err != nil {
		return nil, err
	}
	w := &Workspace{Root: root}
	name := filepath.Join(root, "go.work")
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("workspace: %w", err)
	}
	if w.File, err = modfile.ParseWork(name, data, nil); err != nil {
		return nil, fmt.Errorf("workspace: %w", err)
	}
	for _, use := range w.File.Use {
		m, err := open(root, use.Path)
		if err != nil {
			return nil, err
		}
		w.Modules = append(w.Modules, m)
	}
	return w, nil
}

func find() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("workspace: %w", err)
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		_, err := os.Stat(filepath.Join(dir, "go.work"))
		if err == nil {
			return dir, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("workspace: %w", err)
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("workspace: no go.work at or above %s; run this inside the repository", start)
		}
	}
}

func open(root, folder string) (Module, error) {
	dir := filepath.Join(root, filepath.FromSlash(folder))
	name := filepath.Join(dir, "go.mod")
	data, err := os.ReadFile(name)
	if err != nil {
		return Module{}, fmt.Errorf("workspace: go.work uses %q: %w", folder, err)
	}
	file, err := modfile.Parse(name, data, nil)
	if err != nil {
		return Module{}, fmt.Errorf("workspace: %w", err)
	}
	if file.Module == nil {
		return Module{}, fmt.Errorf("workspace: %s has no module line", name)
	}
	relative, err := filepath.Rel(root, dir)
	if err != nil {
		return Module{}, fmt.Errorf("workspace: go.work uses %q: %w", folder, err)
	}
	path := file.Module.Mod.Path
	return Module{
		Dir:      dir,
		Folder:   filepath.ToSlash(relative),
		Path:     path,
		Released: !unreleased[path],
		File:     file,
	}, nil
}

// Sibling reports whether path is that of a module of this workspace.
func (w *Workspace) Sibling(path string) bool {
	for _, m := range w.Modules {
		if m.Path == path {
			return true
		}
	}
	return false
}
