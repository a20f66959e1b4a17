package gateway_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/spillgate/spillgate/cmd/spillgate/internal/gateway"
	"github.com/spillgate/spillgate/policy"
)

// counting makes a rule that counts a unit and is called by it.
func counting(t testing.TB, unit, limit string) policy.Rule {
	r := rule(t, unit, limit, nil)
	r.Unit = unit
	return r
}

// keep makes serve tell which engine decides.
func keep(e **policy.Engine) func(*gateway.Config) {
	return func(c *gateway.Config) { *e = c.Engine }
}

// used returns how many units of a rule's limit are used up.
func used(e *policy.Engine, rule string) int64 {
	var opts []policy.Option
	for _, unit := range []string{policy.Tokens, policy.Bytes, policy.Requests} {
		opts = append(opts, policy.Cost(unit, 0))
	}
	v := e.Decide(context.Background(), policy.Attrs{"method": "POST"}, opts...)
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

// TestOfManyGuessesAtOnceExactlyTheBurstReachTheUpstream sends 100 guesses of a
// password at the same time: the try is taken before the upstream is asked, so
// no more than the burst are, and a right one is given back.
func TestOfManyGuessesAtOnceExactlyTheBurstReachTheUpstream(t *testing.T) {
	var asked atomic.Int64
	all := make(chan struct{}) // closed when the burst has arrived
	addr := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Password") == "right" {
			return
		}
		if asked.Add(1) == 10 {
			close(all)
		}
		<-all
		w.WriteHeader(http.StatusUnauthorized)
	})
	login := rule(t, "login", "1/h burst 10", []string{"client.ip"})
	login.Failures = []string{"401", "502"}
	f := serve(t, addr, compile(t, login))
	v := visitor(t, "127.0.0.1")
	for range 20 {
		if got := get(t, v, f.url, "Password", "right"); got.StatusCode != 200 {
			t.Fatalf("a right one: %d", got.StatusCode)
		}
	}
	var refused, answered atomic.Int64
	var wait sync.WaitGroup
	for range 100 {
		wait.Go(func() {
			switch got := get(t, v, f.url, "Password", "wrong"); got.StatusCode {
			case http.StatusUnauthorized:
				answered.Add(1)
			case http.StatusTooManyRequests:
				refused.Add(1)
			default:
				t.Errorf("status %d", got.StatusCode)
			}
		})
	}
	wait.Wait()
	if asked.Load() != 10 || answered.Load() != 10 || refused.Load() != 90 {
		t.Errorf("%d reached the upstream, %d were answered by it, %d refused; want 10, 10, 90", asked.Load(), answered.Load(), refused.Load())
	}
}

// TestUpstreamThatCantBeReached is a failure where 502 is named one, and gives
// the charge back where it is not.
func TestUpstreamThatCantBeReached(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	ln.Close() // nobody is there
	one := func(name string, failures ...string) policy.Rule {
		r := rule(t, name, "1/h burst 10", nil)
		r.Failures = failures
		return r
	}
	var e *policy.Engine
	f := serve(t, addr, compile(t, one("named", "401", "502"), one("class", "5xx"), one("other", "401", "error")), keep(&e))
	for range 3 {
		if got := get(t, visitor(t, "127.0.0.1"), f.url); got.StatusCode != http.StatusBadGateway {
			t.Fatal(got.StatusCode)
		}
	}
	for name, want := range map[string]int64{"named": 3, "class": 3, "other": 0} {
		if n := used(e, name); n != want {
			t.Errorf("%s: %d used, want %d", name, n, want)
		}
	}
}

// held is an upstream whose answer begins, and goes on when the test says so.
func held(t *testing.T, rest func(w http.ResponseWriter)) (addr string, next chan struct{}) {
	next = make(chan struct{})
	return upstream(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "first ")
		_ = http.NewResponseController(w).Flush()
		select {
		case <-next:
			rest(w)
		case <-r.Context().Done():
		}
	}), next
}

// begin sends a request and returns its answer when the first six bytes came.
func begin(t *testing.T, ctx context.Context, url string) *http.Response {
	t.Helper()
	r := request(t, "GET", url, nil).WithContext(ctx)
	resp, err := visitor(t, "127.0.0.1").Do(r)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp, err)
	}
	if _, err := io.ReadFull(resp.Body, make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	return resp
}

