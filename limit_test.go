package spillgate

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	_ "time/tzdata" // zones of calendar windows, on machines that have none
)

func TestValidate(t *testing.T) {
	day := 24 * time.Hour
	for _, c := range []struct {
		name string
		l    Limit
		want string // in the error; "" for none
	}{
		{"zero value", Limit{}, "period"},
		{"bucket", Limit{Rate: 10, Period: time.Second, Burst: 20}, ""},
		{"rate 0", Limit{Period: time.Second, Burst: 20}, ""},
		{"burst 0", Limit{Rate: 10, Period: time.Second}, ""},
		{"unlimited", Limit{Algorithm: Unlimited}, ""},
		{"unlimited with a rate", Limit{Algorithm: Unlimited, Rate: 1}, "unlimited takes no rate"},
		{"unknown algorithm", Limit{Algorithm: 99, Rate: 1, Period: 1}, "algorithm 99"},
		{"negative rate", Limit{Rate: -1, Period: 1}, "rate -1"},
		{"largest rate", Limit{Rate: 1<<42 - 1, Period: time.Second, Burst: 1}, ""},
		{"rate too large", Limit{Rate: 1 << 42, Period: time.Second}, "rate 4398046511104"},
		{"rate a second too large", Limit{Rate: 5000, Period: 1}, "more than 2^42 units a second"},
		{"largest rate a nanosecond", Limit{Rate: 4398, Period: 1}, ""},
		{"negative period", Limit{Rate: 1, Period: -1}, "period -1ns"},
		{"shortest period", Limit{Rate: 1, Period: 1, Burst: 1}, ""},
		{"longest period", Limit{Rate: 1, Period: 366 * day, Burst: 1}, ""},
		{"period too long", Limit{Rate: 1, Period: 366*day + 1}, "from 1ns to 366 days"},
		{"negative burst", Limit{Rate: 1, Period: 1, Burst: -1}, "burst -1"},
		{"burst of a century", Limit{Rate: 1, Period: 365 * day, Burst: 100}, ""},
		{"burst beyond a century", Limit{Rate: 1, Period: 366 * day, Burst: 100}, "100 years"},
		{"burst beyond 128 bits", Limit{Rate: 1, Period: 366 * day, Burst: math.MaxInt64}, "100 years"},
		{"burst beyond 42 bits at rate 0", Limit{Period: 1, Burst: 1 << 42}, "2^42"},
		{"queue", Limit{Algorithm: Queue, Rate: 1, Period: 1}, ""},
		{"queue that never moves", Limit{Algorithm: Queue, Period: 1, Burst: 1}, "never moves"},
		{"fill for a window", Limit{Algorithm: FixedWindow, Rate: 1, Period: 1, OnRaise: Fill}, "on raise 1"},
		{"unknown on raise", Limit{Rate: 1, Period: 1, OnRaise: 7}, "on raise 7"},
		{"burst of a window", Limit{Algorithm: FixedWindow, Rate: 1, Period: 1, Burst: 1}, "has no burst"},
		{"calendar of a bucket", Limit{Rate: 1, Calendar: Day}, "only a fixed window"},
		{"calendar with a period", Limit{Algorithm: FixedWindow, Rate: 1, Period: 1, Calendar: Day}, "leave it 0"},
		{"unknown calendar", Limit{Algorithm: FixedWindow, Rate: 1, Calendar: 77}, "calendar 77"},
		{"calendar in UTC", Limit{Algorithm: FixedWindow, Rate: 1, Calendar: Month}, ""},
		{"calendar in a zone", Limit{Algorithm: FixedWindow, Rate: 1, Calendar: Month, Zone: "Europe/Berlin"}, ""},
		{"unknown zone", Limit{Algorithm: FixedWindow, Rate: 1, Calendar: Month, Zone: "Europe/Bärlin"}, "Europe/Bärlin"},
		{"zone outside the zones", Limit{Algorithm: FixedWindow, Rate: 1, Calendar: Month, Zone: "../etc/passwd"}, "unknown"},
		{"the machine's zone", Limit{Algorithm: FixedWindow, Rate: 1, Calendar: Month, Zone: "Local"}, "another one on every machine"},
		{"zone without calendar", Limit{Algorithm: FixedWindow, Rate: 1, Period: 1, Zone: "Europe/Berlin"}, "only a calendar window"},
		{"largest sliding counter", Limit{Algorithm: SlidingCounter, Rate: 1<<32 - 1, Period: time.Millisecond}, ""},
		{"sliding counter too large", Limit{Algorithm: SlidingCounter, Rate: 1 << 32, Period: time.Second}, "below 2^32"},
		{"sliding counter too short", Limit{Algorithm: SlidingCounter, Rate: 1, Period: time.Millisecond - 1}, "at least 1ms"},
		{"largest log", Limit{Algorithm: SlidingLog, Rate: 65536, Period: 1}, ""},
		{"log too large", Limit{Algorithm: SlidingLog, Rate: 65537, Period: 1}, "65536"},
		{"most slots", Limit{Algorithm: Concurrency, Rate: 1 << 20, Period: 1}, ""},
		{"too many slots", Limit{Algorithm: Concurrency, Rate: 1<<20 + 1, Period: 1}, "1048576"},
	} {
		err := c.l.Validate()
		m, merr := c.l.Meter()
		if (err == nil) != (merr == nil) || (m == nil) != (merr != nil) {
			t.Errorf("%s: Validate says %v, Meter says %v", c.name, err, merr)
		}
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.want != "" && !errors.Is(err, ErrLimit):
			t.Errorf("%s: %v, want ErrLimit", c.name, err)
		case c.want != "" && (!strings.HasPrefix(err.Error(), "spillgate: ") || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %q in it", c.name, err, c.want)
		}
	}
}

func TestCap(t *testing.T) {
	for text, want := range map[string]int64{
		"10/s burst 20":  20,
		"10/s burst 0":   0,
		"10/s queue 5":   6,
		"10/s queue 0":   1,
		"10/s fixed":     10,
		"10/s sliding":   10,
		"10/s log":       10,
		"10 at once":     10,
		"5/calendar day": 5,
		"unlimited":      math.MaxInt64,
	} {
		if got := mustMeter(t, text).Limit().Cap(); got != want {
			t.Errorf("%s: cap %d, want %d", text, got, want)
		}
	}
	// Places that can't be counted saturate.
	l := Limit{Algorithm: Queue, Rate: 1<<42 - 1, Period: time.Second, Burst: math.MaxInt64}
	if got := l.Cap(); got != math.MaxInt64 {
		t.Errorf("cap %d of %v", got, l)
	}
}

func TestNamesOfUnknownValues(t *testing.T) {
	if got := Algorithm(99).String(); got != "algorithm(99)" {
		t.Error(got)
	}
	if got := Calendar(99).String(); got != "calendar(99)" {
		t.Error(got)
	}
}

// mustMeter makes the meter of a limit that is known to be good.
func mustMeter(tb testing.TB, text string) *Meter {
	tb.Helper()
	l, err := ParseLimit(text)
	if err != nil {
		tb.Fatal(err)
	}
	m, err := l.Meter()
	if err != nil {
		tb.Fatal(err)
	}
	return m
}
