package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"

	"github.com/spillgate/spillgate/proof/internal/workspace"
)

// version is the one that every released module gets in the rehearsal.
const version = "v0.1.0"

// copyTree copies what a tag would hold if everything in the work tree were
// committed: every file that git knows or does not ignore.
func copyTree(to, from string) error {
	list := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	list.Dir = from
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		return fmt.Errorf("git ls-files: %w", err)
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		name = filepath.FromSlash(name)
		data, err := os.ReadFile(filepath.Join(from, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted, but not committed yet
		}
		if err != nil {
			return err
		}
		target := filepath.Join(to, name)
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(target, data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// publish writes module m, whose files stand in dir, into the folder of a
// file:// module proxy. It requires its siblings at the rehearsed version.
func publish(proxy, dir string, m workspace.Module, all []workspace.Module) error {
	gomod, err := release(m, all)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), gomod, 0o644); err != nil {
		return err
	}
	var archive bytes.Buffer
	if err := zip.CreateFromDir(&archive, module.Version{Path: m.Path, Version: version}, dir); err != nil {
		return fmt.Errorf("%s: %w", m.Folder, err)
	}
	escaped, err := module.EscapePath(m.Path)
	if err != nil {
		return fmt.Errorf("%s: %w", m.Folder, err)
	}
	shelf := filepath.Join(proxy, filepath.FromSlash(escaped), "@v")
	if err := os.MkdirAll(shelf, 0o755); err != nil {
		return err
	}
	for name, data := range map[string][]byte{
		"list":            []byte(version + "\n"),
		version + ".info": []byte(`{"Version":"` + version + `","Time":"2026-01-01T00:00:00Z"}`),
		version + ".mod":  gomod,
		version + ".zip":  archive.Bytes(),
	} {
		if err := os.WriteFile(filepath.Join(shelf, name), data, 0o644); err != nil {
			return err
		}
	}
	fmt.Printf("published %s %s, %d KiB\n", m.Path, version, (archive.Len()+1023)/1024)
	return nil
}

// release returns the go.mod that a release of m has.
func release(m workspace.Module, all []workspace.Module) ([]byte, error) {
	if len(m.File.Replace) > 0 {
		return nil, fmt.Errorf("%s/go.mod has a replace, which go install refuses and which is void for users; siblings are replaced in go.work", m.Folder)
	}
	for _, sibling := range all {
		if !requires(m, sibling.Path) {
			continue
		}
		if !sibling.Released {
			return nil, fmt.Errorf("%s/go.mod requires %s, which is never released", m.Folder, sibling.Path)
		}
		if err := m.File.AddRequire(sibling.Path, version); err != nil {
			return nil, fmt.Errorf("%s/go.mod: %w", m.Folder, err)
		}
	}
	return modfile.Format(m.File.Syntax), nil
}

func requires(m workspace.Module, path string) bool {
	for _, r := range m.File.Require {
		if r.Mod.Path == path {
			return true
		}
	}
	return false
}
