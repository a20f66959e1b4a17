package house

import (
	"io/fs"
	"path/filepath"
	"testing"

	"golang.org/x/mod/module"
)

func TestEachModuleIsInTheWorkspace(t *testing.T) {
	tree := open(t)
	used := make(map[string]bool)
	for _, m := range tree.Modules {
		used[m.Dir] = true
	}
	err := filepath.WalkDir(tree.Root, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == ".git" || entry.Name() == "testdata"):
			return filepath.SkipDir
		case entry.Name() == "go.mod" && !used[filepath.Dir(name)]:
			t.Errorf("%s is not listed under use in go.work", name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestNoModuleHasAReplace(t *testing.T) {
	for _, m := range open(t).Modules {
		for _, r := range m.File.Replace {
			t.Errorf("%s/go.mod replaces %s: go install refuses such a module; replace it in go.work", m.Folder, r.Old.Path)
		}
	}
}

func TestRootModuleRequiresNothing(t *testing.T) {
	for _, m := range open(t).Modules {
		if m.Folder != "." {
			continue
		}
		for _, r := range m.File.Require {
			t.Errorf("the root go.mod requires %s: a user's build list must grow by one module only", r.Mod)
		}
	}
}

func TestWorkspaceReplacesEachSibling(t *testing.T) {
	tree := open(t)
	replaced := make(map[module.Version]string)
	for _, r := range tree.File.Replace {
		if r.Old.Version == "" {
			t.Errorf("go.work replaces %s without a version: name the version, v0.0.0", r.Old.Path)
		}
		if !tree.Sibling(r.Old.Path) {
			t.Errorf("go.work replaces %s, which is no module of this repository", r.Old.Path)
		}
		replaced[r.Old] = filepath.Join(tree.Root, filepath.FromSlash(r.New.Path))
	}
	dirs := make(map[string]string)
	for _, m := range tree.Modules {
		dirs[m.Path] = m.Dir
	}
	for _, m := range tree.Modules {
		for _, r := range m.File.Require {
			dir, sibling := dirs[r.Mod.Path]
			if !sibling {
				continue
			}
			if got := replaced[r.Mod]; got != dir {
				t.Errorf("%s/go.mod requires %s, and go.work does not replace that by its folder: a fresh clone would not build", m.Folder, r.Mod)
			}
		}
	}
}

func TestReleasedModulesRequireReleasedModules(t *testing.T) {
	tree := open(t)
	for _, m := range tree.Modules {
		for _, sibling := range tree.Modules {
			for _, r := range m.File.Require {
				if m.Released && !sibling.Released && r.Mod.Path == sibling.Path {
					t.Errorf("%s/go.mod requires %s, which is never released", m.Folder, r.Mod.Path)
				}
			}
		}
	}
}
