package spillgate

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strings"
	"time"
	"unsafe"
)

// ErrLimit is wrapped by every error about a limit whose numbers can't be
// carried out. The text names the field, its value and the range.
var ErrLimit = errors.New("impossible limit")

// An Algorithm says how a [Limit] counts. The zero value is [Bucket].
type Algorithm uint8

const (
	// Bucket admits Burst units at once and earns Rate units a Period,
	// evenly. Token bucket, GCRA (ITU-T I.371) and the leaky bucket as a
	// meter are this one algorithm under three names.
	Bucket Algorithm = iota
	// Queue is the leaky bucket as a queue: it shapes. Units leave evenly,
	// one each Period/Rate, and at most Burst of them wait. An admitted
	// request carries the Delay it has to wait before it goes on.
	Queue
	// FixedWindow admits Rate units in each window of one Period, aligned to
	// the Unix epoch, or, with a Calendar, in each calendar period of a Zone.
	FixedWindow
	// SlidingCounter estimates a moving window from two fixed ones: the
	// previous window fades in a straight line. Rate is below 2^32, Period at
	// least 1 ms.
	SlidingCounter
	// SlidingLog remembers every admission for one Period: exact in every
	// interval, at the price of memory. Rate is at most 65,536.
	SlidingLog
	// Concurrency bounds how many are inside at the same time. Rate is the
	// number of slots, Period the longest a slot is held before it is taken
	// back from a holder that was lost.
	Concurrency
	// Unlimited admits everything and counts nothing.
	Unlimited

	algorithms // how many there are
)

var algorithmNames = [algorithms]string{"bucket", "queue", "fixed window", "sliding counter", "sliding log", "concurrency", "unlimited"}

// String returns the algorithm's name in words.
func (a Algorithm) String() string {
	if a < algorithms {
		return algorithmNames[a]
	}
	return fmt.Sprintf("algorithm(%d)", uint8(a))
}

// OnRaise says what a caller gets in the moment its burst is raised.
type OnRaise uint8

const (
	// Keep leaves what was earned as it is; the rest is earned at the new
	// rate. It is the default.
	Keep OnRaise = iota
	// Fill makes the bucket full at once, as a plan upgrade wants it.
	Fill
)

// A Calendar is a calendar period, counted in a time zone. The zero value
// means none: periods are lengths of time.
type Calendar uint8

// The calendar periods. A Week begins on Monday (ISO 8601).
const (
	NoCalendar Calendar = iota
	Minute
	Hour
	Day
	Week
	Month

	calendars
)

var calendarNames = [calendars]string{"", "minute", "hour", "day", "week", "month"}

// String returns the calendar period's name, "" for [NoCalendar].
func (c Calendar) String() string {
	if c < calendars {
		return calendarNames[c]
	}
	return fmt.Sprintf("calendar(%d)", uint8(c))
}

// A Limit is a rate over a period, with a burst: "10/s burst 20". It is a
// plain value, comparable with ==. The zero Limit is an error, never "no
// limit": that is [Unlimited], by name.
//
// A Limit is checked when it is made ready with [Limit.Meter].
type Limit struct {
	Algorithm Algorithm
	// Rate is how many units are earned in one Period: 0 to 2^42-1. Zero
	// means nothing is ever earned: what the burst holds can be spent once.
	// The rate in lowest terms, and per second, stays below 2^42.
	Rate int64
	// Period is 1 ns to 366 days.
	Period time.Duration
	// Burst is the most that fits at once, of [Bucket]; how many may wait, of
	// [Queue]; unused (0) by the others. Zero admits nothing but checks.
	// The time to earn a whole burst is at most 100 years.
	Burst int64
	// Calendar replaces Period for [FixedWindow]: windows are calendar
	// periods of Zone.
	Calendar Calendar
	// Zone is an IANA time zone such as "Europe/Berlin"; "" is UTC. Only
	// with a Calendar.
	Zone string
	// OnRaise says whether a raised burst fills at once. Only for [Bucket].
	OnRaise OnRaise
}

const (
	maxRate    = 1<<42 - 1
	maxPeriod  = 366 * 24 * time.Hour
	maxHorizon = 100 * 365.25 * 24 * time.Hour // time to earn a whole burst
	maxLog     = 65536
)

