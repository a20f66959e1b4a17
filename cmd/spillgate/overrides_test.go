package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A list is taken over while the gateway runs, also one that is renamed into
// place; a broken one changes nothing, and the log says so once.
func TestServeTakesOverLists(t *testing.T) {
	url, _, _ := slowly(t)
	dir := t.TempDir()
	list := filepath.Join(dir, "deny.txt")
	write := func(text string) {
		t.Helper()
		next := filepath.Join(dir, "next")
		if err := os.WriteFile(next, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(next, list); err != nil {
			t.Fatal(err)
		}
	}
	write("# nobody yet\n")
	file := filepath.Join(dir, "policy.yaml")
	if err := os.WriteFile(file, []byte(fmt.Sprintf(`
server: {upstream: %q}
rules: [{name: everybody, key: client.ip, limit: 1000/s}]
overrides: [{deny: true, list: deny.txt, reason: under test, owner: ops}]
`, url)), 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, file)
	who, other := visitor(t, "127.0.0.41"), visitor(t, "127.0.0.42")
	expect := func(what string, c *http.Client, want int) reply {
		t.Helper()
		r := ask(t, c, http.MethodGet, p.url+"/", "")
		if r.status != want {
			t.Errorf("%s: status %d, want %d", what, r.status, want)
		}
		return r
	}
	expect("before", who, http.StatusOK)

	write("127.0.0.41 until=2099-01-01\n127.0.0.99\n")
	p.log.await(t, p.exited, "entries=2")
	r := expect("listed", who, http.StatusForbidden)
	if r.header.Get("Retry-After") == "" || !strings.Contains(r.body, "blocked") {
		t.Errorf("listed: %v, %s", r.header, r.body)
	}
	expect("listed", other, http.StatusOK)
	if line := p.log.await(t, p.exited, "request refused"); !strings.Contains(line, "reason=\"under test\"") || !strings.Contains(line, "owner=ops") {
		t.Errorf("the log says %s", line)
	}

	write("127.0.0.42\noops\n")
	if line := p.log.await(t, p.exited, "broken or gone"); !strings.Contains(line, "deny.txt:2:1") {
		t.Errorf("the log says %s", line)
	}
	expect("a broken list", who, http.StatusForbidden)
	expect("a broken list", other, http.StatusOK)

	write("127.0.0.42\n")
	p.log.await(t, p.exited, "mended=true")
	expect("mended", who, http.StatusOK)
	expect("mended", other, http.StatusForbidden)
	if n := strings.Count(p.log.String(), "broken or gone"); n != 1 {
		t.Errorf("the log tells %d times of one broken list:\n%s", n, p.log)
	}
	p.signal(t, os.Interrupt)
	if s := p.exit(t); s.ExitCode() != 0 {
		t.Errorf("exit code %d", s.ExitCode())
	}
}
