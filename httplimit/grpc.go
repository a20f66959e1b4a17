package httplimit

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/policy"
)

// A protocol is how a refusal has to be told so that the client understands it.
// To one of gRPC a status of HTTP but 200 only says that some proxy fails.
type protocol uint8

const (
	overHTTP    protocol = iota
	grpcCall             // the status stands in the header
	grpcWeb              // it stands in a frame at the end of the body
	grpcWebText          // the same in base64
)

// protocolOf returns the protocol of r, by its Content-Type.
func protocolOf(r *http.Request) protocol {
	const grpc, web, text = "application/grpc", "-web", "-text"
	lines := r.Header["Content-Type"]
	if r.Method != http.MethodPost || len(lines) == 0 {
		return overHTTP
	}
	rest, ok := cutFold(lines[0], grpc)
	if !ok {
		return overHTTP
	}
	p := grpcCall
	if after, ok := cutFold(rest, web); ok {
		p, rest = grpcWeb, after
		if after, ok := cutFold(rest, text); ok {
			p, rest = grpcWebText, after
		}
	}
	if rest != "" && strings.IndexByte("+; ", rest[0]) < 0 {
		return overHTTP // another type that begins like it
	}
	return p
}

// cutFold is strings.CutPrefix whatever the case of ASCII letters.
func cutFold(s, prefix string) (rest string, ok bool) {
	if len(s) < len(prefix) || !strings.EqualFold(s[:len(prefix)], prefix) {
		return s, false
	}
	return s[len(prefix):], true
}

// AnswerGRPC answers r, if it is a call of gRPC or gRPC-Web, with a status of
// gRPC: its code, and a message for people. It reports false, and does nothing,
// if r is none: then the answer is to be one of HTTP. It is for handlers that
// answer in a service's place, as a gateway does whose upstream is down.
func AnswerGRPC(w http.ResponseWriter, r *http.Request, code uint32, message string) bool {
	p := protocolOf(r)
	if p == overHTTP {
		return false
	}
	p.answer(w, r, code, message, nil)
	return true
}

// The fields in which a status stands, as net/http spells the keys of its maps.
const (
	statusField  = "Grpc-Status"
	messageField = "Grpc-Message"
	detailsField = "Grpc-Status-Details-Bin"
)

// answer ends r with a status. details, if there are any, is the status once
// more as a message of protocol buffers.
func (p protocol) answer(w http.ResponseWriter, r *http.Request, code uint32, message string, details []byte) {
	h := w.Header()
	kind := r.Header["Content-Type"][0]
	if len(kind) > 64 {
		kind = "application/grpc" + [...]string{grpcWeb: "-web", grpcWebText: "-web-text"}[p]
	}
	h["Content-Type"] = []string{kind}
	delete(h, "Content-Length")
	status, said, more := strconv.FormatUint(uint64(code), 10), percent(message), base64.RawStdEncoding.EncodeToString(details)
	if p == grpcCall {
		h[statusField], h[messageField] = []string{status}, []string{said}
		if more != "" {
			h[detailsField] = []string{more}
		}
		w.WriteHeader(http.StatusOK)
		return
	}
	frame := append([]byte{0x80, 0, 0, 0, 0}, "grpc-status: "+status+"\r\ngrpc-message: "+said+"\r\n"...)
	if more != "" {
		frame = append(frame, "grpc-status-details-bin: "+more+"\r\n"...)
	}
	binary.BigEndian.PutUint32(frame[1:], uint32(len(frame)-5))
	if p == grpcWebText {
		frame = base64.StdEncoding.AppendEncode(nil, frame)
	}
	h["Content-Length"] = []string{strconv.Itoa(len(frame))}
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write(frame) // the client's loss
}

// percent encodes a message as grpc-message wants it: what is no visible ASCII,
// and the percent sign.
func percent(s string) string {
	b := make([]byte, 0, len(s))
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '%' {
			b = append(b, '%', "0123456789ABCDEF"[c>>4], "0123456789ABCDEF"[c&15])
		} else {
			b = append(b, c)
		}
	}
	return string(b)
}

// outcome is what d would be of a rule.
func (l *limited) outcome(d *spillgate.Decision) *policy.Outcome {
	r := &policy.Rule{Name: l.name, Limit: l.limiter.Limit()}
	if len(l.costs) > 0 {
		r.Unit = l.costs[0].unit
	}
	part := policy.Part{Prefix: l.prefix}
	for _, s := range l.sources {
		part.Attributes = append(part.Attributes, s.attribute)
	}
	r.Key = []policy.Part{part}
	return &policy.Outcome{Rule: r, Decision: *d}
}

