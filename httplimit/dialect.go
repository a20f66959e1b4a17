package httplimit

import (
	"encoding/base64"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/policy"
)

// A Dialect is a set of fields that tell of limits. Those before the draft
// tell of one rule, OpenAI of one for each unit: the first that refuses, or else
// the one with the least left, slots only if there is nothing else. Limit,
// remaining and reset are always of the same rule and of one decision.
type Dialect uint8

const (
	// Draft is RateLimit-Policy and RateLimit, as in the package comment. It
	// is the default. Both are lists: what the handler, or another middleware,
	// says in them stays beside ([Join]).
	Draft Dialect = iota
	// GitHub is X-RateLimit-Limit, -Remaining, -Used, -Resource (the rule) and
	// -Reset, in seconds since 1970, with -Burst for a bucket and -Scope: "ip"
	// if the rule told the caller by address, "token" if by what it brought.
	GitHub
	// Delta is the same with -Reset in seconds from now.
	Delta
	// OpenAI is x-ratelimit-limit-requests, -remaining-requests and
	// -reset-requests for the unit requests, and so for each other unit that is
	// counted (tokens; bytes are content-bytes), but for slots. A reset is
	// written like 12ms or 6m0s.
	OpenAI
	// Envoy is X-RateLimit-Limit (10, 10;w=60;name="a"), -Remaining and
	// -Reset, in seconds from now: the third version of the draft. Behind the
	// limit stand those of all rules that applied.
	Envoy
)

var dialectNames = [...]string{"draft", "github", "delta", "openai", "envoy"}

// String returns the name of d in a policy file.
func (d Dialect) String() string {
	if int(d) < len(dialectNames) {
		return dialectNames[d]
	}
	return "dialect(" + strconv.Itoa(int(d)) + ")"
}

// Dialects says which fields tell of limits, in place of [Draft]. GitHub, Delta
// and Envoy use the same names, so of these the last one counts. None at all is
// what [Off] is for.
func Dialects(ds ...Dialect) Option {
	return func(o *options) {
		o.dialects, o.undrafted = nil, !slices.Contains(ds, Draft)
		single := func(d Dialect) bool { return d == GitHub || d == Delta || d == Envoy }
		for i, d := range ds {
			if d == OpenAI && !slices.Contains(o.dialects, d) || single(d) && !slices.ContainsFunc(ds[i+1:], single) {
				o.dialects = append(o.dialects, d)
			}
		}
	}
}

// The names of the older fields, as net/http spells the keys of its maps.
const (
	limitName     = "X-Ratelimit-Limit"
	remainingName = "X-Ratelimit-Remaining"
	resetName     = "X-Ratelimit-Reset"
	usedName      = "X-Ratelimit-Used"
	resourceName  = "X-Ratelimit-Resource"
	burstName     = "X-Ratelimit-Burst"
	scopeName     = "X-Ratelimit-Scope"
)

// optional are those that not each answer has.
var optional = [...]string{resetName, usedName, resourceName, burstName, scopeName}

// An older is the text of the fields of the older dialects, in few objects.
type older struct {
	values []string
	text   []byte
}

// put writes one field in place of another middleware's.
func (o *older) put(h http.Header, key string, from int) {
	if len(o.values) == cap(o.values) {
		o.values = make([]string, 0, 12)
	}
	o.values = append(o.values, text(o.text[from:]))
	i := len(o.values) - 1
	h[key] = o.values[i : i+1 : i+1]
}

func (o *older) number(h http.Header, key string, n int64) {
	from := len(o.text)
	o.text = strconv.AppendInt(o.text, n, 10)
	o.put(h, key, from)
}

func (o *older) word(h http.Header, key, word string) {
	from := len(o.text)
	o.text = append(o.text, word...)
	o.put(h, key, from)
}

// announce writes the fields of all dialects, about ts.
func (s *shared) announce(f *fields, h http.Header, r *http.Request, ts []told, refused bool) {
	if !s.undrafted {
		f.set(h, ts, refused)
	}
	if len(s.dialects) > 0 && len(ts) > 0 {
		s.older(h, r, ts, refused && !ts[0].decision.Allowed)
	}
}

// older writes the fields of the older dialects.
func (s *shared) older(h http.Header, r *http.Request, ts []told, refused bool) {
	o := &older{values: make([]string, 0, 12), text: make([]byte, 0, 128)}
	for _, d := range s.dialects {
		if d == OpenAI {
			o.units(h, ts, refused)
			continue
		}
		for _, name := range optional {
			delete(h, name) // another middleware's
		}
		t := tightest(ts, refused, "")
		o.limit(h, d, t, ts)
		o.number(h, remainingName, t.decision.Remaining)
		if d != Envoy {
			o.number(h, usedName, max(0, t.decision.Limit-t.decision.Remaining))
			o.word(h, resourceName, t.name)
			if t.quota.limit.Algorithm == spillgate.Bucket {
				o.number(h, burstName, t.quota.limit.Cap())
			}
			if word := s.scope(r, t); word != "" {
				o.word(h, scopeName, word)
			}
		}
		reset, known := t.reset()
		switch {
		case !known:
		case d == GitHub:
			o.number(h, resetName, epoch(time.Now(), reset))
		default:
			o.number(h, resetName, seconds(reset))
		}
	}
}

