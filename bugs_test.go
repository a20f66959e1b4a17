package spillgate

import (
	"math"
	"testing"
	"time"
)

// Faults that limiters in the field have had, as far as one limit and one key
// show them: each is a script and what is right. docs/proof.md lists them by
// their numbers, with the public reports; the vectors hold more of them.

type bugStep struct {
	at    time.Duration
	n     int64
	ok    bool
	retry time.Duration
}

const (
	allow = true
	deny  = false
)

func TestBugs(t *testing.T) {
	const (
		ms   = time.Millisecond
		s    = time.Second
		min  = time.Minute
		hour = time.Hour
		day  = 24 * time.Hour
	)
	for _, c := range []struct {
		name, limit string
		steps       []bugStep
	}{
		{"B001 an old time makes no tokens", "1/s burst 10", []bugStep{
			{10 * s, 10, allow, 0}, {0, 1, deny, s}, {10 * s, 1, deny, s}, {0, 1, deny, s}, {10 * s, 1, deny, s},
			{0, 1, deny, s}, {10 * s, 1, deny, s}, {11 * s, 1, allow, 0}}},
		{"B003 one an hour comes after an hour", "1/h burst 1", []bugStep{
			{0, 1, allow, 0}, {1979657657827, 1, deny, hour - 1979657657827}, {hour, 1, allow, 0}}},
		{"B011 without slack, one by one", "100/s queue 0", []bugStep{
			{0, 1, allow, 0}, {0, 1, deny, 10 * ms}, {10*ms - 1, 1, deny, 1}, {10 * ms, 1, allow, 0}, {10 * ms, 1, deny, 10 * ms}}},
		{"B016 not one more than the burst", "1/s burst 1", []bugStep{{0, 1, allow, 0}, {0, 1, deny, s}}},
		{"B019 a pause fills to the burst", "5/s burst 5", []bugStep{
			{0, 5, allow, 0}, {0, 1, deny, s / 5}, {2 * s, 5, allow, 0}, {2 * s, 1, deny, s / 5}}},
		{"B020 a cost above the burst", "10/s burst 10", []bugStep{
			{0, 11, deny, Never}, {0, 11, deny, Never}, {0, 10, allow, 0}, {0, 1, deny, s / 10}}},
		{"B021 what remains grows back", "5/min burst 5", []bugStep{
			{0, 4, allow, 0}, {0, 1, allow, 0}, {0, 1, deny, 12 * s}, {12 * s, 1, allow, 0}, {72 * s, 5, allow, 0}}},
		{"B022 retry is one interval", "1/s burst 10", []bugStep{{0, 10, allow, 0}, {0, 1, deny, s}, {0, 3, deny, 3 * s}}},
		{"B025 half a day idle", "300000/min burst 300000", []bugStep{
			{0, 300000, allow, 0}, {12 * hour, 300000, allow, 0}, {12 * hour, 1, deny, 200 * time.Microsecond}}},
		{"B029 polled often", "1/s burst 1", []bugStep{
			{0, 1, allow, 0}, {100 * ms, 1, deny, 900 * ms}, {200 * ms, 1, deny, 800 * ms}, {900 * ms, 1, deny, 100 * ms}, {s, 1, allow, 0}}},
		{"B031 leaks all the time", "10/min burst 10", []bugStep{
			{0, 10, allow, 0}, {6*s - 1, 1, deny, 1}, {6 * s, 1, allow, 0}, {12 * s, 1, allow, 0}}},
		{"B032 what is refused fills nothing", "1/s burst 2", []bugStep{
			{0, 2, allow, 0}, {0, 1, deny, s}, {0, 1, deny, s}, {0, 2, deny, 2 * s}, {0, 1, deny, s}, {s, 1, allow, 0}, {s, 1, deny, s}}},
		{"B047 beyond 2^64", "2777777777778/s burst 2777777777778", []bugStep{
			{0, 2777777777778, allow, 0}, {77 * day, 2777777777778, allow, 0}, {77 * day, 1, deny, 1}}},
		{"B048 a long way to full", "1/h burst 10", []bugStep{
			{0, 10, allow, 0}, {0, 10, deny, 10 * hour}, {hour, 1, allow, 0}, {11 * hour, 10, allow, 0}}},
		{"B049 beyond 31 bits of milliseconds", "1/30d burst 1", []bugStep{
			{0, 1, allow, 0}, {ms, 1, deny, 30*day - ms}, {25 * day, 1, deny, 5 * day}, {30*day - 1, 1, deny, 1}, {30 * day, 1, allow, 0}}},
		{"B049 a window beyond 31 bits of milliseconds", "1/30d fixed", []bugStep{
			{0, 1, allow, 0}, {ms, 1, deny, 30*day - ms}, {30*day - 1, 1, deny, 1}, {30 * day, 1, allow, 0}}},
		{"B053 retry is what is left of the window", "10/min fixed", []bugStep{
			{0, 9, allow, 0}, {18 * s, 1, allow, 0}, {20 * s, 1, deny, 40 * s}, {min - 1, 1, deny, 1}, {min, 1, allow, 0}}},
		{"B058 retry looks at the oldest entry", "2/min log", []bugStep{
			{0, 1, allow, 0}, {10 * s, 1, allow, 0}, {20 * s, 1, deny, 40 * s}, {min - 1, 1, deny, 1}, {min, 1, allow, 0}}},
		{"B062 every window is served in full", "5/10s fixed", []bugStep{
			{0, 5, allow, 0}, {0, 1, deny, 10 * s}, {10 * s, 1, allow, 0}, {10 * s, 4, allow, 0}, {10 * s, 1, deny, 10 * s},
			{20 * s, 1, allow, 0}, {20 * s, 4, allow, 0}, {20 * s, 1, deny, 10 * s}}},
		{"B083 in view a full period after the last", "10/h log", []bugStep{
			{0, 1, allow, 0}, {59 * min, 8, allow, 0}, {61 * min, 3, deny, 58 * min}, {61 * min, 2, allow, 0}, {61 * min, 1, deny, 58 * min}}},
		{"B105 burst 0 is nothing", "5/s burst 0", []bugStep{{0, 0, allow, 0}, {0, 1, deny, Never}, {10 * s, 1, deny, Never}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for name, r := range runs(t, mustMeter(t, c.limit).Limit()) {
				for i, b := range c.steps {
					d, err := r.take(Instant(b.at), b.n)
					if err != nil || d.Allowed != b.ok || d.RetryAfter != b.retry {
						t.Errorf("%s: step %d: %+v, %v", name, i, d, err)
					}
				}
			}
		})
	}
}

