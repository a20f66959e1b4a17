package main

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"testing"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
)

// packed is a stream of events, packed as a server that flushes each does.
func packed(t *testing.T, encoding string) []byte {
	t.Helper()
	var b bytes.Buffer
	var z interface {
		io.WriteCloser
		Flush() error
	}
	switch encoding {
	case "br":
		z = brotli.NewWriter(&b)
	case "gzip":
		z = gzip.NewWriter(&b)
	case "deflate":
		z = zlib.NewWriter(&b)
	case "zstd":
		w, err := zstd.NewWriter(&b, zstd.WithEncoderConcurrency(1))
		if err != nil {
			t.Fatal(err)
		}
		z = w
	}
	for _, event := range []string{
		"data: {\"choices\":[{\"delta\":{\"content\":\"Hello\"}}]}\n\n",
		"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":100,\"completion_tokens\":200}}\n\n",
		"data: [DONE]\n\n",
	} {
		if _, err := io.WriteString(z, event); err != nil {
			t.Fatal(err)
		}
		if err := z.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestPackedStreams : what the upstream packed passes by as it came, in whatever
// pieces, and is paid for by what it tells.
func TestPackedStreams(t *testing.T) {
	bodies := map[string][]byte{}
	for _, encoding := range []string{"br", "zstd", "gzip", "deflate"} {
		bodies[encoding] = packed(t, encoding)
	}
	bodies["odd"] = bodies["br"] // what nobody can unpack
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		encoding := r.Header.Get("Accept-Encoding")
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("Content-Encoding", encoding)
		for rest := bodies[encoding]; len(rest) > 0; {
			n := min(7, len(rest))
			_, _ = w.Write(rest[:n])
			_ = http.NewResponseController(w).Flush()
			rest = rest[n:]
		}
	}))
	defer upstream.Close()
	p := start(t, `
rules: [{name: tokens, unit: tokens, limit: "1/h burst 100_000"}]
usage: [{format: openai, output: "1000"}]
`, "--upstream", upstream.URL)
	v := visitor(t, "127.0.0.1")
	left := regexp.MustCompile(`"tokens";r=([0-9]+)`)
	want := 100_000
	for _, c := range []struct {
		encoding string
		used     int
	}{{"br", 300}, {"zstd", 300}, {"gzip", 300}, {"deflate", 300}, {"odd", 1000}, {"br", 300}} {
		answer := ask(t, v, "GET", p.url, "", "Accept-Encoding", c.encoding)
		if answer.status != 200 || answer.header.Get("Content-Encoding") != c.encoding || answer.body != string(bodies[c.encoding]) {
			t.Errorf("%s: %d %q: %d bytes came, want %d", c.encoding, answer.status, answer.header.Get("Content-Encoding"), len(answer.body), len(bodies[c.encoding]))
		}
		// What is left is told with the estimate off, and what was used before.
		if m := left.FindStringSubmatch(answer.header.Get("RateLimit")); m == nil || m[1] != fmt.Sprint(want-1000) {
			t.Errorf("%s: %s, want %d left", c.encoding, answer.header.Get("RateLimit"), want-1000)
		}
		want -= c.used
	}
}
