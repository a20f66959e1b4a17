package redisstore

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/spillgate/spillgate"
)

// A stored state is a label and what the algorithm counts, in whole numbers,
// the highest byte first. Instants are five bytes of seconds since 1970, more
// by 2^39, and four of nanoseconds.
const bias = 1 << 39

func appendInstant(dst []byte, at spillgate.Instant) []byte {
	s, n := split(int64(at))
	return binary.BigEndian.AppendUint32(appendUint(dst, uint64(s+bias), 5), uint32(n))
}

// split returns the whole seconds of ns nanoseconds, rounded down, and the rest.
func split(ns int64) (s, n int64) {
	s, n = ns/1e9, ns%1e9
	if n < 0 {
		s, n = s-1, n+1e9
	}
	return s, n
}

// join is the way back, saturated.
func join(s, n int64) spillgate.Instant {
	switch {
	case s >= math.MaxInt64/1_000_000_000:
		return math.MaxInt64
	case s <= math.MinInt64/1_000_000_000:
		return math.MinInt64
	}
	return spillgate.Instant(s*1e9 + n)
}

// later returns at and d, which is not negative, saturated.
func later(at int64, d time.Duration) int64 {
	if at > math.MaxInt64-int64(d) {
		return math.MaxInt64
	}
	return at + int64(d)
}

func appendUint(dst []byte, n uint64, size int) []byte {
	for i := size - 1; i >= 0; i-- {
		dst = append(dst, byte(n>>(8*i)))
	}
	return dst
}

// fields reads numbers of a stored state.
type fields struct {
	rest  []byte
	short bool // or not what can be
}

func (f *fields) uint(size int) (n uint64) {
	if len(f.rest) < size {
		f.short = true
		return 0
	}
	for _, b := range f.rest[:size] {
		n = n<<8 | uint64(b)
	}
	f.rest = f.rest[size:]
	return n
}

func (f *fields) instant() spillgate.Instant {
	s, n := int64(f.uint(5))-bias, int64(f.uint(4))
	f.short = f.short || !fits(s, n)
	return join(s, n)
}

// fits reports whether s and n can be seconds and nanoseconds of an instant. No
// text passes for one.
func fits(s, n int64) bool {
	const most = math.MaxInt64/1_000_000_000 + 1
	return -most <= s && s <= most && n < 1e9
}

// unstamped is the stamp of a state that has none.
const unstamped = math.MinInt64

// readState returns the state that raw stands for and when it was last
// charged. m is the meter at hand, for the sake of states that it wrote.
func readState(raw string, m *spillgate.Meter) (s spillgate.State, stamp int64, err error) {
	l, stamped, rest, err := readLabel([]byte(raw))
	if err != nil {
		return s, unstamped, err
	}
	if of := m; l != of.Limit() {
		if m, err = l.Meter(); err != nil {
			return s, unstamped, fmt.Errorf("written by a limit that can't be: %w", err)
		}
		if l.Algorithm != of.Limit().Algorithm {
			return s, unstamped, fmt.Errorf("not a state of %s: %q", of.Limit(), raw)
		}
	}
	f := fields{rest: rest}
	switch kindOf(m) {
	case kindBucket:
		full, nanos := int64(f.uint(5))-bias, f.uint(4)
		late := nanos>>30<<40 | f.uint(5)
		nanos &= 1<<30 - 1
		f.short = f.short || !fits(full, int64(nanos))
		s = m.State(int64(join(full, int64(nanos))), late)
	case kindSpent:
		s = m.State(math.MaxInt64, f.uint(6))
	case kindFixed:
		end := f.instant()
		s = m.State(int64(end), f.uint(6))
	case kindSliding:
		start := f.instant()
		counts := f.uint(4)<<32 | f.uint(4)
		number := int64(start) / int64(l.Period)
		if int64(start) < 0 && int64(start)%int64(l.Period) != 0 {
			number--
		}
		s = m.State(int64(counts), uint64(number))
	default: // a log or slots begin with a head, and the others keep nothing
		return s, unstamped, fmt.Errorf("not a state of %s: %q", l, raw)
	}
	stamp = unstamped
	if stamped {
		stamp = int64(f.instant())
	}
	if f.short || len(f.rest) > 0 {
		return spillgate.State{}, unstamped, fmt.Errorf("not a state of %s: %q", l, raw)
	}
	return s, stamp, nil
}

// appendState is the way back; until is when the state is new again.
func appendState(dst []byte, s spillgate.State, m *spillgate.Meter, now spillgate.Instant, ttl int64) (_ []byte, until spillgate.Instant) {
	dst = appendLabel(dst, m.Limit(), ttl > 0)
	until = spillgate.Instant(s.A)
	switch kindOf(m) {
	case kindBucket:
		full, n := split(s.A)
		dst = appendUint(dst, uint64(full+bias), 5)
		dst = binary.BigEndian.AppendUint32(dst, uint32(n)|uint32(s.Part()>>40)<<30)
		dst = appendUint(dst, s.Part()&(1<<40-1), 5)
	case kindSpent:
		dst = appendUint(dst, s.Part(), 6)
	case kindFixed:
		dst = appendInstant(dst, spillgate.Instant(s.A))
		dst = appendUint(dst, s.Part(), 6)
	case kindSliding:
		period := spillgate.Instant(m.Limit().Period)
		start, _ := m.Window(now)
		passed := (int64(start/period) - int64(s.Part())) << 22 >> 22 // modulo 2^42
		start -= spillgate.Instant(passed) * period
		dst = appendInstant(dst, start)
		dst = binary.BigEndian.AppendUint64(dst, uint64(s.A))
		if until = start + period; uint64(s.A)>>32 > 0 {
			until += period
		}
	}
	if ttl > 0 {
		dst = appendInstant(dst, now)
		if at := spillgate.Instant(later(int64(now), time.Duration(ttl))); at < until {
			until = at
		}
	}
	return dst, until
}
