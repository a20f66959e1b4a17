package gateway_test

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillgate/spillgate/cmd/spillgate/internal/gateway"
	"github.com/spillgate/spillgate/cmd/spillgate/internal/nginxtest"
)

// noise is text that no two seeds share and that gzip can't hide in.
func noise(seed uint64, n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	_, _ = r.Read(b)
	return b
}

// open starts a gateway whose policy refuses nobody.
func open(t testing.TB, addr string, change ...func(*gateway.Config)) *front {
	t.Helper()
	return serve(t, addr, compile(t, rule(t, "wide", "1000000/s", []string{"client.ip"})), change...)
}

// same compares the answer of nginx itself with that through the gateway.
func same(t *testing.T, c *http.Client, direct, through string, method, path string, fields ...string) reply {
	t.Helper()
	want := do(t, c, request(t, method, "http://"+direct+path, nil, fields...))
	got := do(t, c, request(t, method, through+path, nil, fields...))
	if got.StatusCode != want.StatusCode || got.body != want.body || got.ContentLength != want.ContentLength {
		t.Errorf("%s %s: %d, %d bytes, Content-Length %d; nginx itself %d, %d bytes, %d", method, path,
			got.StatusCode, len(got.body), got.ContentLength, want.StatusCode, len(want.body), want.ContentLength)
	}
	want.Header.Del("Connection") // of each hop
	for name := range want.Header {
		if g, w := got.Header[name], want.Header[name]; name != "Date" && strings.Join(g, "|") != strings.Join(w, "|") {
			t.Errorf("%s %s: %s: %q; nginx itself %q", method, path, name, g, w)
		}
	}
	for name := range got.Header {
		if _, ok := want.Header[name]; !ok && !strings.HasPrefix(name, "Ratelimit") {
			t.Errorf("%s %s: %s: %q was added", method, path, name, got.Header[name])
		}
	}
	return got
}

