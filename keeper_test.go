package spillgate

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

func mustSpace(tb testing.TB, o SpaceOptions) *Space {
	tb.Helper()
	sp, err := NewSpace("space", o)
	if err != nil {
		tb.Fatal(err)
	}
	return sp
}

func takeAll(tb testing.TB, m *Memory, at Instant, cs ...Charge) []Decision {
	tb.Helper()
	out := make([]Decision, len(cs))
	if err := m.Take(context.Background(), at.time(), cs, out); err != nil {
		tb.Fatal(err)
	}
	return out
}

func settleOne(tb testing.TB, m *Memory, at Instant, c Correction) {
	tb.Helper()
	if err := m.Settle(context.Background(), at.time(), []Correction{c}); err != nil {
		tb.Fatal(err)
	}
}

// Logs and slots of a few keys, charged together, all or none, against their
// definitions.
func TestKeptStatesAgainstTheirDefinitions(t *testing.T) {
	const keys = 3
	logs, slots := mustMeter(t, "4/9ns log"), mustMeter(t, "3 at once for 15ns")
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 3))
		mem, logSpace, slotSpace := NewMemory(), mustSpace(t, SpaceOptions{MaxKeys: keys}), mustSpace(t, SpaceOptions{MaxKeys: keys})
		var wantLogs [keys]naiveLog
		var wantSlots [keys]naiveSlots
		for i := range keys {
			wantLogs[i], wantSlots[i] = naiveLog{limit: 4, period: 9}, naiveSlots{limit: 3, hold: 15}
		}
		type charge struct {
			key, n int64
			d      Decision
		}
		var past []charge
		now := int64(1000)
		for step := range 200 {
			now += r.Int64N(4)
			if len(past) > 0 && r.IntN(3) == 0 {
				p := past[r.IntN(len(past))]
				n := 1 + r.Int64N(2)
				c := Correction{Key: Key{uint64(p.key) << 40}, Delta: -n, At: p.d.At, Slot: p.d.Slot}
				if p.d.Slot != 0 {
					c.Space, c.Meter = slotSpace, slots
					wantSlots[p.key].settle(now, int64(p.d.Slot), -n)
				} else {
					c.Space, c.Meter = logSpace, logs
					wantLogs[p.key].giveBack(now, int64(p.d.At), n)
				}
				settleOne(t, mem, Instant(now), c)
				continue
			}
			a, b := r.Int64N(keys), r.Int64N(keys)
			n, k := r.Int64N(4), r.Int64N(3)
			out := takeAll(t, mem, Instant(now),
				Charge{Space: logSpace, Key: Key{uint64(a) << 40}, Meter: logs, Ask: Ask{N: n}},
				Charge{Space: slotSpace, Key: Key{uint64(b) << 40}, Meter: slots, Ask: Ask{N: k}})
			logFree, slotFree := 4-wantLogs[a].used(now), 3-wantSlots[b].heal(now)
			fits := [2]bool{n <= max(logFree, 0), k <= max(slotFree, 0)}
			if out[0].Allowed != fits[0] || out[1].Allowed != fits[1] {
				t.Fatalf("seed %d step %d: %d of %d and %d of %d: %+v", seed, step, n, logFree, k, slotFree, out)
			}
			if fits[0] && fits[1] {
				if want := wantLogs[a].take(now, n); want != out[0] {
					t.Fatalf("seed %d step %d: log: got %+v, want %+v", seed, step, out[0], want)
				}
				want := wantSlots[b].take(now, k, int64(out[1].Slot))
				if want.Slot = out[1].Slot; want != out[1] || (out[1].Slot == 0) != (k == 0) {
					t.Fatalf("seed %d step %d: slots: got %+v, want %+v", seed, step, out[1], want)
				}
			} else if out[0].Taken+out[1].Taken != 0 || out[0].Remaining != max(logFree, 0) || out[1].Remaining != max(slotFree, 0) || out[1].Slot != 0 {
				t.Fatalf("seed %d step %d: refused, with %d and %d left: %+v", seed, step, logFree, slotFree, out)
			}
			for i, key := range []int64{a, b} {
				if out[i].Taken > 0 {
					past = append(past, charge{key, out[i].Taken, out[i]})
				}
			}
		}
	}
}

