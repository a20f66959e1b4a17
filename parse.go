package spillgate

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// ErrSyntax is wrapped by every error about the text of a limit.
var ErrSyntax = errors.New("limit not understood")

// defaultHold is how long a concurrency slot is held at most when the text
// does not say.
const defaultHold = 10 * time.Minute

// A SyntaxError says where and why the text of a limit was not understood.
type SyntaxError struct {
	Text   string // the whole text
	Offset int    // byte offset in Text of what was not understood
	Reason string // what is wrong and what is possible
}

// Error names the text, the place and the mend.
func (e *SyntaxError) Error() string {
	return fmt.Sprintf("spillgate: %v: %q at byte %d: %s", ErrSyntax, e.Text, e.Offset, e.Reason)
}

// Unwrap returns [ErrSyntax].
func (e *SyntaxError) Unwrap() error { return ErrSyntax }

var units = map[string]time.Duration{
	"ns": time.Nanosecond, "us": time.Microsecond, "µs": time.Microsecond, "ms": time.Millisecond,
	"s": time.Second, "m": time.Minute, "min": time.Minute, "h": time.Hour,
	"d": 24 * time.Hour, "day": 24 * time.Hour, "w": 7 * 24 * time.Hour,
}

const periodForms = `a period is a whole number and a unit (ns, us, ms, s, m or min, h, d, w), such as "s", "10s" or "30d"`

// ParseLimit reads a limit:
//
//	10/s                     a bucket; the burst is the rate
//	10/s burst 20            ten a second, twenty at once
//	1/10s burst 10           one each ten seconds
//	1000/d burst 1000 fill   a raised burst fills at once (on raise)
//	10/s queue 5             shaped: even output, at most five wait
//	100/min fixed            a fixed window, aligned to the Unix epoch
//	1000/calendar day in Europe/Berlin
//	100/min sliding          a sliding window counter
//	100/min log              a sliding window log
//	20 at once               concurrency; a slot lost is taken back after 10 min
//	20 at once for 30s       the same, after 30 s
//	unlimited
//
// Numbers are whole and may carry underscores (200_000). Periods are a whole
// number and a unit: ns, us, ms, s, m or min, h, d, w (no number means one).
// A calendar period is minute, hour, day, week or month, in UTC unless a zone
// is named. Words are lower case, separated by blanks, in any order after the
// rate, each once. Errors are a [*SyntaxError] or wrap [ErrLimit].
func ParseLimit(text string) (Limit, error) {
	p := parser{text: text}
	l, err := p.limit()
	if err != nil {
		return Limit{}, err
	}
	if err := l.Validate(); err != nil {
		return Limit{}, fmt.Errorf("%w (in %q)", err, text)
	}
	return l, nil
}

// MarshalText writes l in the grammar of [ParseLimit].
func (l Limit) MarshalText() ([]byte, error) {
	if err := l.Validate(); err != nil {
		return nil, err
	}
	return []byte(l.String()), nil
}

// UnmarshalText reads l by [ParseLimit].
func (l *Limit) UnmarshalText(text []byte) error {
	v, err := ParseLimit(string(text))
	if err == nil {
		*l = v
	}
	return err
}

type parser struct {
	text string
	pos  int // end of the last word
	from int // start of the last word
}

// word returns the next blank-separated word, "" at the end.
func (p *parser) word() string {
	for p.pos < len(p.text) && p.text[p.pos] == ' ' {
		p.pos++
	}
	p.from = p.pos
	for p.pos < len(p.text) && p.text[p.pos] != ' ' {
		p.pos++
	}
	return p.text[p.from:p.pos]
}

func (p *parser) fail(offset int, format string, args ...any) error {
	return &SyntaxError{Text: p.text, Offset: offset, Reason: fmt.Sprintf(format, args...)}
}

func (p *parser) number(s string, offset int) (int64, error) {
	const want = "want a whole number without a sign, such as 20 or 200_000"
	if s == "" || s[0] == '_' || s[len(s)-1] == '_' || strings.Contains(s, "__") {
		return 0, p.fail(offset, want)
	}
	n, err := strconv.ParseUint(strings.ReplaceAll(s, "_", ""), 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange) || err == nil && n > math.MaxInt64:
		return 0, p.fail(offset, "%s is beyond 2^63-1", s)
	case err != nil:
		return 0, p.fail(offset, want)
	}
	return int64(n), nil
}

func (p *parser) limit() (Limit, error) {
	first := p.word()
	switch {
	case first == "":
		return Limit{}, p.fail(0, `empty; say for example "10/s burst 20"`)
	case first == "unlimited":
		if w := p.word(); w != "" {
			return Limit{}, p.fail(p.from, "nothing may follow unlimited")
		}
		return Limit{Algorithm: Unlimited}, nil
	}
	num, per, slash := strings.Cut(first, "/")
	start := p.from
	rate, err := p.number(num, start)
	if err != nil {
		return Limit{}, err
	}
	if !slash {
		return p.concurrency(rate)
	}
	if per == "calendar" {
		return p.calendar(rate)
	}
	l := Limit{Rate: rate}
	if l.Period, err = parsePeriod(per); err != nil {
		return Limit{}, p.fail(start+len(num)+1, "%v", err)
	}
	return p.clauses(l)
}

