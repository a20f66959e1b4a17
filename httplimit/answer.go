package httplimit

import (
	"cmp"
	"io"
	"math/bits"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/policy"
)

// RefusalHeader names the refusal in the answer, as the log line and the body
// do.
const RefusalHeader = "Spillgate-Refusal"

// Jitter makes Retry-After longer by up to so many percent, 0 to 100 (values
// beyond count as those), and by one second at least, differently for each
// refusal: else all whom one window refuses come back in the same instant. It
// is never shorter than what is enough. The other fields and [Refusal] tell the
// truth without it.
func Jitter(percent int) Option {
	return func(o *options) { o.jitter = max(0, min(percent, 100)) }
}

// Backup gives h those requests that are refused and may take a spare lane, in
// place of the refusal: [policy.Verdict.Backup], of the verdict in the request's
// context, says which. They are charged and settled as those that pass; their answers
// carry no RateLimit fields.
func Backup(h http.Handler) Option {
	return func(o *options) { o.backup = h }
}

// spread returns wait and up to percent of it, rounded up, all seconds being
// equally likely. The part is drawn by id, and so can be found again.
func spread(wait int64, percent int, id uint64) int64 {
	if percent == 0 {
		return wait
	}
	most := wait/100*int64(percent) + (wait%100*int64(percent)+99)/100
	more, _ := bits.Mul64(id, uint64(most)+1)
	return wait + int64(more)
}

// choose applies what the rule says of its answer.
func (f *refusal) choose() {
	if f.flat {
		f.Status, f.problem = http.StatusForbidden, ""
	}
	a := f.Answer
	if a == nil {
		return
	}
	switch f.problem = cmp.Or(a.Problem, f.problem); f.problem {
	case policy.ReducedCapacity:
		f.Status = http.StatusServiceUnavailable
	case policy.AbnormalUsage, policy.QuotaExceeded:
		f.Status = http.StatusTooManyRequests
	}
	if a.Status != 0 {
		f.Status = a.Status
	}
}

// The types of problems (RFC 9457) stand in IANA's registry.
const registry = "https://iana.org/assignments/http-problem-types#"

// write answers with status and body.
func (f *refusal) write(w http.ResponseWriter, r *http.Request) {
	h, a := w.Header(), f.Answer
	f.values[1] = "no-store"
	h["Cache-Control"] = f.values[1:2:2]
	if a != nil {
		for name, value := range a.Header {
			h.Set(name, value)
		}
		if a.Type != "" {
			f.head(h, a.Type, len(a.Body))
			w.WriteHeader(f.Status)
			if r.Method != http.MethodHead {
				_, _ = io.WriteString(w, a.Body) // the client's loss
			}
			return
		}
		if bodiless(f.Status) {
			w.WriteHeader(f.Status)
			return
		}
	}
	body := bodies.Get().(*[]byte)
	kind, b := "application/problem+json", (*body)[:0]
	if wantsText(r.Header["Accept"]) {
		kind, b = "text/plain; charset=utf-8", f.appendText(b)
	} else {
		b = f.appendProblem(b)
	}
	f.head(h, kind, len(b))
	w.WriteHeader(f.Status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(b) // the client's loss
	}
	*body = b
	bodies.Put(body)
}

// head sets the fields that tell of the body.
func (f *refusal) head(h http.Header, kind string, length int) {
	f.values[0], f.values[2] = kind, strconv.Itoa(length)
	h["Content-Type"] = f.values[0:1:1]
	h["Content-Length"] = f.values[2:3:3]
}

// bodiless reports whether an answer of that status has no body.
func bodiless(status int) bool {
	return status == http.StatusNoContent || status == http.StatusResetContent || status == http.StatusNotModified
}

