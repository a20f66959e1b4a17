package main

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"
)

// What serve logs of a refusal is found by the id that its client was told.
func TestRefusalsAreFoundInTheLog(t *testing.T) {
	file := filepath.Join(t.TempDir(), "limits.yaml")
	if err := os.WriteFile(file, []byte("rules:\n  - {name: pin, key: [client.ip, header.x-account-pin secret], limit: 1/h burst 1}\n  - {name: all, key: client.ip, limit: 100/s}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, form := range []string{"text", "json"} {
		p := start(t, file, "--demo", "--log", form)
		ask := func() *http.Response {
			r, err := http.NewRequest(http.MethodGet, p.url+"/a%20b", nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("X-Account-Pin", "4711")
			resp, err := visitor(t, "127.0.0.2").Do(r)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			return resp
		}
		ask()
		id := ask().Header.Get("Spillgate-Refusal")
		p.log.await(t, p.exited, id)
		log := filepath.Join(t.TempDir(), "log")
		if err := os.WriteFile(log, []byte(p.log.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		var out, errs bytes.Buffer
		if code := run([]string{"explain", file, "--refusal", id, "--log", log}, &out, &errs); code != 0 {
			t.Fatalf("exit code %d: %s", code, &errs)
		}
		for _, want := range []string{"GET /a b at 127.0.0.1:", "from 127.0.0.2, on 20", "Refused with 429 by pin (" + file + ":2)",
			"client.ip=127.0.0.2 header.x-account-pin=hmac:", "because 1/h burst 1 was used up", "from now"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s: %q is missing in\n%s", form, want, &out)
			}
		}
		if strings.Contains(out.String()+p.log.String(), "4711") {
			t.Errorf("%s: the secret is shown", form)
		}
	}
}

// What a list blocks, and what costs too much, says so with its place and its cost.
func TestRefusalsSayWhichEntryAndWhatCost(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "limits.yaml")
	for name, text := range map[string]string{
		"deny.txt": "192.0.2.1\n127.0.0.3 reason=\"port scans\" owner=ops\n",
		"limits.yaml": `
rules:
  - {name: rows, unit: rows, key: client.ip, limit: 10/s, cost: {from: query.n}}
overrides:
  - {deny: true, list: deny.txt}
`} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	p := start(t, file, "--demo")
	for from, want := range map[string]string{
		"127.0.0.2": "  for     client.ip=127.0.0.2\n  because the request costs 500, more than 10/s burst 10 ever holds\n  waiting does not help\n",
		"127.0.0.3": "  for     client.ip=127.0.0.3\n  because of the override " + file + ":5, by its list (deny.txt:2): port scans (ops)\n  waiting does not help\n",
	} {
		resp, err := visitor(t, from).Get(p.url + "/?n=500")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		id := resp.Header.Get("Spillgate-Refusal")
		p.log.await(t, p.exited, id)
		log := filepath.Join(t.TempDir(), "log")
		if err := os.WriteFile(log, []byte(p.log.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		var out, errs bytes.Buffer
		if code := run([]string{"explain", file, "--refusal", id, "--log", log}, &out, &errs); code != 0 || !strings.Contains(out.String(), want) {
			t.Errorf("exit code %d: %s%s, want\n%s", code, &errs, &out, want)
		}
	}
}

// Whatever a client gets into the log, it does not reach the terminal.
func FuzzReadRefusal(f *testing.F) {
	for _, line := range []string{
		`time=2020-11-30T15:15:12.5Z rule=login why="over limit" key="client.ip=203.0.113.7" path="/\x1b[2J" retry_after=10s refusal_id=0f3a91c2d8e4b576`,
		`x {"time":"2020-11-30T15:15:12.5Z","rule":"a","path":"/","retry_after":"never","refusal_id":"0f3a91c2d8e4b576"}`,
		`a= b="c refusal_id=0f3a91c2d8e4b576 =`, `{"refusal_id":0}`, "refusal_id", "",
	} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		r, ok := readRefusal(line, "0f3a91c2d8e4b576")
		if !ok {
			return
		}
		text := r.text(time.Unix(0, 0))
		if i := strings.IndexFunc(text, func(c rune) bool { return c != '\n' && !unicode.IsPrint(c) }); i >= 0 {
			t.Errorf("%q from %q", text[i:], line)
		}
	})
}
