package httplimit_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/httplimit"
	"github.com/spillgate/spillgate/policy"
)

// counting makes a rule that counts a unit.
func counting(t testing.TB, unit, limit string) policy.Rule {
	r := rule(t, unit, limit)
	r.Unit = unit
	return r
}

// metered makes an engine whose tokens are paid for by usage.
func metered(t testing.TB, u policy.Usage, rules ...policy.Rule) *policy.Engine {
	t.Helper()
	p, err := policy.Compile(append(rules, counting(t, "tokens", "1/h burst 100_000")))
	if err == nil {
		p, err = p.WithUsage([]policy.Usage{u})
	}
	if err != nil {
		t.Fatal(err)
	}
	return policy.NewEngine(p, spillgate.NewMemory())
}

// used returns how many units of a rule's limit are used up.
func used(e *policy.Engine, rule string) int64 {
	var opts []policy.Option
	for _, unit := range []string{"tokens", policy.Bytes, policy.Requests} {
		opts = append(opts, policy.Cost(unit, 0))
	}
	v := e.Decide(context.Background(), policy.Attrs{}, opts...)
	d := v.Of(rule).Decision
	return d.Limit - d.Remaining
}

// become waits until so many units of a rule are used up.
func become(t *testing.T, e *policy.Engine, rule string, want int64) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); used(e, rule) != want; runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("%s: %d used, want %d", rule, used(e, rule), want)
		}
	}
}

func served(t testing.TB, e *policy.Engine, h http.HandlerFunc, opts ...httplimit.Option) *httptest.Server {
	s := httptest.NewServer(httplimit.Policy(e, opts...)(h))
	t.Cleanup(s.Close)
	return s
}

func post(t *testing.T, s *httptest.Server, body io.Reader, header ...string) (status int, text []byte) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "POST", s.URL, body)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	answer, err := s.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, _ = io.ReadAll(answer.Body)
	return answer.StatusCode, text
}

const told = `{"choices":[],"usage":{"prompt_tokens":30,"completion_tokens":12}}`