// wantsText reports whether a client takes plain text rather than JSON: the
// weights that it gives them in Accept decide (RFC 9110, 12.5.1), and where they
// are the same, or nothing is said, it is JSON.
func wantsText(accept []string) bool {
	if len(accept) == 0 || len(accept) == 1 && accept[0] == "*/*" {
		return false
	}
	var text, json weight
	for _, line := range accept {
		for len(line) > 0 {
			var part string
			part, line, _ = strings.Cut(line, ",")
			kind, params, _ := strings.Cut(part, ";")
			q := weightOf(params)
			switch strings.ToLower(strings.TrimSpace(kind)) {
			case "text/plain":
				text.set(3, q)
			case "text/*":
				text.set(2, q)
			case "application/problem+json", "application/json":
				json.set(3, q)
			case "application/*":
				json.set(2, q)
			case "*/*":
				text.set(1, q)
				json.set(1, q)
			}
		}
	}
	return text.q > json.q
}

// A weight is that of the most specific range that fits a type.
type weight struct{ rank, q int }

func (w *weight) set(rank, q int) {
	if rank > w.rank || rank == w.rank && q > w.q {
		w.rank, w.q = rank, q
	}
}

// weightOf returns the weight among parameters in thousandths: 1000 if there
// is none.
func weightOf(params string) int {
	for len(params) > 0 {
		var one string
		one, params, _ = strings.Cut(params, ";")
		name, value, _ := strings.Cut(strings.TrimSpace(one), "=")
		if !strings.EqualFold(name, "q") {
			continue
		}
		if q, err := strconv.ParseFloat(value, 64); err == nil && q >= 0 && q <= 1 {
			return int(q * 1000)
		}
	}
	return 1000
}

var bodies = sync.Pool{New: func() any { b := make([]byte, 0, 1024); return &b }}

// appendProblem appends the problem as JSON. Names hold nothing that JSON
// would escape.
func (f *refusal) appendProblem(b []byte) []byte {
	b = append(b, `{"type":"`...)
	if f.problem == "" {
		b = append(b, "about:blank"...)
	} else {
		b = append(append(b, registry...), f.problem...)
	}
	b = append(append(b, `","title":"`...), f.title()...)
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
	if f.wait > 0 {
		b = strconv.AppendInt(append(b, `,"retry_after":`...), f.wait, 10)
	}
	b = append(append(b, `,"refusal_id":"`...), f.ID...)
	return append(b, "\"}\n"...)
}

// appendText appends the same for people.
func (f *refusal) appendText(b []byte) []byte {
	b = append(append(b, f.title()...), ". "...)
	b = append(f.appendDetail(b), "\nRefusal "...)
	return append(append(b, f.ID...), '\n')
}

func (f *refusal) title() string {
	switch f.problem {
	case policy.QuotaExceeded:
		return "Quota exceeded"
	case policy.ReducedCapacity:
		return "Temporarily reduced capacity"
	case policy.AbnormalUsage:
		return "Abnormal usage detected"
	}
	return cmp.Or(http.StatusText(f.Status), "Refused")
}

// appendDetail appends what happened in plain words, without quotation marks.
func (f *refusal) appendDetail(b []byte) []byte {
	switch {
	case f.Reason == spillgate.Blocked:
		return f.appendBlocked(b)
	case f.flat:
		b = append(append(b, "Rule "...), f.Rule...)
		return append(b, " does not admit this request. Waiting does not help."...)
	case f.fault:
		return append(b, "It can't be decided right now whether this request may pass. This says nothing about your quota. Try again in a second."...)
	case f.broken && f.Status == http.StatusRequestTimeout:
		return append(b, "The body of this request did not come in time."...)
	case f.broken:
		return append(b, "The body of this request could not be read: it is malformed, or broke off."...)
	case repeatedOf(f.Err) != nil:
		return appendRepeated(b, repeatedOf(f.Err).Attribute)
	case oddOf(f.Err) != nil:
		return append(b, oddly("request", oddOf(f.Err).Attribute)...)
	case f.Rule == "" && f.Status == http.StatusBadRequest:
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
	b = strconv.AppendInt(append(b, " Retry after "...), f.wait, 10)
	b = append(b, " s: by then a request like this one fits again."...)
	if f.ResetAfter != spillgate.Never && seconds(f.ResetAfter) > f.wait {
		b = strconv.AppendInt(append(b, " The reset, in "...), seconds(f.ResetAfter), 10)
		b = append(b, " s, is when the whole quota is back; there is no need to wait for it."...)
	}
	return b
}
