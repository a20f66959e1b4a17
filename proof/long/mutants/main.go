// Command mutants breaks the engine on purpose, in one usual way after the
// other, and fails if the tests of the root module and of the proofs pass all
// the same: each fault must be found by a test. It works on copies.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spillgate/spillgate/proof/internal/workspace"
)

var only = flag.String("only", "", "break it in the ways only whose names match this pattern")

func main() {
	flag.Parse()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run() error {
	pattern, err := regexp.Compile(*only)
	if err != nil {
		return err
	}
	ws, err := workspace.Open()
	if err != nil {
		return err
	}
	temp, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	mutants := slices.Concat(mutants, leases)
	if err := check(ws.Root, mutants); err != nil {
		return err
	}
	var todo []mutant
	for _, m := range mutants {
		if pattern.MatchString(m.name) {
			todo = append(todo, m)
		}
	}
	began := time.Now()
	results := make([]result, len(todo))
	next := make(chan int)
	var workers sync.WaitGroup
	folders := make([]string, runtime.GOMAXPROCS(0))
	for i := range folders {
		folders[i] = filepath.Join(temp, fmt.Sprint(i))
		if err := copyEngine(ws, folders[i]); err != nil {
			return err
		}
	}
	if r := try(folders[0], mutant{file: "go.mod"}); r.err != nil || r.test != "" {
		return fmt.Errorf("the engine is broken before it is touched: %s", r)
	}
	for _, folder := range folders {
		workers.Go(func() {
			for i := range next {
				results[i] = try(folder, todo[i])
				fmt.Printf("%-62s %s\n", todo[i].name, results[i])
			}
		})
	}
	for i := range todo {
		next <- i
	}
	close(next)
	workers.Wait()
	killed := 0
	for _, r := range results {
		if r.err == nil && r.test != "" {
			killed++
		}
	}
	fmt.Printf("%d of %d found, in %s\n", killed, len(todo), time.Since(began).Round(time.Second))
	if killed < len(todo) {
		return fmt.Errorf("%d faults were not found", len(todo)-killed)
	}
	return nil
}

// check reports the first mutant whose text doesn't stand exactly once in the
// engine's sources under root: the code has moved on.
func check(root string, ms []mutant) error {
	for _, m := range ms {
		source, err := os.ReadFile(filepath.Join(root, m.file))
		if err != nil {
			return err
		}
		if n := strings.Count(string(source), m.old); n != 1 {
			return fmt.Errorf("%q: its text stands %d times in %s, not once: mend proof/long/mutants/mutants.go", m.name, n, m.file)
		}
	}
	return nil
}

// tested are the folders of the root that the tests need.
var tested = []string{".", "docs", "internal", "testdata", "policy", "redisstore", "proof/oracle", "proof/exact", "proof/promises", "proof/waiting", "proof/concurrent", "proof/simulation"}

// copyEngine copies the root module and the proofs to a workspace of their own.
func copyEngine(ws *workspace.Workspace, to string) error {
	root := ws.Root
	for _, folder := range tested {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, d fs.DirEntry, err error) error {
			name, relErr := filepath.Rel(root, path)
			switch {
			case err != nil:
				return err
			case relErr != nil:
				return relErr
			case d.IsDir() && folder == "." && name != ".":
				return filepath.SkipDir
			case !d.Type().IsRegular():
				return nil
			}
			return copyFile(path, filepath.Join(to, name))
		})
		if err != nil {
			return err
		}
	}
	// Of the other modules the workspace needs no more than their go.mod.
	for _, m := range ws.Modules {
		for _, name := range []string{"go.mod", "go.sum"} {
			err := copyFile(filepath.Join(m.Dir, name), filepath.Join(to, m.Folder, name))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	for _, name := range []string{"go.work", "go.work.sum"} {
		if err := copyFile(filepath.Join(ws.Root, name), filepath.Join(to, name)); err != nil {
			return err
		}
	}
	return nil
}

func copyFile(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o600)
}

// A result is the test that found a fault, "" if none did.
type result struct {
	test string
	err  error
}

func (r result) String() string {
	switch {
	case r.err != nil:
		return "NOT TRIED: " + r.err.Error()
	case r.test == "":
		return "NOT FOUND"
	}
	return r.test
}

// suites are what finds faults, the quickest first.
var suites = [][]string{
	{"."},
	{"./proof/exact", "-skip", "OnRedis", "-lists", "1500"},
	{"./proof/promises", "-rapid.checks", "200"},
	{"./proof/waiting", "-rapid.checks", "200"},
	{"./proof/concurrent", "-histories", "8"},
	{"./proof/simulation", "-seeds", "300"},
}

// try puts the fault m into the copy, runs the suites until one fails, and
// takes it out again.
func try(folder string, m mutant) result {
	path := filepath.Join(folder, m.file)
	source, err := os.ReadFile(path)
	if err != nil {
		return result{err: err}
	}
	broken := strings.Replace(string(source), m.old, m.new, 1)
	if err := os.WriteFile(path, []byte(broken), 0o600); err != nil {
		return result{err: err}
	}
	defer os.WriteFile(path, source, 0o600)
	for _, suite := range suites {
		if r := runSuite(folder, suite); r.err != nil || r.test != "" {
			return r
		}
	}
	return result{}
}

var failed = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

func runSuite(folder string, suite []string) result {
	const most = 2 * time.Minute
	ctx, cancel := context.WithTimeout(context.Background(), 2*most)
	defer cancel()
	arguments := append([]string{"test", "-count=1", "-failfast", "-timeout", most.String()}, suite...)
	command := exec.CommandContext(ctx, "go", arguments...)
	command.Dir = folder
	command.Env = append(os.Environ(), "GOWORK="+filepath.Join(folder, "go.work"), "GOFLAGS=-mod=readonly")
	out, err := command.CombinedOutput()
	text := string(out)
	switch {
	case err == nil:
		return result{}
	case strings.Contains(text, "[build failed]") || strings.Contains(text, "[setup failed]"):
		return result{err: fmt.Errorf("it does not build:\n%s", text)}
	case strings.Contains(text, "panic: test timed out"):
		return result{test: suite[0] + ": hangs"}
	case strings.Contains(text, "all goroutines in bubble are blocked"):
		return result{test: suite[0] + ": deadlock"}
	}
	names := failed.FindAllStringSubmatch(text, -1)
	if names == nil {
		if strings.Contains(text, "panic:") || strings.Contains(text, "fatal error:") {
			return result{test: suite[0] + ": panic"}
		}
		return result{err: fmt.Errorf("%w:\n%s", err, text)}
	}
	// The innermost of the first that failed.
	name := names[0][1]
	for _, n := range names[1:] {
		if strings.HasPrefix(n[1], name+"/") {
			name = n[1]
		}
	}
	return result{test: suite[0] + " " + name}
}