// A full table of logs or slots behaves as any other: nobody who is limited is
// forgotten, newcomers share one, and what is as new makes room.
func TestKeptStatesAtTheCap(t *testing.T) {
	const s = Instant(time.Second)
	for _, text := range []string{"2/10s log", "2 at once for 10s"} {
		mem, sp, m := NewMemory(), mustSpace(t, SpaceOptions{MaxKeys: 2}), mustMeter(t, text)
		take := func(at Instant, key uint64) Decision {
			return takeAll(t, mem, at, Charge{Space: sp, Key: Key{key << 40}, Meter: m, Ask: Ask{N: 1}})[0]
		}
		take(0, 1)
		take(0, 1)
		take(s, 2)
		if d := take(2*s, 3); !d.Allowed || !d.Overflow {
			t.Errorf("%s: a newcomer: %+v", text, d)
		}
		over := take(2*s, 4)
		if !over.Allowed || !over.Overflow || over.Remaining != 0 {
			t.Errorf("%s: another: %+v", text, over)
		}
		if d := take(3*s, 5); d.Allowed || !d.Overflow {
			t.Errorf("%s: a third of two: %+v", text, d)
		}
		settleOne(t, mem, 3*s, Correction{Space: sp, Key: Key{4 << 40}, Meter: m, Delta: -1, At: over.At, Slot: over.Slot, Overflow: true})
		if d := take(3*s, 5); !d.Allowed || !d.Overflow {
			t.Errorf("%s: after one left: %+v", text, d)
		}
		if d := take(3*s, 1); d.Allowed || d.Overflow {
			t.Errorf("%s: the first was forgotten: %+v", text, d)
		}
		if d := take(10*s, 6); !d.Allowed || d.Overflow {
			t.Errorf("%s: after the first is as new: %+v", text, d)
		}
		if n := len(mem.tables[sp].keeper.states); n > 3 {
			t.Errorf("%s: %d states for 2 keys and what newcomers share", text, n)
		}
	}
}

// However many keys come by, no more states are kept than the table has keys,
// and all memory is given back in the end.
func TestKeptStatesAreBounded(t *testing.T) {
	for _, text := range []string{"5/10s log", "5 at once for 10s"} {
		for _, atCap := range []AtCap{Overflow, MakeRoom} {
			mem, sp, m := NewMemory(), mustSpace(t, SpaceOptions{MaxKeys: 5000, AtCap: atCap}), mustMeter(t, text)
			r := rand.New(rand.NewPCG(1, 1))
			now := Instant(0)
			for i := range 15_000 {
				now += Instant(time.Millisecond / 2)
				takeAll(t, mem, now, Charge{Space: sp, Key: Key{r.Uint64()}, Meter: m, Ask: Ask{N: 1 + int64(i%3)}})
			}
			b := mem.tables[sp]
			st := mem.Stats(sp)
			if n := len(b.keeper.states); n > st.Live+1 || n < st.Live-1 {
				t.Errorf("%s, at cap %d: %d states behind %d entries", text, atCap, n, st.Live)
			}
			if least := int64(st.Live) * keptBytes; st.Bytes < least || st.Bytes > 5001*(keptBytes+m.Limit().KeyBytes())+1<<20 {
				t.Errorf("%s, at cap %d: %d bytes for %d keys", text, atCap, st.Bytes, st.Live)
			}
			var sum int64
			for _, o := range b.keeper.states {
				sum += o.bytes
			}
			if sum != b.keeper.bytes.Load() {
				t.Errorf("%s, at cap %d: counted %d bytes, are %d", text, atCap, b.keeper.bytes.Load(), sum)
			}
			// All are as new; a few late callers let the table give back.
			for range 100 {
				now += Instant(20 * time.Second)
				takeAll(t, mem, now, Charge{Space: sp, Key: Key{1 << 40}, Meter: m, Ask: Ask{N: 1}})
			}
			if n := len(b.keeper.states); n > 2 {
				t.Errorf("%s, at cap %d: %d states after a long quiet", text, atCap, n)
			}
			mem.Drop(sp)
			if n := len(b.keeper.states); n != 0 || b.keeper.bytes.Load() != 0 {
				t.Errorf("%s, at cap %d: %d states after Drop", text, atCap, n)
			}
		}
	}
}