// A burst that a product of large numbers gives is an error where it does not
// fit, and never no limit.
func TestB042LargeBandwidths(t *testing.T) {
	const tib = int64(1) << 40
	l := Limit{Rate: 2 * tib, Period: time.Second, Burst: 2 * tib / 64}
	m, err := l.Meter()
	if err != nil {
		t.Fatal(err)
	}
	if _, d := m.Take(State{}, 0, 2*l.Burst); d.Allowed || d.Reason != NeverFits {
		t.Errorf("twice the burst: %+v", d)
	}
	if _, d := m.Take(State{}, 0, l.Burst); !d.Allowed {
		t.Errorf("the burst: %+v", d)
	}
	impossible(t, Limit{Rate: 10 * tib, Period: time.Second, Burst: 10 * tib / 64})
	product := int64(math.MaxInt64)
	product *= 2 // as a program that computes it would get
	impossible(t, Limit{Rate: tib, Period: time.Second, Burst: product})
}

// A waiting time of the largest number is a long one, not one in the past.
func TestB040LargestWait(t *testing.T) {
	m := mustMeter(t, "1/s burst 1")
	s, _ := m.Take(State{}, 0, 1)
	if _, d := m.Take(s, 0, 1); d.RetryAfter != time.Second || d.RetryAfter > Never {
		t.Errorf("%+v", d)
	}
	if got := Instant(5).sub(math.MinInt64); got != Never {
		t.Errorf("5 - the first instant = %v", got)
	}
	if got := later(5, math.MaxInt64); got != math.MaxInt64 {
		t.Errorf("5 + the longest wait = %v", got)
	}
}