func TestAnswersOfNginxComeUnharmed(t *testing.T) {
	ng := nginxtest.Start(t, `
		gzip on; gzip_types text/plain; gzip_min_length 1; gzip_vary on;
		location = /untyped { types { } default_type ""; return 200 "<html>no type"; }
		location = /empty { return 204; }
		location = /moved { return 302 "/elsewhere?a=b;c"; }
		location = /cookies { add_header Set-Cookie "a=1"; add_header Set-Cookie "b=2"; return 200 ""; }
		location = /told { return 200 "$request_uri|$http_host|$http_x_forwarded_for|$http_accept_encoding|$http_user_agent|$http_te"; }
		location /shout { return 200 "$request_method $request_uri"; }
		location = /trouble { return 503 "busy"; }
	`)
	text := bytes.Repeat([]byte("the same again and again\n"), 4000)
	blob := noise(1, 1<<20+7)
	for name, data := range map[string][]byte{"text.txt": text, "blob": blob} {
		if err := os.WriteFile(filepath.Join(ng.Root, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	f := open(t, ng.Addr)
	c := visitor(t, "127.0.0.1")

	if got := same(t, c, ng.Addr, f.url, "GET", "/blob"); got.body != string(blob) || got.ContentLength != int64(len(blob)) {
		t.Errorf("blob: %d bytes, Content-Length %d", len(got.body), got.ContentLength)
	}
	zipped := same(t, c, ng.Addr, f.url, "GET", "/text.txt", "Accept-Encoding", "gzip")
	if zipped.Header.Get("Content-Encoding") != "gzip" {
		t.Errorf("gzip was asked for, nginx sent %q", zipped.Header.Get("Content-Encoding"))
	}
	if r, err := gzip.NewReader(strings.NewReader(zipped.body)); err != nil {
		t.Error(err)
	} else if plain, err := io.ReadAll(r); err != nil || !bytes.Equal(plain, text) {
		t.Errorf("gzip: %d bytes, %v", len(plain), err)
	}
	if plain := same(t, c, ng.Addr, f.url, "GET", "/text.txt"); plain.body != string(text) || plain.Header.Get("Content-Encoding") != "" {
		t.Errorf("plain: %d bytes, encoding %q", len(plain.body), plain.Header.Get("Content-Encoding"))
	}
	if head := same(t, c, ng.Addr, f.url, "HEAD", "/blob"); head.ContentLength != int64(len(blob)) {
		t.Errorf("HEAD: Content-Length %d", head.ContentLength)
	}
	etag := same(t, c, ng.Addr, f.url, "GET", "/blob").Header.Get("Etag")
	if got := same(t, c, ng.Addr, f.url, "GET", "/blob", "If-None-Match", etag); got.StatusCode != http.StatusNotModified || got.Header.Get("Etag") != etag {
		t.Errorf("If-None-Match: %d, Etag %q", got.StatusCode, got.Header.Get("Etag"))
	}
	if got := same(t, c, ng.Addr, f.url, "GET", "/blob", "Range", "bytes=100-199"); got.StatusCode != http.StatusPartialContent || got.body != string(blob[100:200]) {
		t.Errorf("range: %d, %d bytes", got.StatusCode, len(got.body))
	}
	if got := same(t, c, ng.Addr, f.url, "GET", "/blob", "Range", "bytes=9999999-"); got.StatusCode != http.StatusRequestedRangeNotSatisfiable {
		t.Errorf("range beyond the end: %d", got.StatusCode)
	}
	for _, path := range []string{"/untyped", "/empty", "/moved", "/cookies", "/trouble", "/nothing-there"} {
		same(t, c, ng.Addr, f.url, "GET", path)
	}
	for _, method := range []string{"DELETE", "PATCH", "PROPFIND", "OPTIONS", "BREW"} {
		same(t, c, ng.Addr, f.url, method, "/shout")
	}

	// What nginx sees is what the client sent, and who it was.
	told := get(t, c, f.url+"/told?a;b=%zz&c=/../d", "Host", "Shop.Test:81", "User-Agent", "tester/1")
	if want := "/told?a;b=%zz&c=/../d|Shop.Test:81|127.0.0.1||tester/1|"; told.body != want {
		t.Errorf("nginx was told %s, want %s", told.body, want)
	}
	for _, path := range []string{"/shout/a%2Fb", "/shout//a/./b", "/shout/;p=1/%C3%A4", "/shout/a%20b+c"} {
		if got := get(t, c, f.url+path); got.body != "GET "+path {
			t.Errorf("sent %s, nginx got %s", path, got.body)
		}
	}
}

func TestNginxIsReachedOverFewConnections(t *testing.T) {
	ng := nginxtest.Start(t, `location / { return 200 $connection; }`)
	f := open(t, ng.Addr)
	c := visitor(t, "127.0.0.1")
	seen := map[string]bool{}
	for range 50 {
		seen[get(t, c, f.url).body] = true
	}
	if len(seen) != 1 {
		t.Errorf("50 requests in turn took %d connections, want 1 that is kept alive", len(seen))
	}
}

func TestUploadsReachNginxWhole(t *testing.T) {
	ng := nginxtest.Start(t, "location / { dav_methods PUT; create_full_put_path on; }")
	f := open(t, ng.Addr)
	c := visitor(t, "127.0.0.1")
	data := noise(2, 3<<20+1)
	for name, body := range map[string]io.Reader{
		"known-length": bytes.NewReader(data),
		"chunked":      struct{ io.Reader }{bytes.NewReader(data)},
	} {
		r := request(t, "PUT", f.url+"/"+name, body)
		if name == "known-length" && r.ContentLength != int64(len(data)) || name == "chunked" && r.ContentLength != 0 {
			t.Fatalf("%s: Content-Length %d", name, r.ContentLength)
		}
		if got := do(t, c, r); got.StatusCode != http.StatusCreated {
			t.Errorf("%s: %d", name, got.StatusCode)
		}
		stored, err := os.ReadFile(filepath.Join(ng.Root, name))
		if err != nil || !bytes.Equal(stored, data) {
			t.Errorf("%s: %d bytes stored of %d, %v", name, len(stored), len(data), err)
		}
	}
}

func TestHundredMegabytesInConstantMemory(t *testing.T) {
	const size = 100 << 20
	piece := noise(3, 1<<16)
	h := sha256.New()
	for range size / len(piece) {
		h.Write(piece)
	}
	want := h.Sum(nil)

	addr := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		h := sha256.New()
		if n, err := io.Copy(h, r.Body); err != nil || n != size {
			http.Error(w, "short", http.StatusBadRequest)
			return
		}
		_, _ = w.Write(h.Sum(nil))
	})
	f := open(t, addr)
	c := visitor(t, "127.0.0.1")

	var most atomic.Uint64
	sample := func() {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		most.Store(max(most.Load(), m.HeapInuse))
	}
	runtime.GC()
	sample()
	before := most.Load()
	sent := 0
	body := readerFunc(func(p []byte) (int, error) {
		if sent == size {
			return 0, io.EOF
		}
		if sent%(10<<20) == 0 {
			sample()
		}
		n := copy(p, piece[sent%len(piece):])
		n = min(n, size-sent)
		sent += n
		return n, nil
	})
	start := time.Now()
	got := do(t, c, request(t, "POST", f.url, body))
	sample()
	if got.StatusCode != http.StatusOK || got.body != string(want) {
		t.Fatalf("%d, %d bytes of answer", got.StatusCode, len(got.body))
	}
	if grown := int64(most.Load() - before); grown > 16<<20 {
		t.Errorf("the heap grew by %d MiB during a 100 MiB upload, want 16 at most", grown>>20)
	}
	t.Logf("100 MiB in %s, heap at most %d KiB above the start", time.Since(start), (most.Load()-before)>>10)
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
