package house

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spillgate/spillgate/proof/internal/workspace"
)

// floors is the plan of the house, from the ground up. A package may import
// those of lower floors, never one beside it; floor 1 knows the root alone. A
// name that ends in /* stands for every folder there, each with all below it.
//
// A new package needs a place here, and a row in ARCHITECTURE.md.
var floors = [][]string{
	0: {".", "clientip"},
	1: {"client", "policy", "rate", "redisstore", "redisstore/redistest", "storetest"},
	2: {"connlimit", "grpclimit", "httplimit", "policyfile", "redisstore/rueidisstore", "replay"},
	3: {"cmd/spillgate/internal/*"},
	4: {"cmd/spillgate"},
}

// outside is where the modules stand that are never released: they may look at
// everything, and nothing of the house may look at them.
const outside = 5

// room is the package of the plan that a folder belongs to, and its floor. A
// folder a/internal/b, unless it has a place of its own, is part of room a.
func room(folder string) (name string, floor int, ok bool) {
	for _, yard := range []string{"bench", "examples", "proof"} {
		if within(folder, yard) {
			return yard, outside, true
		}
	}
	for floor, names := range floors {
		for _, name := range names {
			if folder == name {
				return name, floor, true
			}
			if parent, ok := strings.CutSuffix(name, "*"); ok && strings.HasPrefix(folder, parent) {
				first, _, _ := strings.Cut(folder[len(parent):], "/")
				return parent + first, floor, true
			}
		}
	}
	if i := strings.LastIndex("/"+folder, "/internal/"); i >= 0 {
		return room(path.Clean(folder[:i]))
	}
	return "", 0, false
}

// judge says why the package in folder from may not import the one in folder
// to, or nothing if it may. Both belong to this repository.
func judge(from, to string) error {
	fromRoom, fromFloor, ok := room(from)
	if !ok {
		return fmt.Errorf("%s has no floor: add it to floors in proof/house/floors_test.go and to ARCHITECTURE.md", from)
	}
	toRoom, toFloor, ok := room(to)
	if !ok {
		return fmt.Errorf("%s imports %s, which has no floor: add that to floors in proof/house/floors_test.go", from, to)
	}
	switch {
	case to == "." && strings.HasPrefix(from, "internal/"):
		return fmt.Errorf("%s imports the root, which stands on it", from)
	case fromRoom == toRoom:
		return nil
	case fromFloor == outside:
		return nil
	case toFloor == outside:
		return fmt.Errorf("%s imports %s, which is never released", from, to)
	case strings.HasPrefix(to, "internal/"):
		return nil // serves its whole module; Go sees to it that it serves no more
	case fromFloor == 1 && to != ".":
		return fmt.Errorf("%s (floor 1) imports %s: floor 1 may import the root alone", from, to)
	case toFloor >= fromFloor:
		return fmt.Errorf("%s (floor %d) imports %s (floor %d): only lower floors may be imported", from, fromFloor, to, toFloor)
	}
	return nil
}

func TestEachPackageHasAFloor(t *testing.T) {
	for _, p := range open(t).packages {
		if _, _, ok := room(p.folder); !ok {
			t.Errorf("package %s has no floor: add it to floors in proof/house/floors_test.go and to ARCHITECTURE.md", p.folder)
		}
	}
}

func TestPackagesImportLowerFloorsOnly(t *testing.T) {
	for _, p := range open(t).packages {
		for _, file := range p.files {
			for _, imported := range file.imports() {
				to, ours := folderOf(imported)
				if !ours {
					continue
				}
				if file.test {
					// Tests may look at any room, but a released module can't
					// require one that is never released.
					if _, floor, ok := room(to); ok && floor == outside && p.module.Released {
						t.Errorf("%s imports %s, which is never released", file.name, to)
					}
					continue
				}
				if err := judge(p.folder, to); err != nil {
					t.Errorf("%s: %v", file.name, err)
				}
				if to != p.folder && strings.HasPrefix(to, "internal/") && p.module.Released && p.module.Folder != "." {
					t.Errorf("%s imports %s of another released module: the two could no longer be released apart", file.name, to)
				}
			}
		}
	}
}