func TestSlotsOfTheGateway(t *testing.T) {
	slots := rule(t, "slots", "1 at once", nil)
	var e *policy.Engine

	t.Run("are held to the last byte", func(t *testing.T) {
		addr, next := held(t, func(w http.ResponseWriter) { fmt.Fprint(w, "last") })
		f := serve(t, addr, compile(t, slots), keep(&e))
		resp := begin(t, t.Context(), f.url)
		if got := get(t, visitor(t, "127.0.0.1"), f.url); got.StatusCode != http.StatusTooManyRequests {
			t.Errorf("beside it: %d", got.StatusCode)
		}
		next <- struct{}{}
		if rest, err := io.ReadAll(resp.Body); string(rest) != "last" || err != nil {
			t.Error(string(rest), err)
		}
		resp.Body.Close()
		if n := used(e, "slots"); n != 0 {
			t.Errorf("%d used after the end was seen", n)
		}
	})
	t.Run("are free when the upstream breaks off", func(t *testing.T) {
		addr, next := held(t, func(http.ResponseWriter) { panic(http.ErrAbortHandler) })
		f := serve(t, addr, compile(t, slots), keep(&e))
		resp := begin(t, t.Context(), f.url)
		next <- struct{}{}
		if _, err := io.ReadAll(resp.Body); err == nil {
			t.Error("an answer that broke off ended well")
		}
		resp.Body.Close()
		become(t, e, "slots", 0)
	})
	t.Run("are free when the client leaves", func(t *testing.T) {
		addr, _ := held(t, nil)
		f := serve(t, addr, compile(t, slots), keep(&e))
		ctx, cancel := context.WithCancel(t.Context())
		resp := begin(t, ctx, f.url)
		if n := used(e, "slots"); n != 1 {
			t.Errorf("%d used", n)
		}
		cancel()
		resp.Body.Close()
		become(t, e, "slots", 0)
	})
	t.Run("are held to the end of a WebSocket", func(t *testing.T) {
		addr := upstream(t, func(w http.ResponseWriter, r *http.Request) {
			c, err := websocket.Accept(w, r, nil)
			if err != nil {
				return
			}
			defer c.CloseNow()
			for {
				kind, data, err := c.Read(r.Context())
				if err != nil || c.Write(r.Context(), kind, data) != nil {
					return
				}
			}
		})
		f := serve(t, addr, compile(t, slots, counting(t, policy.Bytes, "1/h burst 10_000")), keep(&e))
		for range 3 {
			v := visitor(t, "127.0.0.1")
			v.Timeout = 0
			c, _, err := websocket.Dial(t.Context(), "ws://"+f.addr, &websocket.DialOptions{HTTPClient: v})
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Write(t.Context(), websocket.MessageText, []byte(strings.Repeat("hello", 20))); err != nil {
				t.Error(err)
			}
			if _, data, err := c.Read(t.Context()); err != nil || len(data) != 100 {
				t.Error(data, err)
			}
			if n := used(e, "slots"); n != 1 {
				t.Errorf("%d used", n)
			}
			_ = c.CloseNow()
			become(t, e, "slots", 0)
		}
		if n := used(e, "bytes"); n < 300 || n > 1500 {
			t.Errorf("%d bytes were sent in three times 100, with frames and headers", n)
		}
	})
	t.Run("are free after their time when the holder is dead", func(t *testing.T) {
		addr, next := held(t, func(w http.ResponseWriter) { fmt.Fprint(w, "last") })
		f := serve(t, addr, compile(t, rule(t, "slots", "1 at once for 50ms", nil)), keep(&e))
		resp := begin(t, t.Context(), f.url)
		defer resp.Body.Close()
		become(t, e, "slots", 0)
		second := begin(t, t.Context(), f.url)
		defer second.Body.Close()
		next <- struct{}{} // the dead comes back, or the second ends: neither frees what is the other's
		next <- struct{}{}
		become(t, e, "slots", 0)
	})
}

