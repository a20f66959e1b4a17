package spillgate

import (
	"math/rand/v2"
	"testing"
	"time"
)

// naiveLog is the definition: every unit taken counts for one period.
type naiveLog struct {
	limit, period int64
	taken         []logEntry // at, and its cost in total
}

func (l *naiveLog) used(now int64) (n int64) {
	for _, e := range l.taken {
		if now-int64(e.at) < l.period {
			n += e.total
		}
	}
	return n
}

// wait returns the least wait after which ok.
func (l *naiveLog) wait(now int64, ok func(used int64) bool) time.Duration {
	least := int64(-1)
	for _, e := range append([]logEntry{{at: Instant(now - l.period)}}, l.taken...) {
		if d := int64(e.at) + l.period - now; d >= 0 && (least < 0 || d < least) && ok(l.used(now+d)) {
			least = d
		}
	}
	if least < 0 {
		return Never
	}
	return time.Duration(least)
}

func (l *naiveLog) take(now, n int64) Decision {
	d := Decision{Limit: l.limit, At: Instant(now)}
	free := l.limit - l.used(now)
	switch {
	case n <= max(free, 0):
		d.Allowed, d.Reason, d.Taken = true, Granted, n
		if n > 0 {
			l.taken = append(l.taken, logEntry{Instant(now), n})
		}
		free -= n
	case n > l.limit:
		d.Reason, d.RetryAfter = NeverFits, Never
	default:
		d.RetryAfter = l.wait(now, func(used int64) bool { return used+n <= l.limit })
	}
	d.Remaining = max(free, 0)
	d.ResetAfter = l.wait(now, func(used int64) bool { return used == 0 })
	return d
}

func (l *naiveLog) giveBack(now, taken, n int64) {
	for i := range l.taken {
		if e := &l.taken[i]; int64(e.at) == taken && now-taken < l.period {
			back := min(n, e.total)
			e.total -= back
			n -= back
		}
	}
	kept := l.taken[:0]
	for _, e := range l.taken {
		if e.total > 0 {
			kept = append(kept, e)
		}
	}
	l.taken = kept
}

func TestLogAgainstItsDefinition(t *testing.T) {
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 1))
		limit, period := r.Int64N(9), 1+r.Int64N(12)
		m, err := Limit{Algorithm: SlidingLog, Rate: limit, Period: time.Duration(period)}.Meter()
		if err != nil {
			t.Fatal(err)
		}
		l, want := logRun{m: m}, naiveLog{limit: limit, period: period}
		now := int64(0)
		for step := range 60 {
			now += r.Int64N(4) * r.Int64N(4)
			n := r.Int64N(limit + 3)
			if r.IntN(6) == 0 {
				taken := now - r.Int64N(period+2)
				l.settle(Instant(now), Instant(taken), -n)
				want.giveBack(now, taken, n)
				continue
			}
			got, _ := l.take(Instant(now), n)
			if want := want.take(now, n); got != want {
				t.Fatalf("seed %d step %d: %d of %d/%dns at %d: got %+v, want %+v", seed, step, n, limit, period, now, got, want)
			}
			if len(l.l.ring) > int(max(limit, 4)) {
				t.Fatalf("seed %d: %d entries for a limit of %d", seed, len(l.l.ring), limit)
			}
			if isNew, none := l.l.newAt() <= Instant(now), want.used(now) == 0; isNew != none {
				t.Fatalf("seed %d step %d: as new: %v, want %v", seed, step, isNew, none)
			}
		}
	}
}

func TestLogDebt(t *testing.T) {
	r := logRun{m: mustMeter(t, "3/10s log")}
	at := func(s int) Instant { return Instant(s) * Instant(time.Second) }
	r.take(at(0), 3)
	// Debt beyond the entries there is room for stays in view longer, never
	// shorter, and never grows the log.
	for ms := 100; ms <= 100_000; ms += 100 {
		now := Instant(ms) * Instant(time.Millisecond)
		r.settle(now, now, 2)
		if len(r.l.ring) > 3+logDebt {
			t.Fatalf("%d entries for a limit of 3", len(r.l.ring))
		}
	}
	if d, _ := r.take(at(100), 1); d.Allowed || d.Remaining != 0 || d.RetryAfter > 10*time.Second {
		t.Errorf("in debt: %+v", d)
	}
	if d, _ := r.take(at(109), 2); d.Allowed {
		t.Errorf("the last debt in view: %+v", d)
	}
	if d, _ := r.take(at(110), 3); !d.Allowed {
		t.Errorf("a period after the last debt: %+v", d)
	}
	// It saturates, it doesn't wrap.
	for range 5 {
		r.settle(at(111), at(111), 1<<62)
	}
	if d, _ := r.take(at(111), 1); d.Allowed || d.Remaining != 0 || d.RetryAfter != 10*time.Second {
		t.Errorf("in boundless debt: %+v", d)
	}
}

func TestLogChange(t *testing.T) {
	s := Instant(time.Second)
	r := logRun{m: mustMeter(t, "4/10s log")}
	r.take(0, 1)
	r.take(6*s, 3)
	if err := r.change(9*s, mustMeter(t, "2/5s log").Limit()); err != nil {
		t.Fatal(err)
	}
	// In view of 5 s are the three of 6 s: one more than fits.
	if d, _ := r.take(9*s, 1); d.Allowed || d.RetryAfter != 2*time.Second {
		t.Errorf("shorter: %+v", d)
	}
	r.take(11*s, 2)
	if err := r.change(17*s, mustMeter(t, "4/10s log").Limit()); err != nil {
		t.Fatal(err)
	}
	// What had left the old view does not come back.
	if d, _ := r.take(17*s, 0); d.Remaining != 4 || d.ResetAfter != 0 {
		t.Errorf("longer again: %+v", d)
	}
}

// A crowd's room is given back when the crowd has gone.
func TestLogGivesRoomBack(t *testing.T) {
	r := logRun{m: mustMeter(t, "1000/s log")}
	for i := range 1000 {
		r.take(Instant(i), 1)
	}
	if n := len(r.l.ring); n != 1000 {
		t.Fatalf("room for %d", n)
	}
	if got, most := r.l.size(), r.m.Limit().KeyBytes(); got > most {
		t.Errorf("%d bytes, said to be at most %d", got, most)
	}
	r.take(Instant(3*time.Second), 0)
	if len(r.l.ring) != 0 {
		t.Errorf("room for %d after a quiet", len(r.l.ring))
	}
}

func TestLogAllocatesNothing(t *testing.T) {
	r := logRun{m: mustMeter(t, "100/us log")}
	now := Instant(0)
	take := func() {
		now += 5
		r.take(now, 1)
		r.take(now, 90)
	}
	for range 1000 {
		take()
	}
	if n := testing.AllocsPerRun(1000, take); n != 0 {
		t.Errorf("%v allocations a decision", n)
	}
}
