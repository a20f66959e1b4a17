package watch

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestChanged(t *testing.T) {
	dir := t.TempDir()
	file, other := filepath.Join(dir, "list"), filepath.Join(dir, "new")
	write(t, file, "a")
	f := New(file)
	step := func(what string, want bool) {
		t.Helper()
		if got := f.Changed(); got != want {
			t.Errorf("%s: changed %t, want %t", what, got, want)
		}
		if f.Changed() {
			t.Errorf("%s: changed again", what)
		}
	}
	step("nothing", false)
	write(t, file, "b") // as long, and within the same tick of the clock
	step("written", true)
	write(t, file, "b")
	step("written the same", false)
	write(t, other, "c")
	if err := os.Rename(other, file); err != nil {
		t.Fatal(err)
	}
	step("renamed into place", true)
	if err := os.Chtimes(file, time.Unix(1, 0), time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	step("another time", false)
	write(t, file, "d")
	if err := os.Chtimes(file, time.Unix(2, 0), time.Unix(2, 0)); err != nil {
		t.Fatal(err)
	}
	step("written, and dated long ago", true)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	step("removed", true)
	write(t, file, "d")
	step("there again", true)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(file, 0o700); err != nil {
		t.Fatal(err)
	}
	step("a folder in its place", true)
}

// Kubernetes mounts a folder whose files are links through "..data", a link to
// a folder of the version, and moves that link.
func TestLinksThatMove(t *testing.T) {
	dir := t.TempDir()
	link := func(to, name string) {
		t.Helper()
		if err := os.Symlink(to, filepath.Join(dir, "tmp")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "tmp"), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, version := range []string{"..1", "..2", "..3"} {
		if err := os.Mkdir(filepath.Join(dir, version), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, version, "deny.txt"), map[string]string{"..1": "a", "..2": "b", "..3": "b"}[version])
	}
	link("..1", "..data")
	link(filepath.Join("..data", "deny.txt"), "deny.txt")
	f := New(filepath.Join(dir, "deny.txt"))
	for _, tt := range []struct {
		version string
		want    bool
	}{{"..1", false}, {"..2", true}, {"..3", false}, {"..1", true}} {
		link(tt.version, "..data")
		if got := f.Changed(); got != tt.want {
			t.Errorf("to %s: changed %t", tt.version, got)
		}
	}
}

func TestFilesThatAreNotThere(t *testing.T) {
	f := New(filepath.Join(t.TempDir(), "none"))
	if f.Changed() || New().Changed() {
		t.Error("nothing has changed")
	}
}

func TestRun(t *testing.T) {
	file := filepath.Join(t.TempDir(), "list")
	write(t, file, "a")
	synctest.Test(t, func(t *testing.T) {
		f := New(file)
		ctx, cancel := context.WithCancel(t.Context())
		calls := 0
		done := make(chan struct{})
		go func() {
			f.Run(ctx, time.Second, func() { calls++ })
			close(done)
		}()
		for i, want := range []int{0, 1, 1, 2} {
			if i == 1 || i == 3 {
				write(t, file, "abcd"[:i+1])
			}
			time.Sleep(time.Second)
			synctest.Wait()
			if calls != want {
				t.Errorf("after %d s: %d calls, want %d", i+1, calls, want)
			}
		}
		cancel()
		<-done
	})
}
