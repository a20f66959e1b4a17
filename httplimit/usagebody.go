package httplimit

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/spillgate/spillgate/policy"
)

// maxLooked is how many bytes of bodies the requests of a handler hold together
// at most (256 MiB), for what their estimates have to see. Of a body for which
// there is no room no more is seen.
const maxLooked = 256 << 20

// A room is what bodies may take together.
type room struct{ left atomic.Int64 }

func newRoom(bytes int64) *room {
	m := &room{}
	m.left.Store(bytes)
	return m
}

// take takes n bytes, and reports false if there are not so many.
func (m *room) take(n int64) bool {
	if m.left.Add(-n) >= 0 {
		return true
	}
	m.left.Add(n)
	return false
}

var errNoRoom = errors.New("httplimit: the bodies that are looked at hold 256 MiB already, so this call is estimated without what it asks for")

// look reads up to n bytes of body, or as many as there is room for. What it has
// read is held by b, with any error.
func (m *room) look(body io.Reader, n int64) (b *replay, err error) {
	b = &replay{room: m}
	for size := min(n, 4<<10); ; size = min(n, 2*size) {
		more := size - int64(cap(b.head))
		if !m.take(more) {
			return b, errNoRoom
		}
		b.held.Add(more)
		b.head = append(make([]byte, 0, size), b.head...)
		for len(b.head) < cap(b.head) {
			k, err := body.Read(b.head[len(b.head):cap(b.head)])
			b.head = b.head[:len(b.head)+k]
			if err == io.EOF {
				return b, nil
			}
			if err != nil {
				return b, err
			}
		}
		if size == n {
			return b, nil
		}
	}
}

// meter returns the call that r is, nil if it is none, and r with its body as
// it came: what the estimate had to see of it is put back, and held until it is
// read or forgotten. If the body broke off before that was seen the request is
// answered, nothing is charged, and r is nil.
func (p *policed) meter(x *exchange, w http.ResponseWriter, r *http.Request) (*policy.Call, *http.Request) {
	call := p.engine.Call(&x.attributes)
	if call == nil {
		return nil, r
	}
	size := r.ContentLength
	var head []byte
	if n := call.Wants(size); n > 0 && r.Body != nil && r.Body != http.NoBody {
		b, err := p.room.look(p.patient(w, r.Body), n)
		switch {
		case err == errNoRoom:
			p.journal.Fault("body not looked at", err)
		case err != nil:
			b.forget()
			f := &refusal{Refusal: Refusal{Status: http.StatusBadRequest, Err: fmt.Errorf("httplimit: reading the request's body: %w", err)}, broken: true}
			if errors.Is(err, os.ErrDeadlineExceeded) {
				f.Status = http.StatusRequestTimeout
			}
			p.answer(w, r, f, nil)
			return nil, nil
		}
		head, b.rest = b.head, r.Body
		r = r.WithContext(r.Context())
		r.Body = b
	}
	x.opts = call.Reserve(x.opts, max(size, int64(len(head))), head)
	return call, r
}

// BodyStall bounds how long a client may take for each piece of a body that is
// read before the request is decided, as [policy.Usage] may need it. It is for
// servers without a ReadTimeout, which it would take away; without it, or at 0,
// the server's own bounds hold.
func BodyStall(d time.Duration) Option {
	return func(o *options) { o.stall = d }
}

// patient returns body with a bound on each read. When it has read, no bound
// is left.
func (p *policed) patient(w http.ResponseWriter, body io.Reader) io.Reader {
	if p.stall <= 0 {
		return body
	}
	c := http.NewResponseController(w)
	return readerFunc(func(b []byte) (int, error) {
		_ = c.SetReadDeadline(time.Now().Add(p.stall)) // best effort
		n, err := body.Read(b)
		_ = c.SetReadDeadline(time.Time{})
		return n, err
	})
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

// A replay is a body of which something was read already.
type replay struct {
	head []byte
	rest io.ReadCloser
	room *room
	held atomic.Int64 // bytes of the room
}

// forget makes room. The head is read no more, or else is garbage soon.
func (b *replay) forget() { b.room.left.Add(b.held.Swap(0)) }

// forget makes the room that a body has taken.
func forget(body io.ReadCloser) {
	if b, ok := body.(*replay); ok {
		b.forget()
	}
}

// Read gives what was read, then the rest.
func (b *replay) Read(p []byte) (int, error) {
	if len(b.head) > 0 {
		n := copy(p, b.head)
		b.head = b.head[n:]
		return n, nil
	}
	if b.head != nil {
		b.head = nil
		b.forget()
	}
	return b.rest.Read(p)
}

// Close closes the body.
func (b *replay) Close() error { return b.rest.Close() }
