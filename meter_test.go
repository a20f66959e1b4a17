package spillgate

import (
	"errors"
	"math"
	"sync"
	"testing"
	"time"
)

func TestMeterIsInterned(t *testing.T) {
	a, b := mustMeter(t, "10/s burst 20"), mustMeter(t, "10/s burst 20")
	if a != b {
		t.Error("equal limits have two meters")
	}
	if c := mustMeter(t, "10/s burst 21"); c == a || c.id == a.id {
		t.Error("two limits share a meter")
	}
	again, err := a.renewed()
	if err != nil || again == a || again.id == a.id || again.limit != a.limit {
		t.Errorf("renewed: %+v, %v", again, err)
	}
	if mustMeter(t, "10/s burst 20") != a {
		t.Error("renewing changed the meter of a limit")
	}
	s, _ := a.Take(State{}, 0, 1)
	if s.meter() != a {
		t.Error("a state does not name its meter")
	}
}

func TestMetersOfManyGoroutines(t *testing.T) {
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 50 {
				l := Limit{Rate: int64(i%10 + 1), Period: time.Second, Burst: int64(1000 + g%2)}
				m, err := l.Meter()
				if err != nil || m.Limit() != l {
					t.Errorf("%v: %v, %v", l, m, err)
				}
				if s, _ := m.Take(State{}, 0, 1); s.meter() != m {
					t.Error("a state does not name its meter")
				}
			}
		})
	}
	wg.Wait()
}

// The zero State and the states of unknown or other meters are as new.
func TestStateOfAnotherAlgorithmIsAsNew(t *testing.T) {
	bucket, window := mustMeter(t, "1/h burst 5"), mustMeter(t, "5/h fixed")
	s, _ := bucket.Take(State{}, 0, 5)
	if _, d := window.Take(s, 0, 5); !d.Allowed {
		t.Errorf("a window took a bucket's state for its own: %+v", d)
	}
	if _, d := bucket.Take(State{A: 1 << 60, B: uint64(maxIDs-1)<<partBits | 7}, 0, 5); !d.Allowed {
		t.Errorf("a state of no meter limited somebody: %+v", d)
	}
}

func TestTakeOfStatesThatAreNotWords(t *testing.T) {
	for _, text := range []string{"5/s log", "5 at once"} {
		if _, d := mustMeter(t, text).Take(State{}, 0, 1); d.Allowed || d.RetryAfter != Never {
			t.Errorf("%s: a step without a store: %+v", text, d)
		}
	}
}

func TestDecisionErr(t *testing.T) {
	m := mustMeter(t, "1/s burst 2")
	s, d := m.Take(State{}, 0, 2)
	if err := d.Err(); err != nil {
		t.Error(err)
	}
	for _, c := range []struct {
		n    int64
		want []error
	}{
		{1, []error{ErrDenied}},
		{3, []error{ErrDenied, ErrNeverFits}},
		{-1, []error{ErrDenied, ErrCost}},
	} {
		_, d := m.Take(s, 0, c.n)
		for _, want := range c.want {
			if err := d.Err(); !errors.Is(err, want) {
				t.Errorf("cost %d: %v, want %v", c.n, err, want)
			}
		}
	}
}

