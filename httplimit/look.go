package httplimit

import (
	"errors"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/spillgate/spillgate/policy"
)

// meter returns the call that r is, nil if it is none, and r with its body as
// it came: what the estimate had to see of it is put back. If the body broke
// off before that was seen the request is answered, nothing is charged, and r
// is nil.
func (p *policed) meter(x *exchange, w http.ResponseWriter, r *http.Request) (*policy.Call, *http.Request) {
	call := p.engine.Call(&x.attributes)
	if call == nil {
		return nil, r
	}
	size := r.ContentLength
	var head []byte
	if n := call.Wants(size); n > 0 && r.Body != nil && r.Body != http.NoBody {
		var err error
		if head, err = io.ReadAll(io.LimitReader(p.patient(w, r.Body), n)); err != nil {
			f := &refusal{Refusal: Refusal{Status: http.StatusBadRequest, Err: err}}
			if errors.Is(err, os.ErrDeadlineExceeded) {
				f.Status = http.StatusRequestTimeout
			}
			p.answer(w, r, f, nil)
			return nil, nil
		}
		r = r.WithContext(r.Context())
		r.Body = &replay{head, r.Body}
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
}

// Read gives what was read, then the rest.
func (b *replay) Read(p []byte) (int, error) {
	if len(b.head) > 0 {
		n := copy(p, b.head)
		b.head = b.head[n:]
		return n, nil
	}
	b.head = nil
	return b.rest.Read(p)
}

// Close closes the body.
func (b *replay) Close() error { return b.rest.Close() }
