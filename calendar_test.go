package spillgate

import (
	"testing"
	"time"
)

func zone(tb testing.TB, name string) *time.Location {
	tb.Helper()
	z, err := time.LoadLocation(name)
	if err != nil {
		tb.Fatal(err)
	}
	return z
}

func instant(tb testing.TB, text string) Instant {
	tb.Helper()
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		tb.Fatal(err)
	}
	return Instant(at.UnixNano())
}

// TestCalendarWindows names the window of an instant by its own bounds, in
// UTC, worked out from the published clock changes.
func TestCalendarWindows(t *testing.T) {
	for _, c := range []struct {
		name, zone string
		cal        Calendar
		now        string
		start, end string
	}{
		{"minute", "UTC", Minute, "2026-03-01T12:34:56.789Z", "2026-03-01T12:34:00Z", "2026-03-01T12:35:00Z"},
		{"hour", "UTC", Hour, "2026-03-01T12:34:56Z", "2026-03-01T12:00:00Z", "2026-03-01T13:00:00Z"},
		{"hour before the epoch", "UTC", Hour, "1969-12-31T23:59:59.999999999Z", "1969-12-31T23:00:00Z", "1970-01-01T00:00:00Z"},
		{"first instant of an hour", "UTC", Hour, "2026-03-01T12:00:00Z", "2026-03-01T12:00:00Z", "2026-03-01T13:00:00Z"},
		{"hour at half past", "Asia/Kolkata", Hour, "2026-03-01T12:34:56Z", "2026-03-01T12:30:00Z", "2026-03-01T13:30:00Z"},
		{"hour at a quarter to", "Asia/Kathmandu", Hour, "2026-03-01T12:34:56Z", "2026-03-01T12:15:00Z", "2026-03-01T13:15:00Z"},
		{"minute of local mean time", "Europe/Paris", Minute, "1900-01-01T00:00:00Z", "1899-12-31T23:59:39Z", "1900-01-01T00:00:39Z"},
		{"day", "UTC", Day, "2026-03-01T12:34:56Z", "2026-03-01T00:00:00Z", "2026-03-02T00:00:00Z"},
		{"day before the epoch", "UTC", Day, "1969-07-20T20:17:40Z", "1969-07-20T00:00:00Z", "1969-07-21T00:00:00Z"},
		{"day west", "America/Los_Angeles", Day, "2026-01-02T07:59:59Z", "2026-01-01T08:00:00Z", "2026-01-02T08:00:00Z"},
		{"day of 23 hours", "Europe/Berlin", Day, "2026-03-29T12:00:00Z", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z"},
		{"day of 25 hours", "Europe/Berlin", Day, "2026-10-25T12:00:00Z", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"},
		{"hour after a skipped one", "Europe/Berlin", Hour, "2026-03-29T01:00:00Z", "2026-03-29T01:00:00Z", "2026-03-29T02:00:00Z"},
		{"hour passed twice, first", "Europe/Berlin", Hour, "2026-10-25T00:30:00Z", "2026-10-25T00:00:00Z", "2026-10-25T01:00:00Z"},
		{"hour passed twice, second", "Europe/Berlin", Hour, "2026-10-25T01:30:00Z", "2026-10-25T01:00:00Z", "2026-10-25T02:00:00Z"},
		{"half an hour forward: day of 23.5 hours", "Australia/Lord_Howe", Day, "2026-10-04T00:00:00Z", "2026-10-03T13:30:00Z", "2026-10-04T13:00:00Z"},
		{"half an hour forward: before", "Australia/Lord_Howe", Hour, "2026-10-03T15:29:00Z", "2026-10-03T14:30:00Z", "2026-10-03T15:30:00Z"},
		{"half an hour forward: short hour", "Australia/Lord_Howe", Hour, "2026-10-03T15:40:00Z", "2026-10-03T15:30:00Z", "2026-10-03T16:00:00Z"},
		{"half an hour back: before", "Australia/Lord_Howe", Hour, "2026-04-04T14:59:59Z", "2026-04-04T14:00:00Z", "2026-04-04T15:00:00Z"},
		{"half an hour back: the half again", "Australia/Lord_Howe", Hour, "2026-04-04T15:29:00Z", "2026-04-04T15:00:00Z", "2026-04-04T15:30:00Z"},
		{"half an hour back: day of 24.5 hours", "Australia/Lord_Howe", Day, "2026-04-05T00:00:00Z", "2026-04-04T13:00:00Z", "2026-04-05T13:30:00Z"},
		{"midnight skipped", "America/Sao_Paulo", Day, "2018-11-04T12:00:00Z", "2018-11-04T03:00:00Z", "2018-11-05T02:00:00Z"},
		{"the day before a skipped midnight", "America/Sao_Paulo", Day, "2018-11-04T02:59:59Z", "2018-11-03T03:00:00Z", "2018-11-04T03:00:00Z"},
		{"midnight back to 23:00", "America/Sao_Paulo", Day, "2018-02-18T02:30:00Z", "2018-02-17T02:00:00Z", "2018-02-18T03:00:00Z"},
		{"one minute past midnight back to 23:01", "America/St_Johns", Day, "2010-11-07T03:00:00Z", "2010-11-07T02:30:00Z", "2010-11-08T03:30:00Z"},
		{"a day that was left out", "Pacific/Apia", Day, "2011-12-31T00:00:00Z", "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z"},
		{"the day before it", "Pacific/Apia", Day, "2011-12-30T09:59:59Z", "2011-12-29T10:00:00Z", "2011-12-30T10:00:00Z"},
		{"a day that came twice", "Pacific/Kwajalein", Month, "1969-09-30T23:00:00Z", "1969-08-31T13:00:00Z", "1969-10-01T12:00:00Z"},
		{"week from Monday", "UTC", Week, "2026-03-01T23:59:59Z", "2026-02-23T00:00:00Z", "2026-03-02T00:00:00Z"},
		{"Monday itself", "UTC", Week, "2026-03-02T00:00:00Z", "2026-03-02T00:00:00Z", "2026-03-09T00:00:00Z"},
		{"week over new year", "UTC", Week, "2027-01-01T00:00:00Z", "2026-12-28T00:00:00Z", "2027-01-04T00:00:00Z"},
		{"week with a clock change", "Europe/Berlin", Week, "2026-03-25T00:00:00Z", "2026-03-22T23:00:00Z", "2026-03-29T22:00:00Z"},
		{"month of 31 days", "UTC", Month, "2026-03-31T12:00:00Z", "2026-03-01T00:00:00Z", "2026-04-01T00:00:00Z"},
		{"month of 28 days", "UTC", Month, "2026-02-28T12:00:00Z", "2026-02-01T00:00:00Z", "2026-03-01T00:00:00Z"},
		{"month of 29 days", "UTC", Month, "2028-02-29T12:00:00Z", "2028-02-01T00:00:00Z", "2028-03-01T00:00:00Z"},
		{"December", "UTC", Month, "2026-12-31T23:59:59Z", "2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z"},
		{"month in a zone", "Europe/Berlin", Month, "2026-03-31T22:30:00Z", "2026-03-31T22:00:00Z", "2026-04-30T22:00:00Z"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := c.cal.window(instant(t, c.now), zone(t, c.zone))
			want := bounds{instant(t, c.start), instant(t, c.end)}
			if got != want {
				t.Errorf("[%v, %v), want [%v, %v)", utc(got.start), utc(got.end), utc(want.start), utc(want.end))
			}
		})
	}
}

func utc(i Instant) string { return time.Unix(0, int64(i)).UTC().Format(time.RFC3339Nano) }

// TestCalendarWindowsTile walks through windows of zones with odd clock
// changes: each begins where the last one ended, holds every instant of its
// own and no other, is as long as it can be, and is new by the local clock.
func TestCalendarWindowsTile(t *testing.T) {
	for _, name := range []string{
		"UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Sao_Paulo", "America/St_Johns",
		"Asia/Kathmandu", "Africa/Casablanca", "Asia/Gaza", "America/Havana", "Pacific/Apia", "Africa/Monrovia", "Antarctica/Troll",
	} {
		z := zone(t, name)
		for _, c := range []struct {
			cal      Calendar
			min, max time.Duration
			from     string
			n        int
		}{
			{Hour, time.Minute, time.Hour, "2010-10-15T00:00:00Z", 24 * 40},
			{Day, 20 * time.Hour, 27 * time.Hour, "1969-01-01T00:00:00Z", 366 * 55},
			{Week, 5 * 24 * time.Hour, 8 * 24 * time.Hour, "1969-01-01T00:00:00Z", 53 * 55},
			{Month, 27 * 24 * time.Hour, 32 * 24 * time.Hour, "1969-01-01T00:00:00Z", 12 * 55},
		} {
			b := c.cal.window(instant(t, c.from), z)
			for range c.n {
				next := c.cal.window(b.end, z)
				if next.start != b.end {
					t.Fatalf("%s %s: [%s, %s) then [%s, %s)", name, c.cal, utc(b.start), utc(b.end), utc(next.start), utc(next.end))
				}
				for _, at := range []Instant{b.start, b.start + (b.end-b.start)/3, b.end - 1} {
					if got := c.cal.window(at, z); got != b {
						t.Fatalf("%s %s: %s in [%s, %s), want [%s, %s)", name, c.cal, utc(at), utc(got.start), utc(got.end), utc(b.start), utc(b.end))
					}
				}
				if d := time.Duration(b.end - b.start); d < c.min || d > c.max {
					t.Fatalf("%s %s: [%s, %s) is %v long", name, c.cal, utc(b.start), utc(b.end), d)
				}
				if c.cal != Hour {
					before, after := time.Unix(0, int64(b.start-1)).In(z), time.Unix(0, int64(b.start)).In(z)
					if before.YearDay() == after.YearDay() && before.Year() == after.Year() {
						t.Fatalf("%s %s: begins at %v, within a day", name, c.cal, after)
					}
				}
				b = next
			}
		}
	}
}

func TestCalendarLimit(t *testing.T) {
	m := mustMeter(t, "2/calendar day in Europe/Berlin")
	var s State
	var d Decision
	// A day of 23 hours: denied until its end, and not a nanosecond longer.
	noon := instant(t, "2026-03-29T12:00:00+02:00")
	for range 2 {
		if s, d = m.Take(s, noon, 1); !d.Allowed {
			t.Fatal("denied within the limit")
		}
	}
	if d.ResetAfter != 12*time.Hour {
		t.Errorf("reset after %v, want 12h", d.ResetAfter)
	}
	if _, d = m.Take(s, noon, 1); d.Allowed || d.RetryAfter != 12*time.Hour {
		t.Errorf("third of two: %+v", d)
	}
	midnight := instant(t, "2026-03-30T00:00:00+02:00")
	if _, d = m.Take(s, midnight-1, 1); d.Allowed || d.RetryAfter != 1 {
		t.Errorf("the last instant of the day: %+v", d)
	}
	if _, d = m.Take(s, midnight, 2); !d.Allowed {
		t.Errorf("the first instant of the next day: %+v", d)
	}
	if m.isNew(s, midnight-1) || !m.isNew(s, midnight) {
		t.Error("as new at another instant than midnight")
	}
	// What was taken yesterday is not given back today.
	s, _ = m.Take(s, midnight, 2)
	if got := m.Settle(s, midnight+1, noon, -1); got != s {
		t.Errorf("yesterday's unit came back: %+v", got)
	}
	if _, d = m.Take(m.Settle(s, midnight+1, midnight, -1), midnight+2, 1); !d.Allowed {
		t.Errorf("today's unit did not come back: %+v", d)
	}
}

// The window that all keys share is kept; a decision allocates nothing.
func TestCalendarAllocatesNothing(t *testing.T) {
	m := mustMeter(t, "2/calendar month in Europe/Berlin")
	now := instant(t, "2026-03-29T12:00:00Z")
	if n := testing.AllocsPerRun(100, func() {
		now++
		m.Take(State{}, now, 1)
	}); n != 0 {
		t.Errorf("%v allocations a decision", n)
	}
}

// Whoever hands over an instant near the ends of time gets a window all the
// same.
func TestCalendarAtTheEndsOfTime(t *testing.T) {
	for _, text := range []string{"2/calendar minute", "2/calendar hour in Asia/Kolkata", "2/calendar day", "2/calendar week in Pacific/Apia", "2/calendar month"} {
		m := mustMeter(t, text)
		for _, now := range []Instant{-1 << 63, -1<<63 + 1, 1<<63 - 2, 1<<63 - 1} {
			var s State
			var d Decision
			for range 2 {
				if s, d = m.Take(s, now, 1); !d.Allowed {
					t.Fatalf("%s at %d: %+v", text, now, d)
				}
			}
			if _, d = m.Take(s, now, 1); d.Allowed || d.RetryAfter < 1 {
				t.Errorf("%s at %d: third of two: %+v", text, now, d)
			}
		}
	}
}