// Refused calls do not count, so that doubling a quota frees as much again.
func TestB054ChangeFreesWhatItAdds(t *testing.T) {
	for name, r := range runs(t, mustMeter(t, "10/h fixed").Limit()) {
		for i := range 50 {
			if d := must(r.take(0, 1)); d.Allowed != (i < 10) {
				t.Fatalf("%s: ask %d: %+v", name, i, d)
			}
		}
		if err := r.change(Instant(time.Minute), mustMeter(t, "20/h fixed").Limit()); err != nil {
			t.Fatal(err)
		}
		if d := must(r.take(Instant(time.Minute), 10)); !d.Allowed {
			t.Errorf("%s: ten more: %+v", name, d)
		}
		if d := must(r.take(Instant(time.Minute), 1)); d.Allowed {
			t.Errorf("%s: one more: %+v", name, d)
		}
	}
}

// A burst below what is there clamps, it doesn't underflow.
func TestB059SmallerBurst(t *testing.T) {
	for name, r := range runs(t, mustMeter(t, "10/s burst 100").Limit()) {
		must(r.take(0, 1))
		if err := r.change(0, mustMeter(t, "10/s burst 5").Limit()); err != nil {
			t.Fatal(err)
		}
		if d := must(r.take(0, 6)); d.Allowed || d.RetryAfter != Never || d.Remaining != 5 {
			t.Errorf("%s: six of five: %+v", name, d)
		}
		if d := must(r.take(0, 5)); !d.Allowed {
			t.Errorf("%s: five: %+v", name, d)
		}
		if d := must(r.take(0, 1)); d.Allowed {
			t.Errorf("%s: one more: %+v", name, d)
		}
	}
}

// What is given back stops at what a limit holds, for every algorithm.
func TestB060GivenBackWhenFull(t *testing.T) {
	for _, text := range []string{"10/s burst 10", "10/s queue 9", "10/s fixed", "10/s sliding", "10/s log", "10 at once"} {
		for name, r := range runs(t, mustMeter(t, text).Limit()) {
			if err := r.settle(0, 0, -1000); err != nil {
				t.Fatal(err)
			}
			if d := must(r.take(0, 10)); !d.Allowed || d.Remaining != 0 {
				t.Errorf("%s, %s: all: %+v", text, name, d)
			}
			if d := must(r.take(0, 1)); d.Allowed {
				t.Errorf("%s, %s: one more: %+v", text, name, d)
			}
		}
	}
}

// A shaper delays; it doesn't let all go at once.
func TestB074ShapingDelays(t *testing.T) {
	for name, r := range runs(t, mustMeter(t, "1/s queue 5").Limit()) {
		for i := range 3 {
			if d := must(r.take(0, 1)); !d.Allowed || d.Delay != time.Duration(i)*time.Second {
				t.Errorf("%s: ask %d: %+v", name, i, d)
			}
		}
	}
}

// Two limits have two windows: the first to begin anew leaves the other alone.
func TestB100TwoCountersTwoWindows(t *testing.T) {
	requests, tokens := mustMeter(t, "500/min fixed"), mustMeter(t, "200000/min fixed")
	var a, b State
	var d, e Decision
	for i, n := range []int64{150000, 100000} {
		now := Instant(i) * Instant(time.Minute)
		a, d = requests.Take(a, now, 1)
		b, e = tokens.Take(b, now, n)
		if !d.Allowed || !e.Allowed || d.Remaining != 499 || e.Remaining != 200000-n {
			t.Errorf("minute %d: %+v, %+v", i, d, e)
		}
	}
}

