package httplimit

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/policy"
)

// A Refusal is an answer in place of the handler's.
type Refusal struct {
	// ID is random and the same in the answer and in the log line.
	ID string
	// Status is the answer's; the package comment says which when. A call of
	// gRPC is told [Refusal.Code] in its place.
	Status int
	// Rule is the first rule that refuses, "" if none does.
	Rule string
	// Violated names all rules that refuse: none if an override does that
	// names no rule, for which Rule is overrides.
	Violated []string
	// RetryAfter is the wait that is enough: [spillgate.Never] if none is, 0
	// if nothing is known.
	RetryAfter time.Duration
	// ResetAfter is the time until Rule's whole quota is back:
	// [spillgate.Never] if it never is.
	ResetAfter time.Duration
	// Reason is the decision's, of Rule.
	Reason spillgate.Reason
	// Answer is what Rule says of the answer, or, where Err is not nil, the rule
	// that is closed while the store fails ([policy.Rule.FaultAnswer]); nil if it
	// says nothing.
	Answer *policy.Answer
	// Override is the override by which Rule refuses, nil if there is none.
	Override *policy.Override
	// Err says why nothing was decided; nil if a rule refuses.
	Err error

	engine   *policy.Engine // that decided; nil if none did
	why      string         // Rule refuses, in a few words for the log
	flat     bool           // Rule refuses by itself, without a quota
	problem  policy.Problem // "" is about:blank
	ruleless bool           // Rule is none of the policy's, but an override
	fault    bool           // of ours, that may be over soon: it says nothing of a quota
	wait     int64          // seconds that are told; 0 for none

	// For calls of gRPC:
	first *policy.Outcome // that refuses; nil if none does
	all   *policy.Verdict // that it is of; nil if there is no other
}

// Code returns the code of gRPC that says the same, whatever a rule says of its
// answer: RESOURCE_EXHAUSTED (8), PERMISSION_DENIED (7) of a rule that denies, and
// of what was not decided UNAVAILABLE (14), or else INVALID_ARGUMENT (3),
// DEADLINE_EXCEEDED (4) or INTERNAL (13).
func (f *Refusal) Code() uint32 {
	switch {
	case f.flat:
		return 7
	case f.Err == nil:
		return 8
	case f.fault: // whatever the answer's status is
		return 14
	case f.Status == http.StatusBadRequest:
		return 3
	case f.Status == http.StatusRequestTimeout:
		return 4
	case f.Status == http.StatusInternalServerError:
		return 13
	}
	return 14
}

// statusGone is what nginx notes for a client that went away.
const statusGone = 499

// faultWait is the wait that a client is told while nothing can be decided.
const faultWait = time.Second

// A refusal is all that an answer needs, in one object.
type refusal struct {
	Refusal
	broken   bool // the body could not be read
	fields   fields
	values   [5]string
	violated [4]string
	id       [16]byte
}

// refuse answers what the limiter denied.
func (l *limited) refuse(w http.ResponseWriter, r *http.Request, key string, d *spillgate.Decision) {
	f := &refusal{Refusal: Refusal{Reason: d.Reason}}
	switch f.Reason {
	case spillgate.BadCost:
		f.Status, f.Err = http.StatusBadRequest, d.Err()
	case spillgate.Closed:
		f.unavailable(d.Err())
	default:
		f.Status, f.Rule, f.Violated = http.StatusTooManyRequests, l.name, append(f.violated[:0], l.name)
		f.RetryAfter, f.ResetAfter, f.problem, f.why = d.RetryAfter, d.ResetAfter, policy.QuotaExceeded, d.Reason.String()
		if protocolOf(r) != overHTTP {
			f.first = l.outcome(d)
		}
		var room [1]told
		l.answer(w, r, f, l.tell(room[:0], key, d))
		return
	}
	l.answer(w, r, f, nil)
}

