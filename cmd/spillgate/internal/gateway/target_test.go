package gateway_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// A target without a path would go to the upstream word for word.
func TestOpaqueTargetsAreNotPassedOn(t *testing.T) {
	var w witness
	f := open(t, upstream(t, w.ServeHTTP))
	for target, want := range map[string]string{
		"x:http://foo/login": "[400]", "http:foo": "[400]", "x:*": "[400]",
		"http://foo/login": "[200]", "x:": "[200]", "/x:http://foo/login": "[200]",
	} {
		conn := raw(t, f.addr, "GET "+target+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		if got := fmt.Sprint(statuses(conn)); got != want {
			t.Errorf("%s: %s, want %s", target, got, want)
		}
		if seen := w.take(); len(seen) > 0 != (want == "[200]") {
			t.Errorf("%s came through as %q", target, seen)
		}
	}
}

// A rule on /login must hold for whatever reaches /login below the upstream's
// base path.
func TestNothingClimbsAroundTheBasePath(t *testing.T) {
	var w witness
	addr := upstream(t, w.ServeHTTP)
	f := open(t, addr+"/base")
	for _, target := range []string{
		"/../base/login", "/%2e%2e/base/login", "/x/../../base/login", "//../base/login", "/..%2fbase/login", "/..%5cbase/login",
		"/.%2E/base/login", "/..\\base\\login", "/..;/base/login", "/..;a=b/base/login", "/..%3b/base/login", "/x/..", "/%2f..%2Fbase/login",
		"http://x/../base/login",
	} {
		if got := fmt.Sprint(statuses(raw(t, f.addr, "GET "+target+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"))); got != "[400]" {
			t.Errorf("%s: %s", target, got)
		}
		if seen := w.take(); len(seen) > 0 {
			t.Errorf("%s came through as %q", target, seen)
		}
	}
	for _, target := range []string{"/login", "/a..b/c", "/...", "/..a/", "/a/.", "/x?y=/../z", "/;../a"} {
		for _, base := range []string{"/base", "", "/"} {
			f := open(t, addr+base)
			if got := fmt.Sprint(statuses(raw(t, f.addr, "GET "+target+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"))); got != "[200]" {
				t.Errorf("%s with base %q: %s", target, base, got)
			}
		}
	}
	for _, base := range []string{"", "/"} { // the upstream's root is nobody's way around
		f := open(t, addr+base)
		if got := fmt.Sprint(statuses(raw(t, f.addr, "GET /a/../b HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"))); got != "[200]" {
			t.Errorf("base %q: %s", base, got)
		}
	}
}

// says is an upstream that answers every request with that text.
func says(t *testing.T, text string) (addr string) {
	return upstream(t, func(w http.ResponseWriter, r *http.Request) {
		c, b, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = b.WriteString(text)
		b.Flush()
	})
}

func TestStatusesThatAreNoneAreFaults(t *testing.T) {
	for status, want := range map[string]int{"000": 502, "099": 502, "007": 502, "200": 200, "599": 599, "999": 999} {
		f := open(t, says(t, "HTTP/1.1 "+status+" Odd\r\nContent-Length: 0\r\n\r\n"))
		got := get(t, visitor(t, "127.0.0.1"), f.url)
		if got.StatusCode != want {
			t.Errorf("%s: %d, want %d", status, got.StatusCode, want)
		}
		if want == 502 && (got.Header.Get("Content-Type") != "application/problem+json" || !strings.Contains(f.log.String(), "upstream fault")) {
			t.Errorf("%s: %v, log %s", status, got.Header, f.log)
		}
		if text := f.log.String(); strings.Contains(text, "panic") || strings.Contains(text, "goroutine") {
			t.Errorf("%s: log: %s", status, text)
		}
	}
}

func TestTrailersNamedLikeFieldsRepeatNone(t *testing.T) {
	f := open(t, says(t, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nEtag: \"head\"\r\nTrailer: Ratelimit, Ratelimit-Policy, Etag, X-Sum\r\n\r\n"+
		"2\r\nok\r\n0\r\nRatelimit: theirs\r\nEtag: \"late\"\r\nX-Sum: 42\r\n\r\n"))
	conn := raw(t, f.addr, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	answer, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, _ := strings.Cut(string(answer), "\r\n\r\n")
	_, trailer, _ := strings.Cut(rest, "\r\n0\r\n")
	if strings.Count(head, "\r\nRatelimit: \"wide\"") != 1 || strings.Count(head, "\r\nEtag: \"head\"") != 1 {
		t.Errorf("header:\n%s", head)
	}
	for line, want := range map[string]int{"Ratelimit": 0, "Etag: \"late\"": 1, "Etag": 1, "X-Sum: 42": 1, "X-Sum": 1} {
		if got := strings.Count("\r\n"+trailer, "\r\n"+line); got != want {
			t.Errorf("%q %d times, want %d, in the trailer:\n%s", line, got, want, trailer)
		}
	}
}