// Validate reports whether l can be carried out. The error wraps [ErrLimit]
// and names the field, its value and what is possible.
func (l Limit) Validate() error {
	bad := func(field string, value any, want string) error {
		return fmt.Errorf("spillgate: %w: %s %v: %s", ErrLimit, field, value, want)
	}
	if l.Algorithm >= algorithms {
		return bad("algorithm", uint8(l.Algorithm), "unknown; use one of the package's constants")
	}
	if l.Algorithm == Unlimited {
		if l != (Limit{Algorithm: Unlimited}) {
			return bad("limit", l, "unlimited takes no rate, period or burst")
		}
		return nil
	}
	if l.Calendar >= calendars {
		return bad("calendar", uint8(l.Calendar), "unknown; use one of the package's constants")
	}
	if l.Calendar != NoCalendar {
		if l.Algorithm != FixedWindow {
			return bad("calendar", l.Calendar, "only a fixed window counts by the calendar")
		}
		if l.Period != 0 {
			return bad("period", l.Period, "a calendar window has no period of its own; leave it 0")
		}
		if l.Zone == "Local" {
			return bad("zone", l.Zone, "is another one on every machine; use an IANA name such as Europe/Berlin")
		}
		if _, err := time.LoadLocation(l.Zone); err != nil {
			return fmt.Errorf("spillgate: %w: zone %q: unknown; use an IANA name such as Europe/Berlin: %w", ErrLimit, l.Zone, err)
		}
	} else {
		if l.Zone != "" {
			return bad("zone", l.Zone, "only a calendar window has a zone")
		}
		if l.Period < 1 || l.Period > maxPeriod {
			return bad("period", l.Period, "must be from 1ns to 366 days")
		}
	}
	if l.Rate < 0 || l.Rate > maxRate {
		return bad("rate", l.Rate, "must be from 0 to 2^42-1 units a period")
	}
	if l.OnRaise > Fill || (l.OnRaise != Keep && l.Algorithm != Bucket) {
		return bad("on raise", uint8(l.OnRaise), "must be keep or fill, and only a bucket has it")
	}
	if l.Burst < 0 {
		return bad("burst", l.Burst, "must not be negative")
	}
	switch l.Algorithm {
	case Bucket, Queue:
		return l.validateFlow(bad)
	default:
		if l.Burst != 0 {
			return bad("burst", l.Burst, "a "+l.Algorithm.String()+" has no burst; leave it out")
		}
	}
	switch l.Algorithm {
	case SlidingCounter:
		if l.Rate >= 1<<32 {
			return bad("rate", l.Rate, "a sliding counter carries limits below 2^32")
		}
		if l.Period < time.Millisecond {
			return bad("period", l.Period, "a sliding counter's period is at least 1ms")
		}
	case SlidingLog:
		if l.Rate > maxLog {
			return bad("rate", l.Rate, "a sliding log remembers at most 65536 admissions; use a sliding counter")
		}
	case Concurrency:
		if l.Rate > 1<<20 {
			return bad("rate", l.Rate, "at most 1048576 slots")
		}
	}
	return nil
}

// validateFlow checks what buckets and queues carry: the state has room for
// remainders below 2^42, and for a century of backlog.
func (l Limit) validateFlow(bad func(string, any, string) error) error {
	if l.Algorithm == Queue && l.Rate == 0 {
		return bad("rate", 0, "a queue that never moves holds requests for ever; use a rate above 0")
	}
	if l.Rate == 0 {
		if l.Burst > maxRate {
			return bad("burst", l.Burst, "must be below 2^42 when the rate is 0")
		}
		return nil
	}
	if per, rest := bits.Mul64(uint64(l.Rate), uint64(time.Second)); per >= uint64(l.Period) {
		return bad("rate", l.Rate, "more than 2^42 units a second")
	} else if q, _ := bits.Div64(per, rest, uint64(l.Period)); q > 1<<42 {
		return bad("rate", fmt.Sprintf("%d/%s", l.Rate, l.Period), "more than 2^42 units a second")
	}
	hi, lo := bits.Mul64(uint64(l.Burst), uint64(l.Period))
	if hi >= uint64(l.Rate) {
		return bad("burst", l.Burst, "would take over 100 years to earn; lower the burst or raise the rate")
	}
	if q, _ := bits.Div64(hi, lo, uint64(l.Rate)); q > uint64(maxHorizon) {
		return bad("burst", l.Burst, "would take over 100 years to earn; lower the burst or raise the rate")
	}
	return nil
}

