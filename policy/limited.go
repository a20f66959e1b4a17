package policy

import (
	"math"
	"strconv"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/internal/topk"
)

// DefaultTracked and MaxTracked are how many callers a rule lists; see
// [Track].
const (
	DefaultTracked = 1000
	MaxTracked     = topk.MaxKeys
)

// Track says how many callers each rule lists for [Engine.Limited]: up to
// [MaxTracked], [DefaultTracked] without this option, and none at 0 or below.
// A rule's list grows with the callers that are limited, to 368 bytes each, of
// which 256 are text, and 96 for finding them: 408 KiB for 1,000 callers, 42
// MiB for 100,000. A rule that limits nobody takes next to nothing.
func Track(k int) EngineOption {
	return func(o *engineOptions) { o.track = min(max(k, 0), MaxTracked) }
}

// A Caller is one key that a rule limits.
type Caller struct {
	// Key is the key in the words of the policy, for people:
	// "client.ip=203.0.113.9", "client.ip=2001:db8::/64 host=a.example". A
	// part that the request lacked is "-", a value that could be misread is
	// quoted as in Go with all that does not print escaped, a secret is its
	// fingerprint ("cookie.session=hmac:0f3a91c2d8e4b576"), and a rule
	// without a key has the one caller "*". It has at most 256 bytes; a longer
	// one is cut and ends in "…". Two callers may be cut to the same text.
	Key string
	// Denied counts requests that the rule refused, Near those that were
	// admitted and left less than a tenth of the limit; where the limit is 1
	// every admission would, so none is counted. Both count from First on.
	Denied, Near uint64
	// Error is how many requests of both kinds may have come before First and
	// been forgotten: the truth is Denied+Near or up to Error more. It is 0
	// until more callers were limited than are listed.
	Error uint64
	// First and Last are when the caller entered the list and when it was
	// last denied or near: the time given with [At], otherwise this machine's.
	First, Last time.Time
	// FreeAt is when a request like the last one passes if nobody else uses
	// the limit: Last itself if it was admitted, and not before the end of a
	// block of the caller that [Engine.Blocked] lists. The zero Time means
	// that waiting does not help.
	FreeAt time.Time
	// Trial reports that the rule spares this caller: Denied counts what it
	// would have refused.
	Trial bool
}

// Limited returns the n callers that the rule of that name denied most, most
// first, then those that were near most: nil if there is no such rule, nobody
// was limited, or n is below 1. Counts begin with the engine.
//
// Of N requests that a rule denied or that came near, a caller with more than
// N/k of them is in its list of k (see [Track]), however many other callers there
// were: a flood of callers that come once each pushes out only callers with less.
func (e *Engine) Limited(rule string, n int) []Caller {
	for i := range e.lists {
		if e.policy.rules[i].Name != rule {
			continue
		}
		var out []Caller
		for _, r := range e.lists[i].Top(n) {
			c := Caller{
				Key: r.Text, Denied: r.Denied, Near: r.Near, Error: r.Error, Trial: r.Trial,
				First: time.Unix(0, r.First), Last: time.Unix(0, r.Last),
			}
			if r.Free != math.MaxInt64 {
				c.FreeAt = time.Unix(0, r.Free)
				if until := e.blockedUntil(i, spillgate.Key(r.Key)); until.After(c.FreeAt) {
					c.FreeAt = until // of a block that began with the last request, or since
				}
			}
			out = append(out, c)
		}
		return out
	}
	return nil
}

// notable reports whether a decision may concern the list of who is limited.
// It is all that an ordinary admission pays for that list.
func notable(d *spillgate.Decision) bool {
	return !d.Allowed || d.Remaining <= (d.Limit-1)/10 // 10 times Remaining < Limit, without overflow
}

// note tells the list of the i-th rule of a notable decision on key, which r
// is the request of. The text of the key is made only if the key is about to
// enter the list, over the encoding of the key at hand.
func (e *Engine) note(v *Verdict, r *request, i int, key spillgate.Key, d *spillgate.Decision, trial bool) {
	if e.lists == nil || d.Allowed && (d.Taken == 0 || d.Limit == 1) {
		return
	}
	at := v.at
	if at.IsZero() {
		at = time.Now()
	}
	ev := topk.Event{Denied: !d.Allowed, Trial: trial, At: nanoseconds(at), Free: math.MaxInt64}
	if d.RetryAfter != spillgate.Never && ev.At <= math.MaxInt64-int64(d.RetryAfter) {
		ev.Free = ev.At + int64(d.RetryAfter)
	}
	l := e.lists[i]
	if !l.Count(topk.Key(key), ev) {
		r.key = r.appendText(r.key[:0], e.policy.rules[i].Key, &e.prints)
		l.Enter(topk.Key(key), ev, r.key)
	}
}

// nanoseconds is UnixNano, saturated.
func nanoseconds(t time.Time) int64 {
	const last = math.MaxInt64/int64(time.Second) - 1
	switch s := t.Unix(); {
	case s > last:
		return math.MaxInt64
	case s < -last:
		return math.MinInt64
	}
	return t.UnixNano()
}

// appendText appends the key for people. It stops once that is longer than
// what is kept.
func (r *request) appendText(dst []byte, key []Part, prints *fingerprints) []byte {
	if len(key) == 0 {
		return append(dst, '*')
	}
	for i := range key {
		if i > 0 {
			dst = append(dst, ' ')
		}
		if len(dst) > topk.MaxText {
			break
		}
		p := &key[i]
		a, v, addr := r.pick(p)
		if a == nil {
			dst = append(appendName(dst, &p.Attributes[0]), "=-"...)
			continue
		}
		dst = append(appendName(dst, a), '=')
		switch {
		case p.Hides(*a):
			if addr.Is6() {
				addr = group(addr, p.Prefix).Addr()
			}
			if addr.IsValid() {
				v = addr.AppendTo(r.buf[:0])
			}
			dst = prints.appendFingerprint(dst, a, v)
		case !addr.IsValid():
			dst = appendValue(dst, v)
		case addr.Is4():
			dst = addr.AppendTo(dst)
		default:
			dst = group(addr, p.Prefix).AppendTo(dst)
		}
	}
	return dst
}

func appendName(dst []byte, a *Attribute) []byte {
	dst = append(dst, kindNames[a.Kind]...)
	if a.Kind.named() {
		dst = appendValue(dst, []byte(a.Name))
	}
	return dst
}

// appendValue appends a value, quoted unless it is plain. Through here goes
// every value that a request brings and a list keeps.
func appendValue(dst, v []byte) []byte {
	v = v[:min(len(v), topk.MaxText+utf8.UTFMax)] // what is longer is cut all the same
	if plain(v) {
		return append(dst, v...)
	}
	return strconv.AppendQuote(dst, string(v))
}

// plain reports whether v can stand without quotes: it prints, has no blank
// that would end it, and is not taken for another.
func plain(v []byte) bool {
	if len(v) == 0 || string(v) == "-" {
		return false
	}
	for i := 0; i < len(v); {
		c, n := rune(v[i]), 1
		if c >= utf8.RuneSelf {
			c, n = utf8.DecodeRune(v[i:])
		}
		if c <= ' ' || c == '"' || c == '\\' || c == utf8.RuneError && n == 1 || !unicode.IsPrint(c) {
			return false
		}
		i += n
	}
	return true
}
