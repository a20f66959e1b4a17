package spillgate

import (
	"testing"
	"time"
)

func TestFixedWindowsBeforeTheEpoch(t *testing.T) {
	m := mustMeter(t, "2/10s fixed")
	s, d := m.Take(State{}, -1, 2)
	if !d.Allowed || d.ResetAfter != 1 {
		t.Errorf("the last instant before the epoch: %+v", d)
	}
	if s, d = m.Take(s, 0, 2); !d.Allowed || d.ResetAfter != 10*time.Second {
		t.Errorf("the epoch: %+v", d)
	}
	if _, d = m.Take(State{}, -10*Instant(time.Second), 2); !d.Allowed || d.ResetAfter != 10*time.Second {
		t.Errorf("a window's first instant: %+v", d)
	}
	if _, d = m.Take(State{}, -10*Instant(time.Second)-1, 2); d.ResetAfter != 1 {
		t.Errorf("a window's last instant: %+v", d)
	}
	_ = s
}

func TestSlidingWindowsBeforeTheEpoch(t *testing.T) {
	const s = Instant(time.Second)
	m := mustMeter(t, "10/10s sliding")
	st, _ := m.Take(State{}, -15*s, 10) // window -2, half way
	for _, c := range []struct {
		at        Instant
		remaining int64
		reset     time.Duration
	}{
		{-15 * s, 0, 15 * time.Second},
		{-10 * s, 0, 10 * time.Second}, // window -1: all of it in view
		{-5 * s, 5, 5 * time.Second},
		{-1, 9, 1}, // all but a billionth has faded: nine fit
		{0, 10, 0},
	} {
		if _, d := m.Take(st, c.at, 0); d.Remaining != c.remaining || d.ResetAfter != c.reset {
			t.Errorf("at %v: remaining %d, reset %v; want %d, %v", time.Duration(c.at), d.Remaining, d.ResetAfter, c.remaining, c.reset)
		}
	}
}

// What comes of a count when the limit changes.
func TestWindowChange(t *testing.T) {
	const s = Instant(time.Second)
	for _, c := range []struct {
		name      string
		from      string
		taken     Instant
		n         int64
		to        string
		at        Instant
		remaining int64
		reset     time.Duration
	}{
		{"fixed: more", "10/h fixed", 0, 10, "20/h fixed", 60 * s, 10, 59 * time.Minute},
		{"fixed: fewer", "10/h fixed", 0, 10, "4/h fixed", 60 * s, 0, 59 * time.Minute},
		{"fixed: shorter windows", "10/h fixed", 0, 7, "10/min fixed", 90 * s, 3, 30 * time.Second},
		{"fixed: longer windows", "10/min fixed", 0, 7, "10/h fixed", 30 * s, 3, time.Hour - 30*time.Second},
		{"fixed: the old window is over", "10/min fixed", 0, 7, "10/h fixed", 60 * s, 10, 0},
		{"fixed: to the calendar", "10/min fixed", 0, 7, "10/calendar hour", 30 * s, 3, time.Hour - 30*time.Second},
		{"fixed: another zone", "10/calendar day", 0, 7, "10/calendar day in Asia/Tokyo", 3600 * s, 3, 14 * time.Hour},
		{"fixed: the same calendar", "10/calendar day in Asia/Tokyo", 0, 7, "9/calendar day in Asia/Tokyo", 3600 * s, 2, 14 * time.Hour},
		{"sliding: more", "10/min sliding", 0, 10, "20/min sliding", 30 * s, 10, 90 * time.Second},
		{"sliding: more, faded", "10/min sliding", 0, 10, "20/min sliding", 90 * s, 15, 30 * time.Second},
		{"sliding: shorter, by the estimate rounded up", "10/min sliding", 0, 7, "10/s sliding", 90 * s, 6, 2 * time.Second},
		{"sliding: longer", "10/s sliding", 0, 7, "10/min sliding", s / 2, 3, 120*time.Second - time.Second/2},
		{"sliding: out of view", "10/s sliding", 0, 7, "10/min sliding", 2 * s, 10, 0},
	} {
		from, to := mustMeter(t, c.from), mustMeter(t, c.to)
		st, d := from.Take(State{}, c.taken, c.n)
		if !d.Allowed {
			t.Fatalf("%s: %+v", c.name, d)
		}
		_, d = to.Take(to.Adopt(st, c.at), c.at, 0)
		if d.Remaining != c.remaining || d.ResetAfter != c.reset {
			t.Errorf("%s: remaining %d, reset %v; want %d, %v", c.name, d.Remaining, d.ResetAfter, c.remaining, c.reset)
		}
	}
}