// Cap returns the most units that one request can ever be granted: the burst
// of a bucket, the places of a queue plus the one that goes at once, the rate
// of a window, the slots of a concurrency limit.
func (l Limit) Cap() int64 {
	switch l.Algorithm {
	case Bucket:
		return l.Burst
	case Queue:
		if l.Burst == math.MaxInt64 {
			return l.Burst
		}
		return l.Burst + 1
	case Unlimited:
		return math.MaxInt64
	default:
		return l.Rate
	}
}

// KeyBytes returns the most memory that the state of one key takes in
// [Memory], beyond its place in the table: 0 for all but [SlidingLog] and
// [Concurrency], whose states grow with what is in view or inside, up to
// Rate. A space's keys take at most MaxKeys times as much.
func (l Limit) KeyBytes() int64 {
	switch l.Algorithm {
	case SlidingLog:
		return int64(unsafe.Sizeof(logState{})) + (l.Rate+logDebt)*int64(unsafe.Sizeof(logEntry{}))
	case Concurrency:
		return int64(unsafe.Sizeof(slotState{})) + max(l.Rate, 4)*int64(unsafe.Sizeof(place{}))
	}
	return 0
}

// Earn returns how long n units take to be earned at the rate of l, rounded
// down; 0 if n is not above 0, [Never] if that is never or beyond 292 years.
func (l Limit) Earn(n int64) time.Duration {
	switch {
	case n <= 0 || l.Algorithm == Unlimited || l.Algorithm == Concurrency:
		return 0
	case l.Rate == 0:
		return Never
	}
	hi, lo := bits.Mul64(uint64(n), uint64(l.Period))
	if hi >= uint64(l.Rate) {
		return Never
	}
	q, _ := bits.Div64(hi, lo, uint64(l.Rate))
	return time.Duration(min(q, uint64(Never)))
}

// Window returns how long a spent limit takes to be whole again, at least a
// nanosecond: until its burst is earned (rounded down), or the length of its
// window. Of a calendar that is the nominal one, 24 hours for a day. It is 0
// where there is none to tell: without a limit or a refill, for slots, and for
// months, of which no two are alike.
func (l Limit) Window() time.Duration {
	switch l.Calendar {
	case Minute:
		return time.Minute
	case Hour:
		return time.Hour
	case Day:
		return 24 * time.Hour
	case Week:
		return 7 * 24 * time.Hour
	case Month:
		return 0
	}
	switch l.Algorithm {
	case Unlimited, Concurrency:
		return 0
	case Bucket, Queue:
		if l.Rate == 0 {
			return 0
		}
		return max(1, l.Earn(l.Cap()))
	}
	return l.Period
}

// String returns l in the grammar of [ParseLimit].
func (l Limit) String() string {
	var b strings.Builder
	switch l.Algorithm {
	case Unlimited:
		return "unlimited"
	case Concurrency:
		fmt.Fprintf(&b, "%d at once", l.Rate)
		if l.Period != defaultHold {
			hold := formatPeriod(l.Period)
			if hold[0] > '9' { // "for 1min", where a rate is "10/min"
				hold = "1" + hold
			}
			b.WriteString(" for " + hold)
		}
		return b.String()
	}
	if l.Calendar != NoCalendar {
		fmt.Fprintf(&b, "%d/calendar %s", l.Rate, l.Calendar)
		if l.Zone != "" {
			b.WriteString(" in " + l.Zone)
		}
		return b.String()
	}
	fmt.Fprintf(&b, "%d/%s", l.Rate, formatPeriod(l.Period))
	switch l.Algorithm {
	case Bucket:
		fmt.Fprintf(&b, " burst %d", l.Burst)
		if l.OnRaise == Fill {
			b.WriteString(" fill")
		}
	case Queue:
		fmt.Fprintf(&b, " queue %d", l.Burst)
	case FixedWindow:
		b.WriteString(" fixed")
	case SlidingCounter:
		b.WriteString(" sliding")
	case SlidingLog:
		b.WriteString(" log")
	default:
		b.WriteString(" " + l.Algorithm.String())
	}
	return b.String()
}
