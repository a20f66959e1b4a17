package gateway_test

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/spillgate/spillgate/policy"
)

// What the gateway has said, or the rules have read, in the header is not
// contradicted after the body: some programs put trailers among the header's
// fields.
func TestTrailersOfClientsNameNothingThatTheRulesRead(t *testing.T) {
	seen := make(chan string, 1)
	addr := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		announced := slices.Sorted(maps.Keys(r.Trailer))
		_, _ = io.Copy(io.Discard, r.Body)
		seen <- fmt.Sprint(announced, r.Trailer)
	})
	user := rule(t, "user", "1000/h burst 1000", []string{"header.x-user-id"}, "cookie.plan", "!free")
	user.Lanes = []policy.Lane{{Match: when(t, "header.x-plan", "paid")}, {Keep: 1}}
	user.Prices = []policy.Price{{From: when(t, "header.x-batch", "1")[0].Attribute}}
	rules := []policy.Rule{user, rule(t, "all", "1000/h burst 1000", []string{"client.ip"})}
	names := []string{"x-forwarded-for", "X-Forwarded-Proto", "Forwarded", "X_Forwarded_For", "x-http-method-override", "Spillgate-Remaining",
		"X-User-Id", "x_user_id", "Cookie", "X-Plan", "X-Batch"}
	const want = "[X-Check] map[X-Check:[right]]"

	f := serve(t, addr, compile(t, rules...))
	var fields strings.Builder
	for _, name := range names {
		fmt.Fprintf(&fields, "%s: 203.0.113.9\r\n", name)
	}
	for _, announced := range []string{"X-Check", "X-Check, " + strings.Join(names, ", ")} {
		c := raw(t, f.addr, "POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\nTrailer: "+announced+
			"\r\n\r\n2\r\nok\r\n0\r\nX-Check: right\r\n"+fields.String()+"\r\n")
		if got := statuses(c); len(got) != 1 || got[0] != 200 {
			t.Fatalf("%v", got)
		}
		if got := <-seen; got != want {
			t.Errorf("over HTTP/1.1, announced %s: the upstream saw %s, want %s", announced, got, want)
		}
	}

	f = serve(t, addr, compile(t, rules...), overTLS(t))
	w := dial2(t, "127.0.0.1", f.addr)
	id := w.stream()
	header := login2()
	trailer := []string{"x-check", "right"}
	for _, name := range append(names, "x-check") {
		header = append(header, "trailer", strings.ToLower(name))
	}
	for _, name := range names {
		trailer = append(trailer, strings.ToLower(name), "203.0.113.9")
	}
	_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: w.pack(header...), EndHeaders: true})
	_ = w.WriteData(id, false, []byte("hello"))
	_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: w.pack(trailer...), EndHeaders: true, EndStream: true})
	if out := w.await(id); out.status[id] != 200 {
		t.Fatalf("%v", out)
	}
	if got := <-seen; got != want {
		t.Errorf("over HTTP/2: the upstream saw %s, want %s", got, want)
	}
}

// Nor does an upstream contradict what clients are told of their limits, however
// it announces that.
// Trailers that were not announced are passed on as well, but for those that would not
// be if they were, or could not have been.
func TestUnannouncedTrailersAreKept(t *testing.T) {
	seen := make(chan string, 1)
	addr := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		seen <- fmt.Sprint(string(body), r.Trailer)
	})
	f := serve(t, addr, compile(t, rule(t, "r", "1000/h", []string{"client.ip"})))
	c := raw(t, f.addr, "PUT / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n"+
		"X-Sum: 5\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\nX-Forwarded-For: 203.0.113.9\r\n\r\n")
	if got := statuses(c); len(got) != 1 || got[0] != 200 {
		t.Fatalf("%v", got)
	}
	if got, want := <-seen, "okmap[X-Sum:[5]]"; got != want {
		t.Errorf("the upstream saw %s, want %s", got, want)
	}
}

func TestTrailersOfUpstreamsTellOfNoLimits(t *testing.T) {
	const after = "Ratelimit: \"theirs\";r=1\r\nRateLimit-Policy: \"theirs\";q=1\r\nX-RateLimit-Remaining: 1\r\nX-Sum: 42\r\n"
	for _, announced := range []string{"", "Trailer: X-Sum\r\n", "Trailer: RateLimit\r\n", "Trailer: X-Sum, RateLimit, X-RateLimit-Remaining\r\n"} {
		f := open(t, says(t, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n"+announced+"\r\n2\r\nok\r\n0\r\n"+after+"\r\n"))
		conn := raw(t, f.addr, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		answer, err := io.ReadAll(conn)
		if err != nil {
			t.Fatal(err)
		}
		if _, trailer, _ := strings.Cut(string(answer), "\r\n0\r\n"); trailer != "X-Sum: 42\r\n\r\n" {
			t.Errorf("over HTTP/1.1, %q: %q", announced, trailer)
		}

		f = open(t, says(t, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n"+announced+"\r\n2\r\nok\r\n0\r\n"+after+"\r\n"), overTLS(t))
		w := dial2(t, "127.0.0.1", f.addr)
		id := w.ask(login2()...)
		var trailer []string
		w.trailer = func(hf hpack.HeaderField) { trailer = append(trailer, hf.Name+": "+hf.Value) }
		if out := w.await(id); out.status[id] != 200 || fmt.Sprint(trailer) != "[x-sum: 42]" {
			t.Errorf("over HTTP/2, %q: %v, %q", announced, out, trailer)
		}
	}
}