func TestBytesThroughTheGateway(t *testing.T) {
	var e *policy.Engine
	addr, next := held(t, func(w http.ResponseWriter) {
		_, _ = w.Write(make([]byte, 100_000))
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	traffic := counting(t, policy.Bytes, "10/h burst 1_000_000")
	traffic.Cost = 50
	f := serve(t, addr, compile(t, traffic), keep(&e))
	resp := begin(t, t.Context(), f.url)
	if n := used(e, "bytes"); n != 50 {
		t.Errorf("%d used before the end of an answer of unknown length", n)
	}
	next <- struct{}{}
	n, err := io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	if err == nil || n != 100_000 {
		t.Errorf("%d bytes came, %v", n, err)
	}
	become(t, e, "bytes", 6+n)
}

// llm makes the policy of a gateway to a model.
func llm(t testing.TB, u ...policy.Usage) *policy.Policy {
	t.Helper()
	p, err := compile(t, counting(t, policy.Tokens, "1/h burst 10_000"), rule(t, "requests", "1/h burst 1000", nil)).WithUsage(u)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

const chat = `{"id":"chatcmpl-1","choices":[{"message":{"content":"hi"}}],"usage":{"prompt_tokens":30,"completion_tokens":12}}`

// TestAnswersOfModelsPassUnchangedAndAreSettled compares what the client gets
// with what the upstream sent, byte for byte.
func TestAnswersOfModelsPassUnchangedAndAreSettled(t *testing.T) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	fmt.Fprint(z, chat)
	z.Close()
	const asked = `{"model":"m","max_tokens":500,"messages":[{"role":"user","content":"hello"}]}`
	estimate := int64(len(asked)+3)/4 + 500
	for _, c := range []struct {
		name           string
		kind, encoding string
		status         int
		body           string
		used           int64
	}{
		{"json", "application/json", "", 200, chat, 42},
		{"packed", "application/json", "gzip", 200, packed.String(), 42},
		{"packed otherwise", "application/json", "zstd", 200, chat, estimate},
		{"events", "text/event-stream", "", 200, "data: {\"choices\":[],\"usage\":null}\n\ndata: " + chat + "\n\ndata: [DONE]\n\n", 42},
		{"events without include_usage", "text/event-stream", "", 200, "data: {\"choices\":[]}\n\ndata: [DONE]\n\n", estimate},
		{"an event of a megabyte", "text/event-stream", "", 200, "data: {\"x\":\"" + strings.Repeat("y", 1<<20) + "\",\"usage\":{\"prompt_tokens\":30,\"completion_tokens\":12}}\n\n", 42},
		{"absurd usage", "application/json", "", 200, `{"usage":{"prompt_tokens":-30,"completion_tokens":1e30}}`, estimate},
		{"an error", "application/json", "", 429, `{"error":{"message":"slow down"}}`, 0},
		{"no type", "", "", 200, chat, 42},
		{"not JSON", "text/html", "", 200, chat, estimate},
	} {
		t.Run(c.name, func(t *testing.T) {
			var e *policy.Engine
			addr := upstream(t, func(w http.ResponseWriter, r *http.Request) {
				if got, err := io.ReadAll(r.Body); err != nil || string(got) != asked {
					t.Errorf("the upstream got %q, %v", got, err)
				}
				if n := used(e, "tokens"); n != estimate {
					t.Errorf("%d reserved, want %d", n, estimate)
				}
				w.Header()["Content-Type"] = nil
				if c.kind != "" {
					w.Header().Set("Content-Type", c.kind)
				}
				if c.encoding != "" {
					w.Header().Set("Content-Encoding", c.encoding)
				}
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.body)
			})
			f := serve(t, addr, llm(t, policy.Usage{Format: "openai"}), keep(&e))
			got := do(t, visitor(t, "127.0.0.1"), request(t, "POST", f.url, strings.NewReader(asked), "Accept-Encoding", "gzip"))
			if got.StatusCode != c.status || got.body != c.body || got.Header.Get("Content-Encoding") != c.encoding {
				t.Errorf("status %d, %d bytes, %v; want %d, %d", got.StatusCode, len(got.body), got.Header, c.status, len(c.body))
			}
			become(t, e, "tokens", c.used)
		})
	}
}

// TestEventsOfModelsArriveWhileTheyAreSent : a metered stream is not buffered,
// packed or not, and one whose upstream breaks off costs what it told, and the
// estimate for the rest.
func TestEventsOfModelsArriveWhileTheyAreSent(t *testing.T) {
	for _, packs := range []bool{false, true} {
		var e *policy.Engine
		next := make(chan struct{})
		addr := upstream(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			var out io.Writer = w
			flush := func() {}
			if packs {
				w.Header().Set("Content-Encoding", "gzip")
				z := gzip.NewWriter(w)
				out, flush = z, func() { _ = z.Flush() }
			}
			for _, event := range []string{`{"message":{"usage":{"input_tokens":30,"output_tokens":1}}}`, `{"delta":{"text":"a"}}`, `{"delta":{"text":"b"}}`} {
				fmt.Fprintf(out, "data: %s\n\n", event)
				flush()
				_ = http.NewResponseController(w).Flush()
				<-next
			}
			panic(http.ErrAbortHandler)
		})
		f := serve(t, addr, llm(t, policy.Usage{Format: "anthropic", Output: "200"}), keep(&e))
		resp, err := visitor(t, "127.0.0.1").Do(request(t, "POST", f.url, strings.NewReader("{}"), "Accept-Encoding", "gzip"))
		if err != nil {
			t.Fatal(err)
		}
		var in io.Reader = resp.Body
		if packs {
			if in, err = gzip.NewReader(resp.Body); err != nil {
				t.Fatal(err)
			}
		}
		lines := bufio.NewReader(in)
		for i := range 3 { // the upstream goes on only when an event was seen
			if line, err := lines.ReadString('\n'); err != nil || !strings.HasPrefix(line, "data: ") {
				t.Fatalf("event %d: %q, %v", i, line, err)
			}
			_, _ = lines.ReadString('\n')
			next <- struct{}{}
		}
		if _, err := io.Copy(io.Discard, lines); err == nil {
			t.Error("a stream that broke off ended well")
		}
		resp.Body.Close()
		become(t, e, "tokens", 230)
		if got := e.UsageTotals()[0]; got.Cut != 1 || got.Over != 29 {
			t.Errorf("%+v", got)
		}
	}
}

