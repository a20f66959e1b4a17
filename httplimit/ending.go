package httplimit

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"unsafe"

	"github.com/spillgate/spillgate/policy"
)

// An ending is what is still open of a verdict until its request ends, and
// what has to be known of the answer to settle it.
type ending struct {
	verdict *policy.Verdict
	call    *policy.Call // read for its usage; nil if none is
	bytes   bool         // a rule counts the bytes of answers
	slots   bool         // slots are held
	head    bool         // an answer without a body, whatever is written
	journal *policy.Journal
	after   func() // what else is to be done at the end; may be nil

	sent   atomic.Int64 // bytes of the body
	failed bool         // a write failed, or what was to be written

	// A connection that the handler took over holds slots, and its bytes
	// count, until it is closed, which may be after the handler returned:
	// who comes second settles.
	taken atomic.Bool
	half  atomic.Bool // one of both is done
}

// serve lets the handler answer, then settles v. It reports whether v is still
// in use, by a connection that was taken over.
func (p *policed) serve(w http.ResponseWriter, r *http.Request, v *policy.Verdict, call *policy.Call) (kept bool) {
	failures, slots := unsettled(v)
	if call != nil && !call.Charged(v) {
		call = nil
	}
	bytes := v.Counts(policy.Bytes)
	if _, hijacks := w.(http.Hijacker); !failures && !bytes && call == nil && !(slots && hijacks) {
		if slots {
			defer v.Done()
		}
		p.next.ServeHTTP(w, r)
		return false
	}
	e := &ending{verdict: v, call: call, bytes: bytes, slots: slots, head: r.Method == http.MethodHead, journal: p.journal}
	rec, w := record(w)
	rec.ending = e
	returned := false
	defer func() {
		left := r.Context().Err() != nil
		if returned {
			rec.final(http.StatusOK) // if it wrote nothing
		}
		if call != nil {
			e.settled(call.Settle(v, rec.status, returned && !left && !e.failed))
		}
		if failures {
			var outcome string
			switch {
			case returned || rec.status != 0: // a client that saw its answer and left had it
				outcome = rec.outcome()
			case left:
				outcome = policy.Aborted
			default:
				outcome = "error" // a panic, which goes on
			}
			if code, ok := grpcStatus(w.Header()); ok {
				v.Code(code)
			}
			e.settled(v.Ended(outcome))
		}
		kept = e.handled(returned)
	}()
	p.next.ServeHTTP(w, r)
	returned = true
	return false
}

// grpcStatus returns the code that a call of gRPC ended with, if this was one: it
// stands in a trailer, whether announced or not, or in the header of an answer
// that has nothing else.
func grpcStatus(h http.Header) (code uint32, ok bool) {
	if !strings.HasPrefix(h.Get("Content-Type"), "application/grpc") {
		return 0, false
	}
	for _, name := range [...]string{"Grpc-Status", http.TrailerPrefix + "Grpc-Status"} {
		if lines := h[name]; len(lines) > 0 {
			n, err := strconv.ParseUint(lines[0], 10, 32)
			return uint32(n), err == nil
		}
	}
	return 0, false
}

// hold lets the handler answer, then frees what it holds.
func (l *limited) hold(w http.ResponseWriter, r *http.Request, free func()) {
	if _, hijacks := w.(http.Hijacker); !hijacks {
		defer free()
		l.next.ServeHTTP(w, r)
		return
	}
	e := &ending{slots: true, after: free}
	rec, w := record(w)
	rec.ending = e
	returned := false
	defer func() { e.handled(returned) }()
	l.next.ServeHTTP(w, r)
	returned = true
}

// handled says that the handler is done. It reports whether the end is left to
// the connection that it took over; one that panicked leaves nothing to it.
func (e *ending) handled(returned bool) (kept bool) {
	if returned && e.taken.Load() && e.half.CompareAndSwap(false, true) {
		return true
	}
	e.end()
	return false
}

// end settles what the last byte settles.
func (e *ending) end() {
	if e.bytes {
		e.settled(e.verdict.Measured(policy.Bytes, e.sent.Load()))
	}
	e.verdict.Done()
	if e.after != nil {
		e.after()
	}
}

func (e *ending) settled(err error) { e.journal.Fault("verdict not settled", err) }

// maxPromised is how many bytes (1 TiB) an answer may announce to be believed. A
// debt of more might be more than a limit can owe, and then what the answer did
// not have after all could not be given back exactly.
const maxPromised = 1 << 40

// begins takes notice of the answer's header, when it has gone out.
func (e *ending) begins(h http.Header, status int) {
	if e == nil || status == http.StatusSwitchingProtocols {
		return
	}
	if e.call != nil {
		e.call.Answer(h.Get("Content-Type"), h.Get("Content-Encoding"))
	}
	if e.bytes && !e.head {
		// What the answer will have is known early: the estimate gives way to
		// it before the first byte.
		if n, err := strconv.ParseInt(h.Get("Content-Length"), 10, 64); err == nil && 0 <= n && n <= maxPromised {
			e.settled(e.verdict.Measured(policy.Bytes, n))
		}
	}
}

// passes takes notice of a piece of the body.
func (e *ending) passes(b []byte, err error) {
	if e == nil {
		return
	}
	e.failed = e.failed || err != nil
	if !e.head {
		e.sent.Add(int64(len(b)))
	}
	if e.call != nil {
		e.call.Write(b)
	}
}

// A passing reader shows what is read from it.
type passing struct {
	io.Reader
	e *ending
}

func (p passing) Read(b []byte) (int, error) {
	n, err := p.Reader.Read(b)
	p.e.call.Write(b[:n])
	return n, err
}

// readFrom lets dst read from src, and takes notice of what it reads.
func (e *ending) readFrom(dst io.ReaderFrom, src io.Reader) (int64, error) {
	if e != nil && e.call != nil {
		src = passing{src, e}
	}
	n, err := dst.ReadFrom(src)
	if e != nil {
		e.failed = e.failed || err != nil
		if !e.head {
			e.sent.Add(n)
		}
	}
	return n, err
}

// bytesOf returns the bytes of s, which must not be changed.
func bytesOf(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }

// takes gives a handler the connection that it took over in a form that tells
// when it is closed, if that settles something.
func (e *ending) takes(c net.Conn, rw *bufio.ReadWriter) net.Conn {
	if e == nil || !e.slots && !e.bytes {
		return c
	}
	e.taken.Store(true)
	t := &taken{Conn: c, ending: e}
	rw.Writer.Reset(t) // nothing was written to it yet
	if _, ok := c.(closeWriter); ok {
		return struct {
			*taken
			halfCloser
		}{t, halfCloser{t}}
	}
	return t
}

// taken is a connection that a handler took over.
type taken struct {
	net.Conn
	ending *ending
	closed atomic.Bool
}

// Write counts what is written.
func (t *taken) Write(b []byte) (int, error) {
	n, err := t.Conn.Write(b)
	t.ending.sent.Add(int64(n))
	return n, err
}

// Close ends the connection, and what it held.
func (t *taken) Close() error {
	err := t.Conn.Close()
	if !t.closed.Swap(true) && !t.ending.half.CompareAndSwap(false, true) {
		t.ending.end()
	}
	return err
}

type closeWriter interface{ CloseWrite() error }

type halfCloser struct{ t *taken }

func (h halfCloser) CloseWrite() error { return h.t.Conn.(closeWriter).CloseWrite() }
