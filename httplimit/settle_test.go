package httplimit_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spillgate/spillgate/httplimit"
	"github.com/spillgate/spillgate/policy"
)

// failuresOf makes a rule that counts only the outcomes named.
func failuresOf(t *testing.T, limit string, outcomes ...string) policy.Rule {
	r := rule(t, "failures", limit)
	r.Failures = outcomes
	return r
}

func TestOnlyFailuresCount(t *testing.T) {
	for _, c := range []struct {
		name   string
		handle http.HandlerFunc
		panics bool
		fails  bool
	}{
		{name: "wrote nothing", handle: func(http.ResponseWriter, *http.Request) {}},
		{name: "wrote a body", handle: func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }},
		{name: "wrote a string", handle: func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }},
		{name: "404", handle: http.NotFound},
		{name: "401", handle: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401) }, fails: true},
		{name: "503", handle: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }, fails: true},
		{name: "early hints, then 401", handle: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(103); w.WriteHeader(401) }, fails: true},
		{name: "early hints, then 200", handle: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(103); fmt.Fprint(w, "x") }},
		{name: "200, then a second status", handle: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(200); w.WriteHeader(401) }},
		{name: "flushed, then a status", handle: func(w http.ResponseWriter, _ *http.Request) { w.(http.Flusher).Flush(); w.WriteHeader(401) }},
		{name: "panic", handle: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, panics: true, fails: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			eng := engine(t, failuresOf(t, "1/h burst 3", "401", "5xx", "error"))
			func() {
				defer func() {
					if p := recover(); (p != nil) != c.panics {
						t.Errorf("panic: %v", p)
					}
				}()
				httplimit.Policy(eng)(c.handle).ServeHTTP(httptest.NewRecorder(), request(t))
			}()
			v := eng.Decide(context.Background(), policy.Attrs{})
			want := int64(2)
			if c.fails {
				want = 1
			}
			if got := v.Of("failures").Decision.Remaining; got != want {
				t.Errorf("%d left; want %d", got, want)
			}
		})
	}
}

func TestSlotsAreFreed(t *testing.T) {
	for _, panics := range []bool{false, true} {
		store := &scripted{decide: grants}
		h := httplimit.Policy(engineOn(t, store, rule(t, "slots", "5 at once")))(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			if len(store.settled) > 0 {
				t.Error("freed before the work is done")
			}
			if panics {
				panic(http.ErrAbortHandler)
			}
		}))
		func() {
			defer func() { _ = recover() }()
			get(h)
		}()
		if len(store.settled) != 1 || store.settled[0].Delta != -1 || store.settled[0].Slot != 7 {
			t.Errorf("panics %v: settled %+v", panics, store.settled)
		}
	}
}

// TestLoginHandler is the password rule of a tunnel: a handler sees how many
// tries are left without using one, and gives the charge of a right one back.
func TestLoginHandler(t *testing.T) {
	h := httplimit.Policy(engine(t, rule(t, "password", "1/10s burst 10", "client.ip", "host")))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v := policy.FromContext(r.Context())
		if d, ok := v.Peek(r.Context(), "password"); ok {
			w.Header().Set("Tries-Left", fmt.Sprint(d.Remaining))
		}
		if r.Header.Get("Password") != "right" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if err := v.GiveBack("password"); err != nil {
			t.Error(err)
		}
	}))
	try := func(password string) (status int, left string) {
		answer := get(h, with("Password", password))
		return answer.StatusCode, answer.Header.Get("Tries-Left")
	}
	for i := range 9 {
		if status, left := try("wrong"); status != 401 || left != fmt.Sprint(9-i) {
			t.Fatalf("try %d: %d, %s left", i, status, left)
		}
	}
	for range 5 { // the last try is never used up by the right password
		if status, left := try("right"); status != 200 || left != "0" {
			t.Fatalf("%d, %s left", status, left)
		}
	}
	if status, _ := try("wrong"); status != 401 {
		t.Fatal(status)
	}
	if status, _ := try("right"); status != 429 {
		t.Fatal(status)
	}
}

func TestContextOfTheHandler(t *testing.T) {
	type key struct{}
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "kept"))
	ran := false
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ran = true
		if policy.FromContext(r.Context()).Of("a") == nil {
			t.Error("no verdict")
		}
		if r.Context().Value(key{}) != "kept" || r.Context().Value("other") != nil {
			t.Error("the context's own values are gone")
		}
		below, stop := context.WithCancel(r.Context())
		defer stop()
		cancel()
		<-below.Done()
		if !errors.Is(r.Context().Err(), context.Canceled) {
			t.Error("not cancelled with the request's context")
		}
	})
	r := request(t).WithContext(ctx)
	httplimit.Policy(engine(t, rule(t, "a", "1/h burst 1")))(handler).ServeHTTP(httptest.NewRecorder(), r)
	if !ran {
		t.Error("not run")
	}
	if policy.FromContext(r.Context()) != nil {
		t.Error("the caller's request was changed")
	}

	bare := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v := policy.FromContext(r.Context())
		if v != nil || v.GiveBack() != nil {
			t.Error("a verdict where none was wanted")
		}
	})
	httplimit.Policy(engine(t, rule(t, "a", "1/h burst 1")), httplimit.NoVerdict())(bare).ServeHTTP(httptest.NewRecorder(), request(t))
}