// A unit is given back into the window that it was taken in, and no other.
func TestWindowGiveBack(t *testing.T) {
	const s = Instant(time.Second)
	for _, c := range []struct {
		name          string
		text          string
		taken, at, of Instant
		delta         int64
		remaining     int64
	}{
		{"fixed: the same window", "10/10s fixed", 0, 9 * s, 0, -3, 6},
		{"fixed: at its first instant", "10/10s fixed", 10 * s, 19 * s, 10 * s, -3, 6},
		{"fixed: a charge of the window before", "10/10s fixed", 10 * s, 11 * s, 10*s - 1, -3, 3},
		{"fixed: the window is over", "10/10s fixed", 0, 10 * s, 0, -3, 10},
		{"fixed: more than was taken", "10/10s fixed", 0, s, 0, -8, 10},
		{"fixed: more, in another window", "10/10s fixed", 0, 10 * s, 0, 4, 6},
		{"sliding: the current window", "10/10s sliding", 0, 9 * s, 0, -3, 6},
		{"sliding: the window before", "10/10s sliding", 0, 15 * s, 0, -3, 8},
		{"sliding: two windows before", "10/10s sliding", 10 * s, 11 * s, -10 * s, -3, 3},
		{"sliding: more than was taken", "10/10s sliding", 0, 5 * s, 0, -8, 10},
		{"sliding: more", "10/10s sliding", 0, 15 * s, 0, 4, 2},
	} {
		m := mustMeter(t, c.text)
		st, _ := m.Take(State{}, c.taken, 7)
		_, d := m.Take(m.Settle(st, c.at, c.of, c.delta), c.at, 0)
		if d.Remaining != c.remaining {
			t.Errorf("%s: remaining %d, want %d", c.name, d.Remaining, c.remaining)
		}
	}
}

// The numbers of windows come round after 2^42; a state of long ago is new
// all the same.
func TestSlidingLongIdle(t *testing.T) {
	m := mustMeter(t, "10/ms sliding")
	s, _ := m.Take(State{}, 0, 10)
	for _, idle := range []time.Duration{2 * time.Millisecond, time.Hour, 100 * 365 * 24 * time.Hour} {
		if _, d := m.Take(s, Instant(idle), 10); !d.Allowed || d.Remaining != 0 {
			t.Errorf("after %v: %+v", idle, d)
		}
		if !m.isNew(s, Instant(idle)) {
			t.Errorf("after %v: not as new", idle)
		}
	}
}

// A state of a later window than now, which only a clock that was set back
// can show, grants nothing.
func TestSlidingClockSetBack(t *testing.T) {
	m := mustMeter(t, "10/s sliding")
	s, _ := m.Take(State{}, Instant(100*time.Second), 10)
	if _, d := m.Take(s, Instant(50*time.Second), 1); d.Allowed {
		t.Errorf("%+v", d)
	}
	f := mustMeter(t, "10/s fixed")
	s, _ = f.Take(State{}, Instant(100*time.Second), 10)
	if _, d := f.Take(s, Instant(50*time.Second), 1); d.Allowed {
		t.Errorf("%+v", d)
	}
}

// A queue's requests go evenly, one unit each period/rate, in order.
func TestQueueGoesEvenly(t *testing.T) {
	const ms = time.Millisecond
	m := mustMeter(t, "100/s queue 5")
	var s State
	var d Decision
	for _, c := range []struct {
		at    time.Duration
		n     int64
		delay time.Duration // -1: refused
		retry time.Duration
	}{
		{0, 1, 0, 0},
		{0, 3, 30 * ms, 0},        // its last unit goes third after the first
		{0, 3, -1, 10 * ms},       // two places are left
		{0, 2, 50 * ms, 0},        // all wait
		{9*ms + 999999, 1, -1, 1}, // a place is free at exactly 10 ms
		{10 * ms, 1, 50 * ms, 0},
		{10 * ms, 7, -1, Never},
		{10 * ms, 6, -1, 60 * ms},
		{70 * ms, 6, 50 * ms, 0},
		{70 * ms, 0, 0, 0},
	} {
		if s, d = m.Take(s, Instant(c.at), c.n); d.Allowed != (c.delay >= 0) || d.Allowed && d.Delay != c.delay || d.RetryAfter != c.retry {
			t.Errorf("%d at %v: %+v, want delay %v, retry %v", c.n, c.at, d, c.delay, c.retry)
		}
	}
	// Who gives up makes the queue shorter for who comes after.
	s = m.Settle(s, Instant(70*ms), Instant(70*ms), -2)
	if _, d = m.Take(s, Instant(70*ms), 1); d.Delay != 40*ms {
		t.Errorf("after two gave up: %+v", d)
	}
}

// A queue that changes keeps whom it has admitted.
func TestQueueChange(t *testing.T) {
	m, fast, few := mustMeter(t, "1/s queue 5"), mustMeter(t, "10/s queue 5"), mustMeter(t, "1/s queue 2")
	s, _ := m.Take(State{}, 0, 5)
	if _, d := fast.Take(fast.Adopt(s, 0), 0, 1); d.Delay != 500*time.Millisecond {
		t.Errorf("faster: %+v", d)
	}
	if _, d := few.Take(few.Adopt(s, 0), 0, 1); d.Allowed || d.Remaining != 0 || d.RetryAfter != 3*time.Second {
		t.Errorf("fewer places than wait: %+v", d)
	}
}
