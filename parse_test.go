package spillgate

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestParseLimit(t *testing.T) {
	for _, c := range []struct {
		text string
		want Limit
		form string // what String gives, if not text
	}{
		{"10/s", Limit{Rate: 10, Period: time.Second, Burst: 10}, "10/s burst 10"},
		{"10/s burst 20", Limit{Rate: 10, Period: time.Second, Burst: 20}, ""},
		{"1/10s burst 10", Limit{Rate: 1, Period: 10 * time.Second, Burst: 10}, ""},
		{"6000/min", Limit{Rate: 6000, Period: time.Minute, Burst: 6000}, "6000/min burst 6000"},
		{"6000/m", Limit{Rate: 6000, Period: time.Minute, Burst: 6000}, "6000/min burst 6000"},
		{"200_000/d burst 1_000 fill", Limit{Rate: 200000, Period: 24 * time.Hour, Burst: 1000, OnRaise: Fill}, "200000/d burst 1000 fill"},
		{"5/s fill burst 7", Limit{Rate: 5, Period: time.Second, Burst: 7, OnRaise: Fill}, "5/s burst 7 fill"},
		{"0/s burst 3", Limit{Period: time.Second, Burst: 3}, ""},
		{"5/s burst 0", Limit{Rate: 5, Period: time.Second}, ""},
		{"  7/1500ms   burst   1 ", Limit{Rate: 7, Period: 1500 * time.Millisecond, Burst: 1}, "7/1500ms burst 1"},
		{"1/30d burst 1", Limit{Rate: 1, Period: 30 * 24 * time.Hour, Burst: 1}, ""},
		{"1/2w burst 1", Limit{Rate: 1, Period: 14 * 24 * time.Hour, Burst: 1}, ""},
		{"1/7ns burst 1", Limit{Rate: 1, Period: 7, Burst: 1}, ""},
		{"1/ns burst 1", Limit{Rate: 1, Period: 1, Burst: 1}, "1/1ns burst 1"},
		{"1/5µs burst 1", Limit{Rate: 1, Period: 5 * time.Microsecond, Burst: 1}, "1/5us burst 1"},
		{"10/s queue 5", Limit{Algorithm: Queue, Rate: 10, Period: time.Second, Burst: 5}, ""},
		{"100/min fixed", Limit{Algorithm: FixedWindow, Rate: 100, Period: time.Minute}, ""},
		{"100/min sliding", Limit{Algorithm: SlidingCounter, Rate: 100, Period: time.Minute}, ""},
		{"100/min log", Limit{Algorithm: SlidingLog, Rate: 100, Period: time.Minute}, ""},
		{"0/min fixed", Limit{Algorithm: FixedWindow, Period: time.Minute}, ""},
		{"1000/calendar day", Limit{Algorithm: FixedWindow, Rate: 1000, Calendar: Day}, ""},
		{"1000/calendar day in UTC", Limit{Algorithm: FixedWindow, Rate: 1000, Calendar: Day}, "1000/calendar day"},
		{"9/calendar month in Europe/Berlin", Limit{Algorithm: FixedWindow, Rate: 9, Calendar: Month, Zone: "Europe/Berlin"}, ""},
		{"20 at once", Limit{Algorithm: Concurrency, Rate: 20, Period: 10 * time.Minute}, ""},
		{"20 at once for 30s", Limit{Algorithm: Concurrency, Rate: 20, Period: 30 * time.Second}, ""},
		{"20 at once for min", Limit{Algorithm: Concurrency, Rate: 20, Period: time.Minute}, "20 at once for 1min"},
		{"20 at once for 10min", Limit{Algorithm: Concurrency, Rate: 20, Period: 10 * time.Minute}, "20 at once"},
		{"unlimited", Limit{Algorithm: Unlimited}, ""},
	} {
		got, err := ParseLimit(c.text)
		if err != nil || got != c.want {
			t.Errorf("%q: got %+v, %v, want %+v", c.text, got, err, c.want)
			continue
		}
		form := c.form
		if form == "" {
			form = c.text
		}
		if got.String() != form {
			t.Errorf("%q: written as %q, want %q", c.text, got, form)
		}
	}
}

