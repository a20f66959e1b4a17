package spillgate

import (
	"fmt"
	"sync/atomic"
	"time"
)

// A window says how the windows of a limit lie: periods of one length aligned
// to the Unix epoch, also before it, or calendar periods of a zone. Windows
// are half open: an instant at which one ends belongs to the next.
type window struct {
	period   int64 // 0 with a calendar
	calendar Calendar
	zone     *time.Location

	// All keys of a limit are in the same calendar window, which is dear to
	// compute: the latest one is kept.
	latest atomic.Pointer[bounds]
}

// bounds are those of one window, [start, end).
type bounds struct{ start, end Instant }

func newWindow(l Limit) (*window, error) {
	w := &window{period: int64(l.Period), calendar: l.Calendar}
	if l.Calendar == NoCalendar {
		return w, nil
	}
	var err error
	if w.zone, err = time.LoadLocation(l.Zone); err != nil {
		return nil, fmt.Errorf("spillgate: %w: zone %q: %w", ErrLimit, l.Zone, err)
	}
	return w, nil
}

// at returns the window in which now lies.
func (w *window) at(now Instant) bounds {
	if w.calendar == NoCalendar {
		start := now - Instant(w.into(now))
		return bounds{start, start + Instant(w.period)}
	}
	if b := w.latest.Load(); b != nil && b.start <= now && now < b.end {
		return *b
	}
	b := w.calendar.window(now, w.zone)
	w.latest.Store(&b)
	return b
}

// into returns how far now lies in its window of a fixed length.
func (w *window) into(now Instant) int64 {
	x := int64(now) % w.period
	if x < 0 {
		x += w.period
	}
	return x
}

// number returns the number of the window of a fixed length in which now
// lies; the epoch begins number 0.
func (w *window) number(now Instant) int64 {
	return (int64(now) - w.into(now)) / w.period
}

// same reports whether the windows of w and v lie alike.
func (w *window) same(v *window) bool {
	return w.period == v.period && w.calendar == v.calendar &&
		(w.calendar == NoCalendar || w.zone.String() == v.zone.String())
}
