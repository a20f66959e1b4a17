package rate

import (
	"math"
	"time"
)

// An instant is a point in time: nanoseconds since the program began.
type instant int64

// base is instant 0. Its monotonic reading makes [time.Since] read one clock
// where [time.Now] reads two.
var base = time.Now()

func clock() instant { return instant(time.Since(base)) }

// instantOf returns t as an instant. There is room for 146 years before the
// program began and 292 after; and, for clocks of tests, which often begin
// with the zero [time.Time], for 146 years from that.
func instantOf(t time.Time) instant {
	const early = math.MinInt64 / 2
	d := t.Sub(base)
	if d >= early {
		return instant(d)
	}
	return math.MinInt64 + instant(max(0, min(t.Sub(time.Time{}), -early-1)))
}

// later returns the instant d after i, or the last one there is.
func later(i instant, d time.Duration) instant {
	if sum := i + instant(d); sum >= i {
		return sum
	}
	return math.MaxInt64
}

// earlier returns the instant d before i, or the first one there is.
func earlier(i instant, d time.Duration) instant {
	if difference := i - instant(d); difference <= i {
		return difference
	}
	return math.MinInt64
}
