package rate

import (
	"math"
	"math/bits"
)

// parts counts in 128 bits what a limiter counts in: a token is a whole number
// of parts, and a nanosecond earns a whole number of them (see pace).
type parts struct{ hi, lo uint64 }

// times returns a·b.
func times(a, b uint64) parts {
	hi, lo := bits.Mul64(a, b)
	return parts{hi, lo}
}

// plus returns p+q; what is counted here stays below 2^127.
func (p parts) plus(q parts) parts {
	lo, carry := bits.Add64(p.lo, q.lo, 0)
	hi, _ := bits.Add64(p.hi, q.hi, carry)
	return parts{hi, lo}
}

// minus returns p-q, or nothing where q is more.
func (p parts) minus(q parts) parts {
	lo, borrow := bits.Sub64(p.lo, q.lo, 0)
	hi, borrow := bits.Sub64(p.hi, q.hi, borrow)
	if borrow != 0 {
		return parts{}
	}
	return parts{hi, lo}
}

// above reports whether p > q.
func (p parts) above(q parts) bool {
	_, borrow := bits.Sub64(q.lo, p.lo, 0)
	_, borrow = bits.Sub64(q.hi, p.hi, borrow)
	return borrow != 0
}

// over returns p/d, rounded down, and the rest; ok is false where it is beyond
// 64 bits, as it always is for d = 0.
func (p parts) over(d uint64) (quotient, rest uint64, ok bool) {
	if p.hi >= d {
		return math.MaxUint64, 0, false
	}
	quotient, rest = bits.Div64(p.hi, p.lo, d)
	return quotient, rest, true
}

// convert returns p·to/from: rounded down, and whether anything was cut off.
// What does not fit is the most that does.
func (p parts) convert(to, from uint64) (q parts, cut bool) {
	h0, l0 := bits.Mul64(p.lo, to)
	h1, l1 := bits.Mul64(p.hi, to)
	mid, carry := bits.Add64(h0, l1, 0)
	top := h1 + carry // can't wrap: h1 is at most 2^64-2
	if top >= from {
		return most, false
	}
	hi, r := bits.Div64(top, mid, from)
	lo, r := bits.Div64(r, l0, from)
	return parts{hi, lo}, r != 0
}

// most bounds what a limiter counts: the sum of two still fits.
var most = parts{hi: math.MaxUint64 >> 1, lo: math.MaxUint64}

// units returns p in units of so many parts, as near as a float64 comes.
func (p parts) units(of uint64) float64 {
	whole, rest, ok := p.over(of)
	if !ok {
		return math.Ldexp(float64(p.hi), 64) / float64(of)
	}
	return float64(whole) + float64(rest)/float64(of)
}