// epoch returns the second since 1970 at which wait is over.
func epoch(now time.Time, wait time.Duration) int64 {
	at := now.Unix() + int64(wait/time.Second)
	if rest := time.Duration(now.Nanosecond()) + wait%time.Second; rest > 0 {
		at += int64((rest + time.Second - 1) / time.Second)
	}
	return at
}

// reset returns when t's whole quota is back, if that is known.
func (t *told) reset() (time.Duration, bool) {
	known := t.limit.Algorithm != spillgate.Concurrency && t.decision.ResetAfter != spillgate.Never
	return t.decision.ResetAfter, known
}

// limit writes X-RateLimit-Limit.
func (o *older) limit(h http.Header, d Dialect, t *told, ts []told) {
	if d != Envoy {
		o.number(h, limitName, t.quota.limit.Cap())
		return
	}
	from := len(o.text)
	o.text = appendInteger(o.text, t.quota.limit.Cap())
	for i := range ts {
		q := ts[i].quota
		o.text = appendWindow(appendInteger(append(o.text, ", "...), q.limit.Cap()), q.limit)
		o.text = q.appendName(append(o.text, ";name="...))
	}
	o.put(h, limitName, from)
}

// units writes the fields of each unit.
func (o *older) units(h http.Header, ts []told, refused bool) {
	for i := range ts {
		unit := ts[i].unit
		if ts[i].limit.Algorithm == spillgate.Concurrency || slices.ContainsFunc(ts[:i], func(t told) bool {
			return t.unit == unit && t.limit.Algorithm != spillgate.Concurrency
		}) {
			continue
		}
		t := tightest(ts[i:], refused && i == 0, unit)
		o.number(h, t.names[0], t.quota.limit.Cap())
		o.number(h, t.names[1], t.decision.Remaining)
		if reset, known := t.reset(); known {
			o.word(h, t.names[2], milliseconds(reset).String())
		} else {
			delete(h, t.names[2])
		}
	}
}

// milliseconds returns d rounded up to whole milliseconds.
func milliseconds(d time.Duration) time.Duration {
	if rest := d % time.Millisecond; rest > 0 && d < spillgate.Never-time.Millisecond {
		d += time.Millisecond - rest
	}
	return d
}

// tightest returns the rule to tell of: the first if it refuses, else the one
// with the least left, of a unit if one is named; slots only if there is
// nothing else.
func tightest(ts []told, refused bool, unit string) *told {
	if refused {
		return &ts[0]
	}
	best := &ts[0]
	for i := range ts {
		t := &ts[i]
		if unit != "" && t.unit != unit {
			continue
		}
		slots, bests := t.limit.Algorithm == spillgate.Concurrency, best.limit.Algorithm == spillgate.Concurrency
		if bests && !slots || bests == slots && t.decision.Remaining < best.decision.Remaining {
			best = t
		}
	}
	return best
}

// unitNames are the fields of a unit.
func unitNames(unit string) (names [3]string) {
	for i, what := range [...]string{"limit", "remaining", "reset"} {
		names[i] = http.CanonicalHeaderKey("x-ratelimit-" + what + "-" + unit)
	}
	return names
}

// scopeOf says by what a key tells this request's caller: by address, by what
// it brings, or, "", not at all.
func scopeOf(a *attributes, key []policy.Part) string {
	for i := range key {
		for _, attr := range key[i].Attributes {
			var room [64]byte
			if v, ok := a.AppendAttr(room[:0], attr); ok && len(v) > 0 {
				if word := scopeWord(attr.Kind); word != "" {
					return word
				}
				break
			}
		}
	}
	return ""
}

func scopeWord(k policy.Kind) string {
	switch k {
	case policy.ClientIP:
		return "ip"
	case policy.Method, policy.Path, policy.Host, policy.Route:
		return ""
	}
	return "token"
}

// scope says by what r's caller is told from others.
func (s *shared) scope(r *http.Request, t *told) string {
	var a attributes
	a.begin(s, r)
	if !t.bySource {
		return scopeOf(&a, t.key)
	}
	for i := range s.sources {
		if src := &s.sources[i]; src.get == nil || src.get(r) != "" {
			return scopeWord(src.attribute.Kind)
		}
	}
	return ""
}

// IsField reports whether name, as net/http spells the keys of its maps, is
// one of the fields that some dialect tells of limits in.
func IsField(name string) bool {
	return name == policyField || name == limitField || strings.HasPrefix(name, "X-Ratelimit-")
}

// PartitionKeys adds the parameter pk to the fields of [Draft]: a name for the
// caller under the rule, by which a client that has several identities tells
// their quotas apart. See [policy.Verdict.Partition]; those of [New] are new
// with each middleware.
func PartitionKeys() Option {
	return func(o *options) { o.partitions = true }
}

// setPartition takes the caller's name.
func (t *told) setPartition(name [8]byte) {
	t.pk = new([12]byte)
	base64.StdEncoding.Encode(t.pk[:], name[:])
}

// appendPartition appends the parameter pk, a Byte Sequence.
func (t *told) appendPartition(b []byte) []byte {
	if t.pk == nil {
		return b
	}
	return append(append(append(b, ";pk=:"...), t.pk[:]...), ':')
}
