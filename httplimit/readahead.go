package httplimit

import (
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// maxAhead is how many bytes of its body are read while a request is held.
const maxAhead = 16 << 10

// An ahead is the body of a request that is held. Only when a body has come to
// its end does net/http see that the client leaves. So it is read while the
// request waits, as far as it is small, and kept for the handler: otherwise
// those who sent one and left would hold their places, and pay.
type ahead struct {
	io.ReadCloser
	once sync.Once
	stop atomic.Bool
	done chan struct{} // closed when nothing is read ahead any more
	head []byte        // what was read; after that
	err  error         // what the reading ended with
}

// aheadOf returns r with a body that can be read ahead, and nil where that
// helps nothing: without a body, with HTTP/2, where leaving is seen anyway, and
// with a client that waits for 100 Continue, whom reading would ask to send.
func aheadOf(r *http.Request) (*ahead, *http.Request) {
	if r.ContentLength == 0 || r.Body == nil || r.Body == http.NoBody || r.ProtoMajor != 1 || r.Header["Expect"] != nil {
		return nil, r
	}
	a := &ahead{ReadCloser: r.Body, done: make(chan struct{})}
	r = r.WithContext(r.Context())
	r.Body = a
	return a, r
}

// start begins to read.
func (a *ahead) start() {
	if a == nil {
		return
	}
	a.once.Do(func() { go a.run() })
}

func (a *ahead) run() {
	defer close(a.done)
	for a.err == nil && len(a.head) < maxAhead && !a.stop.Load() {
		if len(a.head) == cap(a.head) {
			a.head = append(make([]byte, 0, min(max(512, 2*cap(a.head)), maxAhead)), a.head...)
		}
		var n int
		n, a.err = a.ReadCloser.Read(a.head[len(a.head):cap(a.head)])
		a.head = a.head[:len(a.head)+n]
	}
}

// Read gives what was read, then the rest.
func (a *ahead) Read(p []byte) (int, error) {
	a.stop.Store(true)
	a.once.Do(func() { close(a.done) }) // if it never began
	<-a.done
	switch {
	case len(a.head) > 0:
		n := copy(p, a.head)
		a.head = a.head[n:]
		return n, nil
	case a.err != nil:
		return 0, a.err
	}
	a.head = nil
	return a.ReadCloser.Read(p)
}

// Close closes the body, unless it is being read: then the server does.
func (a *ahead) Close() error {
	a.stop.Store(true)
	a.once.Do(func() { close(a.done) })
	select {
	case <-a.done:
		return a.ReadCloser.Close()
	default:
		return nil
	}
}

// leave ends the reading when the request is over. A client that is in the
// middle of sending has a moment for it, lest it holds up the answer.
func (a *ahead) leave(w http.ResponseWriter) {
	a.stop.Store(true)
	a.once.Do(func() { close(a.done) })
	select {
	case <-a.done:
	default:
		if http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyWait)) == nil {
			<-a.done
		}
	}
}
