package httplimit

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/policy"
)

// A Refusal is an answer in place of the handler's.
type Refusal struct {
	// ID is random and the same in the answer and in the log line.
	ID string
	// Status is the answer's; the package comment says which when.
	Status int
	// Rule is the first rule that refuses, "" if none does.
	Rule string
	// Violated names all rules that refuse.
	Violated []string
	// RetryAfter is the wait that is enough: [spillgate.Never] if none is, 0
	// if nothing is known.
	RetryAfter time.Duration
	// ResetAfter is the time until Rule's whole quota is back:
	// [spillgate.Never] if it never is.
	ResetAfter time.Duration
	// Reason is the decision's, of Rule.
	Reason spillgate.Reason
	// Err says why nothing was decided; nil if a rule refuses.
	Err error
}

// The types of problems (RFC 9457) in IANA's registry, from the draft.
const (
	quotaExceeded   = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	reducedCapacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
)

// statusGone is what nginx notes for a client that went away.
const statusGone = 499

// faultWait is the wait that a client is told while nothing can be decided.
const faultWait = time.Second

// A refusal is all that an answer needs, in one object.
type refusal struct {
	Refusal
	fields   fields
	values   [3]string
	violated [4]string
	id       [16]byte
}

// refuse answers what the limiter denied.
func (l *limited) refuse(w http.ResponseWriter, r *http.Request, d *spillgate.Decision) {
	f := &refusal{Refusal: Refusal{Reason: d.Reason}}
	switch f.Reason {
	case spillgate.BadCost:
		f.Status, f.Err = http.StatusBadRequest, d.Err()
	case spillgate.Closed:
		f.Status, f.Err, f.RetryAfter = http.StatusServiceUnavailable, d.Err(), faultWait
	default:
		f.Status, f.Rule, f.Violated = http.StatusTooManyRequests, l.name, append(f.violated[:0], l.name)
		f.RetryAfter, f.ResetAfter = d.RetryAfter, d.ResetAfter
		var room [1]told
		l.answer(w, r, f, l.tell(room[:0], d))
		return
	}
	l.answer(w, r, f, nil)
}

// refuse answers what the policy denied, or could not decide.
func (p *policed) refuse(w http.ResponseWriter, r *http.Request, v *policy.Verdict) {
	o := v.Refusing()
	if o == nil {
		if f := undecided(r.Context(), v.Err()); f.Status != statusGone {
			p.answer(w, r, f, nil)
		} else {
			p.gone(w, r)
		}
		return
	}
	f := &refusal{Refusal: Refusal{
		Status: http.StatusTooManyRequests, Rule: o.Rule.Name, Reason: o.Decision.Reason,
		RetryAfter: v.RetryAfter(), ResetAfter: o.Decision.ResetAfter,
	}}
	if flat(o) {
		f.Status = http.StatusForbidden
	}
	f.Violated = f.violated[:0]
	for i := range v.Len() {
		if o := v.Outcome(i); o.Refuses() {
			f.Violated = append(f.Violated, o.Rule.Name)
		}
	}
	var room [8]told
	p.answer(w, r, f, p.tell(room[:0], v))
}

// undecided says what a client is told when err kept the verdict from being
// reached: our faults are 5xx, and never look like a denial.
func undecided(ctx context.Context, err error) *refusal {
	f := &refusal{Refusal: Refusal{Status: http.StatusInternalServerError, Err: err}}
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		f.Status = statusGone
	case ctx.Err() != nil || errors.Is(err, spillgate.ErrUnavailable) || errors.Is(err, spillgate.ErrClosed):
		f.Status, f.RetryAfter = http.StatusServiceUnavailable, faultWait
	case errors.Is(err, spillgate.ErrCost):
		f.Status = http.StatusBadRequest
	}
	return f
}

// gone ends a request whose client went away or ran out of time. What it was
// charged is given back already.
func (s *shared) gone(w http.ResponseWriter, r *http.Request) {
	if errors.Is(r.Context().Err(), context.Canceled) {
		Unread(w, r)
		w.WriteHeader(statusGone)
		return
	}
	s.answer(w, r, &refusal{Refusal: Refusal{Status: http.StatusServiceUnavailable, RetryAfter: faultWait, Err: r.Context().Err()}}, nil)
}