// says tells in a sentence what happened.
func (f *refusal) says() string {
	if f.first != nil {
		return f.first.Says(f.RetryAfter)
	}
	switch repeated, code := repeatedOf(f.Err), f.Code(); {
	case f.broken && code == 4:
		return "the body of this call did not come in time"
	case f.broken:
		return "the body of this call could not be read: it is malformed, or broke off"
	case repeated != nil:
		kind := "metadata"
		if repeated.Attribute.Kind == policy.Query {
			kind = "query parameter"
		}
		return fmt.Sprintf("the %s %s comes several times, with different values, and by it calls are told apart; send it once", kind, repeated.Attribute.Name)
	case oddOf(f.Err) != nil:
		return oddly("call", oddOf(f.Err).Attribute)
	case code == 3:
		return "the cost of this call can't be told from it, or is negative"
	case code == 14:
		return "it can't be decided right now whether this call may pass; this says nothing about your quota"
	}
	return "it could not be decided whether this call may pass; this says nothing about your quota"
}

// maxDetails bounds the rules that a status tells of: there are clients that
// take 8 KiB of header. maxMethod bounds the method, which is the client's text.
const (
	maxDetails = 3 << 10
	maxMethod  = 256
)

// details returns the status as a google.rpc.Status, with a QuotaFailure, a
// RetryInfo and a RequestInfo, in so far as they apply. The wait is exact, unless
// it is spread.
func (f *refusal) details(u *url.URL, spread bool) []byte {
	const quotaFailure, retryInfo, requestInfo = "google.rpc.QuotaFailure", "google.rpc.RetryInfo", "google.rpc.RequestInfo"
	code := f.Code()
	s := message(nil).number(1, int64(code)).text(2, f.says())
	if code == 8 {
		s = s.any(quotaFailure, f.failure(u))
	}
	if f.RetryAfter > 0 && f.RetryAfter != spillgate.Never {
		wait := f.RetryAfter
		if spread {
			wait = time.Duration(min(f.wait, int64(spillgate.Never/time.Second))) * time.Second
		}
		delay := message(nil).number(1, int64(wait/time.Second)).number(2, int64(wait%time.Second))
		s = s.any(retryInfo, message(nil).embed(1, delay))
	}
	return s.any(requestInfo, message(nil).text(1, f.ID))
}

// failure returns a violation for each rule that refuses.
func (f *refusal) failure(u *url.URL) (b message) {
	method := ""
	if u != nil && len(u.Path) <= maxMethod {
		method = u.Path
	}
	if f.all == nil {
		return b.embed(1, violation(f.first, method))
	}
	for i := range f.all.Len() {
		if o := f.all.Outcome(i); o.Refuses() && len(b) < maxDetails {
			b = b.embed(1, violation(o, method))
		}
	}
	return b
}

// violation tells of one rule that refuses, as grpclimit does.
func violation(o *policy.Outcome, method string) message {
	service := strings.TrimPrefix(method, "/")
	if i := strings.LastIndexByte(service, '/'); i >= 0 {
		service = service[:i]
	}
	unit, value := o.Rule.Unit, o.Decision.Limit
	if unit == "" {
		unit = policy.Requests
	}
	if o.Rule.Hide {
		value = 0
	}
	v := message(nil).text(1, o.Rule.Subject()).text(2, o.Describe()).text(3, service).text(4, unit).text(5, o.Rule.Name)
	if method != "" {
		v = v.embed(6, message(nil).text(1, "method").text(2, method))
	}
	return v.number(7, value)
}

// A message is one of protocol buffers, encoded: each field as its number, its
// type (0 for a varint, 2 for what has a length) and its value.
type message []byte

func (m message) tag(field, kind int) message {
	return binary.AppendUvarint(m, uint64(field<<3|kind))
}

// number appends a field that is an int32 or int64. Zero is left out.
func (m message) number(field int, n int64) message {
	if n == 0 {
		return m
	}
	return binary.AppendUvarint(m.tag(field, 0), uint64(n))
}

// text appends a field that is a string. An empty one is left out.
func (m message) text(field int, s string) message {
	if s == "" {
		return m
	}
	s = strings.ToValidUTF8(s, "?") // or the whole message would be unreadable
	return append(binary.AppendUvarint(m.tag(field, 2), uint64(len(s))), s...)
}

// embed appends a field that is a message.
func (m message) embed(field int, b message) message {
	return append(binary.AppendUvarint(m.tag(field, 2), uint64(len(b))), b...)
}

// any appends a detail of a status: a google.protobuf.Any.
func (m message) any(kind string, b message) message {
	return m.embed(3, message(nil).text(1, "type.googleapis.com/"+kind).embed(2, b))
}