func TestParseLimitErrors(t *testing.T) {
	for _, c := range []struct {
		text   string
		offset int // -1: not of syntax, but a limit that can't be carried out
		want   string
	}{
		{"", 0, "empty"},
		{"   ", 0, "empty"},
		{"unlimited please", 10, "nothing may follow unlimited"},
		{"Unlimited", 0, "whole number"},
		{"10", 2, `10/s`},
		{"10/", 3, "a period is"},
		{"10/fortnight", 3, "a period is"},
		{"10/0s", 3, "from 1ns to 366d"},
		{"10/367d", 3, "from 1ns to 366d"},
		{"10/99999999999999999999s", 3, "from 1ns to 366d"},
		{"1.5/s", 0, "whole number"},
		{"-5/s", 0, "whole number"},
		{"+5/s", 0, "whole number"},
		{"_5/s", 0, "whole number"},
		{"5__0/s", 0, "whole number"},
		{"5/s burst", 9, "whole number"},
		{"5/s burst -1", 10, "whole number"},
		{"5/s burst 9223372036854775808", 10, "beyond 2^63-1"},
		{"5/s burst 5 burst 6", 12, "once"},
		{"5/s queue 5 burst 6", 12, "once"},
		{"5/s quick", 4, `unknown word "quick"`},
		{"5/s fixed log", 10, "one kind"},
		{"5/s fill fill", 9, "twice"},
		{"5/s fixed burst 5", 0, "contradict"},
		{"5/s sliding fill", 0, "fill is for buckets"},
		{"5/s queue 1 fill", 0, "fill is for buckets"},
		{"0/s", 0, "a rate of 0 needs its burst said"},
		{"5\t/s", 0, "whole number"},
		{"5/calendar fortnight", 11, "minute, hour, day, week or month"},
		{"5/calendar", 10, "minute, hour, day, week or month"},
		{"5/calendar day on Mars", 15, "in ZONE"},
		{"5/calendar day in", 17, "time zone"},
		{"5/calendar day in Europe/Berlin now", 32, "nothing may follow"},
		{"5 at twice", 5, "at once"},
		{"5 at once for", 13, "a period is"},
		{"5 at once until noon", 10, "for PERIOD"},
		{"5 at once for 3s please", 17, "nothing may follow"},
		{"5/calendar day in Local", -1, "Local"},
		{"5/calendar day in Mars/Olympus", -1, "Mars/Olympus"},
		{"70000/s log", -1, "65536"},
		{"5/us sliding", -1, "1ms"},
		{"10000000000000/s", -1, "2^42"},
		{"1/366d burst 9000", -1, "100 years"},
	} {
		_, err := ParseLimit(c.text)
		if err == nil || !strings.HasPrefix(err.Error(), "spillgate: ") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q in it", c.text, err, c.want)
			continue
		}
		var syntax *SyntaxError
		switch {
		case c.offset < 0:
			if !errors.Is(err, ErrLimit) {
				t.Errorf("%q: %v, want ErrLimit", c.text, err)
			}
		case !errors.As(err, &syntax) || !errors.Is(err, ErrSyntax):
			t.Errorf("%q: %v, want a SyntaxError", c.text, err)
		case syntax.Offset != c.offset || syntax.Text != c.text:
			t.Errorf("%q: at byte %d, want %d: %v", c.text, syntax.Offset, c.offset, err)
		}
	}
}

func TestLimitText(t *testing.T) {
	l := Limit{Rate: 10, Period: time.Second, Burst: 20}
	text, err := l.MarshalText()
	if err != nil || string(text) != "10/s burst 20" {
		t.Fatalf("%q, %v", text, err)
	}
	var back Limit
	if err := back.UnmarshalText(text); err != nil || back != l {
		t.Fatalf("%v, %v", back, err)
	}
	if err := back.UnmarshalText([]byte("nonsense")); err == nil || back != l {
		t.Errorf("after a fault: %v, %v, want it unchanged", back, err)
	}
	if _, err := (Limit{}).MarshalText(); !errors.Is(err, ErrLimit) {
		t.Errorf("the zero limit was written: %v", err)
	}
}

// FuzzParseLimit: any text gives a limit that can be carried out and whose own
// text gives it again, or an error with the package's name and a place within
// the text.
func FuzzParseLimit(f *testing.F) {
	for _, seed := range []string{
		"10/s", "10/s burst 20", "1/10s burst 10", "1000/d burst 1000 fill", "10/s queue 5", "100/min fixed",
		"1000/calendar day in Europe/Berlin", "100/min sliding", "100/min log", "20 at once", "20 at once for 30s",
		"unlimited", "5/s burst 0", "0/s burst 1", "1/30d burst 1", "6000/min", "2777777777778/s", "300000/min",
		"10995116277760/s", "1/h burst 1", "9223372036854775807/s burst 9223372036854775807", "1/366d", "4398/ns",
		"5/s burst -1", "\x00/s", "10/µs", "1_0/s", " 1/s  burst 1 ", "1/9223372036854775807ns", "1/calendar month in Local",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		l, err := ParseLimit(text)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "spillgate: ") {
				t.Errorf("%q: %v", text, err)
			}
			var syntax *SyntaxError
			if errors.As(err, &syntax) && (syntax.Offset < 0 || syntax.Offset > len(text)) {
				t.Errorf("%q: at byte %d", text, syntax.Offset)
			}
			return
		}
		if err := l.Validate(); err != nil {
			t.Errorf("%q: %v", text, err)
		}
		if again, err := ParseLimit(l.String()); err != nil || again != l {
			t.Errorf("%q gave %+v, whose text %q gave %+v, %v", text, l, l, again, err)
		}
	})
}
