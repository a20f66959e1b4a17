package spillgate_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillgate/spillgate"
)

// rig is a memory with one space, asked at times of the test's own.
type rig struct {
	t     testing.TB
	mem   *spillgate.Memory
	space *spillgate.Space
	meter *spillgate.Meter
}

func newRig(t testing.TB, limit string, o spillgate.SpaceOptions) *rig {
	t.Helper()
	l, err := spillgate.ParseLimit(limit)
	if err != nil {
		t.Fatal(err)
	}
	m, err := l.Meter()
	if err != nil {
		t.Fatal(err)
	}
	sp, err := spillgate.NewSpace(t.Name(), o)
	if err != nil {
		t.Fatal(err)
	}
	return &rig{t, spillgate.NewMemory(), sp, m}
}

// key spreads small numbers over all 64 bits, one to one.
func key(n uint64) spillgate.Key {
	n *= 0x9e3779b97f4a7c15
	n ^= n >> 32
	n *= 0xd6e8feb86659fd93
	return spillgate.Key{n ^ n>>29, n}
}

func (r *rig) take(at time.Duration, k uint64, n int64) spillgate.Decision {
	var out [1]spillgate.Decision
	cs := [1]spillgate.Charge{{Space: r.space, Key: key(k), Meter: r.meter, Ask: spillgate.Ask{N: n}}}
	if err := r.mem.Take(context.Background(), epoch.Add(at), cs[:], out[:]); err != nil {
		r.t.Fatal(err)
	}
	return out[0]
}

var epoch = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// Looking for what is old by a clock that is behind forgets nothing that is in
// use.
func TestB015LookBehind(t *testing.T) {
	r := newRig(t, "5/1h burst 5", spillgate.SpaceOptions{})
	r.take(100*time.Second, 1, 5)
	for k := range uint64(5000) { // every call may look at a shard
		r.take(99999*time.Millisecond+time.Duration(k)*20*time.Millisecond, 1e6+k%3, 0)
	}
	if d := r.take(100*time.Second, 1, 1); d.Allowed {
		t.Errorf("drained key: %+v", d)
	}
}

