package usage

import (
	"bytes"
	"compress/zlib"
	"encoding/base64"
	"errors"
	"io"
	"testing"
)

// based is a decoder of base64 that notes whether it was closed.
type based struct {
	io.Reader
	closed *int
}

func (b based) Close() error { *b.closed++; return nil }

// unpacked reads a body that somebody's decoder unpacks, in pieces of one size.
func unpacked(open Decoder, body []byte, size int) Counts {
	var s Scanner
	s.Begin(OpenAI, "text/event-stream", " Own ", Decoders{"own": open})
	inPieces(&s, body, size)
	return s.End()
}

func TestDecodersOfOthers(t *testing.T) {
	a := answers[2] // a stream
	packed := []byte(base64.StdEncoding.EncodeToString([]byte(a.body)))
	for _, size := range []int{1, 7, 1000, len(packed)} {
		closed := 0
		open := func(r io.Reader) (io.ReadCloser, error) {
			return based{base64.NewDecoder(base64.StdEncoding, r), &closed}, nil
		}
		if got := unpacked(open, packed, size); got != a.want {
			t.Errorf("in pieces of %d:\ngot  %+v\nwant %+v", size, got, a.want)
		}
		if got := unpacked(open, packed[:len(packed)/2], size); got.Opaque || got.Final {
			t.Errorf("half, in pieces of %d: %+v", size, got)
		}
		if got := unpacked(open, []byte("*"+string(packed)), size); got != (Counts{Opaque: true}) {
			t.Errorf("broken, in pieces of %d: %+v", size, got)
		}
		if closed != 3 {
			t.Errorf("%d of 3 closed", closed)
		}
	}
	refuses := func(io.Reader) (io.ReadCloser, error) { return nil, errors.New("no") }
	if got := unpacked(refuses, packed, 100); got != (Counts{Opaque: true}) {
		t.Errorf("one that does not open: %+v", got)
	}
}

// TestDecodersThatPanicOrStop : what an upstream sends may be anything, and the
// answer goes on all the same.
func TestDecodersThatPanicOrStop(t *testing.T) {
	atOnce := func(io.Reader) (io.ReadCloser, error) { panic("at once") }
	later := func(r io.Reader) (io.ReadCloser, error) {
		return io.NopCloser(io.MultiReader(io.LimitReader(r, 100), readerFunc(func([]byte) (int, error) { panic("later") }))), nil
	}
	stuck := func(r io.Reader) (io.ReadCloser, error) {
		return io.NopCloser(io.MultiReader(io.LimitReader(r, 100), readerFunc(func([]byte) (int, error) { return 0, nil }))), nil
	}
	for _, open := range []Decoder{atOnce, later, stuck} {
		if got := unpacked(open, bytes.Repeat([]byte("data: {}\n\n"), 100), 30); got != (Counts{Opaque: true}) {
			t.Errorf("%+v", got)
		}
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestDeflateIsRead(t *testing.T) {
	for _, a := range answers {
		var b bytes.Buffer
		z := zlib.NewWriter(&b)
		_, err := io.WriteString(z, a.body)
		if err := errors.Join(err, z.Close()); err != nil {
			t.Fatal(err)
		}
		packed := b.Bytes()
		if got := scan(a.format, a.kind, "deflate", packed[:len(packed)/3], packed[len(packed)/3:]); got != a.want {
			t.Errorf("%s:\ngot  %+v\nwant %+v", a.name, got, a.want)
		}
	}
}
