package spillgate

import (
	"math"
	"testing"
	"time"
)

// TestBucketSmallScope tries every list of three steps under every small limit
// against the definition, in whole parts of a unit: balance = the least, over
// all instants before, of burst + what was earned since - what was taken since.
func TestBucketSmallScope(t *testing.T) {
	for rate := int64(0); rate <= 3; rate++ {
		for period := int64(1); period <= 4; period++ {
			for burst := int64(0); burst <= 3; burst++ {
				l := Limit{Rate: rate, Period: time.Duration(period), Burst: burst}
				m, err := l.Meter()
				if err != nil {
					t.Fatal(err)
				}
				// One unit is period parts, and rate parts are earned a nanosecond.
				scope{t: t, m: m, rate: rate, period: period, burst: burst}.walk(State{}, 0, burst*period, 3)
			}
		}
	}
}

type scope struct {
	t                   *testing.T
	m                   *Meter
	rate, period, burst int64
}

// walk tries all steps from a state at now whose balance is in parts.
func (c scope) walk(s State, now Instant, parts int64, depth int) {
	if depth == 0 || c.t.Failed() {
		return
	}
	for step := int64(0); step <= 4; step++ {
		for n := int64(0); n <= 4; n++ {
			have := min(parts+step*c.rate, c.burst*c.period)
			want := Decision{Limit: c.burst, At: now + Instant(step)}
			switch need := n * c.period; {
			case need <= have:
				have -= need
				want.Allowed, want.Reason, want.Taken = true, Granted, n
			case n > c.burst:
				want.Reason, want.RetryAfter = NeverFits, Never
			default:
				want.RetryAfter = c.wait(need - have)
			}
			want.Remaining = have / c.period
			want.ResetAfter = c.wait(c.burst*c.period - have)
			after, got := c.m.Take(s, now+Instant(step), n)
			if got != want {
				c.t.Fatalf("%v: %d parts at %d, %d more ns, cost %d: got %+v, want %+v", c.m.limit, parts, now, step, n, got, want)
			}
			c.walk(after, now+Instant(step), have, depth-1)
		}
	}
}

// wait returns the time in which parts are earned.
func (c scope) wait(parts int64) time.Duration {
	switch {
	case parts == 0:
		return 0
	case c.rate == 0:
		return Never
	}
	return time.Duration((parts + c.rate - 1) / c.rate)
}

// What comes of what is there when a limit changes.
func TestBucketChange(t *testing.T) {
	const s = Instant(time.Second)
	for _, c := range []struct {
		name      string
		from      string
		take      int64 // at 0
		spend     int64 // at 0, refused by nothing
		to        string
		at        Instant
		remaining int64
		reset     time.Duration
	}{
		{"nothing changes", "10/s burst 10", 10, 0, "10/s burst 10", s / 2, 5, time.Second / 2},
		{"rate raised", "10/s burst 10", 10, 0, "100/s burst 10", s / 10, 1, 90 * time.Millisecond},
		{"rate lowered", "100/s burst 10", 10, 0, "1/s burst 10", s / 20, 5, 5 * time.Second},
		{"burst raised keeps what was earned", "10/s burst 10", 4, 0, "10/s burst 30", 0, 6, 2400 * time.Millisecond},
		{"burst raised fills where it says so", "10/s burst 10", 4, 0, "10/s burst 30 fill", 0, 30, 0},
		{"burst lowered fills nothing", "10/s burst 30", 10, 0, "10/s burst 25 fill", 0, 20, time.Second / 2},
		{"burst lowered clamps", "10/s burst 100", 1, 0, "10/s burst 5", 0, 5, 0},
		{"burst lowered below what is used", "10/s burst 100", 97, 0, "10/s burst 5", 0, 3, time.Second / 5},
		{"burst lowered to nothing", "10/s burst 10", 5, 0, "10/s burst 0", 0, 0, 0},
		{"debt stays debt", "10/s burst 10", 10, 5, "10/s burst 10 fill", 0, 0, 1500 * time.Millisecond},
		{"debt is paid at the new rate", "10/s burst 10", 10, 5, "5/s burst 10", 0, 0, 3 * time.Second},
		{"thirds become sevenths", "3/s burst 3", 3, 0, "7/s burst 3", s / 2, 1, 214285715},
		{"rate 0 from now on", "10/s burst 10", 7, 0, "0/s burst 10", s / 10, 4, Never},
		{"a rate after rate 0", "0/s burst 10", 7, 0, "10/s burst 10", 5 * s, 3, 700 * time.Millisecond},
		{"rate 0, fewer", "0/s burst 10", 7, 0, "0/s burst 5", s, 3, Never},
		{"rate 0, fewer than are left", "0/s burst 10", 2, 0, "0/s burst 5", s, 5, 0},
		{"from the largest rate to the smallest", "4398046511103/s burst 4398046511103", 4398046511103, 0, "1/366d burst 1", 0, 0, 366 * 24 * time.Hour},
	} {
		from, to := mustMeter(t, c.from), mustMeter(t, c.to)
		st, d := from.Take(State{}, 0, c.take)
		if !d.Allowed {
			t.Fatalf("%s: %+v", c.name, d)
		}
		if c.spend > 0 {
			st = from.Settle(st, 0, 0, c.spend)
		}
		_, d = to.Take(to.Adopt(st, c.at), c.at, 0)
		if d.Remaining != c.remaining || d.ResetAfter != c.reset {
			t.Errorf("%s: remaining %d, reset %v; want %d, %v", c.name, d.Remaining, d.ResetAfter, c.remaining, c.reset)
		}
	}
}

