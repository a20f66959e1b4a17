package httplimit

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// Writers that have one ability each, to be put together.
type (
	canFlush  struct{ flushed *int }
	canHijack struct{}
	canRead   struct{ read *string }
	canPush   struct{}
)

func (c canFlush) Flush() { *c.flushed++ }

var errHijack = errors.New("no connection")

func (canHijack) Hijack() (net.Conn, *bufio.ReadWriter, error) { return nil, nil, errHijack }

func (c canRead) ReadFrom(r io.Reader) (int64, error) {
	b, err := io.ReadAll(r)
	*c.read += string(b)
	return int64(len(b)), err
}

func (canPush) Push(string, *http.PushOptions) error { return nil }

// only hides whatever else a writer has.
type only struct{ http.ResponseWriter }

func TestARecorderHasWhatItsWriterHas(t *testing.T) {
	var flushed int
	var read string
	w := only{httptest.NewRecorder()}
	f, h, r, p := canFlush{&flushed}, canHijack{}, canRead{&read}, canPush{}
	for has, w := range []http.ResponseWriter{
		w,
		struct {
			only
			canFlush
		}{w, f},
		struct {
			only
			canHijack
		}{w, h},
		struct {
			only
			canFlush
			canHijack
		}{w, f, h},
		struct {
			only
			canRead
		}{w, r},
		struct {
			only
			canFlush
			canRead
		}{w, f, r},
		struct {
			only
			canHijack
			canRead
		}{w, h, r},
		struct {
			only
			canFlush
			canHijack
			canRead
		}{w, f, h, r},
		struct {
			only
			canPush
		}{w, p},
		struct {
			only
			canFlush
			canPush
		}{w, f, p},
		struct {
			only
			canHijack
			canPush
		}{w, h, p},
		struct {
			only
			canFlush
			canHijack
			canPush
		}{w, f, h, p},
		struct {
			only
			canRead
			canPush
		}{w, r, p},
		struct {
			only
			canFlush
			canRead
			canPush
		}{w, f, r, p},
		struct {
			only
			canHijack
			canRead
			canPush
		}{w, h, r, p},
		struct {
			only
			canFlush
			canHijack
			canRead
			canPush
		}{w, f, h, r, p},
	} {
		rec, through := record(w)
		if u, ok := through.(interface{ Unwrap() http.ResponseWriter }); !ok || u.Unwrap() != w {
			t.Errorf("%04b: does not unwrap to its writer", has)
		}
		fl, ok := through.(http.Flusher)
		if ok != (has&1 != 0) {
			t.Errorf("%04b: Flusher %v", has, ok)
		} else if ok {
			flushed = 0
			if fl.Flush(); flushed != 1 || rec.status != 200 {
				t.Errorf("%04b: flushed %d times, status %d", has, flushed, rec.status)
			}
		}
		hj, ok := through.(http.Hijacker)
		if ok != (has&2 != 0) {
			t.Errorf("%04b: Hijacker %v", has, ok)
		} else if ok {
			if _, _, err := hj.Hijack(); !errors.Is(err, errHijack) {
				t.Errorf("%04b: %v", has, err)
			}
		}
		rf, ok := through.(io.ReaderFrom)
		if ok != (has&4 != 0) {
			t.Errorf("%04b: ReaderFrom %v", has, ok)
		} else if ok {
			read = ""
			if n, err := rf.ReadFrom(strings.NewReader("abc")); n != 3 || err != nil || read != "abc" {
				t.Errorf("%04b: read %q, %d, %v", has, read, n, err)
			}
		}
		if ps, ok := through.(http.Pusher); ok != (has&8 != 0) || ok && ps.Push("", nil) != nil {
			t.Errorf("%04b: Pusher %v", has, ok)
		}
	}
}

func TestFlushThroughAController(t *testing.T) {
	// A writer whose Flusher is further down: nothing is claimed, and a
	// controller finds it all the same.
	inner := httptest.NewRecorder()
	rec, through := record(struct {
		only
		unwraps
	}{only{inner}, unwraps{inner}})
	if err := http.NewResponseController(through).Flush(); err != nil || !inner.Flushed {
		t.Errorf("%v, flushed %v", err, inner.Flushed)
	}
	if got := rec.outcome(); got != "200" {
		t.Errorf("outcome %s", got)
	}
}

type unwraps struct{ w http.ResponseWriter }

func (u unwraps) Unwrap() http.ResponseWriter { return u.w }
