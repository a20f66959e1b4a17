package unpack_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/cmd/spillgate/internal/unpack"
	"github.com/spillgate/spillgate/policy"
)

// flusher is a packer that can be told to send on what it has.
type flusher interface {
	io.WriteCloser
	Flush() error
}

func packer(t testing.TB, encoding string, w io.Writer) flusher {
	t.Helper()
	if encoding == "br" {
		return brotli.NewWriterLevel(w, brotli.BestSpeed)
	}
	z, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		t.Fatal(err)
	}
	return z
}

// pack packs a text as a server that sends each event when it has it.
func pack(t testing.TB, encoding string, events ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := packer(t, encoding, &b)
	for _, event := range events {
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

// engine makes one that pays for calls by usage.
func engine(t testing.TB) *policy.Engine {
	t.Helper()
	limit, err := spillgate.ParseLimit("1_000_000/s burst 1_000_000_000")
	if err != nil {
		t.Fatal(err)
	}
	p, err := policy.Compile([]policy.Rule{{Name: "tokens", Unit: policy.Tokens, Limit: limit}})
	if err == nil {
		p, err = p.WithUsage([]policy.Usage{{Format: "openai", Output: "1000"}})
	}
	if err != nil {
		t.Fatal(err)
	}
	m := spillgate.NewMemory()
	t.Cleanup(func() { m.Close() })
	return policy.NewEngine(p, m, unpack.Options()...)
}

// A call that is under way.
type call struct {
	*policy.Call
	verdict policy.Verdict
}

func begin(e *policy.Engine, encoding string) *call {
	c := &call{Call: e.Call(policy.Attrs{})}
	c.verdict = e.Decide(context.Background(), policy.Attrs{}, c.Reserve(nil, 0, nil)...)
	c.Answer("text/event-stream", encoding)
	return c
}

// end ends a call, and returns what became of all since the last time.
func (c *call) end(t testing.TB) {
	t.Helper()
	if err := c.Settle(&c.verdict, 200, true); err != nil {
		t.Fatal(err)
	}
}

// events are a stream that tells a usage of 300 tokens.
var events = []string{
	"data: {\"choices\":[{\"delta\":{\"content\":\"Hel\"}}]}\n\n",
	"data: {\"choices\":[{\"delta\":{\"content\":\"lo " + strings.Repeat("and so on ", 100) + "\"}}]}\n\n",
	"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":100,\"completion_tokens\":200}}\n\n",
	"data: [DONE]\n\n",
}

// TestStreamsAreReadInAnyPieces splits a packed stream at each byte.
func TestStreamsAreReadInAnyPieces(t *testing.T) {
	for _, encoding := range []string{"br", "zstd"} {
		e := engine(t)
		packed := pack(t, encoding, events...)
		for i := range packed {
			c := begin(e, encoding)
			c.Write(packed[:i])
			c.Write(packed[i:])
			c.end(t)
		}
		single := begin(e, encoding)
		for i := range packed {
			single.Write(packed[i : i+1])
		}
		single.end(t)
		n := int64(len(packed)) + 1
		if got, want := e.UsageTotals()[0], (policy.UsageTotals{Told: n, Reserved: n * 1000, Back: n * 700}); got != want {
			t.Errorf("%s: %+v, want %+v", encoding, got, want)
		}
	}
}

// TestStreamsAreReadAsTheyCome : what was told before a stream breaks off counts.
func TestStreamsAreReadAsTheyCome(t *testing.T) {
	for _, encoding := range []string{"br", "zstd"} {
		e := engine(t)
		whole := pack(t, encoding, events...)
		told := pack(t, encoding, events[:3]...) // its last bytes are the end of the packing
		c := begin(e, encoding)
		c.Write(whole[:len(told)])
		if err := c.Settle(&c.verdict, 200, false); err != nil {
			t.Fatal(err)
		}
		// The output may have grown on, so its estimate stands; the input is told.
		if got, want := e.UsageTotals()[0], (policy.UsageTotals{Cut: 1, Reserved: 1000, Over: 100}); got != want {
			t.Errorf("%s: %+v, want %+v", encoding, got, want)
		}
	}
}

// TestWhatCantBeUnpacked : the estimate stands, and the next answer is read.
func TestWhatCantBeUnpacked(t *testing.T) {
	for _, encoding := range []string{"br", "zstd"} {
		e := engine(t)
		packed := pack(t, encoding, events...)
		for i := range packed {
			broken := bytes.Clone(packed)
			broken[i] ^= 0xff
			c := begin(e, encoding)
			c.Write(broken)
			c.end(t)
		}
		before := e.UsageTotals()[0]
		if before.Opaque == 0 {
			t.Errorf("%s: nothing of what is broken was found to be: %+v", encoding, before)
		}
		c := begin(e, encoding)
		c.Write(packed)
		c.end(t)
		if after := e.UsageTotals()[0]; after.Told != before.Told+1 {
			t.Errorf("%s: the next was not read: %+v, then %+v", encoding, before, after)
		}
	}
}

// TestWindowsThatAreTooLarge : memory is not the upstream's choice.
func TestWindowsThatAreTooLarge(t *testing.T) {
	for _, c := range []struct {
		window int
		read   bool
	}{{8 << 20, true}, {16 << 20, false}} {
		var b bytes.Buffer
		z, err := zstd.NewWriter(&b, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(c.window))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(z, strings.Join(events, "")); err != nil {
			t.Fatal(err)
		}
		if err := z.Flush(); err != nil { // so that the header has the window, and not the size
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		e := engine(t)
		one := begin(e, "zstd")
		one.Write(b.Bytes())
		one.end(t)
		if got := e.UsageTotals()[0]; (got.Told == 1) != c.read || (got.Opaque == 1) == c.read {
			t.Errorf("a window of %d: %+v", c.window, got)
		}
	}
}

// TestNotMoreThanSoManyAtOnce : one more is not read, until another has ended.
func TestNotMoreThanSoManyAtOnce(t *testing.T) {
	e := engine(t)
	packed := pack(t, "br", events...)
	var open []*call
	for range unpack.MaxOpen {
		c := begin(e, "br")
		c.Write(packed[:10])
		open = append(open, c)
	}
	last := begin(e, "zstd")
	last.Write(pack(t, "zstd", events...))
	last.end(t)
	if got := e.UsageTotals()[0]; got.Opaque != 1 {
		t.Errorf("one too many: %+v", got)
	}
	for _, c := range open {
		c.Write(packed[10:])
		c.end(t)
	}
	if got, want := fmt.Sprint(e.UsageTotals()[0].Told), fmt.Sprint(unpack.MaxOpen); got != want {
		t.Errorf("%s of %s told", got, want)
	}
	again := begin(e, "zstd")
	again.Write(pack(t, "zstd", events...))
	again.end(t)
	if got := e.UsageTotals()[0]; got.Told != unpack.MaxOpen+1 {
		t.Errorf("afterwards: %+v", got)
	}
}
