package usage

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
)

// scan reads a body in the pieces that it comes in.
func scan(f *Format, kind, encoding string, pieces ...[]byte) Counts {
	var s Scanner
	s.Begin(f, kind, encoding, nil)
	for _, p := range pieces {
		s.Write(p)
	}
	return s.End()
}

func TestAnswersAreRead(t *testing.T) {
	for _, a := range answers {
		t.Run(a.name, func(t *testing.T) {
			if got := scan(a.format, a.kind, "", []byte(a.body)); got != a.want {
				t.Errorf("got  %+v\nwant %+v", got, a.want)
			}
		})
	}
}

// TestAnswersAreReadInAnyPieces splits each answer in two at each byte, and in
// single bytes.
func TestAnswersAreReadInAnyPieces(t *testing.T) {
	for _, a := range answers {
		body := []byte(a.body)
		for i := range body {
			if got := scan(a.format, a.kind, "", body[:i], body[i:]); got != a.want {
				t.Fatalf("%s: split at %d, before %.20q:\ngot  %+v\nwant %+v", a.name, i, body[i:], got, a.want)
			}
		}
		var single [][]byte
		for i := range body {
			single = append(single, body[i:i+1])
		}
		if got := scan(a.format, a.kind, "", single...); got != a.want {
			t.Errorf("%s: in single bytes:\ngot  %+v\nwant %+v", a.name, got, a.want)
		}
	}
}

var packers = sync.Pool{New: func() any { return gzip.NewWriter(nil) }}