func TestUsageOfAnswers(t *testing.T) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	fmt.Fprint(z, told)
	z.Close()
	say := func(kind, encoding, text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			if kind != "" {
				w.Header().Set("Content-Type", kind)
			}
			if encoding != "" {
				w.Header().Set("Content-Encoding", encoding)
			}
			_, _ = io.WriteString(w, text)
		}
	}
	const estimate = 1 + 500
	for _, c := range []struct {
		name   string
		handle http.HandlerFunc
		used   int64
	}{
		{"json", say("application/json", "", told), 42},
		{"no type", say("", "", told), 42},
		{"events", say("text/event-stream", "", "data: "+told+"\n\ndata: [DONE]\n\n"), 42},
		{"packed", say("application/json", "gzip", packed.String()), 42},
		{"packed otherwise", say("application/json", "br", told), estimate},
		{"nothing told", say("application/json", "", "{}"), estimate},
		{"nothing written", func(http.ResponseWriter, *http.Request) {}, estimate},
		{"an error", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, `{"error":{}}`, 500) }, 0},
		{"an error that tells", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(400); fmt.Fprint(w, told) }, 42},
		{"copied", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.Copy(w, strings.NewReader(told))
		}, 42},
		{"spent by the handler", func(w http.ResponseWriter, r *http.Request) {
			if err := policy.FromContext(r.Context()).Spent("tokens", 7); err != nil {
				t.Error(err)
			}
			say("application/json", "", told)(w, r)
		}, 7},
		{"a panic before the answer", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, estimate},
		{"a panic in the answer", func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"usage":{"prompt_tokens":30,"completion_tokens":1000`)
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}, 30 + 500},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := metered(t, policy.Usage{Format: "openai", Output: "500"})
			s := served(t, e, func(w http.ResponseWriter, r *http.Request) {
				if got := used(e, "tokens"); got != estimate {
					t.Errorf("%d reserved, want %d", got, estimate)
				}
				c.handle(w, r)
			})
			r, err := http.NewRequest("POST", s.URL, strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Accept-Encoding", "gzip") // so that the client does not unpack
			if answer, err := s.Client().Do(r); err == nil {
				_, _ = io.Copy(io.Discard, answer.Body)
				answer.Body.Close()
			}
			become(t, e, "tokens", c.used)
		})
	}
}

// TestRequestsReachTheHandlerAsTheyCame : what an estimate had to see of a body
// is put back, also where it did not look to the end.
func TestRequestsReachTheHandlerAsTheyCame(t *testing.T) {
	body := `{"model":"m","max_tokens":100,"n":2,"messages":"` + strings.Repeat("x", 5000) + `","max_tokens":300}`
	size := int64(len(body))
	for _, c := range []struct {
		name    string
		read    int64
		chunked bool
		used    int64
	}{
		{"to the end", 0, false, (size+3)/4 + 600},
		{"in part", 1000, false, (size+3)/4 + 200},
		{"of unknown length", 0, true, (size+3)/4 + 600},
		{"of unknown length, in part", 1000, true, 250 + 200},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := metered(t, policy.Usage{Format: "openai", Output: "max_tokens else 7", Read: c.read})
			s := served(t, e, func(w http.ResponseWriter, r *http.Request) {
				got, err := io.ReadAll(r.Body)
				if err != nil || string(got) != body {
					t.Errorf("%d bytes came, %v", len(got), err)
				}
				if n := used(e, "tokens"); n != c.used {
					t.Errorf("%d reserved, want %d", n, c.used)
				}
				if want := map[bool]int64{true: -1, false: size}[c.chunked]; r.ContentLength != want {
					t.Errorf("content length %d, want %d", r.ContentLength, want)
				}
			})
			var in io.Reader = strings.NewReader(body)
			if c.chunked {
				in = struct{ io.Reader }{in}
			}
			if status, _ := post(t, s, in); status != 200 {
				t.Error(status)
			}
		})
	}
}

// TestBodyThatBreaksOffBeforeTheDecision : the cost can't be told, so nothing
// is charged, and nobody is asked.
func TestBodyThatBreaksOffBeforeTheDecision(t *testing.T) {
	e := metered(t, policy.Usage{Format: "openai"})
	log, lines := logged(t)
	s := served(t, e, func(http.ResponseWriter, *http.Request) { t.Error("passed on") }, httplimit.BodyStall(20*time.Millisecond), httplimit.Logger(log))
	silent := func(*net.TCPConn) error { return nil }
	for _, c := range []struct {
		body     string
		breakOff func(*net.TCPConn) error
		want     int
		says     string
	}{
		{"Content-Length: 100\r\n\r\n{\"max", (*net.TCPConn).CloseWrite, http.StatusBadRequest, "could not be read"},
		{"Transfer-Encoding: chunked\r\n\r\nzz\r\n", silent, http.StatusBadRequest, "could not be read"},
		{"Content-Length: 100\r\n\r\n{\"max", silent, http.StatusRequestTimeout, "did not come in time"},
		{"Content-Type: application/grpc\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", silent, http.StatusOK, ""},
	} {
		conn, err := net.Dial("tcp", s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(conn, "POST / HTTP/1.1\r\nHost: x\r\n"+c.body)
		if err := c.breakOff(conn.(*net.TCPConn)); err != nil {
			t.Error(err)
		}
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || answer.StatusCode != c.want {
			t.Fatalf("%q: %+v, %v, want %d", c.body, answer, err, c.want)
		}
		if c.says == "" {
			if status, said := answer.Header.Get("Grpc-Status"), answer.Header.Get("Grpc-Message"); status != "3" || !strings.Contains(said, "could not be read") {
				t.Errorf("%q: %s %s", c.body, status, said)
			}
		} else if p := problemOf(t, answer); !strings.Contains(p.Detail, c.says) {
			t.Errorf("%q: %s", c.body, p.Detail)
		}
		conn.Close()
	}
	if n := used(e, "tokens"); n != 0 {
		t.Errorf("%d charged", n)
	}
	s.Close()
	got := lines()
	for _, line := range got {
		if line["msg"] != "request not decided" || line["level"] != "INFO" { // no fault of ours
			t.Error(line)
		}
	}
	if len(got) == 0 {
		t.Error("nothing is logged")
	}
}

func TestStreamsOfEventsPassAtOnceAndAreSettled(t *testing.T) {
	e := metered(t, policy.Usage{Format: "anthropic", Output: "500"})
	next := make(chan struct{})
	s := served(t, e, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, event := range []string{
			`{"type":"message_start","message":{"usage":{"input_tokens":30,"output_tokens":1}}}`,
			`{"type":"content_block_delta","delta":{"text":"hi"}}`,
			`{"type":"message_delta","usage":{"output_tokens":12}}`,
		} {
			fmt.Fprintf(w, "data: %s\n\n", event)
			_ = http.NewResponseController(w).Flush()
			<-next
		}
	})
	answer, err := s.Client().Post(s.URL, "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	lines := bufio.NewReader(answer.Body)
	for range 3 { // the handler goes on only when an event was seen
		if _, err := lines.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		if n := used(e, "tokens"); n != 501 {
			t.Errorf("%d are charged during the stream", n)
		}
		_, _ = lines.ReadString('\n')
		next <- struct{}{}
	}
	_, _ = io.Copy(io.Discard, lines)
	become(t, e, "tokens", 42)
}

// TestStreamThatBreaksOffIsNeverBelowWhatWasSeen : of a stream that the client
// leaves, what was told counts, and the estimate stands for the rest.
func TestStreamThatBreaksOffIsNeverBelowWhatWasSeen(t *testing.T) {
	for name, c := range map[string]struct {
		event string
		used  int64
	}{
		"less than the estimate": {`{"message":{"usage":{"input_tokens":30,"output_tokens":1}}}`, 30 + 500},
		"more than the estimate": {`{"message":{"usage":{"input_tokens":30,"output_tokens":800}}}`, 30 + 800},
		"nothing":                {`{}`, 1 + 500},
		"all":                    {`{"usage":{"input_tokens":30,"output_tokens":12}}`, 42},
	} {
		t.Run(name, func(t *testing.T) {
			e := metered(t, policy.Usage{Format: "anthropic", Output: "500"})
			s := served(t, e, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				fmt.Fprintf(w, "data: %s\n\n", c.event)
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			})
			ctx, cancel := context.WithCancel(t.Context())
			r, err := http.NewRequestWithContext(ctx, "POST", s.URL, strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			answer, err := s.Client().Do(r)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := bufio.NewReader(answer.Body).ReadString('\n'); err != nil {
				t.Error(err)
			}
			cancel()
			answer.Body.Close()
			become(t, e, "tokens", c.used)
		})
	}
}

func TestBytesOfAnswers(t *testing.T) {
	long := strings.Repeat("x", 10_000)
	for _, c := range []struct {
		name   string
		method string
		handle http.HandlerFunc
		used   int64
	}{
		{"written", "GET", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }, 5},
		{"a string", "GET", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, long) }, 10_000},
		{"copied", "GET", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.(io.ReaderFrom).ReadFrom(struct{ io.Reader }{strings.NewReader(long)})
		}, 10_000},
		{"none", "GET", func(w http.ResponseWriter, _ *http.Request) {}, 0},
		{"to HEAD", "HEAD", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, long) }, 0},
		{"of 304", "GET", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(304); fmt.Fprint(w, long) }, 0},
		{"spent by the handler", "GET", func(w http.ResponseWriter, r *http.Request) {
			if err := policy.FromContext(r.Context()).Spent(policy.Bytes, 3); err != nil {
				t.Error(err)
			}
			fmt.Fprint(w, long)
		}, 3},
		{"a panic", "GET", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, long); panic(http.ErrAbortHandler) }, 10_000},
	} {
		t.Run(c.name, func(t *testing.T) {
			bytes := counting(t, policy.Bytes, "1/h burst 100_000")
			bytes.Cost = 700
			e := engine(t, bytes)
			s := served(t, e, func(w http.ResponseWriter, r *http.Request) {
				if n := used(e, "bytes"); n != 700 {
					t.Errorf("%d reserved", n)
				}
				c.handle(w, r)
			})
			r, err := http.NewRequest(c.method, s.URL, nil)
			if err != nil {
				t.Fatal(err)
			}
			if answer, err := s.Client().Do(r); err == nil {
				if q := answer.Header.Get("RateLimit-Policy"); !strings.Contains(q, `qu="content-bytes"`) {
					t.Errorf("told as %s", q)
				}
				_, _ = io.Copy(io.Discard, answer.Body)
				answer.Body.Close()
			}
			become(t, e, "bytes", c.used)
		})
	}
}

// TestBytesAreKnownBeforeTheyAreSent : an answer of known length is charged for
// it when it begins, and for what of it was sent when it breaks off.
func TestBytesAreKnownBeforeTheyAreSent(t *testing.T) {
	e := engine(t, counting(t, policy.Bytes, "1/h burst 100_000"))
	next := make(chan struct{})
	s := served(t, e, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "5000")
		fmt.Fprint(w, strings.Repeat("x", 2000))
		_ = http.NewResponseController(w).Flush()
		<-next
		panic(http.ErrAbortHandler)
	})
	answer, err := s.Client().Get(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	become(t, e, "bytes", 5000)
	close(next)
	n, err := io.Copy(io.Discard, answer.Body)
	answer.Body.Close()
	if n != 2000 || err == nil {
		t.Errorf("%d bytes came, %v", n, err)
	}
	become(t, e, "bytes", 2000)
}