// What fits in [Min, N] is granted; Keep units stay for others.
func TestGrant(t *testing.T) {
	for _, text := range []string{"10/h burst 10", "10/h queue 9", "10/h fixed", "10/h sliding"} {
		m := mustMeter(t, text)
		s, _ := m.Take(State{}, 0, 6) // 4 are left
		for _, c := range []struct {
			q         Ask
			taken     int64
			remaining int64
			reason    Reason
		}{
			{Ask{N: 4}, 4, 0, Granted},
			{Ask{N: 5}, 0, 4, OverLimit},
			{Ask{N: 8, Min: 3}, 4, 0, Granted},
			{Ask{N: 8, Min: 4}, 4, 0, Granted},
			{Ask{N: 8, Min: 5}, 0, 4, OverLimit},
			{Ask{N: 20, Min: 1}, 4, 0, Granted},
			{Ask{N: 20, Min: 11}, 0, 4, NeverFits},
			{Ask{N: 2, Min: 1}, 2, 2, Granted},
			{Ask{N: 3, Keep: 1}, 3, 0, Granted},
			{Ask{N: 4, Keep: 1}, 0, 3, OverLimit},
			{Ask{N: 4, Min: 1, Keep: 1}, 3, 0, Granted},
			{Ask{N: 8, Keep: 3}, 0, 1, NeverFits},
			{Ask{N: 1, Keep: 10}, 0, 0, NeverFits},
			{Ask{Keep: 7}, 0, 0, Granted},
			{Ask{N: 1, Keep: math.MaxInt64}, 0, 0, NeverFits},
			{Ask{N: math.MaxInt64, Min: 1, Keep: math.MaxInt64}, 0, 0, NeverFits},
			{Ask{N: -1}, 0, 0, BadCost},
			{Ask{N: 1, Min: 2}, 0, 0, BadCost},
			{Ask{N: 1, Keep: -1}, 0, 0, BadCost},
		} {
			after, d := m.Grant(s, 0, c.q)
			if d.Taken != c.taken || d.Remaining != c.remaining || d.Reason != c.reason || d.Allowed != (c.reason == Granted) {
				t.Errorf("%s: %+v: %+v", text, c.q, d)
			}
			if d.Taken == 0 && after != s {
				t.Errorf("%s: %+v took nothing and left another state", text, c.q)
			}
			if c.reason == OverLimit {
				wait := d.RetryAfter
				if _, d := m.Grant(s, Instant(wait), c.q); !d.Allowed {
					t.Errorf("%s: %+v: denied after its own retry of %v", text, c.q, wait)
				}
				if _, d := m.Grant(s, Instant(wait)-1, c.q); d.Allowed {
					t.Errorf("%s: %+v: allowed before its own retry of %v", text, c.q, wait)
				}
			}
		}
	}
}

// At the ends of time nothing wraps: what fits at once passes, then no more.
func TestEndsOfTime(t *testing.T) {
	for _, text := range []string{
		"10/s burst 10", "3/s burst 10", "10/366d burst 10", "10/s queue 9", "10/s fixed", "10/366d fixed",
		"10/ms sliding", "10/366d sliding", "10/s log", "10/366d log", "10 at once",
	} {
		for _, now := range []Instant{math.MinInt64, math.MinInt64 + 1, -1, 0, 1 << 62, math.MaxInt64 - 1, math.MaxInt64} {
			for name, r := range runs(t, mustMeter(t, text).Limit()) {
				for i := range 10 {
					if d, err := r.take(now, 1); err != nil || !d.Allowed || d.Remaining != int64(9-i) || d.ResetAfter < 1 {
						t.Errorf("%s, %s at %d: %d of 10: %+v, %v", text, name, now, i+1, d, err)
					}
				}
				for _, later := range []Instant{now, math.MaxInt64} {
					if now < 1<<62 && later != now {
						continue // there is time enough to earn more
					}
					if d, err := r.take(later, 10); err != nil || later == now && (d.Allowed || d.RetryAfter < 1) || d.Remaining < 0 {
						t.Errorf("%s, %s at %d: ten more at %d: %+v, %v", text, name, now, later, d, err)
					}
				}
			}
		}
	}
}

// However much is owed, debt saturates; it never becomes credit.
func TestDebtSaturates(t *testing.T) {
	for _, text := range []string{"10/s burst 10", "3/s burst 10", "0/s burst 10", "10/s queue 9", "10/s fixed", "10/s sliding", "10/s log"} {
		for _, now := range []Instant{-5, 0, 1 << 62} {
			for name, r := range runs(t, mustMeter(t, text).Limit()) {
				for range 5 {
					if err := r.settle(now, now, math.MaxInt64); err != nil {
						t.Fatal(err)
					}
					d, err := r.take(now, 1)
					if err != nil || d.Allowed || d.Remaining != 0 || d.RetryAfter < 1 || d.ResetAfter < 1 {
						t.Errorf("%s, %s at %d: in debt: %+v, %v", text, name, now, d, err)
					}
				}
				if err := r.settle(now, now, math.MinInt64); err != nil {
					t.Fatal(err)
				}
				if d, err := r.take(now, 10); err != nil || !d.Allowed {
					t.Errorf("%s, %s at %d: all given back: %+v, %v", text, name, now, d, err)
				}
			}
		}
	}
}