// answer logs and answers a refusal. ts are the rules to tell of, those that
// refuse first.
func (s *shared) answer(w http.ResponseWriter, r *http.Request, f *refusal, ts []told) {
	f.ID = text(appendHex(f.id[:0], rand.Uint64()))
	if s.report != nil {
		var a attributes
		a.begin(s, r)
		client := "unknown"
		if addr := a.addr(); addr.IsValid() {
			client = addr.String()
		}
		s.report.refusal(r, &f.Refusal, client)
	}

	h := w.Header()
	if s.headers != Off {
		f.fields.set(h, ts, true)
	}
	if f.RetryAfter > 0 && f.RetryAfter != spillgate.Never {
		f.fields.retry(h, f.RetryAfter)
	}
	whole := Unread(w, r)
	if s.denied != nil {
		if !whole { // the context of the connection ended with the reading
			r = r.WithContext(context.WithoutCancel(r.Context()))
		}
		s.denied(w, r, f.Refusal)
		return
	}
	for _, key := range [...]string{"Content-Encoding", "Etag", "Last-Modified"} {
		delete(h, key) // of the answer that isn't given
	}
	body := bodies.Get().(*[]byte)
	b := f.appendProblem((*body)[:0])
	f.values = [...]string{"application/problem+json", "no-store", strconv.Itoa(len(b))}
	h["Content-Type"] = f.values[0:1:1]
	h["Cache-Control"] = f.values[1:2:2]
	h["Content-Length"] = f.values[2:3:3]
	w.WriteHeader(f.Status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(b) // the client's loss
	}
	*body = b
	bodies.Put(body)
}

var bodies = sync.Pool{New: func() any { b := make([]byte, 0, 1024); return &b }}

// appendProblem appends the problem as JSON. Names hold nothing that JSON
// would escape.
func (f *Refusal) appendProblem(b []byte) []byte {
	kind, title := "about:blank", http.StatusText(f.Status)
	switch f.Status {
	case http.StatusTooManyRequests:
		kind, title = quotaExceeded, "Quota exceeded"
	case http.StatusServiceUnavailable:
		kind, title = reducedCapacity, "Temporarily reduced capacity"
	}
	b = append(append(b, `{"type":"`...), kind...)
	b = append(append(b, `","title":"`...), title...)
	b = strconv.AppendInt(append(b, `","status":`...), int64(f.Status), 10)
	b = f.appendDetail(append(b, `,"detail":"`...))
	b = append(b, '"')
	for i, name := range f.Violated {
		if i == 0 {
			b = append(b, `,"violated-policies":["`...)
		} else {
			b = append(b, `,"`...)
		}
		b = append(append(b, name...), '"')
	}
	if len(f.Violated) > 0 {
		b = append(b, ']')
	}
	if f.RetryAfter > 0 && f.RetryAfter != spillgate.Never {
		b = strconv.AppendInt(append(b, `,"retry_after":`...), seconds(f.RetryAfter), 10)
	}
	b = append(append(b, `,"refusal_id":"`...), f.ID...)
	return append(b, "\"}\n"...)
}

// appendDetail appends what happened in plain words, without quotation marks.
func (f *Refusal) appendDetail(b []byte) []byte {
	switch {
	case f.Status == http.StatusForbidden:
		b = append(append(b, "Rule "...), f.Rule...)
		return append(b, " does not admit this request. Waiting does not help."...)
	case f.Status == http.StatusServiceUnavailable:
		return append(b, "It can't be decided right now whether this request may pass. This says nothing about your quota. Try again in a second."...)
	case f.Status == http.StatusBadRequest:
		return append(b, "The cost of this request can't be told from it, or is negative."...)
	case f.Err != nil:
		return append(b, "It could not be decided whether this request may pass. This says nothing about your quota."...)
	case f.Reason == spillgate.NeverFits:
		b = append(append(b, "This request costs more than the quota of rule "...), f.Rule...)
		return append(b, " ever holds. Waiting does not help; ask for less at once."...)
	}
	b = append(append(b, "The quota of rule "...), f.Rule...)
	if n := len(f.Violated) - 1; n > 0 {
		b = append(strconv.AppendInt(append(b, " and of "...), int64(n), 10), " more"...)
	}
	b = append(b, " is used up."...)
	if f.RetryAfter == spillgate.Never {
		return append(b, " Nothing more will be earned, so waiting does not help."...)
	}
	b = strconv.AppendInt(append(b, " Retry after "...), seconds(f.RetryAfter), 10)
	b = append(b, " s: by then a request like this one fits again."...)
	if f.ResetAfter != spillgate.Never && seconds(f.ResetAfter) > seconds(f.RetryAfter) {
		b = strconv.AppendInt(append(b, " The reset, in "...), seconds(f.ResetAfter), 10)
		b = append(b, " s, is when the whole quota is back; there is no need to wait for it."...)
	}
	return b
}

// appendHex appends n as 16 hexadecimal digits.
func appendHex(b []byte, n uint64) []byte {
	for shift := 60; shift >= 0; shift -= 4 {
		b = append(b, "0123456789abcdef"[n>>shift&15])
	}
	return b
}
