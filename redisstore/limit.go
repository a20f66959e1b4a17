package redisstore

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/spillgate/spillgate"
)

// A label is what a state in Redis begins with: the limit that wrote it, so
// that any process can settle it exactly when the limit is another one now,
// and, in one bit, whether an instant of the last charge stands behind it. The
// script compares labels and never reads one, but for the algorithm in the
// lower three bits of the first byte.
//
// First byte: algorithm, 8 if it fills when raised, 16 with the instant, 32 if
// a period of time follows as a varint rather than as one of the usual ones in
// two upper bits. Then rate, that period, and burst as varints; with a calendar,
// calendar and zone take the period's place.
const (
	labelFill  = 1 << 3
	labelStamp = 1 << 4
	labelOther = 1 << 5
)

var usualPeriods = [4]time.Duration{time.Second, time.Minute, time.Hour, 24 * time.Hour}

func appendLabel(dst []byte, l spillgate.Limit, stamp bool) []byte {
	at := len(dst)
	dst = append(dst, byte(l.Algorithm))
	if l.OnRaise == spillgate.Fill {
		dst[at] |= labelFill
	}
	if stamp {
		dst[at] |= labelStamp
	}
	dst = binary.AppendUvarint(dst, uint64(l.Rate))
	usual := -1
	for i, p := range usualPeriods {
		if p == l.Period {
			usual = i
		}
	}
	switch {
	case l.Calendar != spillgate.NoCalendar:
		dst[at] |= labelOther | 1<<6
		dst = append(dst, byte(l.Calendar), byte(len(l.Zone)))
		dst = append(dst, l.Zone...)
	case usual >= 0:
		dst[at] |= byte(usual) << 6
	default:
		dst[at] |= labelOther
		dst = binary.AppendUvarint(dst, uint64(l.Period))
	}
	return binary.AppendUvarint(dst, uint64(l.Burst))
}

// readLabel returns the limit that a state was written by, whether an instant
// stands behind it, and the rest.
func readLabel(b []byte) (l spillgate.Limit, stamp bool, rest []byte, err error) {
	bad := func() (spillgate.Limit, bool, []byte, error) {
		return spillgate.Limit{}, false, nil, fmt.Errorf("not a state: %q", b)
	}
	if len(b) == 0 {
		return bad()
	}
	first := b[0]
	l.Algorithm = spillgate.Algorithm(first & 7)
	if first&labelFill != 0 {
		l.OnRaise = spillgate.Fill
	}
	rest = b[1:]
	number := func() (int64, bool) {
		n, size := binary.Uvarint(rest)
		if size <= 0 || n > 1<<63-1 {
			return 0, false
		}
		rest = rest[size:]
		return int64(n), true
	}
	rate, ok := number()
	if !ok {
		return bad()
	}
	l.Rate = rate
	switch {
	case first&labelOther == 0:
		l.Period = usualPeriods[first>>6]
	case first>>6 == 0:
		p, ok := number()
		if !ok {
			return bad()
		}
		l.Period = time.Duration(p)
	default:
		if len(rest) < 2 || len(rest) < 2+int(rest[1]) {
			return bad()
		}
		l.Calendar, l.Zone = spillgate.Calendar(rest[0]), string(rest[2:2+int(rest[1])])
		rest = rest[2+int(rest[1]):]
	}
	if l.Burst, ok = number(); !ok {
		return bad()
	}
	return l, first&labelStamp != 0, rest, nil
}
