package gateway_test

import (
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spillgate/spillgate/cmd/spillgate/internal/gateway"
	"github.com/spillgate/spillgate/httplimit"
	"github.com/spillgate/spillgate/policy"
)

// As many as may wait for a key are held at once, in little memory each, and all
// of them are answered when the gateway stops.
func TestTenThousandAreHeldAtOnce(t *testing.T) {
	const streams, all = 250, policy.MaxQueue / raced
	delay := rule(t, "delay", "100/s burst 1", []string{"client.ip"})
	delay.Delay = policy.Delay{Most: policy.MaxDelay, Queue: policy.MaxQueue}
	f := serve(t, upstream(t, func(http.ResponseWriter, *http.Request) {}), compile(t, delay), overTLS(t))

	before := memory()
	var wires []*wire
	var asked [][]uint32
	for range all / streams {
		w := dial2(t, "127.0.0.1", f.addr)
		if err := w.WriteWindowUpdate(0, 1<<24); err != nil {
			t.Fatal(err)
		}
		var ids []uint32
		for range streams {
			ids = append(ids, w.ask(login2("x-forwarded-for", "203.0.113.1", "user-agent", "one of many")...))
		}
		if err := w.WritePing(false, [8]byte{1}); err != nil {
			t.Fatal(err)
		}
		wires, asked = append(wires, w), append(asked, ids)
	}
	for _, w := range wires { // what came before a ping was taken when it is answered
		w.await(0)
	}
	held := (memory() - before) / all
	t.Logf("%d bytes for each that is held", held)
	if raced == 1 && held > 48<<10 {
		t.Errorf("%d bytes for each that is held", held)
	}

	ended := make(chan error, 1)
	go func() { ended <- f.stop() }()
	told := map[int]int{}
	for i, w := range wires {
		out := w.await(asked[i]...)
		for _, id := range asked[i] {
			told[out.status[id]]++
		}
		w.conn.Close()
	}
	if told[200]+told[503] != all || told[503] < all/2 {
		t.Errorf("of %d by status: %v", all, told)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// memory is what heap and stacks take now.
func memory() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// A stream of events may be cut anywhere on its way: in a name, a number, a line
// end, a letter of several bytes. It is settled all the same, and comes whole.
func TestEventsInPiecesAreSettled(t *testing.T) {
	const events = ": hello\r\ndata: {\"choices\":[{\"delta\":{\"content\":\"é\\u00e9 \\\"usage\\\": 9 🙂\"}}],\"usage\":null}\r\n\r\n" +
		"event: x\ndata: {\"choices\":[],\ndata: \"usage\":{\"prompt_tokens\":30,\"completion_tokens\":12}}\n\ndata: [DONE]\n\n"
	addr := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		size, err := strconv.Atoi(r.URL.RawQuery)
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "text/event-stream")
		c := http.NewResponseController(w)
		for piece := range slices.Chunk([]byte(events), size) {
			_, _ = w.Write(piece)
			_ = c.Flush()
		}
	})
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2"} {
		var e *policy.Engine
		change := []func(*gateway.Config){keep(&e)}
		c, scheme := visitor(t, "127.0.0.1"), "http://"
		if protocol == "HTTP/2" {
			c, scheme, change = client2(t), "https://", append(change, overTLS(t))
		}
		f := serve(t, addr, llm(t, policy.Usage{Format: "openai"}), change...)
		for i, size := range []int{1, 2, 3, 7, 64} {
			got := do(t, c, request(t, "POST", fmt.Sprintf("%s%s/?%d", scheme, f.addr, size), strings.NewReader(`{"max_tokens":500}`)))
			if got.body != events || !strings.HasPrefix(got.Proto, protocol) {
				t.Errorf("%s in pieces of %d: %q", got.Proto, size, got.body)
			}
			become(t, e, "tokens", int64(i+1)*42)
		}
	}
}

// Interim answers and trailers pass as they are: the former in their order.
func TestInterimAnswersAndTrailersPassUnchanged(t *testing.T) {
	const interim = "HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\nLink: </b>\r\n\r\nHTTP/1.1 103 Early Hints\r\nX-More: 1\r\n\r\n"
	const answer = "HTTP/1.1 200 OK\r\nContent-Type: a/b\r\nDate: Thu, 01 Jan 2026 00:00:00 GMT\r\n"
	const body = "Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Other: a\r\nX-Other: b\r\nX-Sum: 42\r\n\r\n"
	f := serve(t, says(t, interim+answer+"Trailer: X-Sum, X-Other\r\n"+body), compile(t, rule(t, "r", "100/s", nil)), func(g *gateway.Config) { g.Headers = httplimit.Off })
	c := raw(t, f.addr, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	got, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	if text := string(got); !strings.HasPrefix(text, interim+"HTTP/1.1 200 OK\r\n") || !strings.HasSuffix(text, body[strings.Index(body, "\r\n\r\n"):]) {
		t.Errorf("it came as\n%s", text)
	}
}
