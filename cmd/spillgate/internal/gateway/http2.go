package gateway

import (
	"net/http"
	"strings"
	"time"
)

// A stream is the way of an answer over HTTP/2. There a client that takes
// nothing more holds up its own streams only, while the connection lives, so
// that the deadline of conn never comes: each write has one of its own.
type stream struct {
	http.ResponseWriter
	control *http.ResponseController
	stall   time.Duration
}

func (g *Gateway) stream(w http.ResponseWriter) *stream {
	return &stream{w, http.NewResponseController(w), g.timeouts.Stall}
}

// Unwrap leads [http.ResponseController] to the rest.
func (s *stream) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// Write writes within the stall time.
func (s *stream) Write(p []byte) (int, error) {
	s.begin()
	defer s.end()
	return s.ResponseWriter.Write(p)
}

// FlushError flushes within the stall time.
func (s *stream) FlushError() error {
	s.begin()
	defer s.end()
	return s.control.Flush()
}

// begin sets the deadline, which ends the stream also if nothing is being
// written, and end takes it away. Both are best effort: a stream that is over
// has other bounds.
func (s *stream) begin() { _ = s.control.SetWriteDeadline(time.Now().Add(s.stall)) }
func (s *stream) end()   { _ = s.control.SetWriteDeadline(time.Time{}) }

// malformed says what is wrong with a request over HTTP/2 that net/http would
// not have taken over HTTP/1, "" if nothing is.
func malformed(r *http.Request) (title string) {
	const token, host = "!#$%&'*+-.^_`|~", "-._~%!$&'()*+,;=:[]"
	switch {
	case !only(r.Method, token):
		return "the request's method is none"
	case r.RequestURI != "*" && !strings.HasPrefix(r.RequestURI, "/"):
		return "the request's path is none"
	case !only(r.Host, host) || r.Host == "":
		return "the request's host is none"
	}
	for _, other := range r.Header["Host"] {
		if !strings.EqualFold(other, r.Host) {
			return "the request names two hosts"
		}
	}
	return ""
}

// only reports whether s is made of letters, digits and those.
func only(s, those string) bool {
	for i := range len(s) {
		if c := s[i]; !('a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9' || strings.IndexByte(those, c) >= 0) {
			return false
		}
	}
	return true
}