func TestStepsAllocateNothing(t *testing.T) {
	var now Instant
	for _, text := range []string{
		"1000/s burst 10", "3/s burst 10", "0/s burst 10", "1000/s queue 9", "10/ms fixed", "10/calendar day in Europe/Berlin",
		"10/ms sliding", "unlimited",
	} {
		m, other := mustMeter(t, text), mustMeter(t, text)
		if l := m.Limit(); l.Rate > 0 {
			l.Rate++
			other, _ = l.Meter()
		}
		var s State
		if n := testing.AllocsPerRun(1000, func() {
			now += 100_000
			s, _ = m.Take(s, now, 1)
			s, _ = m.Take(s, now, 100)
			s = m.Settle(s, now, now, 1)
			s = m.Settle(s, now, now, -1)
			s = other.Adopt(s, now)
			s = m.Adopt(s, now)
		}); n != 0 {
			t.Errorf("%s: %v allocations", text, n)
		}
	}
}

// FuzzMeter asks any limit anything in any state: nothing panics, and what is
// said is true of the step that said it.
func FuzzMeter(f *testing.F) {
	for _, seed := range []struct {
		text            string
		a               int64
		b               uint64
		foreign         bool
		now, later      int64
		n, least, keep  int64
		settled, repaid int64
	}{
		{"1/s burst 10", 0, 0, false, 1e10, 0, 10, 0, 0, 0, 0},                                   // B001
		{"1/h burst 1", 3600e9, 0, false, 1979657657827, 3600e9, 1, 0, 0, 0, 0},                  // B003
		{"5/s burst 5", 0, 0, false, 0, 2e9, 6, 0, 0, 0, 0},                                      // B019
		{"10/s burst 10", 0, 0, false, 0, 0, 11, 0, 0, 0, 0},                                     // B020
		{"300000/min burst 300000", 60e9, 0, false, 0, 12 * 3600e9, 300000, 0, 0, 0, 0},          // B025
		{"2199023255552/s burst 34359738368", 0, 0, false, 0, 0, 68719476736, 0, 0, 0, 0},        // B042
		{"2777777777778/s", 1e9, 0, false, 0, 77 * 24 * 3600e9, 2777777777778, 0, 0, 0, 0},       // B047
		{"1/30d burst 1", 2592e12, 0, false, 0, 2592e12 - 1, 1, 0, 0, 0, 0},                      // B049
		{"10/min fixed", 60e9, 10, false, 20e9, 59999999999, 1, 0, 0, 0, 0},                      // B053
		{"10/s burst 5", 1e11, 0, true, 0, 0, 6, 0, 0, 0, 0},                                     // B059
		{"10/s burst 10", 1e9, 0, false, 1e10, 1e10, 10, 0, 0, 0, 1000},                          // B060
		{"5/s burst 0", 0, 0, false, 0, 1e10, 1, 0, 0, 0, 0},                                     // B105
		{"5/s burst 5", 0, 0, false, -1 << 62, 1 << 62, 5, 0, 0, 0, 0},                           // B161
		{"1/s queue 5", 3e9, 0, false, 0, 1e9, 7, 2, 1, 3, 1},                                    //
		{"7/ms sliding", 7<<32 | 3, 12, true, 12e6, 13e6, 7, 1, 2, math.MaxInt64, -5},            //
		{"7/calendar day in Europe/Berlin", 1 << 62, 12, false, 1 << 60, 1 << 61, 7, 1, 2, 3, 4}, //
		{"0/s burst 9", math.MaxInt64, 3, false, 5, 6, 7, 1, 2, 3, math.MaxInt64},                //
	} {
		f.Add(seed.text, seed.a, seed.b, seed.foreign, seed.now, seed.later, seed.n, seed.least, seed.keep, seed.settled, seed.repaid)
	}
	others := map[Algorithm]*Meter{
		Bucket: mustMeter(f, "7/3s burst 100"), Queue: mustMeter(f, "7/3s queue 100"),
		FixedWindow: mustMeter(f, "7/3s fixed"), SlidingCounter: mustMeter(f, "7/3s sliding"),
	}
	f.Fuzz(func(t *testing.T, text string, a int64, b uint64, foreign bool, now0, later0, n, least, keep, spent, repaid int64) {
		l, err := ParseLimit(text)
		if err != nil {
			return // no limit, no step
		}
		m, err := l.Meter()
		if errors.Is(err, ErrTooManyLimits) {
			return // a fuzzer makes more of them than a process may
		}
		if err != nil {
			t.Fatal(err)
		}
		by := m
		if other := others[l.Algorithm]; foreign && other != nil {
			by = other
		}
		s := State{}
		if b &= partMask; b != 0 {
			switch {
			case by.den > 0:
				b %= by.den   // what a flow is late is below one nanosecond
				if a > now0 { // no debt is as large as farthest
					a = now0 + int64((uint64(a)-uint64(now0))%uint64(farthest))
				}
			case l.Algorithm == SlidingCounter: // not of a later window than now
				b = uint64(by.window.number(by.within(Instant(now0)))-int64(b%3)) & partMask
			case l.Algorithm == Bucket:
				a = math.MaxInt64 // what earns nothing is never full again
			}
			s = by.pack(a, b)
		}
		now, later := Instant(now0), Instant(max(now0, later0))
		if spent > 0 {
			s = m.Settle(s, now, now, spent)
		}
		before := s
		s, d := m.Grant(s, now, Ask{N: n, Min: least, Keep: keep})
		checkStep(t, m, before, s, now, Ask{N: n, Min: least, Keep: keep}, d)
		s = m.Settle(s, later, now, -max(repaid, 0))
		before = s
		s, d = m.Grant(s, later, Ask{N: 1})
		checkStep(t, m, before, s, later, Ask{N: 1}, d)
		m.isNew(s, later)
	})
}