// Each change of rate rounds what is used up to a whole part of a nanosecond
// of the new rate: a thousand changes cost a thousand parts at most, and grant
// nothing.
func TestManyChangesGrantNothing(t *testing.T) {
	meters := []*Meter{mustMeter(t, "3/s burst 1000"), mustMeter(t, "7/s burst 1000"), mustMeter(t, "1000003/s burst 1000")}
	m := meters[0]
	s, _ := m.Take(State{}, 0, 1000)
	for i := range 1000 {
		m = meters[i%3]
		s = m.Adopt(s, 0)
	}
	m = meters[0]
	s = m.Adopt(s, 0)
	_, d := m.Take(s, 0, 0)
	exact := time.Duration(333_333_333_334)
	if d.ResetAfter < exact || d.ResetAfter > exact+1000 {
		t.Errorf("reset %v after a thousand changes, want %v and at most 1 µs more", d.ResetAfter, exact)
	}
}

func TestBucketSettle(t *testing.T) {
	const s = Instant(time.Second)
	m := mustMeter(t, "10/s burst 10")
	st, _ := m.Take(State{}, 0, 4)
	for _, c := range []struct {
		name      string
		at        Instant
		delta     int64
		remaining int64
		reset     time.Duration
	}{
		{"nothing", 0, 0, 6, 400 * time.Millisecond},
		{"more", 0, 3, 3, 700 * time.Millisecond},
		{"more than there is", 0, 16, 0, 2 * time.Second},
		{"less", 0, -3, 9, 100 * time.Millisecond},
		{"all of it", 0, -4, 10, 0},
		{"more than was taken", 0, -1000, 10, 0},
		{"what was earned back since", s, -4, 10, 0},
		{"more, later", s / 5, 1, 7, 300 * time.Millisecond},
		{"least number", 0, math.MinInt64, 10, 0},
	} {
		_, d := m.Take(m.Settle(st, c.at, 0, c.delta), c.at, 0)
		if d.Remaining != c.remaining || d.ResetAfter != c.reset {
			t.Errorf("%s: remaining %d, reset %v; want %d, %v", c.name, d.Remaining, d.ResetAfter, c.remaining, c.reset)
		}
	}
}

// For ever is for ever: three a second give exactly three a second, a hundred
// thousand in a row, each asked for at the first nanosecond it is there.
func TestNoFractionIsLost(t *testing.T) {
	for _, text := range []string{"3/s burst 2", "7/s burst 3", "1000003/s burst 2", "3/366d burst 2"} {
		m := mustMeter(t, text)
		var s State
		var now, last Instant
		var d Decision
		n := int64(0)
		s, _ = m.Take(s, now, m.limit.Burst)
		for now < 1<<60 && n < 100_000 {
			if s, d = m.Take(s, now, 1); d.Allowed {
				n, last = n+1, now
			} else {
				now += Instant(d.RetryAfter)
			}
		}
		// The n-th unit came at the first whole nanosecond at which it was earned.
		elapsed, due := int64(last), float64(n)*float64(m.limit.Period)/float64(m.limit.Rate)
		if float64(elapsed) < due*(1-1e-15) || float64(elapsed) > due*(1+1e-15)+1 {
			t.Errorf("%s: %d units in %d ns, want in %.0f", text, n, elapsed, due)
		}
	}
}
