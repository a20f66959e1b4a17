package spillgate

import (
	"math"
	"time"
)

// window returns the calendar period of zone in which now lies, which is at
// least a year from the ends of time.
//
// Minutes and hours are those of the clock on the wall under the offset in
// force: where a clock is set back and goes through an hour twice, that hour
// is two windows, and where a clock is set in the middle of an hour (Lord Howe
// moves by half an hour) the window ends there.
//
// Days, weeks and months begin with the first instant whose local time has
// reached midnight of their first day: a day with a clock change has 23 or 25
// hours, and where midnight itself is skipped the day begins at the change.
func (c Calendar) window(now Instant, zone *time.Location) bounds {
	t := time.Unix(0, int64(now)).In(zone)
	switch c {
	case Minute:
		return clockWindow(now, t, int64(time.Minute))
	case Hour:
		return clockWindow(now, t, int64(time.Hour))
	}
	y, m, d := t.Date()
	days, months := 1, 0
	switch c {
	case Week:
		days = 7
		d -= (int(t.Weekday()) + 6) % 7 // back to Monday
	case Month:
		days, months = 0, 1
		d = 1
	}
	start := reached(y, m, d, zone)
	for {
		m, d = m+time.Month(months), d+days
		end := reached(y, m, d, zone)
		// A clock that is set back across midnight shows yesterday again;
		// the new day goes on.
		if now < end {
			return bounds{start, end}
		}
		start = end
	}
}

// clockWindow returns the window of unit length in which now lies, t being
// the same instant in its zone.
func clockWindow(now Instant, t time.Time, unit int64) bounds {
	_, seconds := t.Zone()
	offset := int64(seconds) * int64(time.Second)
	x := (int64(now)%unit + offset%unit) % unit
	if x < 0 {
		x += unit
	}
	b := bounds{now - Instant(x), now - Instant(x) + Instant(unit)}
	from, until := t.ZoneBounds()
	if at := changeAt(from, math.MinInt64); at > b.start && offsetAt(from.Add(-1)) != seconds {
		b.start = at
	}
	if at := changeAt(until, math.MaxInt64); at < b.end && offsetAt(until) != seconds {
		b.end = at
	}
	return b
}

func offsetAt(t time.Time) int {
	_, seconds := t.Zone()
	return seconds
}

// changeAt returns the instant t of a clock change, or none where there is no
// such change or it is out of range.
func changeAt(t time.Time, none Instant) Instant {
	if at := instantOf(t); !t.IsZero() && firstInstant < at && at < lastInstant {
		return at
	}
	return none
}

// reached returns the first instant at which the local time of zone is at
// midnight of the given day or past it.
func reached(year int, month time.Month, day int, zone *time.Location) Instant {
	midnight := time.Date(year, month, day, 0, 0, 0, 0, time.UTC).Unix()
	// No offset is as large as 26 hours: here the day has not begun.
	t := time.Unix(midnight-26*3600, 0).In(zone)
	for {
		_, until := t.ZoneBounds()
		at := midnight - int64(offsetAt(t))
		if until.IsZero() || at < until.Unix() {
			// Before t means that the clock jumped over midnight at t.
			return Instant(max(at, t.Unix()) * int64(time.Second))
		}
		t = until
	}
}