// TestOverHTTP serves a rule that counts failures, so that responses are
// recorded, over real connections: what net/http can do must still be done.
func TestOverHTTP(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte(strings.Repeat("sendfile ", 10_000)), 0o600); err != nil {
		t.Fatal(err)
	}
	sent := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("/file", func(w http.ResponseWriter, r *http.Request) {
		if _, ok := w.(io.ReaderFrom); !ok {
			t.Error("no ReaderFrom: a file is not sent by the kernel")
		}
		http.ServeFile(w, r, file)
	})
	mux.HandleFunc("/stream", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "first")
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
		<-sent // the client has read the first line
		fmt.Fprintln(w, "second")
		w.Header().Set(http.TrailerPrefix+"Sum", "42")
	})
	mux.HandleFunc("/upgrade", func(w http.ResponseWriter, r *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprint(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		line, _ := rw.ReadString('\n')
		fmt.Fprint(rw, line)
		rw.Flush()
	})
	mux.HandleFunc("/deadline", func(w http.ResponseWriter, r *http.Request) {
		if err := http.NewResponseController(w).EnableFullDuplex(); err != nil {
			t.Error(err)
		}
		if _, ok := w.(http.Pusher); ok {
			t.Error("claims to push on HTTP/1")
		}
	})
	server := httptest.NewServer(httplimit.Policy(engine(t, failuresOf(t, "1/h burst 5", "401", "101")))(mux))
	defer server.Close()
	client := server.Client()

	answer, err := client.Get(server.URL + "/file")
	if err != nil {
		t.Fatal(err)
	}
	if body, err := io.ReadAll(answer.Body); err != nil || len(body) != 90_000 {
		t.Errorf("%d bytes, %v", len(body), err)
	}
	answer.Body.Close()
	if answer.Header.Get("RateLimit") != `"failures";r=4;t=3600` {
		t.Errorf("%v", answer.Header)
	}

	if answer, err = client.Get(server.URL + "/stream"); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(answer.Body)
	if line, _ := lines.ReadString('\n'); line != "first\n" {
		t.Errorf("%q", line)
	}
	close(sent)
	if rest, _ := io.ReadAll(lines); string(rest) != "second\n" || answer.Trailer.Get("Sum") != "42" {
		t.Errorf("%q, trailers %v", rest, answer.Trailer)
	}
	answer.Body.Close()

	if answer, err = client.Get(server.URL + "/deadline"); err != nil || answer.StatusCode != 200 {
		t.Fatal(answer, err)
	}
	answer.Body.Close()

	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "GET /upgrade HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nping\n")
	in := bufio.NewReader(conn)
	upgraded, err := http.ReadResponse(in, nil)
	if err != nil || upgraded.StatusCode != 101 {
		t.Fatal(upgraded, err)
	}
	if line, _ := in.ReadString('\n'); line != "ping\n" {
		t.Errorf("%q", line)
	}
	if _, err := in.ReadByte(); !errors.Is(err, io.EOF) { // the handler is done
		t.Error(err)
	}

	if answer, err = client.Get(server.URL + "/none"); err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	// Only the upgrade, 101, counts here: four were left before this request.
	if got := answer.Header.Get("RateLimit"); !strings.HasPrefix(got, `"failures";r=3;`) {
		t.Errorf("%q", got)
	}
	if got := answer.Header.Get("RateLimit-Policy"); got != `"failures";q=5;w=18000` {
		t.Errorf("%q", got)
	}
}

// An answer that breaks off after it has promised more bytes than can be costs
// what was sent of it, and nobody gets back what others cost before.
func TestAbsurdLengthsResetNoLimit(t *testing.T) {
	for _, length := range []string{"4611686018427387904", "9223372036854775807", "99999999999999999999"} {
		e := engine(t, counting(t, "bytes", "1000/h burst 100000"))
		s := served(t, e, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Length") != "" {
				w.Header().Set("Content-Length", length)
			}
			_, _ = io.WriteString(w, "0123456789")
		})
		for _, field := range []string{"", "yes"} {
			r, err := http.NewRequestWithContext(t.Context(), "GET", s.URL, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Length", field)
			if answer, err := s.Client().Do(r); err == nil {
				_, _ = io.Copy(io.Discard, answer.Body)
				answer.Body.Close()
			}
		}
		become(t, e, "bytes", 20)
	}
}