// TestUpstreamOfModelsThatFails : what can't be reached costs nothing; what took
// too long may have worked all the time.
func TestUpstreamOfModelsThatFails(t *testing.T) {
	var e *policy.Engine
	f := serve(t, "127.0.0.1:1", llm(t, policy.Usage{Format: "openai", Output: "200"}), keep(&e))
	if got := do(t, visitor(t, "127.0.0.1"), request(t, "POST", f.url, strings.NewReader("{}"))); got.StatusCode != http.StatusBadGateway {
		t.Error(got.StatusCode)
	}
	become(t, e, "tokens", 0)

	addr := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // with a body unread, net/http does not see that the client left
		<-r.Context().Done()
	})
	f = serve(t, addr, llm(t, policy.Usage{Format: "openai", Output: "200"}), keep(&e), func(c *gateway.Config) { c.Timeouts.Response = 20 * time.Millisecond })
	if got := do(t, visitor(t, "127.0.0.1"), request(t, "POST", f.url, strings.NewReader("{}"))); got.StatusCode != http.StatusGatewayTimeout {
		t.Error(got.StatusCode)
	}
	become(t, e, "tokens", 201)
}

// TestManyCallsAtOnceCannotOverspend : of calls whose estimates exceed the limit
// together, those that it can't pay for never reach the model. Gateways that
// charge afterwards only let all of them through (envoyproxy/ai-gateway 2394).
func TestManyCallsAtOnceCannotOverspend(t *testing.T) {
	var asked, passed, refused atomic.Int64
	others := make(chan struct{}) // closed when all others were refused
	addr := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		select {
		case <-others:
		case <-r.Context().Done():
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, chat)
	})
	var e *policy.Engine
	f := serve(t, addr, llm(t, policy.Usage{Format: "openai", Input: "0", Output: "max_tokens else 5000"}), keep(&e))
	v := visitor(t, "127.0.0.1")
	var wait sync.WaitGroup
	for range 50 {
		wait.Go(func() {
			switch got := do(t, v, request(t, "POST", f.url, strings.NewReader(`{"max_tokens":1100}`))); got.StatusCode {
			case http.StatusOK:
				passed.Add(1)
			case http.StatusTooManyRequests:
				if refused.Add(1) == 41 {
					close(others)
				}
			}
		})
	}
	wait.Wait()
	if asked.Load() != 9 || passed.Load() != 9 || refused.Load() != 41 {
		t.Errorf("%d calls of 1,100 reached a model under a limit of 10,000, %d passed, %d were refused; want 9, 9, 41", asked.Load(), passed.Load(), refused.Load())
	}
	if n := used(e, "tokens"); n != 9*42 {
		t.Errorf("%d are charged after all, want %d", n, 9*42)
	}
}

// TestBodyThatStallsBeforeTheDecision : the gateway waits for what an estimate
// needs no longer than for any other body.
func TestBodyThatStallsBeforeTheDecision(t *testing.T) {
	var e *policy.Engine
	addr := upstream(t, func(http.ResponseWriter, *http.Request) { t.Error("passed on") })
	f := serve(t, addr, llm(t, policy.Usage{Format: "openai"}), keep(&e), func(c *gateway.Config) { c.Timeouts.Stall = 30 * time.Millisecond })
	c := raw(t, f.addr, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{\"max")
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || resp.StatusCode != http.StatusRequestTimeout {
		t.Fatal(resp, err)
	}
	if n := used(e, "tokens"); n != 0 {
		t.Errorf("%d used", n)
	}
}
