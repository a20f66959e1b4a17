package policy

import (
	"encoding/base64"
	"io"
	"testing"

	"github.com/spillgate/spillgate"
)

// TestDecoder : answers in an encoding of one's own are read if the engine was
// told how, and cost the estimate if not.
func TestDecoder(t *testing.T) {
	p, err := Compile([]Rule{tokensRule(t, "minute", "1/h burst 10_000")})
	if err == nil {
		p, err = p.WithUsage([]Usage{{Format: "openai"}})
	}
	if err != nil {
		t.Fatal(err)
	}
	own := Decoder("Own", func(r io.Reader) (io.ReadCloser, error) {
		return io.NopCloser(base64.NewDecoder(base64.StdEncoding, r)), nil
	})
	for _, c := range []struct {
		opts []EngineOption
		left int64
		want UsageTotals
	}{
		{nil, 9000, UsageTotals{Opaque: 1, Reserved: 1000}},
		{[]EngineOption{own}, 10_000 - 308, UsageTotals{Told: 1, Reserved: 1000, Back: 692}},
	} {
		e := NewEngine(p, spillgate.NewMemory(), c.opts...)
		call, v := reserve(e, Attrs{}, "")
		call.Answer("application/json", "own")
		call.Write([]byte(base64.StdEncoding.EncodeToString([]byte(`{"usage":{"prompt_tokens":8,"completion_tokens":300}}`))))
		if err := call.Settle(&v, 200, true); err != nil {
			t.Error(err)
		}
		if left, got := remains(e, "minute", Attrs{}), e.UsageTotals()[0]; left != c.left || got != c.want {
			t.Errorf("%d left and %+v, want %d and %+v", left, got, c.left, c.want)
		}
	}
}
