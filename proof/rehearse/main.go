// Command rehearse plays a release through before there is one. It copies the
// repository, gives every released module a version, publishes them all to a
// module proxy in a temporary folder and then does what strangers do: install
// the binary, get the library, get each other module. It fails when any of it
// fails, or when the library brings a user more than one module. It leaves
// nothing behind.
package main

import (
	"context"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spillgate/spillgate/proof/internal/workspace"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := rehearse(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "rehearse:", err)
		stop()
		os.Exit(1)
	}
}

func rehearse(ctx context.Context) (err error) {
	w, err := workspace.Open()
	if err != nil {
		return err
	}
	stage, err := os.MkdirTemp("", "spillgate-rehearse-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(stage)) }()

	tree, proxy := filepath.Join(stage, "tree"), filepath.Join(stage, "proxy")
	if err := copyTree(tree, w.Root); err != nil {
		return fmt.Errorf("copy the tree: %w", err)
	}
	var commands, libraries []workspace.Module
	for _, m := range w.Modules {
		if !m.Released {
			continue
		}
		dir := filepath.Join(tree, filepath.FromSlash(m.Folder))
		if err := publish(proxy, dir, m, w.Modules); err != nil {
			return fmt.Errorf("publish: %w", err)
		}
		switch name := packageName(dir); {
		case name == "main":
			commands = append(commands, m)
		case name != "" && m.Path != workspace.Path:
			libraries = append(libraries, m)
		}
	}

	s, err := newStranger(ctx, stage, proxy)
	if err != nil {
		return err
	}
	for _, m := range commands {
		if err := s.install(m.Path); err != nil {
			return fmt.Errorf("install %s: %w", m.Path, err)
		}
	}
	if err := s.useRoot(); err != nil {
		return fmt.Errorf("use %s: %w", workspace.Path, err)
	}
	for _, m := range libraries {
		if err := s.use(m.Path); err != nil {
			return fmt.Errorf("use %s: %w", m.Path, err)
		}
	}
	return nil
}

// packageName returns the name of the package in dir, or "" if there is none.
func packageName(dir string) string {
	files, _ := filepath.Glob(filepath.Join(dir, "*.go")) // the pattern is well formed
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		if file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.PackageClauseOnly); err == nil {
			return file.Name.Name
		}
	}
	return ""
}

// stranger is somebody with an empty module cache and our proxy before theirs.
type stranger struct {
	ctx   context.Context // an interrupt ends the command that runs, then we tidy up
	stage string
	bin   string
	env   []string
}

func newStranger(ctx context.Context, stage, proxy string) (*stranger, error) {
	upstream, err := exec.CommandContext(ctx, "go", "env", "GOPROXY").Output()
	if err != nil {
		return nil, fmt.Errorf("go env GOPROXY: %w", err)
	}
	s := &stranger{ctx: ctx, stage: stage, bin: filepath.Join(stage, "bin")}
	s.env = append(os.Environ(),
		"GOWORK=off",
		"GOPROXY=file://"+filepath.ToSlash(proxy)+","+strings.TrimSpace(string(upstream)),
		// Ours are not in the checksum database; everybody else's are checked.
		"GONOSUMDB="+workspace.Path,
		"GOMODCACHE="+filepath.Join(stage, "modcache"),
		"GOBIN="+s.bin,
		// modcacherw lets us delete the cache; trimpath lets the build cache be
		// of use to the next rehearsal, whose folder has another name.
		"GOFLAGS=-mod=mod -modcacherw -trimpath -buildvcs=false",
	)
	return s, nil
}

func (s *stranger) run(dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(s.ctx, name, args...)
	cmd.Dir, cmd.Env = dir, s.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", filepath.Base(name), strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// install installs a command and asks it for help.
func (s *stranger) install(pkg string) error {
	if _, err := s.run(s.stage, "go", "install", pkg+"@latest"); err != nil {
		return err
	}
	out, err := s.run(s.stage, filepath.Join(s.bin, path.Base(pkg)), "--help")
	if err != nil {
		return err
	}
	if !strings.Contains(out, path.Base(pkg)) {
		return fmt.Errorf("--help does not name the command:\n%s", out)
	}
	fmt.Printf("installed %s, and it answers --help\n", pkg)
	return nil
}

// program is the first thing that README.md shows a reader.
const program = `package main

import (
	"fmt"

	"` + workspace.Path + `"
)

func main() {
	limit := spillgate.Must("1/10s burst 2")
	for range 3 {
		fmt.Println(limit.Take("somebody", 1).Allowed)
	}
}
`

// useRoot gets the library, runs a small program on it and counts the modules.
func (s *stranger) useRoot() error {
	dir, err := s.module("root", program)
	if err != nil {
		return err
	}
	if _, err := s.run(dir, "go", "get", workspace.Path+"@latest"); err != nil {
		return err
	}
	out, err := s.run(dir, "go", "run", ".")
	if err != nil {
		return err
	}
	if got, want := strings.Fields(out), "true true false"; strings.Join(got, " ") != want {
		return fmt.Errorf("the program printed %v, want %s", got, want)
	}
	out, err = s.run(dir, "go", "list", "-m", "all")
	if err != nil {
		return err
	}
	want := "example.com/stranger\n" + workspace.Path + " " + version
	if strings.TrimSpace(out) != want {
		return fmt.Errorf("the build list is more than the user's module and ours:\n%s", out)
	}
	fmt.Printf("used      %s: the build list grows by one module\n", workspace.Path)
	return nil
}

// use gets a module and builds a program that imports it.
func (s *stranger) use(pkg string) error {
	dir, err := s.module(path.Base(pkg), "package main\n\nimport _ \""+pkg+"\"\n\nfunc main() {}\n")
	if err != nil {
		return err
	}
	if _, err := s.run(dir, "go", "get", pkg+"@latest"); err != nil {
		return err
	}
	if _, err := s.run(dir, "go", "build", "-o", os.DevNull, "."); err != nil {
		return err
	}
	fmt.Printf("used      %s: it builds\n", pkg)
	return nil
}

// module makes a user's module with one program in it.
func (s *stranger) module(name, source string) (dir string, err error) {
	dir = filepath.Join(s.stage, "users", name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(source), 0o644); err != nil {
		return "", err
	}
	_, err = s.run(dir, "go", "mod", "init", "example.com/stranger")
	return dir, err
}
