package house

import (
	"bytes"
	"flag"
	"fmt"
	"go/doc"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the table of packages in ARCHITECTURE.md")

// comment returns the comment of the package: that of the one file that has it.
func (p *pkg) comment() (string, error) {
	var comments, files []string
	for _, file := range p.files {
		if file.test && !p.testsOnly() || file.ast.Doc == nil {
			continue
		}
		comments = append(comments, file.ast.Doc.Text())
		files = append(files, file.name)
	}
	want := "Package " + p.name() + " "
	if p.name() == "main" {
		want = "Command " + path.Base(p.folder) + " "
	}
	switch {
	case len(comments) == 0:
		return "", fmt.Errorf("package %s has no comment: one of its files must have one that begins with %q", p.folder, want)
	case len(comments) > 1:
		return "", fmt.Errorf("package %s has %d comments, in %s: keep one", p.folder, len(comments), strings.Join(files, ", "))
	case !strings.HasPrefix(strings.ReplaceAll(comments[0], "\n", " "), want):
		return "", fmt.Errorf("the package comment in %s must begin with %q", files[0], want)
	}
	return comments[0], nil
}

func (p *pkg) testsOnly() bool {
	for _, file := range p.files {
		if !file.test {
			return false
		}
	}
	return true
}

func TestEachPackageHasOneComment(t *testing.T) {
	for _, p := range open(t).packages {
		if _, err := p.comment(); err != nil {
			t.Error(err)
		}
	}
}

// The table of packages in ARCHITECTURE.md stands between these two lines. A
// row is: folder in backticks, floor, what it is for.
const (
	tableBegin = "<!-- packages: begin -->"
	tableEnd   = "<!-- packages: end -->"
)

var docLink = regexp.MustCompile(`\[(\*?[\w./]+)\]`) // [Policy] in a doc comment

var tableRow = regexp.MustCompile("(?m)^\\| `([^`]+)` \\|")

func TestArchitectureListsEachPackage(t *testing.T) {
	tree := open(t)
	name := filepath.Join(tree.Root, "ARCHITECTURE.md")
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok1 := strings.Cut(string(data), tableBegin)
	table, after, ok2 := strings.Cut(rest, tableEnd)
	if !ok1 || !ok2 {
		t.Fatalf("ARCHITECTURE.md needs a table of packages between the lines %s and %s", tableBegin, tableEnd)
	}
	if *update {
		text := before + tableBegin + "\n" + tree.table() + tableEnd + after
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	listed := make(map[string]bool)
	for _, row := range tableRow.FindAllStringSubmatch(table, -1) {
		if listed[row[1]] {
			t.Errorf("ARCHITECTURE.md lists %s twice", row[1])
		}
		listed[row[1]] = true
	}
	for _, p := range tree.packages {
		if !listed[p.folder] {
			t.Errorf("ARCHITECTURE.md does not list %s", p.folder)
		}
		delete(listed, p.folder)
	}
	for folder := range listed {
		t.Errorf("ARCHITECTURE.md lists %s, which does not exist", folder)
	}
	if t.Failed() {
		t.Log("the table is written from the package comments by: go test ./proof/house -run Architecture -update")
	}
}

// table writes the table of packages, from their comments.
func (t *tree) table() string {
	var b strings.Builder
	b.WriteString("| Package | Floor | What it is |\n|---|---|---|\n")
	for _, p := range t.packages {
		_, floor, _ := room(p.folder)
		at := strconv.Itoa(floor)
		if floor == outside {
			at = "–"
		}
		comment, _ := p.comment() // another test tells
		synopsis := new(doc.Package).Synopsis(comment)
		for _, opening := range []string{"Package " + p.name() + " ", "Command " + path.Base(p.folder) + " "} {
			synopsis = strings.TrimPrefix(synopsis, opening)
		}
		synopsis = docLink.ReplaceAllString(strings.ReplaceAll(synopsis, "|", "\\|"), "$1")
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", p.folder, at, synopsis)
	}
	return b.String()
}

// The files of some packages, by what they hold, stand in sections of ARCHITECTURE.md.
var fileSections = map[string]string{
	".":          "## The files of the root\n",
	"httplimit":  "## The files of `httplimit`\n",
	"redisstore": "## The files of `redisstore`\n",
}

var fileName = regexp.MustCompile("`(\\w+\\.go)`")

func TestArchitectureListsFiles(t *testing.T) {
	tree := open(t)
	data, err := os.ReadFile(filepath.Join(tree.Root, "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	for folder, title := range fileSections {
		_, section, found := strings.Cut(string(data), title)
		if !found {
			t.Errorf("ARCHITECTURE.md has no section %q", title)
			continue
		}
		section, _, _ = strings.Cut(section, "\n## ")
		listed := make(map[string]bool)
		for _, m := range fileName.FindAllStringSubmatch(section, -1) {
			listed[path.Join(folder, m[1])] = true
		}
		for _, p := range tree.packages {
			for _, file := range p.files {
				if p.folder == folder && !file.test {
					if !listed[file.name] {
						t.Errorf("ARCHITECTURE.md does not say what %s holds: add it to the table under %q", file.name, title)
					}
					delete(listed, file.name)
				}
			}
		}
		for name := range listed {
			t.Errorf("ARCHITECTURE.md lists %s, which does not exist", name)
		}
	}
}

func TestReadmeIsShort(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(open(t).Root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(data, []byte("\n")); n >= 200 {
		t.Errorf("README.md has %d lines; it must stay under 200: move the detail to docs/", n)
	}
}

var (
	fenced     = regexp.MustCompile("(?ms)^[ \t]*(```|~~~).*?^[ \t]*(```|~~~)[ \t]*$")
	inlineCode = regexp.MustCompile("`[^`\n]*`")
	links      = regexp.MustCompile(`\]\(\s*<?([^)\s>]+)|(?m:^\[[^\]]+\]:\s+(\S+))|(?:src|href)="([^"]+)"`)
	scheme     = regexp.MustCompile(`^[a-z][a-z0-9+.-]*:`)
)

// relativeLinks lists the links of a Markdown text that lead to files.
func relativeLinks(markdown string) []string {
	markdown = inlineCode.ReplaceAllString(fenced.ReplaceAllString(markdown, ""), "")
	var found []string
	for _, m := range links.FindAllStringSubmatch(markdown, -1) {
		target, _, _ := strings.Cut(m[1]+m[2]+m[3], "#")
		if target != "" && !scheme.MatchString(target) {
			found = append(found, target)
		}
	}
	return found
}

func TestLinksLeadSomewhere(t *testing.T) {
	tree := open(t)
	for _, file := range tree.texts {
		if path.Ext(file.name) != ".md" || ignoredByGo(file.name) {
			continue
		}
		for _, target := range relativeLinks(string(file.data)) {
			full := path.Join(path.Dir(file.name), target)
			if !filepath.IsLocal(full) {
				t.Errorf("%s links to %s, outside the repository", file.name, target)
			} else if _, err := os.Stat(filepath.Join(tree.Root, full)); err != nil {
				t.Errorf("%s links to %s, which does not exist", file.name, target)
			}
		}
	}
}

func TestRelativeLinks(t *testing.T) {
	markdown := "[a](docs/a.md) [b](https://example.com/b) [c](#c) [d](../d.md#part \"title\")\n" +
		"`[e](e.md)` <img src=\"f.png\">\n```\n[g](g.md)\n```\n[h]: h.md\n"
	got := strings.Join(relativeLinks(markdown), " ")
	if want := "docs/a.md ../d.md f.png h.md"; got != want {
		t.Errorf("links: %s, want %s", got, want)
	}
}

func TestEachExampleHasATest(t *testing.T) {
	for _, p := range open(t).packages {
		if !within(p.folder, "examples") || p.name() != "main" {
			continue
		}
		tested := false
		for _, file := range p.files {
			tested = tested || file.test
		}
		if !tested {
			t.Errorf("%s has no test: an example that people copy must be run by one", p.folder)
		}
	}
}