// refuse answers what the policy denied, or could not decide.
func (p *policed) refuse(w http.ResponseWriter, r *http.Request, v *policy.Verdict) {
	o := v.Refusing()
	if o == nil {
		p.undecided(w, r, v.Err(), v.FaultAnswer())
		return
	}
	f := &refusal{Refusal: Refusal{
		Status: http.StatusTooManyRequests, Rule: o.Rule.Name, Reason: o.Decision.Reason,
		RetryAfter: v.RetryAfter(), ResetAfter: o.Decision.ResetAfter, Override: o.Override,
	}}
	f.Answer, f.problem, f.flat, f.engine = o.Rule.Answer, problemOf(o), o.Flat(), p.engine
	f.why, f.ruleless, f.first, f.all = o.Why(), o.Ruleless(), o, v
	f.choose()
	f.Violated = f.violated[:0]
	for i := range v.Len() {
		if o := v.Outcome(i); o.Refuses() && !o.Ruleless() {
			f.Violated = append(f.Violated, o.Rule.Name)
		}
	}
	var room [8]told
	p.answer(w, r, f, p.tell(room[:0], v))
}

// keyOf returns the key under which Rule refuses, as it may be shown, "" if that
// is not known.
func (f *Refusal) keyOf(a *attributes) string {
	if f.engine == nil {
		return ""
	}
	return f.engine.KeyText(f.Rule, a)
}

// undecided says what a client is told when err kept the verdict from being
// reached: our faults are 5xx, and never look like a denial.
func undecided(ctx context.Context, err error) *refusal {
	f := &refusal{Refusal: Refusal{Status: http.StatusInternalServerError, Err: err}}
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		f.Status = statusGone
	case ctx.Err() != nil, errors.Is(err, context.DeadlineExceeded), errors.Is(err, spillgate.ErrUnavailable), errors.Is(err, spillgate.ErrClosed):
		f.unavailable(err)
	case errors.Is(err, spillgate.ErrCost), repeatedOf(err) != nil, oddOf(err) != nil:
		f.Status = http.StatusBadRequest
	}
	return f
}

// unavailable makes f a fault of ours, that may be over soon.
func (f *refusal) unavailable(err error) {
	f.Status, f.Err, f.RetryAfter, f.problem, f.fault = http.StatusServiceUnavailable, err, faultWait, policy.ReducedCapacity, true
}

// undecided ends a request for which err is all that is known: its client went
// away, or time ran out, or it could not be decided. What it was charged is given
// back already. If that is a fault of ours, a is what a rule says of the answer.
func (s *shared) undecided(w http.ResponseWriter, r *http.Request, err error, a *policy.Answer) {
	f := undecided(r.Context(), err)
	if f.fault && a != nil {
		f.Answer, f.Status = a, cmp.Or(a.Status, f.Status)
	}
	if f.Status == statusGone {
		Unread(w, r)
		w.WriteHeader(statusGone)
		return
	}
	s.answer(w, r, f, nil)
}

// answer logs and answers a refusal. ts are the rules to tell of, those that
// refuse first.
func (s *shared) answer(w http.ResponseWriter, r *http.Request, f *refusal, ts []told) {
	id := rand.Uint64()
	f.ID = text(appendHex(f.id[:0], id))
	if f.RetryAfter > 0 && f.RetryAfter != spillgate.Never {
		f.wait = spread(seconds(f.RetryAfter), s.jitter, id)
	}
	s.logRefusal(r, &f.Refusal)

	h := w.Header()
	if s.headers != Off {
		s.announce(&f.fields, h, r, ts, true)
	}
	if f.wait > 0 {
		f.values[4] = strconv.FormatInt(f.wait, 10) // whole seconds
		h[retryField] = f.values[4:5:5]
	}
	f.values[3] = f.ID
	h[RefusalHeader] = f.values[3:4:4]
	whole := Unread(w, r)
	defer Linger(w, r)
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
	if p := protocolOf(r); p != overHTTP {
		p.answer(w, r, f.Code(), f.says(), f.details(r.URL, s.jitter > 0))
		return
	}
	f.write(w, r)
}

// appendHex appends n as 16 hexadecimal digits.
func appendHex(b []byte, n uint64) []byte {
	for shift := 60; shift >= 0; shift -= 4 {
		b = append(b, "0123456789abcdef"[n>>shift&15])
	}
	return b
}