// First calls of a new key at once make one bucket, while others come and go.
func TestB096FirstCallsAtOnce(t *testing.T) {
	const keys, callers = 300, 16
	for _, o := range []spillgate.SpaceOptions{{}, {MaxKeys: 4096}} {
		r := newRig(t, "10/1h burst 10", o)
		brief := newRig(t, "1000000/1s burst 1", o).meter
		var allowed [keys]atomic.Int64
		var at atomic.Int64
		var wg sync.WaitGroup
		for w := range callers {
			wg.Go(func() {
				out := make([]spillgate.Decision, 1)
				for k := range uint64(keys) {
					cs := []spillgate.Charge{{Space: r.space, Key: key(k), Meter: r.meter, Ask: spillgate.Ask{N: 1}}}
					now := epoch.Add(time.Duration(at.Add(int64(100 * time.Microsecond))))
					if err := r.mem.Take(t.Context(), now, cs, out); err != nil {
						t.Error(err)
						return
					}
					if out[0].Allowed {
						allowed[k].Add(1)
					}
					cs[0].Key, cs[0].Meter = key(1e6+k*callers+uint64(w)), brief
					if err := r.mem.Take(t.Context(), now, cs, out); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		for k := range allowed {
			if n := allowed[k].Load(); n != 10 {
				t.Errorf("%+v: key %d: %d allowed, want 10", o, k, n)
			}
		}
	}
}

// Whatever is asked, only what is as new again makes room.
func TestB147FloodAtTheCap(t *testing.T) {
	const cap, rate, burst = 10000, 10, 20
	r := newRig(t, "10/1s burst 20", spillgate.SpaceOptions{MaxKeys: cap})
	const victim = 1 << 40
	r.take(0, victim, burst)
	admitted := int64(0)
	rnd := rand.New(rand.NewPCG(1, 1))
	for i := range 200000 {
		admitted += r.take(time.Duration(i)*5*time.Microsecond, rnd.Uint64N(65536), 1).Taken
	}
	if bound := int64((cap + 1) * (burst + rate)); admitted > bound {
		t.Errorf("%d admitted, want at most %d", admitted, bound)
	}
	if st := r.mem.Stats(r.space); st.Live > cap || st.Overflowed == 0 || st.Evicted != 0 {
		t.Errorf("%+v", st)
	}
	r = newRig(t, "10/1s burst 20", spillgate.SpaceOptions{MaxKeys: cap})
	r.take(0, victim, burst)
	for k := range uint64(20000) {
		r.take(0, k, 1)
	}
	if d := r.take(99*time.Millisecond, victim, 1); d.Allowed || d.Overflow {
		t.Errorf("victim: %+v, want it denied by its own entry", d)
	}
	if d := r.take(100*time.Millisecond, victim, 1); !d.Allowed {
		t.Errorf("victim when one is earned: %+v", d)
	}
}

// A full table takes new keys as soon as old ones are as new.
func TestB149RoomComesBack(t *testing.T) {
	r := newRig(t, "1/1s burst 1", spillgate.SpaceOptions{MaxKeys: 100})
	for k := range uint64(100) {
		if d := r.take(0, k, 1); !d.Allowed || d.Overflow {
			t.Fatalf("key %d: %+v", k, d)
		}
	}
	if d := r.take(500*time.Millisecond, 101, 1); !d.Allowed || !d.Overflow {
		t.Errorf("newcomer at 0.5 s: %+v, want the shared bucket to allow it", d)
	}
	if d := r.take(500*time.Millisecond, 102, 1); d.Allowed || !d.Overflow {
		t.Errorf("second newcomer at 0.5 s: %+v, want the shared bucket to refuse it", d)
	}
	if d := r.take(2*time.Second, 101, 1); !d.Allowed || d.Overflow {
		t.Errorf("newcomer at 2 s: %+v, want an entry of its own", d)
	}
}

// Keys that nobody asks for again are forgotten, and their memory comes back,
// under light traffic on one key.
func TestB145MemoryComesBack(t *testing.T) {
	r := newRig(t, "1/1s burst 1", spillgate.SpaceOptions{})
	r.take(0, 1, 1)
	empty := r.mem.Stats(r.space).Bytes
	for k := range uint64(50000) {
		r.take(0, k, 1)
	}
	grown := r.mem.Stats(r.space)
	if grown.Live != 50000 {
		t.Fatalf("%+v, want 50000 live", grown)
	}
	for i := range 300 {
		r.take(time.Minute+time.Duration(i)*11*time.Millisecond, 1, 1)
	}
	if st := r.mem.Stats(r.space); st.Live > 10 || st.Bytes > 2*empty {
		t.Errorf("%+v, want few live and about %d bytes", st, empty)
	}
}

func TestMakeRoom(t *testing.T) {
	r := newRig(t, "1/1s burst 10", spillgate.SpaceOptions{MaxKeys: 8, AtCap: spillgate.MakeRoom})
	for k := range uint64(8) {
		r.take(0, k, int64(k)+1)
	}
	if d := r.take(0, 100, 5); !d.Allowed || d.Overflow {
		t.Errorf("newcomer: %+v", d)
	}
	if d := r.take(0, 7, 0); d.Remaining != 2 {
		t.Errorf("the furthest from new: %+v, want it kept", d)
	}
	if d := r.take(0, 0, 0); d.Remaining != 10 {
		t.Errorf("the nearest to new: %+v, want it dropped", d)
	}
	st := r.mem.Stats(r.space)
	if st.Live != 8 || st.Evicted != 1 || st.Overflowed != 0 {
		t.Errorf("%+v", st)
	}
	r.take(0, 101, 0)
	r.take(0, 101, 11)
	if now := r.mem.Stats(r.space); now != st {
		t.Errorf("a peek and a denial made room: %+v, then %+v", st, now)
	}
}

// Peeks and denials of keys never seen leave no trace.
func TestNoEntryForNothing(t *testing.T) {
	r := newRig(t, "1/1s burst 10", spillgate.SpaceOptions{})
	for k := range uint64(1000) {
		r.take(0, k, 0)
		r.take(0, k, 11)
	}
	if st := r.mem.Stats(r.space); st.Live != 0 {
		t.Errorf("%+v", st)
	}
}

// The limit of a shared bucket that changes carries its state over.
func TestOverflowSurvivesAChange(t *testing.T) {
	r := newRig(t, "1/1h burst 5", spillgate.SpaceOptions{MaxKeys: 1})
	r.take(0, 1, 1)
	for range 5 {
		r.take(0, 2, 1)
	}
	to := newRig(t, "1/1m burst 5", spillgate.SpaceOptions{}).meter
	m, err := r.space.Change(r.meter, to, spillgate.Instant(epoch.UnixNano()))
	if err != nil {
		t.Fatal(err)
	}
	r.meter = m
	if d := r.take(0, 3, 1); d.Allowed || !d.Overflow || d.RetryAfter != time.Minute {
		t.Errorf("%+v, want the shared bucket still empty", d)
	}
}

func TestStatsOfAnUnusedSpace(t *testing.T) {
	r := newRig(t, "1/1s burst 1", spillgate.SpaceOptions{MaxKeys: 77})
	if st := r.mem.Stats(r.space); st != (spillgate.Stats{Cap: 77}) {
		t.Errorf("%+v", st)
	}
}

func TestDrop(t *testing.T) {
	r := newRig(t, "1/1h burst 1", spillgate.SpaceOptions{})
	r.take(0, 1, 1)
	r.mem.Drop(r.space)
	r.mem.Drop(r.space)
	if d := r.take(0, 1, 1); !d.Allowed {
		t.Errorf("after Drop: %+v", d)
	}
}

// One space in two memories is two worlds.
func TestTwoMemories(t *testing.T) {
	r := newRig(t, "1/1h burst 1", spillgate.SpaceOptions{})
	other := *r
	other.mem = spillgate.NewMemory()
	for range 3 {
		r.take(0, 1, 0)
		other.take(0, 1, 0)
	}
	if !r.take(0, 1, 1).Allowed || !other.take(0, 1, 1).Allowed || r.take(0, 1, 1).Allowed || other.take(0, 1, 1).Allowed {
		t.Error("want one unit in each")
	}
}

func TestTooManyCharges(t *testing.T) {
	r := newRig(t, "1/1s burst 1000", spillgate.SpaceOptions{})
	for n, want := range map[int]bool{spillgate.MaxCharges: true, spillgate.MaxCharges + 1: false} {
		cs := make([]spillgate.Charge, n)
		for i := range cs {
			cs[i] = spillgate.Charge{Space: r.space, Key: key(uint64(i)), Meter: r.meter, Ask: spillgate.Ask{N: 1}}
		}
		err := r.mem.Take(t.Context(), epoch, cs, make([]spillgate.Decision, n))
		if (err == nil) != want {
			t.Errorf("%d charges: %v", n, err)
		}
	}
}

// Requests of several charges from all sides neither wait for each other for
// ever nor lose or win a unit, while tables grow, overflow and shrink.
func TestManyChargesAtOnce(t *testing.T) {
	mem := spillgate.NewMemory()
	rigs := []*rig{
		newRig(t, "1/1m burst 1000000", spillgate.SpaceOptions{MaxKeys: 10}),
		newRig(t, "1/1m burst 1000000", spillgate.SpaceOptions{}),
		newRig(t, "1/1m burst 1000000", spillgate.SpaceOptions{MaxKeys: 5000}),
	}
	var taken atomic.Int64
	var wg sync.WaitGroup
	for w := range uint64(8) {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(w, 5))
			out := make([]spillgate.Decision, 12)
			cs := make([]spillgate.Charge, 12)
			for range 2000 {
				n := 2 + rnd.IntN(11)
				for i := range n {
					r := rigs[rnd.IntN(len(rigs))]
					cs[i] = spillgate.Charge{Space: r.space, Key: key(rnd.Uint64N(40)), Meter: r.meter, Ask: spillgate.Ask{N: 1}}
				}
				if err := mem.Take(context.Background(), epoch, cs[:n], out[:n]); err != nil {
					t.Error(err)
					return
				}
				for _, d := range out[:n] {
					taken.Add(d.Taken)
				}
			}
		})
	}
	wg.Wait()
	used := int64(0)
	for _, r := range rigs {
		r.mem = mem
		overflow := false
		for k := range uint64(40) {
			d := r.take(0, k, 0)
			if !d.Overflow || !overflow {
				used += d.Limit - d.Remaining
			}
			overflow = overflow || d.Overflow
		}
	}
	if used != taken.Load() {
		t.Errorf("%d used, %d taken", used, taken.Load())
	}
}

func TestTakeAllocatesNothing(t *testing.T) {
	mem := spillgate.NewMemory()
	full := newRig(t, "1/1s burst 1000000000", spillgate.SpaceOptions{MaxKeys: 1})
	full.mem = mem
	full.take(0, 99, 1)
	full.take(0, 98, 1)
	for _, n := range []int{1, 3, 8} {
		cs := make([]spillgate.Charge, n)
		for i := range cs {
			r := newRig(t, "1000/1s burst 1000000000", spillgate.SpaceOptions{TTL: time.Duration(i) * time.Hour})
			if i == 0 {
				r = full
			}
			cs[i] = spillgate.Charge{Space: r.space, Key: key(uint64(i)), Meter: r.meter, Ask: spillgate.Ask{N: 1}}
		}
		out := make([]spillgate.Decision, n)
		var store spillgate.Store = mem
		ctx := context.Background()
		at := epoch
		allocs := testing.AllocsPerRun(1000, func() {
			at = at.Add(time.Millisecond)
			if err := store.Take(ctx, at, cs, out); err != nil {
				t.Fatal(err)
			}
		})
		if allocs != 0 {
			t.Errorf("%d charges: %v allocations", n, allocs)
		}
	}
}

func ExampleMemory() {
	limit, _ := spillgate.ParseLimit("3/1m burst 3")
	meter, _ := limit.Meter()
	visitors, _ := spillgate.NewSpace("visitors", spillgate.SpaceOptions{})
	seed := spillgate.NewSeed()

	store := spillgate.NewMemory()
	defer store.Close()
	charges := []spillgate.Charge{{
		Space: visitors,
		Key:   seed.Key(spillgate.AppendPart(nil, "address", "203.0.113.9")),
		Meter: meter,
		Ask:   spillgate.Ask{N: 2},
	}}
	decisions := make([]spillgate.Decision, 1)
	for range 2 {
		if err := store.Take(context.Background(), time.Time{}, charges, decisions); err != nil {
			fmt.Println(err)
		}
		fmt.Println(decisions[0].Allowed, decisions[0].Remaining)
	}
	// Output:
	// true 1
	// false 1
}

// A zero Memory is a slip that nothing but an error tells of: it would have no
// clock, and a seed that everybody knows.
func TestZeroMemory(t *testing.T) {
	ctx := t.Context()
	meter, err := spillgate.Must("10/s").Limit().Meter()
	if err != nil {
		t.Fatal(err)
	}
	sp, err := spillgate.NewSpace("a", spillgate.SpaceOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c := spillgate.Charge{Space: sp, Meter: meter, Ask: spillgate.Ask{N: 1}}
	for name, do := range map[string]func(m *spillgate.Memory) error{
		"nothing": func(m *spillgate.Memory) error { return m.Take(ctx, time.Time{}, nil, nil) },
		"one": func(m *spillgate.Memory) error {
			return m.Take(ctx, time.Time{}, []spillgate.Charge{c}, make([]spillgate.Decision, 1))
		},
		"two": func(m *spillgate.Memory) error {
			return m.Take(ctx, time.Time{}, []spillgate.Charge{c, c}, make([]spillgate.Decision, 2))
		},
		"settle": func(m *spillgate.Memory) error {
			return m.Settle(ctx, time.Time{}, []spillgate.Correction{{Space: sp, Meter: meter}})
		},
		"snapshot": func(m *spillgate.Memory) error { return m.Snapshot(io.Discard) },
		"restore":  func(m *spillgate.Memory) error { return m.Restore(strings.NewReader("")) },
	} {
		var m spillgate.Memory
		if err := do(&m); !errors.Is(err, spillgate.ErrCharge) || !strings.Contains(err.Error(), "NewMemory") {
			t.Errorf("%s: %v, want an error that names NewMemory", name, err)
		}
	}
	var m spillgate.Memory
	m.Drop(sp)
	if s := m.Stats(sp); s.Live != 0 {
		t.Error(s)
	}
	if err := m.Resume(sp, meter); err != nil {
		t.Error(err)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
}
