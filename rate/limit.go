package rate

import (
	"math"
	"math/bits"
	"time"
)

// A Limit is a rate in events per second. A Limit of 0, or below, earns
// nothing: what a burst holds can be spent once.
//
// A float64 can't hold most rates that people mean, such as one in three
// seconds. A [Limiter] carries out the rate that was meant, as an exact
// fraction, wherever it can be told; see the package comment.
type Limit float64

// Inf is the rate without a limit: everything passes, whatever the burst.
const Inf = Limit(math.MaxFloat64)

// Every returns the rate of one event an interval; [Inf] if that is not above
// 0.
func Every(interval time.Duration) Limit {
	if interval > 0 {
		return Limit(1 / interval.Seconds())
	}
	return Inf
}

// A pace is a rate as whole numbers: a token is worth token parts, and each
// nanosecond earns gain of them. Both are at most 2^62; a gain of 0 earns
// nothing.
type pace struct{ token, gain uint64 }

const (
	paceBits  = 62
	fastest   = 1 << paceBits // events per second
	slowest   = 1 << paceBits // nanoseconds between events
	tolerance = 1.0 / (1 << 51)
)

// paceOf returns the pace of r; ok is false where nothing is earned, which
// goes for what is no number and for less than one event in 146 years, too.
//
// Three readings are tried; each is within one part in 2^50 of r.
//
//   - The simplest fraction that r may stand for. Fractions of denominators up
//     to 2^20 and intervals of whole nanoseconds are so far apart, one part in
//     10^9·2^20 or more, that neither is taken for the other.
//   - An interval of whole nanoseconds, as [Every] takes it.
//   - What r says to the last bit.
func paceOf(r Limit) (p pace, ok bool) {
	if !(r > 0) {
		return pace{}, false
	}
	if r >= fastest {
		return reduced(uint64(time.Second), fastest), true
	}
	interval := float64(time.Second) / float64(r) // ns
	if interval >= slowest {
		return pace{}, false
	}
	// Beyond 13 days several intervals of whole nanoseconds are one float64:
	// the plainest is meant.
	simple := uint64(1) << 20
	if interval > 1<<50 {
		simple = 1 << 32
	}
	if events, seconds, ok := fraction(float64(r), simple); ok {
		return reduced(seconds*uint64(time.Second), events), true
	}
	if whole := math.Round(interval); Every(time.Duration(whole)) == r {
		return reduced(uint64(whole), 1), true
	}
	_, exponent := math.Frexp(interval)
	shift := min(paceBits-exponent, paceBits-1)
	return reduced(uint64(math.Ldexp(interval, shift)), 1<<shift), true
}

// reduced returns the pace of one token in token/gain nanoseconds, in parts as
// fine as there is room for: finer ones than the rate needs let a change of
// rate lose next to nothing.
func reduced(token, gain uint64) pace {
	a, b := token, gain
	for b != 0 {
		a, b = b, a%b
	}
	token, gain = token/a, gain/a
	room := bits.LeadingZeros64(token|gain) - (64 - paceBits)
	if room > 0 {
		token, gain = token<<room, gain<<room
	}
	return pace{token, gain}
}

// fraction returns the first convergent p/q of x's continued fraction that is
// within tolerance of x, if its q is at most limit.
func fraction(x float64, limit uint64) (p, q uint64, ok bool) {
	p0, q0 := uint64(0), uint64(1)
	p, q = 1, 0
	for rest := x; ; {
		whole := math.Floor(rest)
		if whole >= fastest {
			return 0, 0, false
		}
		n := uint64(whole)
		if q != 0 && n > limit/q {
			return 0, 0, false
		}
		p, p0 = n*p+p0, p
		q, q0 = n*q+q0, q
		if q > limit {
			return 0, 0, false
		}
		if math.Abs(float64(p)/float64(q)-x) <= x*tolerance {
			return p, q, true
		}
		if rest -= whole; rest <= 0 {
			return 0, 0, false
		}
		rest = 1 / rest
	}
}
