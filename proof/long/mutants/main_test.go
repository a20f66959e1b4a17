package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spillgate/spillgate/proof/internal/workspace"
)

// The faults still can be put in: otherwise the proof proves nothing.
func TestEachMutantFits(t *testing.T) {
	ws, err := workspace.Open()
	if err != nil {
		t.Fatal(err)
	}
	if err := check(ws.Root, slices.Concat(mutants, leases)); err != nil {
		t.Error(err)
	}
	mutants := slices.Concat(mutants, leases)
	names := map[string]bool{}
	for _, m := range mutants {
		if m.old == m.new || names[m.name] {
			t.Errorf("%q: changes nothing, or is there twice", m.name)
		}
		names[m.name] = true
	}
	if len(mutants) < 25 {
		t.Errorf("only %d", len(mutants))
	}
	stale := []mutant{{"stale", "bucket.go", "no such text", ""}}
	if err := check(ws.Root, stale); err == nil || !strings.Contains(err.Error(), "0 times") {
		t.Errorf("%v", err)
	}
}

// The copy in which the faults are put has all that its tests need.
func TestCopyBuilds(t *testing.T) {
	ws, err := workspace.Open()
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	if err := copyEngine(ws, folder); err != nil {
		t.Fatal(err)
	}
	arguments := []string{"vet"}
	for _, suite := range suites {
		arguments = append(arguments, suite[0])
	}
	command := exec.CommandContext(t.Context(), "go", arguments...)
	command.Dir = folder
	command.Env = append(os.Environ(), "GOWORK="+filepath.Join(folder, "go.work"), "GOFLAGS=-mod=readonly")
	if out, err := command.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