// checkStep checks what one decision says of itself (I3, I4, I5, I6, I8).
func checkStep(t *testing.T, m *Meter, before, after State, now Instant, q Ask, d Decision) {
	t.Helper()
	if m.limit.Algorithm == SlidingLog || m.limit.Algorithm == Concurrency {
		return
	}
	if d.Allowed != (d.Reason == Granted) || d.Taken < 0 || d.Taken > 0 && !d.Allowed {
		t.Fatalf("%v: %+v: %+v contradicts itself", m.limit, q, d)
	}
	if d.Allowed && (d.Taken > q.N || q.Min == 0 && d.Taken != q.N || d.Taken < q.Min && q.N > 0) {
		t.Fatalf("%v: %+v: took %d", m.limit, q, d.Taken)
	}
	if d.Remaining < 0 || d.Remaining > m.most || d.RetryAfter < 0 || d.ResetAfter < 0 || d.Delay < 0 || (d.RetryAfter > 0) == d.Allowed {
		t.Fatalf("%v: %+v: out of range: %+v", m.limit, q, d)
	}
	if d.Reason == BadCost || m.limit.Algorithm == Unlimited {
		return
	}
	before = m.Adopt(before, now)
	if _, look := m.Grant(before, now, Ask{}); d.Taken == 0 && look != withoutSteps(m, after, now) {
		t.Fatalf("%v: %+v: denied, and yet the state is another: %+v", m.limit, q, d)
	}
	if _, e := m.Grant(after, now, Ask{N: d.Remaining, Keep: q.Keep}); !e.Allowed {
		t.Fatalf("%v: %d remain, and are denied: %+v", m.limit, d.Remaining, e)
	}
	if d.Remaining < math.MaxInt64 {
		if _, e := m.Grant(after, now, Ask{N: d.Remaining + 1, Keep: q.Keep}); e.Allowed {
			t.Fatalf("%v: %d remain, and one more is allowed: %+v", m.limit, d.Remaining, e)
		}
	}
	if wait := d.RetryAfter; wait > 0 && wait < Never && m.within(now) == now && now <= m.last-Instant(wait) {
		if _, e := m.Grant(before, now+Instant(wait), q); !e.Allowed {
			t.Fatalf("%v: %+v: denied after its retry of %d: %+v", m.limit, q, wait, e)
		}
		if _, e := m.Grant(before, now+Instant(wait)-1, q); e.Allowed {
			t.Fatalf("%v: %+v: allowed before its retry of %d: %+v", m.limit, q, wait, e)
		}
	}
	if wait := d.ResetAfter; wait < Never && m.within(now) == now && now <= m.last-Instant(wait) {
		if !m.isNew(after, now+Instant(wait)) {
			t.Fatalf("%v: not new after its reset of %d", m.limit, wait)
		}
		if wait > 0 && m.isNew(after, now+Instant(wait)-1) {
			t.Fatalf("%v: new before its reset of %d", m.limit, wait)
		}
	}
}

func withoutSteps(m *Meter, s State, now Instant) Decision {
	_, d := m.Grant(s, now, Ask{})
	return d
}