func TestRootModuleUsesTheStandardLibraryOnly(t *testing.T) {
	for _, p := range open(t).packages {
		if p.module.Folder != "." {
			continue
		}
		for _, file := range p.files {
			for _, imported := range file.imports() {
				first, _, _ := strings.Cut(imported, "/")
				if _, ours := folderOf(imported); !ours && strings.Contains(first, ".") {
					t.Errorf("%s imports %s: the root module uses the standard library only; put the test or adapter into a module of its own", file.name, imported)
				}
			}
		}
	}
}

// folderOf returns the folder of an import path, if it is one of ours.
func folderOf(imported string) (folder string, ours bool) {
	if imported == workspace.Path {
		return ".", true
	}
	return strings.CutPrefix(imported, workspace.Path+"/")
}

var floorRow = regexp.MustCompile(`(?m)^\| (\d) \|([^|]*)\|([^|]*)\|[^|]*\|$`)

// TestArchitectureShowsTheFloors holds the table of floors against the plan: it
// names the same packages, and as planned those that don't exist.
func TestArchitectureShowsTheFloors(t *testing.T) {
	tree := open(t)
	data, err := os.ReadFile(filepath.Join(tree.Root, "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	exists := map[string]bool{}
	for _, p := range tree.packages {
		if name, _, ok := room(p.folder); ok {
			exists[name] = true
		}
	}
	rows := floorRow.FindAllStringSubmatch(string(data), -1)
	if len(rows) != len(floors) {
		t.Fatalf("ARCHITECTURE.md shows %d floors, the plan has %d", len(rows), len(floors))
	}
	for floor, row := range rows {
		there := strings.ReplaceAll(row[2], "the root", "`.`")
		for _, name := range floors[floor] {
			has := exists[name] || strings.HasSuffix(name, "*")
			if strings.Contains(there, "`"+name+"`") != has || strings.Contains(row[3], "`"+name+"`") == has {
				t.Errorf("ARCHITECTURE.md, floor %d: %s exists: %t; move it to the other column", floor, name, has)
			}
		}
		if n := strings.Count(there+row[3], "`") / 2; n != len(floors[floor]) {
			t.Errorf("ARCHITECTURE.md shows %d packages on floor %d, the plan has %d", n, floor, len(floors[floor]))
		}
	}
}

func TestJudge(t *testing.T) {
	for _, c := range []struct {
		from, to string
		allowed  bool
	}{
		{".", "internal/table", true},
		{".", "clientip", false},
		{".", "policy", false},
		{"clientip", ".", false},
		{"clientip", "client", false},
		{"internal/table", "internal/siphash", true},
		{"internal/table", ".", false},
		{"internal/table", "policy", false},
		{"policy", ".", true},
		{"policy", "internal/siphash", true},
		{"policy", "clientip", false},
		{"policy", "storetest", false},
		{"httplimit", "policy", true},
		{"httplimit", "clientip", true},
		{"httplimit", "replay", false},
		{"policyfile", "policyfile/internal/yaml", true},
		{"policyfile/internal/yaml", "policy", true},
		{"policyfile/internal/yaml", "replay", false},
		{"policy", "httplimit", false},
		{"cmd/spillgate/internal/gateway", "httplimit", true},
		{"cmd/spillgate/internal/gateway", "cmd/spillgate/internal/admin", false},
		{"cmd/spillgate/internal/gateway", "cmd/spillgate", false},
		{"cmd/spillgate", "cmd/spillgate/internal/gateway", true},
		{"cmd/spillgate/internal/gateway/body", "cmd/spillgate/internal/gateway", true},
		{"cmd/spillgate/internal/gateway/body", "cmd/spillgate/internal/admin", false},
		{"cmd/spillgate", "proof/oracle", false},
		{"policy", "examples", false},
		{"proof/oracle", "cmd/spillgate/internal/gateway", true},
		{"bench/inprocess", "internal/siphash", true},
		{"attic", ".", false},
		{"policy", "attic", false},
		{"policy/attic", ".", false},
	} {
		if err := judge(c.from, c.to); (err == nil) != c.allowed {
			t.Errorf("judge(%q, %q) = %v, want allowed: %t", c.from, c.to, err, c.allowed)
		}
	}
}