// A limit that becomes one of another kind begins anew and leaves nothing
// behind.
func TestKeptStatesOfAnotherKind(t *testing.T) {
	mem, sp := NewMemory(), mustSpace(t, SpaceOptions{MaxKeys: 10})
	m := mustMeter(t, "2/10s log")
	for i, text := range []string{"2/10s burst 2", "2 at once for 10s", "2/10s log", "2/10s fixed", "2/10s log"} {
		at := Instant(i) * Instant(time.Second)
		c := Charge{Space: sp, Key: Key{1 << 40}, Meter: m, Ask: Ask{N: 2}}
		if d := takeAll(t, mem, at, c)[0]; !d.Allowed {
			t.Fatalf("%v: %+v", m.limit, d)
		}
		if d := takeAll(t, mem, at, c)[0]; d.Allowed {
			t.Fatalf("%v: %+v", m.limit, d)
		}
		if n := len(mem.tables[sp].keeper.states); n > 1 {
			t.Fatalf("%v: %d states for one key", m.limit, n)
		}
		var err error
		if m, err = sp.Change(m, mustMeter(t, text), at+1); err != nil {
			t.Fatal(err)
		}
	}
}

// Of many at once no more are inside than there are slots, and every slot
// that was taken can be given back.
func TestSlotsOfManyGoroutines(t *testing.T) {
	mem, sp, m := NewMemory(), mustSpace(t, SpaceOptions{}), mustMeter(t, "3 at once")
	var inside, most int
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 500 {
				var out [1]Decision
				c := []Charge{{Space: sp, Key: Key{1 << 40}, Meter: m, Ask: Ask{N: 1}}}
				if err := mem.Take(context.Background(), time.Time{}, c, out[:]); err != nil {
					t.Error(err)
					return
				}
				if !out[0].Allowed {
					continue
				}
				mu.Lock()
				inside++
				most = max(most, inside)
				mu.Unlock()
				mu.Lock()
				inside--
				mu.Unlock()
				if err := mem.Settle(context.Background(), time.Time{}, []Correction{{Space: sp, Key: Key{1 << 40}, Meter: m, Delta: -1, At: out[0].At, Slot: out[0].Slot}}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if most > 3 {
		t.Errorf("%d inside at once", most)
	}
	d := takeAll(t, mem, Instant(time.Now().UnixNano()), Charge{Space: sp, Key: Key{1 << 40}, Meter: m})[0]
	if d.Remaining != 3 || d.ResetAfter != 0 {
		t.Errorf("in the end: %+v", d)
	}
}

func TestKeptStatesAllocateNothing(t *testing.T) {
	mem := NewMemory()
	logs, slots := mustMeter(t, "300/us log"), mustMeter(t, "100 at once")
	logSpace, slotSpace := mustSpace(t, SpaceOptions{}), mustSpace(t, SpaceOptions{})
	cs := []Charge{
		{Space: logSpace, Key: Key{1 << 40}, Meter: logs, Ask: Ask{N: 1}},
		{Space: slotSpace, Key: Key{1 << 40}, Meter: slots, Ask: Ask{N: 1}},
	}
	cor := []Correction{{Space: slotSpace, Key: Key{1 << 40}, Meter: slots, Delta: -1}}
	out := make([]Decision, 2)
	now := Instant(0)
	// One slot stays taken: whoever comes to an empty place gets a new state.
	takeAll(t, mem, now, cs[1])
	request := func() {
		now += 5
		at := now.time()
		if err := mem.Take(context.Background(), at, cs, out); err != nil || !out[0].Allowed || !out[1].Allowed {
			t.Fatal(err, out)
		}
		cor[0].At, cor[0].Slot = out[1].At, out[1].Slot
		if err := mem.Settle(context.Background(), at, cor); err != nil {
			t.Fatal(err)
		}
	}
	for range 1000 {
		request()
	}
	if n := testing.AllocsPerRun(1000, request); n != 0 {
		t.Errorf("%v allocations a request", n)
	}
}

// One key counted as a log and as a bucket in one request has no state to take
// back: it is an error, and nothing is charged.
func TestOneKeyOfTwoKindsIsRefused(t *testing.T) {
	mem := NewMemory()
	defer mem.Close()
	sp, err := NewSpace("s", SpaceOptions{})
	if err != nil {
		t.Fatal(err)
	}
	charge := func(limit string) Charge {
		return Charge{Space: sp, Key: Key{1 << 40}, Meter: meterOfText(t, limit), Ask: Ask{N: 1}}
	}
	cs := []Charge{charge("5/h log"), charge("5/h burst 5")}
	if err := mem.Take(context.Background(), time.Unix(1, 0), cs, make([]Decision, 2)); !errors.Is(err, ErrCharge) {
		t.Errorf("error %v", err)
	}
	if d := takeAll(t, mem, Instant(time.Second), charge("5/h log"))[0]; d.Remaining != 4 {
		t.Errorf("%d left: the refused request was charged", d.Remaining)
	}
}
