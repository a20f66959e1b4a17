package client

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spillgate/spillgate"
)

// Told is what an answer says of limits.
type Told struct {
	// RetryAfter is the wait that Retry-After asks for: 0 or more, or [Untold]
	// where there is none that can be read. [spillgate.Never] stands for any
	// number of seconds beyond what a Duration holds.
	RetryAfter time.Duration
	// Quotas are the limits that were told of, at most 32.
	Quotas []Quota
}

// A Quota is what an answer says of one limit. Numbers that it does not say,
// or that can't be read, are -1.
type Quota struct {
	Name      string // "" where the server names none
	Unit      string // what is counted: "requests" unless something else is said
	Limit     int64
	Remaining int64
	Window    time.Duration // in which Limit is counted
	Reset     time.Duration // until something is there again
}

// maxQuotas and maxField bound what is read of an answer: a server that says
// more is not read further.
const (
	maxQuotas = 32
	maxField  = 8 << 10 // bytes of one field
)

// Wait returns how long to wait before asking again, [Untold] if that was not
// said: Retry-After, or else the longest reset of the quotas of which nothing
// remains.
func (t Told) Wait() time.Duration {
	if t.RetryAfter >= 0 {
		return t.RetryAfter
	}
	return t.exhausted()
}

// exhausted returns the longest reset of the quotas of which nothing remains.
func (t Told) exhausted() time.Duration {
	wait := Untold
	for _, q := range t.Quotas {
		if q.Remaining != 0 {
			continue
		}
		if q.Reset >= 0 {
			wait = max(wait, q.Reset)
		} else {
			wait = max(wait, q.Window)
		}
	}
	return wait
}

// Read reads what the header of an answer says of limits, at the time now:
//
//   - Retry-After (RFC 9110, 10.2.3) as seconds, also with a fraction, or as a
//     date, also one that ends in "UTC", the longest of several, which may stand in one
//     line with commas between; before it Retry-After-Ms, as OpenAI's and Azure's
//     services send it.
//   - RateLimit and RateLimit-Policy (draft-ietf-httpapi-ratelimit-headers-11), or
//     RateLimit as in draft 07 (limit=100, remaining=0, reset=60), also beside it
//     on a line of its own.
//   - Where there are none of those, X-RateLimit-Limit, -Remaining and -Reset,
//     also written X-Rate-Limit and, as in older drafts, RateLimit-Limit, and each also for
//     -Requests and -Tokens, as OpenAI's. A reset is in seconds; or, if it is
//     more than a year, the Unix time in seconds or milliseconds (GitHub); or a
//     duration such as 6m0s (OpenAI); or a time of RFC 3339.
//
// Dates are compared with the answer's own Date, if it has one, and not with
// this machine's clock. What can't be read counts as not said: text, negative
// numbers, NaN. Read believes whatever it can read: how long a wait may be is
// for [Patience] to say.
func Read(h http.Header, now time.Time) Told {
	if date, err := httpDate(h.Get("Date")); err == nil {
		now = date
	}
	t := Told{RetryAfter: retryAfter(h, now), Quotas: draft(h)}
	if t.Quotas == nil {
		t.Quotas = legacy(h, now)
	}
	return t
}

func retryAfter(h http.Header, now time.Time) time.Duration {
	if ms := longest(h["Retry-After-Ms"], seconds); ms >= 0 {
		if ms == spillgate.Never {
			return ms
		}
		return (ms + 999) / 1000
	}
	return longest(h["Retry-After"], func(text string) (time.Duration, bool) {
		if d, ok := seconds(text); ok {
			return d, true
		}
		at, err := httpDate(text)
		return max(0, at.Sub(now)), err == nil // saturates
	})
}

