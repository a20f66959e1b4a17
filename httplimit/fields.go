package httplimit

import (
	"cmp"
	"net/http"
	"strconv"
	"time"
	"unsafe"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/policy"
)

// The fields' names as net/http spells the keys of its maps.
const (
	policyField = "Ratelimit-Policy"
	limitField  = "Ratelimit"
	retryField  = "Retry-After"
)

// A quota is what a client is told of a rule's limit: the same every time.
type quota struct {
	name  string
	limit spillgate.Limit
	item  string // of RateLimit-Policy

	// For the older dialects:
	unit     string
	names    [3]string // of the unit's fields
	key      []policy.Part
	bySource bool // it is the limit of a Limiter
}

func quotaOf(name, unit string, l spillgate.Limit) *quota {
	q := &quota{name: name, limit: l}
	b := appendInteger(append(q.appendName(nil), ";q="...), l.Cap())
	if l.Algorithm == spillgate.Concurrency && (unit == "" || unit == policy.Requests) {
		unit = "concurrent-requests"
	}
	if unit == policy.Bytes {
		unit = "content-bytes"
	}
	if unit != "" && unit != policy.Requests {
		b = append(append(append(b, `;qu="`...), unit...), '"')
	}
	b = appendWindow(b, l)
	q.item = string(b)
	q.unit = cmp.Or(unit, policy.Requests)
	q.names = unitNames(q.unit)
	return q
}

// told is what a client is told of one rule.
type told struct {
	*quota
	decision *spillgate.Decision
	pk       *[12]byte // base64; nil if it is not told
}

// tell appends what v tells: the rules that refuse, then the others. Rules on
// trial are not told of, nor those without a quota. Nothing is told while the
// store is at fault, for the numbers would not be those of the limit.
func (p *policed) tell(ts []told, v *policy.Verdict) []told {
	if v.Fault != nil {
		return ts
	}
	if !v.Allowed {
		ts = p.tellOf(ts, v, true)
	}
	return p.tellOf(ts, v, false)
}

func (p *policed) tellOf(ts []told, v *policy.Verdict, refusing bool) []told {
	for i := range v.Len() {
		o := v.Outcome(i)
		if q := p.quotaOf(o); q != nil && !o.Trial && o.Refuses() == refusing && !o.Flat() {
			t := told{quota: q, decision: &o.Decision}
			if p.partitions {
				t.setPartition(v.Partition(o))
			}
			ts = append(ts, t)
		}
	}
	return ts
}

// quotasOf returns what is told of rules, nil for those without a quota.
func quotasOf(rules []policy.Rule) map[*policy.Rule]*quota {
	quotas := map[*policy.Rule]*quota{}
	for i := range rules {
		if r := &rules[i]; !r.Deny && !r.Exempt && !r.Hide && r.Limit.Algorithm != spillgate.Unlimited {
			quotas[r] = quotaOf(r.Name, r.Unit, r.Limit)
			quotas[r].key = r.Key
		}
	}
	return quotas
}

// fields holds the text of a response's fields, so that they are one object.
// It is never reused: a response's header may outlive the request.
type fields struct {
	values [2]string
	text   [144]byte // enough for three rules with short names; more go elsewhere
}

// set writes the fields about ts into h, beside those of another middleware:
// before them on a refusal, for what refuses comes first.
func (f *fields) set(h http.Header, ts []told, first bool) {
	if len(ts) == 0 {
		return
	}
	items, b := ts[0].item, f.text[:0]
	if len(ts) > 3 { // at once, rather than by growing
		b = make([]byte, 0, 64*len(ts))
	}
	if len(ts) > 1 || ts[0].pk != nil {
		for i := range ts {
			b = ts[i].appendPartition(append(separate(b, i), ts[i].item...))
		}
		items = text(b)
	}
	f.put(h, policyField, 0, items, first)
	b = b[len(b):]
	for i := range ts {
		b = ts[i].appendLimit(separate(b, i))
	}
	f.put(h, limitField, 1, text(b), first)
}

// separate parts a member of a List from those before, if there are any.
func separate(b []byte, before int) []byte {
	if before > 0 {
		b = append(b, ", "...)
	}
	return b
}

// text returns b as a string that shares its bytes, which must not be written
// again.
func text(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// put writes the i-th value. A map of i fields holds none but those put
// before, as it mostly is: then there is no need to look.
func (f *fields) put(h http.Header, key string, i int, text string, first bool) {
	f.values[i] = text
	line := f.values[i : i+1 : i+1]
	var others []string
	if len(h) != i {
		others = h[key]
	}
	switch {
	case len(others) == 0:
		h[key] = line
	case first:
		h[key] = Join(line, others)
	default:
		h[key] = append(Join(nil, others), text)
	}
}

// seconds returns d in whole seconds, rounded up.
func seconds(d time.Duration) int64 {
	s := int64(d / time.Second)
	if d%time.Second > 0 {
		s++
	}
	return s
}

// appendLimit appends the item of RateLimit. When the slots of a concurrency
// limit become free nobody knows, so it has no t.
func (t *told) appendLimit(b []byte) []byte {
	b = t.appendName(b)
	b = appendInteger(append(b, ";r="...), t.decision.Remaining)
	if t.limit.Algorithm != spillgate.Concurrency && t.decision.ResetAfter != spillgate.Never {
		b = appendInteger(append(b, ";t="...), seconds(t.decision.ResetAfter))
	}
	return t.appendPartition(b)
}

// appendName appends the rule's name as a String. Names and units hold
// nothing that would need an escape.
func (q *quota) appendName(b []byte) []byte {
	return append(append(append(b, '"'), q.name...), '"')
}

// appendWindow appends the parameter w, in whole seconds, if l has a window.
func appendWindow(b []byte, l spillgate.Limit) []byte {
	if w := l.Window(); w > 0 {
		b = appendInteger(append(b, ";w="...), seconds(w))
	}
	return b
}

// appendInteger appends an Integer, capped at what one can be (RFC 9651,
// 3.3.1). Nothing that is told is negative.
func appendInteger(b []byte, n int64) []byte {
	return strconv.AppendInt(b, max(0, min(n, 999_999_999_999_999)), 10)
}

// RemainingHeader tells the program behind a gateway what is left.
const RemainingHeader = "Spillgate-Remaining"

// Tell writes [RemainingHeader] into the header of a request that a gateway
// sends on: a List (RFC 9651) of those rules that applied to v and say
// [policy.Rule.Tell],
//
//	Spillgate-Remaining: "password";r=9, "trial";r=0;over
//
// where over says that the request is beyond the limit and would be refused, but
// that the rule spares this key ([policy.Outcome.WouldRefuse]). This stands
// in place of whatever the client sent under that name, which is dropped even
// if there is nothing to tell and v is nil.
func Tell(h http.Header, v *policy.Verdict) {
	delete(h, RemainingHeader)
	if v.Len() == 0 || v.Fault != nil {
		return
	}
	var b []byte
	for i := range v.Len() {
		o := v.Outcome(i)
		if !o.Rule.Tell || o.Flat() {
			continue
		}
		b = (&quota{name: o.Rule.Name}).appendName(separate(b, len(b)))
		b = appendInteger(append(b, ";r="...), o.Decision.Remaining)
		if o.WouldRefuse() {
			b = append(b, ";over"...)
		}
	}
	if len(b) > 0 {
		h[RemainingHeader] = []string{string(b)}
	}
}
