package spillgate

import (
	"math/rand/v2"
	"testing"
	"time"
)

// naiveSlots is the definition: whoever is inside, and since when.
type naiveSlots struct {
	limit, hold int64
	inside      []holder
}

type holder struct{ slot, since, units int64 }

func (l *naiveSlots) heal(now int64) (used int64) {
	kept := l.inside[:0]
	for _, h := range l.inside {
		if now-h.since < l.hold {
			kept = append(kept, h)
			used += h.units
		}
	}
	l.inside = kept
	return used
}

func (l *naiveSlots) take(now, n, slot int64) Decision {
	d := Decision{Limit: l.limit, At: Instant(now)}
	used := l.heal(now)
	switch {
	case n <= max(l.limit-used, 0):
		d.Allowed, d.Reason, d.Taken = true, Granted, n
		if n > 0 {
			l.inside = append(l.inside, holder{slot, now, n})
		}
		used += n
	case n > l.limit:
		d.Reason, d.RetryAfter = NeverFits, Never
	default:
		left := used
		for _, h := range l.inside {
			if left -= h.units; left+n <= l.limit {
				d.RetryAfter = time.Duration(h.since + l.hold - now)
				break
			}
		}
	}
	d.Remaining = max(l.limit-used, 0)
	if k := len(l.inside); k > 0 {
		d.ResetAfter = time.Duration(l.inside[k-1].since + l.hold - now)
	}
	return d
}

func (l *naiveSlots) settle(now, slot, delta int64) {
	l.heal(now)
	for i := range l.inside {
		h := &l.inside[i]
		if h.slot != slot {
			continue
		}
		if h.units += delta; h.units <= 0 {
			l.inside = append(l.inside[:i], l.inside[i+1:]...)
		}
		return
	}
}

func TestSlotsAgainstTheirDefinition(t *testing.T) {
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 2))
		limit, hold := r.Int64N(9), 1+r.Int64N(12)
		m, err := Limit{Algorithm: Concurrency, Rate: limit, Period: time.Duration(hold)}.Meter()
		if err != nil {
			t.Fatal(err)
		}
		var l slotState
		want := naiveSlots{limit: limit, hold: hold}
		slots := []uint64{0} // by the number of the take
		now := int64(0)
		for step := range 80 {
			now += r.Int64N(4)
			n := r.Int64N(limit + 3)
			if r.IntN(2) == 0 {
				k := r.IntN(len(slots))
				delta := r.Int64N(6) - 4
				l.settle(m, Instant(now), slots[k], delta)
				want.settle(now, int64(k), delta)
				continue
			}
			got := l.ask(m, Instant(now), Ask{N: n})
			slot := l.commit(m, got, uint64(len(slots)))
			if (slot != 0) != (got.Taken > 0) {
				t.Fatalf("seed %d: slot %d for %+v", seed, slot, got)
			}
			if want := want.take(now, n, int64(len(slots))); got != want {
				t.Fatalf("seed %d step %d: %d of %d for %dns at %d: got %+v, want %+v", seed, step, n, limit, hold, now, got, want)
			}
			slots = append(slots, slot)
			if len(l.places) > int(limit) {
				t.Fatalf("seed %d: %d places for a limit of %d", seed, len(l.places), limit)
			}
			if isNew := l.newAt() <= Instant(now); isNew != (len(want.inside) == 0) {
				t.Fatalf("seed %d step %d: as new: %v with %d inside", seed, step, isNew, len(want.inside))
			}
		}
	}
}

// A holder that was taken for lost and comes back late frees nobody else's
// place, nor does one that frees its own twice.
func TestSlotOfALostHolder(t *testing.T) {
	m := mustMeter(t, "1 at once for 10s")
	var l slotState
	s := Instant(time.Second)
	take := func(at Instant, number uint64) uint64 {
		d := l.ask(m, at, Ask{N: 1})
		if !d.Allowed {
			t.Fatalf("at %v: %+v", time.Duration(at), d)
		}
		return l.commit(m, d, number)
	}
	lost := take(0, 1)
	if d := l.ask(m, 10*s-1, Ask{N: 1}); d.Allowed || d.RetryAfter != 1 {
		t.Errorf("before the longest hold is over: %+v", d)
	}
	second := take(10*s, 2)
	l.settle(m, 11*s, lost, -1)
	if d := l.ask(m, 11*s, Ask{N: 1}); d.Allowed {
		t.Error("a lost holder freed the place of the next")
	}
	l.settle(m, 12*s, second, -1)
	third := take(12*s, 3)
	l.settle(m, 13*s, second, -1)
	if d := l.ask(m, 13*s, Ask{N: 1}); d.Allowed {
		t.Error("a place was freed twice")
	}
	for _, never := range []uint64{0, 1, 1 << 40, 1<<64 - 1, third + 1} {
		l.settle(m, 13*s, never, -1)
	}
	if d := l.ask(m, 13*s, Ask{N: 1}); d.Allowed {
		t.Error("a slot that nobody has was freed")
	}
}

func TestSlotsChange(t *testing.T) {
	s := Instant(time.Second)
	r := slotRun{m: mustMeter(t, "3 at once for 10s")}
	r.take(0, 1)
	r.take(4*s, 2)
	if err := r.change(5*s, mustMeter(t, "2 at once for 20s").Limit()); err != nil {
		t.Fatal(err)
	}
	// Who is inside stays; nobody comes in before two have left.
	if d, _ := r.take(5*s, 1); d.Allowed || d.RetryAfter != 19*time.Second {
		t.Errorf("fewer slots: %+v", d)
	}
	if err := r.change(6*s, mustMeter(t, "2 at once for 5s").Limit()); err != nil {
		t.Fatal(err)
	}
	if d, _ := r.take(6*s, 1); d.Allowed || d.RetryAfter != 3*time.Second {
		t.Errorf("a shorter hold: %+v", d)
	}
	if d, _ := r.take(9*s, 2); !d.Allowed {
		t.Errorf("after it: %+v", d)
	}
}

func TestSlotsGiveRoomBack(t *testing.T) {
	r := slotRun{m: mustMeter(t, "1000 at once for 1s")}
	for i := range 1000 {
		r.take(Instant(i), 1)
	}
	if got, most := r.l.size(), r.m.Limit().KeyBytes(); got > most {
		t.Errorf("%d bytes, said to be at most %d", got, most)
	}
	r.take(Instant(3*time.Second), 0)
	if cap(r.l.places) != 0 {
		t.Errorf("room for %d after a quiet", cap(r.l.places))
	}
}

func TestSlotsAllocateNothing(t *testing.T) {
	m := mustMeter(t, "100 at once for 1s")
	var l slotState
	now, number := Instant(0), uint64(0)
	pass := func() {
		now++
		number++
		d := l.ask(m, now, Ask{N: 1})
		l.settle(m, now, l.commit(m, d, number), -1)
	}
	pass()
	if n := testing.AllocsPerRun(1000, pass); n != 0 {
		t.Errorf("%v allocations a request", n)
	}
}
