package httplimit

import (
	"io"
	"net/http"
	"time"
)

const (
	// bodyWait is how long an answer waits for the rest of a body that nobody
	// wants, so that a client who sent it all keeps its connection.
	bodyWait = 100 * time.Millisecond
	// linger is how long a client may send on after such an answer. Hung up on
	// at once, it might lose the answer.
	linger = 5 * time.Second
	// maxUnread is how many bytes of such a body are read, as by net/http.
	maxUnread = 256 << 10
)

// Unread is called before r is answered without its body being read. By itself
// net/http holds such an answer back until the body has come, for ever if the
// client sends no more. Unread takes what comes in a tenth of a second, at most
// 256 KiB, and reports whether that was the whole body. If not, the answer
// tells the client that the connection ends (Connection: close), and so it does
// 5 seconds later at most; r's context may then be cancelled.
//
// It is for HTTP/1; over HTTP/2 it does nothing, and [Linger] follows the answer.
// Where w hides the server, so that no deadline can be set, the answer goes out at once, and how
// long the client may take to end its body is for the server's ReadTimeout.
func Unread(w http.ResponseWriter, r *http.Request) (whole bool) {
	if r.ContentLength == 0 || r.Body == nil || r.Body == http.NoBody || r.ProtoMajor != 1 {
		return true
	}
	c := http.NewResponseController(w)
	// To read from one who waits for 100 Continue would ask for the body.
	if r.ContentLength <= maxUnread && r.Header["Expect"] == nil && c.SetReadDeadline(time.Now().Add(bodyWait)) == nil {
		if n, err := io.CopyN(io.Discard, r.Body, maxUnread+1); err == io.EOF && n <= maxUnread {
			return true
		}
	}
	_ = c.SetReadDeadline(time.Now().Add(linger)) // the server's own comes with the next request
	// net/http then answers without waiting, and takes nothing that follows
	// for a request.
	w.Header().Set("Connection", "close")
	return false
}

// Linger is called after r was answered whole without its body being read. Over
// HTTP/2 net/http resets a stream whose body is still under way with the end of
// the answer, and there are clients (curl before 8.1) that then lose the answer.
// So Linger sends it, and leaves the stream open until the body ends, the client
// goes away as it mostly does, or a tenth of a second is over; of the body it
// takes at most 256 KiB meanwhile.
//
// Over HTTP/1 it does nothing, nor for calls of gRPC, whose status is the end of
// the stream and whose clients can bear the reset.
func Linger(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength == 0 || r.Body == nil || r.Body == http.NoBody || r.ProtoMajor == 1 || protocolOf(r) == grpcCall {
		return
	}
	c, until := http.NewResponseController(w), time.Now().Add(bodyWait)
	if c.SetReadDeadline(until) != nil || c.Flush() != nil {
		return
	}
	if _, err := io.CopyN(io.Discard, r.Body, maxUnread); err != nil {
		return
	}
	late := time.NewTimer(time.Until(until))
	defer late.Stop()
	select {
	case <-late.C:
	case <-r.Context().Done():
	}
}