// clauses reads what follows RATE/PERIOD.
func (p *parser) clauses(l Limit) (Limit, error) {
	var kind, burst, fill string
	for w := p.word(); w != ""; w = p.word() {
		from := p.from
		switch w {
		case "burst", "queue":
			if burst != "" {
				return Limit{}, p.fail(from, "%s after %s: a limit has one of them, once", w, burst)
			}
			n, err := p.number(p.word(), p.from)
			if err != nil {
				return Limit{}, err
			}
			if burst, l.Burst = w, n; w == "queue" {
				l.Algorithm = Queue
			}
		case "fixed", "sliding", "log":
			if kind != "" {
				return Limit{}, p.fail(from, "%s after %s: a limit is of one kind", w, kind)
			}
			kind = w
			l.Algorithm = map[string]Algorithm{"fixed": FixedWindow, "sliding": SlidingCounter, "log": SlidingLog}[w]
		case "fill":
			if fill != "" {
				return Limit{}, p.fail(from, "fill is said twice")
			}
			fill, l.OnRaise = w, Fill
		default:
			return Limit{}, p.fail(from, "unknown word %q; known are burst N, queue N, fixed, sliding, log, fill", w)
		}
	}
	switch {
	case kind != "" && burst != "":
		return Limit{}, p.fail(0, "%s and %s contradict each other: a window has no %s", kind, burst, burst)
	case fill != "" && (kind != "" || burst == "queue"):
		return Limit{}, p.fail(0, "fill is for buckets: only they have a burst to raise")
	case kind == "" && burst == "":
		if l.Rate == 0 {
			return Limit{}, p.fail(0, "a rate of 0 needs its burst said: \"0/s burst N\" can be spent once")
		}
		l.Burst = l.Rate
	}
	return l, nil
}

func (p *parser) concurrency(slots int64) (Limit, error) {
	if p.word() != "at" || p.word() != "once" {
		return Limit{}, p.fail(p.from, `want "N/PERIOD" (10/s) or "N at once"`)
	}
	l := Limit{Algorithm: Concurrency, Rate: slots, Period: defaultHold}
	switch w := p.word(); w {
	case "":
		return l, nil
	case "for":
		var err error
		if l.Period, err = parsePeriod(p.word()); err != nil {
			return Limit{}, p.fail(p.from, "%v", err)
		}
	default:
		return Limit{}, p.fail(p.from, "unknown word %q; known is for PERIOD", w)
	}
	if p.word() != "" {
		return Limit{}, p.fail(p.from, "nothing may follow the longest time")
	}
	return l, nil
}

func (p *parser) calendar(rate int64) (Limit, error) {
	l := Limit{Algorithm: FixedWindow, Rate: rate}
	w := p.word()
	for c := Minute; c < calendars; c++ {
		if w == c.String() {
			l.Calendar = c
		}
	}
	if l.Calendar == NoCalendar {
		return Limit{}, p.fail(p.from, "want calendar minute, hour, day, week or month")
	}
	switch p.word() {
	case "":
		return l, nil
	case "in":
		if l.Zone = p.word(); l.Zone == "" {
			return Limit{}, p.fail(p.from, "want a time zone such as Europe/Berlin")
		}
		if l.Zone == "UTC" {
			l.Zone = ""
		}
	default:
		return Limit{}, p.fail(p.from, "want in ZONE, or nothing for UTC")
	}
	if p.word() != "" {
		return Limit{}, p.fail(p.from, "nothing may follow the zone")
	}
	return l, nil
}

// parsePeriod reads a whole number and a unit; no number means one.
func parsePeriod(s string) (time.Duration, error) {
	i := 0
	for i < len(s) && s[i] >= '0' && s[i] <= '9' {
		i++
	}
	unit, ok := units[s[i:]]
	if !ok {
		return 0, fmt.Errorf("period %q: %s", s, periodForms)
	}
	if i == 0 {
		return unit, nil
	}
	n, err := strconv.ParseInt(s[:i], 10, 64)
	if err != nil || n < 1 || n > int64(maxPeriod/unit) {
		return 0, fmt.Errorf("period %q: must be from 1ns to 366d", s)
	}
	return time.Duration(n) * unit, nil
}

// formatPeriod writes d in the largest unit that divides it.
func formatPeriod(d time.Duration) string {
	for _, u := range []string{"w", "d", "h", "min", "s", "ms", "us"} {
		if d > 0 && d%units[u] == 0 {
			if n := d / units[u]; n > 1 {
				return strconv.FormatInt(int64(n), 10) + u
			}
			return u
		}
	}
	return strconv.FormatInt(int64(d), 10) + "ns"
}