func pack(t testing.TB, body string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := packers.Get().(*gzip.Writer)
	defer packers.Put(z)
	z.Reset(&b)
	for len(body) > 0 { // as a server that flushes each event
		n := min(len(body), 200)
		if _, err := io.WriteString(z, body[:n]); err != nil {
			t.Fatal(err)
		}
		if err := z.Flush(); err != nil {
			t.Fatal(err)
		}
		body = body[n:]
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestPackedAnswersAreRead(t *testing.T) {
	for _, a := range answers {
		packed := pack(t, a.body)
		if got := scan(a.format, a.kind, "gzip", packed); got != a.want {
			t.Errorf("%s:\ngot  %+v\nwant %+v", a.name, got, a.want)
		}
		for i := 1; i < len(packed); i += 1 + len(packed)/8 {
			if got := scan(a.format, a.kind, "X-Gzip", packed[:i], packed[i:]); got != a.want {
				t.Fatalf("%s: split at %d:\ngot  %+v\nwant %+v", a.name, i, got, a.want)
			}
		}
	}
}

func TestPackedAnswersThatCantBeUnpacked(t *testing.T) {
	a := answers[0]
	packed := pack(t, a.body)
	if got := scan(a.format, a.kind, "br", []byte(a.body)); got != (Counts{Opaque: true}) {
		t.Errorf("brotli: %+v", got)
	}
	if got := scan(a.format, a.kind, "gzip", []byte(a.body), []byte("more")); got != (Counts{Opaque: true}) {
		t.Errorf("not gzip: %+v", got)
	}
	if got := scan(a.format, a.kind, "gzip"); got != (Counts{}) {
		t.Errorf("nothing came: %+v", got)
	}
	// What breaks off was no fault of the packing.
	if got := scan(a.format, a.kind, "gzip", packed[:len(packed)/2]); got.Opaque || got.Final {
		t.Errorf("half: %+v", got)
	}
}

// TestPackedAnswersThatUnpackToTooMuch : what was told before the bound counts.
func TestPackedAnswersThatUnpackToTooMuch(t *testing.T) {
	text := `{"usage":{"prompt_tokens":5,"completion_tokens":6},"x":"` + strings.Repeat("0", 1<<18) + `"}`
	for most, whole := range map[int]bool{1 << 17: false, 1 << 19: true} {
		s := Scanner{events: events{walker: walker{format: OpenAI}}, mode: document}
		s.coded = inflate(ungzip, s.scan, most)
		s.Write(pack(t, text))
		if got := s.End(); got.Input != 5 || got.Final != whole || got.Opaque == whole {
			t.Errorf("up to %d: %+v", most, got)
		}
	}
}

// megabyte is a stream of one very long event, which tells what
// megabyteTells says.
func megabyte() []byte {
	long := strings.Repeat(`talk of \"usage\" and \\ `, 1<<20/25)
	return []byte(`data: {"type":"response.completed","response":{"output":[{"text":"` + long + `"}],"usage":{"input_tokens":37,"output_tokens":11}}}` + "\n\n")
}

var megabyteTells = Counts{Input: 37, Output: 11, InputTold: true, OutputTold: true, Final: true, Kept: true}

// inPieces shows s a body in pieces of one size.
func inPieces(s *Scanner, body []byte, size int) {
	for i := 0; i < len(body); i += size {
		s.Write(body[i:min(i+size, len(body))])
	}
}

func TestEventOfAMegabyte(t *testing.T) {
	body := megabyte()
	for _, size := range []int{10, 4096, len(body)} {
		var s Scanner
		s.Begin(OpenAI, "text/event-stream", "", nil)
		inPieces(&s, body, size)
		if got := s.End(); got != megabyteTells {
			t.Errorf("in pieces of %d: %+v", size, got)
		}
	}
}

func TestKeysAndNumbersThatAreTooLong(t *testing.T) {
	long := strings.Repeat("prompt_tokens", 100)
	body := fmt.Sprintf(`{"%s":1,"usage":{"%s":2,"x%s":{"prompt_tokens":3},"prompt_tokens":4,"completion_tokens":%s}}`, long, long, long, strings.Repeat("5", 100))
	if got := scan(OpenAI, "application/json", "", []byte(body)); got != (Counts{Input: 4, InputTold: true, Final: true, Absurd: true}) {
		t.Errorf("%+v", got)
	}
}

// FuzzPieces holds what is read of anything against what is read of it in
// pieces, plain and packed.
func FuzzPieces(f *testing.F) {
	for _, a := range answers {
		f.Add([]byte(a.body), strings.HasPrefix(a.kind, "text/event-stream"), uint64(len(a.body)))
	}
	f.Add([]byte("data: {\"usage\":{\"output_tokens\":1}\r\n\n\r\ndata: [DONE]\r\r\n\n"), true, uint64(1))
	f.Add([]byte("data: {\"usage\":{\"output_tokens\":1}}\n\ndata: [DONE]\n\n\r\n: more\n\n"), true, uint64(3))
	f.Add([]byte("\n\ndata:{\"usage\":{\"output_tokens\":1,}\ndata\n\ndata:[DO\n\ndata:NE]"), true, uint64(2))
	f.Fuzz(func(t *testing.T, body []byte, events bool, seed uint64) {
		kind := "application/json"
		if events {
			kind = "text/event-stream"
		}
		for _, format := range []*Format{OpenAI, Anthropic, ollama, gemini} {
			want := scan(format, kind, "", body)
			if want.Input < 0 || want.Output < 0 || want.Input > maxPaths*maxCount || want.Output > maxPaths*maxCount {
				t.Fatalf("absurd counts: %+v", want)
			}
			random := rand.New(rand.NewPCG(seed, 1))
			var pieces [][]byte
			for rest := body; len(rest) > 0; {
				n := min(1+random.IntN(1+random.IntN(40)), len(rest))
				pieces = append(pieces, rest[:n])
				rest = rest[n:]
			}
			if got := scan(format, kind, "", pieces...); got != want {
				t.Fatalf("in pieces %q:\ngot  %+v\nwant %+v", pieces, got, want)
			}
		}
		if got, want := scan(OpenAI, kind, "gzip", pack(t, string(body))), scan(OpenAI, kind, "", body); got != want {
			t.Fatalf("packed:\ngot  %+v\nwant %+v", got, want)
		}
	})
}