// Months are the calendar's: none spills over into the next, and thirty days
// are another limit.
func TestB102Months(t *testing.T) {
	month, days := mustMeter(t, "100/calendar month"), mustMeter(t, "100/30d log")
	s, _ := month.Take(State{}, instant(t, "2026-03-01T00:00:00Z"), 60)
	if _, d := month.Take(s, instant(t, "2026-03-31T12:00:00Z"), 50); d.Allowed || d.RetryAfter != 12*time.Hour {
		t.Errorf("31 March: %+v", d)
	}
	for _, c := range []struct{ now, end string }{
		{"2026-01-31T12:00:00Z", "2026-02-01T00:00:00Z"},
		{"2026-02-28T12:00:00Z", "2026-03-01T00:00:00Z"},
		{"2028-02-29T12:00:00Z", "2028-03-01T00:00:00Z"},
	} {
		if b := month.window.at(instant(t, c.now)); b.end != instant(t, c.end) {
			t.Errorf("the month of %s ends at %s", c.now, utc(b.end))
		}
	}
	r := logRun{m: days}
	must(r.take(instant(t, "2026-03-01T00:00:00Z"), 60))
	if d := must(r.take(instant(t, "2026-03-30T23:59:59Z"), 50)); d.Allowed {
		t.Errorf("within thirty days: %+v", d)
	}
	if d := must(r.take(instant(t, "2026-03-31T00:00:00Z"), 50)); !d.Allowed {
		t.Errorf("after thirty days: %+v", d)
	}
}

// The zone of a day is part of the rule.
func TestB104DayOfTheProvider(t *testing.T) {
	m := mustMeter(t, "300/calendar day in America/Los_Angeles")
	s, _ := m.Take(State{}, instant(t, "2026-03-01T23:00:00Z"), 300)
	if _, d := m.Take(s, instant(t, "2026-03-02T00:30:00Z"), 300); d.Allowed || d.RetryAfter != 7*time.Hour+30*time.Minute {
		t.Errorf("half past midnight in Greenwich: %+v", d)
	}
	if _, d := m.Take(s, instant(t, "2026-03-02T08:00:00Z"), 300); !d.Allowed {
		t.Errorf("midnight in Los Angeles: %+v", d)
	}
}

// A refusal at one limit leaves nothing at the others, in whatever order.
func TestB107RefusedCostsNothing(t *testing.T) {
	s := Instant(time.Second)
	mem := NewMemory()
	perMinute, inside := mustMeter(t, "2/min fixed"), mustMeter(t, "1 at once")
	user, door := mustSpace(t, SpaceOptions{}), mustSpace(t, SpaceOptions{})
	cs := []Charge{
		{Space: user, Key: Key{7 << 40}, Meter: perMinute, Ask: Ask{N: 1}},
		{Space: door, Key: Key{7 << 40}, Meter: inside, Ask: Ask{N: 1}},
	}
	for _, order := range [][]Charge{cs, {cs[1], cs[0]}} {
		s += 3600 * Instant(time.Second)
		a := takeAll(t, mem, s, order...)
		if !a[0].Allowed || !a[1].Allowed {
			t.Fatalf("A: %+v", a)
		}
		if b := takeAll(t, mem, s, order...); b[0].Allowed && b[1].Allowed || b[0].Taken+b[1].Taken != 0 {
			t.Errorf("B: %+v", b)
		}
		slot := a[0].Slot | a[1].Slot
		settleOne(t, mem, s, Correction{Space: door, Key: Key{7 << 40}, Meter: inside, Delta: -1, At: s, Slot: slot})
		if c := takeAll(t, mem, s, order...); !c[0].Allowed || !c[1].Allowed {
			t.Errorf("C: %+v", c)
		}
	}
}

// Only differences of time count: any origin gives the same decisions.
func TestB161OriginOfTheClock(t *testing.T) {
	for _, text := range []string{"5/s burst 5", "3/s burst 5", "5/s queue 4", "5/s fixed", "5/s sliding", "5/s log", "5 at once for 1s"} {
		var want []Decision
		for _, origin := range []Instant{0, -1 << 62, 1 << 62, -1, 1} {
			origin -= origin % Instant(time.Second) // windows lie where they lie
			for name, r := range runs(t, mustMeter(t, text).Limit()) {
				var got []Decision
				for _, at := range []Instant{0, Instant(2 * time.Second), Instant(2*time.Second + 200*time.Millisecond)} {
					for range 6 {
						d := must(r.take(origin+at, 1))
						d.At, d.Slot = 0, 0
						got = append(got, d)
					}
				}
				if want == nil {
					want = got
				}
				for i := range got {
					if got[i] != want[i] {
						t.Errorf("%s, %s from %d: step %d: %+v, want %+v", text, name, origin, i, got[i], want[i])
					}
				}
			}
		}
	}
}
