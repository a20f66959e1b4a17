package httplimit

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strconv"
)

// A recorder notes the status of a response, and shows it to its ending. It is
// used only where something is settled by it.
type recorder struct {
	http.ResponseWriter
	status int
	ending *ending // nil if the status is enough
}

// record returns a recorder on w, and a ResponseWriter that writes through it
// and has exactly those of Flusher, Hijacker, ReaderFrom and Pusher that w has:
// programs ask for them and behave by the answer.
func record(w http.ResponseWriter) (*recorder, http.ResponseWriter) {
	rec := &recorder{ResponseWriter: w}
	_, f := w.(http.Flusher)
	_, h := w.(http.Hijacker)
	_, r := w.(io.ReaderFrom)
	p, isPusher := w.(http.Pusher)
	const flush, hijack, read, push = 1, 2, 4, 8
	has := 0
	for i, is := range [...]bool{f, h, r, isPusher} {
		if is {
			has |= 1 << i
		}
	}
	fl, hj, rf := flusher{rec}, hijacker{rec}, readerFrom{rec}
	switch has {
	case flush:
		return rec, struct {
			*recorder
			flusher
		}{rec, fl}
	case hijack:
		return rec, struct {
			*recorder
			hijacker
		}{rec, hj}
	case flush | hijack:
		return rec, struct {
			*recorder
			flusher
			hijacker
		}{rec, fl, hj}
	case read:
		return rec, struct {
			*recorder
			readerFrom
		}{rec, rf}
	case flush | read:
		return rec, struct {
			*recorder
			flusher
			readerFrom
		}{rec, fl, rf}
	case hijack | read:
		return rec, struct {
			*recorder
			hijacker
			readerFrom
		}{rec, hj, rf}
	case flush | hijack | read:
		return rec, struct {
			*recorder
			flusher
			hijacker
			readerFrom
		}{rec, fl, hj, rf}
	case push:
		return rec, struct {
			*recorder
			http.Pusher
		}{rec, p}
	case flush | push:
		return rec, struct {
			*recorder
			flusher
			http.Pusher
		}{rec, fl, p}
	case hijack | push:
		return rec, struct {
			*recorder
			hijacker
			http.Pusher
		}{rec, hj, p}
	case flush | hijack | push:
		return rec, struct {
			*recorder
			flusher
			hijacker
			http.Pusher
		}{rec, fl, hj, p}
	case read | push:
		return rec, struct {
			*recorder
			readerFrom
			http.Pusher
		}{rec, rf, p}
	case flush | read | push:
		return rec, struct {
			*recorder
			flusher
			readerFrom
			http.Pusher
		}{rec, fl, rf, p}
	case hijack | read | push:
		return rec, struct {
			*recorder
			hijacker
			readerFrom
			http.Pusher
		}{rec, hj, rf, p}
	case flush | hijack | read | push:
		return rec, struct {
			*recorder
			flusher
			hijacker
			readerFrom
			http.Pusher
		}{rec, fl, hj, rf, p}
	}
	return rec, rec
}

// final notes a final status: the first that is not informational, and 101,
// after which no other follows.
func (w *recorder) final(status int) {
	if w.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		w.status = status
		w.ending.begins(w.Header(), status)
	}
}

// outcome returns the status as text. A handler that wrote nothing answers 200.
func (w *recorder) outcome() string {
	w.final(http.StatusOK)
	return strconv.Itoa(w.status)
}

// Unwrap lets http.ResponseController reach the rest.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *recorder) WriteHeader(status int) {
	w.ResponseWriter.WriteHeader(status)
	w.final(status)
}

func (w *recorder) Write(b []byte) (int, error) {
	w.final(http.StatusOK)
	n, err := w.ResponseWriter.Write(b)
	w.ending.passes(b[:n], err)
	return n, err
}

func (w *recorder) WriteString(s string) (int, error) {
	w.final(http.StatusOK)
	n, err := io.WriteString(w.ResponseWriter, s)
	w.ending.passes(bytesOf(s[:n]), err)
	return n, err
}

type flusher struct{ w *recorder }

func (f flusher) Flush() { _ = f.FlushError() }

func (f flusher) FlushError() error {
	f.w.final(http.StatusOK)
	return http.NewResponseController(f.w.ResponseWriter).Flush()
}

type hijacker struct{ w *recorder }

func (h hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := h.w.ResponseWriter.(http.Hijacker).Hijack()
	if err == nil {
		h.w.final(http.StatusSwitchingProtocols)
		conn = h.w.ending.takes(conn, rw)
	}
	return conn, rw, err
}

type readerFrom struct{ w *recorder }

func (r readerFrom) ReadFrom(src io.Reader) (int64, error) {
	r.w.final(http.StatusOK)
	return r.w.ending.readFrom(r.w.ResponseWriter.(io.ReaderFrom), src)
}