// longest returns the longest wait in the lines of a field: where two refuse, it is
// enough for both. A proxy may have made one line of several, with commas, and in a
// date stands one, too.
func longest(lines []string, read func(string) (time.Duration, bool)) time.Duration {
	wait := Untold
	for _, line := range lines {
		if len(line) > maxField {
			continue
		}
		day := "" // the item before, which a date may begin with
		for item := range strings.SplitSeq(line, ",") {
			d, ok := read(item)
			if !ok {
				d, ok = read(day + "," + item)
			}
			if day = item; ok {
				wait = max(wait, d)
			}
		}
	}
	return wait
}

// httpDate reads a date in the forms of RFC 9110, 5.6.7, and in that of those
// who write their dates with Go's time.RFC1123.
func httpDate(text string) (time.Time, error) {
	text = strings.TrimSpace(text)
	if utc, ok := strings.CutSuffix(text, " UTC"); ok {
		text = utc + " GMT"
	}
	return http.ParseTime(text)
}

// seconds reads a decimal number of seconds, not negative. More than a
// Duration holds is [spillgate.Never].
func seconds(text string) (time.Duration, bool) {
	text = strings.Trim(text, " \t")
	whole, fraction, dotted := strings.Cut(text, ".")
	if len(text) > maxField || !digits(whole) || dotted && !digits(fraction) {
		return 0, false
	}
	n, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || n >= int64(spillgate.Never/time.Second) {
		return spillgate.Never, true
	}
	d := time.Duration(n) * time.Second
	if dotted {
		fraction = strings.TrimRight(fraction, "0")
		if len(fraction) > 9 {
			fraction = fraction[:9]
			d++ // a wait is rounded up
		}
		ns, _ := strconv.ParseInt((fraction + "000000000")[:9], 10, 64) // nine digits
		d += time.Duration(ns)
	}
	return d, true
}

func digits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

// legacyNames are the beginnings of the fields that each service names for
// itself, and legacyEnds their ends, with what is counted. All are spelt as
// net/http spells the keys of its maps.
var (
	legacyNames = []string{"X-Ratelimit", "X-Rate-Limit", "Ratelimit"}
	legacyEnds  = []struct{ end, unit string }{{"", "requests"}, {"-Requests", "requests"}, {"-Tokens", "tokens"}}
)

// legacy reads the fields that came before there was a draft.
func legacy(h http.Header, now time.Time) (quotas []Quota) {
	for _, name := range legacyNames {
		for _, e := range legacyEnds {
			remaining, ok := first(h, name+"-Remaining"+e.end)
			if !ok {
				continue
			}
			q := Quota{Unit: e.unit, Limit: -1, Remaining: remaining, Window: -1, Reset: reset(h.Get(name+"-Reset"+e.end), now)}
			if limit, ok := first(h, name+"-Limit"+e.end); ok {
				q.Limit = limit
			}
			quotas = append(quotas, q)
		}
	}
	return quotas
}

// first reads the number that a field begins with: Envoy's, for one, goes on
// after it, "3, 3;w=60".
func first(h http.Header, name string) (int64, bool) {
	text, _, _ := strings.Cut(h.Get(name), ",")
	text = strings.Trim(text, " \t")
	if !digits(text) {
		return 0, false
	}
	n, _ := strconv.ParseInt(text, 10, 64) // saturates
	return n, true
}

// year tells the seconds of a wait from those since 1970.
const year = 366 * 24 * time.Hour

// reset reads when something is there again.
func reset(text string, now time.Time) time.Duration {
	d, ok := seconds(text)
	switch {
	case ok && d <= year:
		return d
	case ok && d < spillgate.Never:
		return max(0, time.Unix(0, int64(d)).Sub(now))
	case ok: // more seconds than there were since 1970
		ms, err := strconv.ParseInt(strings.Trim(text, " \t"), 10, 64)
		if err != nil {
			return spillgate.Never
		}
		return max(0, time.UnixMilli(ms).Sub(now))
	case len(text) > 64:
		return -1
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return max(0, at.Sub(now))
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return d
	}
	return -1
}
