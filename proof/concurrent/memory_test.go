package concurrent

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillgate/spillgate"
)

// The limits are small, so that a few goroutines meet at their ends.
var (
	bucket  = spillgate.Limit{Rate: 3, Period: 10, Burst: 4}
	upgrade = spillgate.Limit{Rate: 5, Period: 10, Burst: 6, OnRaise: spillgate.Fill}
	queue   = spillgate.Limit{Algorithm: spillgate.Queue, Rate: 1, Period: 5, Burst: 3}
	fixed   = spillgate.Limit{Algorithm: spillgate.FixedWindow, Rate: 4, Period: 20}
	sliding = spillgate.Limit{Algorithm: spillgate.SlidingCounter, Rate: 5, Period: time.Millisecond}
)

// A memoryRun is goroutines that ask one memory.
type memoryRun struct {
	setup
	memory  *spillgate.Memory
	space   [spaces]*spillgate.Space
	current [spaces]atomic.Pointer[spillgate.Meter]
}

func newMemoryRun(t testing.TB, s setup) *memoryRun {
	s.init(t)
	r := &memoryRun{setup: s, memory: spillgate.NewMemory()}
	for i := range r.space {
		sp, err := spillgate.NewSpace(fmt.Sprint("space ", i), spillgate.SpaceOptions{MaxKeys: s.caps[i]})
		if err != nil {
			t.Fatal(err)
		}
		r.space[i] = sp
		r.current[i].Store(s.meters[i][0])
	}
	return r
}

func keyOf(i int) spillgate.Key {
	return spillgate.Key{(uint64(i) + 1) * 0x9e3779b97f4a7c15, uint64(i)}
}

func (r *memoryRun) take(in input) []spillgate.Decision {
	cs := make([]spillgate.Charge, len(in.charges))
	for i, c := range in.charges {
		cs[i] = spillgate.Charge{Space: r.space[c.space], Key: keyOf(c.key), Meter: r.current[c.space].Load(), Ask: spillgate.Ask{N: c.n}}
	}
	out := make([]spillgate.Decision, len(cs))
	if err := r.memory.Take(context.Background(), time.Unix(0, int64(in.now)), cs, out); err != nil {
		panic(err)
	}
	return out
}

func (r *memoryRun) settle(in input) []spillgate.Decision {
	c := in.settle
	err := r.memory.Settle(context.Background(), time.Unix(0, int64(in.now)), []spillgate.Correction{{
		Space: r.space[c.space], Key: keyOf(c.key), Meter: r.current[c.space].Load(), Delta: c.delta, At: c.taken, Overflow: c.overflow}})
	if err != nil {
		panic(err)
	}
	return nil
}

// change is made by one goroutine at a time.
func (r *memoryRun) change(in input) []spillgate.Decision {
	sp := in.change.space
	m, err := r.space[sp].Change(r.current[sp].Load(), r.meters[sp][in.change.to], in.now)
	if err != nil {
		panic(err)
	}
	r.current[sp].Store(m)
	return nil
}

// A plan says what clients do.
type plan struct {
	clients, phases, calls int
	most                   int // charges of one call
	settles                bool
	changes                []int // spaces whose limits change
}

func (r *memoryRun) run(seed uint64, p plan) *history {
	h := newHistory(p.clients)
	now := spillgate.Instant(100)
	times := rand.New(rand.NewPCG(seed, 0))
	for range p.phases {
		var group sync.WaitGroup
		start := make(chan struct{})
		for client := range p.clients {
			random := rand.New(rand.NewPCG(seed, times.Uint64()))
			group.Go(func() {
				<-start
				r.client(h, client, now, random, p)
			})
		}
		close(start)
		group.Wait()
		if times.IntN(4) == 0 {
			now += spillgate.Instant(times.Int64N(1e6))
		} else {
			now += spillgate.Instant(times.Int64N(15))
		}
	}
	return h
}

func (r *memoryRun) client(h *history, client int, now spillgate.Instant, random *rand.Rand, p plan) {
	var past []correction
	for range p.calls {
		in := input{now: now}
		switch k := random.IntN(8); {
		case client == 0 && k == 0 && len(p.changes) > 0:
			sp := p.changes[random.IntN(len(p.changes))]
			in.change = &change{sp, random.IntN(len(r.meters[sp]))}
			h.record(client, in, func() []spillgate.Decision { return r.change(in) })
			continue
		case k <= 1 && len(past) > 0 && p.settles:
			c := past[random.IntN(len(past))]
			c.delta = -1
			in.settle = &c
			h.record(client, in, func() []spillgate.Decision { return r.settle(in) })
			continue
		}
		for _, sp := range random.Perm(spaces)[:1+random.IntN(p.most)] {
			in.charges = append(in.charges, charge{sp, random.IntN(keys), random.Int64N(4)})
		}
		for i, d := range h.record(client, in, func() []spillgate.Decision { return r.take(in) }) {
			if d.Taken > 0 {
				past = append(past, correction{charge: in.charges[i], taken: d.At, overflow: d.Overflow})
			}
		}
	}
}

// TestHistories is I11 for single charges, several at once, tables with less
// room than keys, settles, and changes of a limit in the middle.
func TestHistories(t *testing.T) {
	roomy := [spaces]int{100, 100, 100}
	limits := [spaces][]spillgate.Limit{{bucket}, {fixed}, {sliding}}
	for _, c := range []struct {
		name string
		setup
		plan
	}{
		{"single charges", setup{limits: limits, caps: roomy}, plan{clients: 4, phases: 6, calls: 8, most: 1}},
		{"a queue", setup{limits: [spaces][]spillgate.Limit{{queue}, {queue}, {bucket}}, caps: roomy}, plan{clients: 4, phases: 6, calls: 8, most: 2}},
		{"several charges", setup{limits: limits, caps: roomy}, plan{clients: 4, phases: 6, calls: 6, most: 3}},
		{"settles", setup{limits: limits, caps: roomy}, plan{clients: 4, phases: 6, calls: 6, most: 3, settles: true}},
		{"tiny tables", setup{limits: limits, caps: [spaces]int{1, 2, 3}}, plan{clients: 4, phases: 8, calls: 5, most: 3}},
		{"tiny tables and settles", setup{limits: limits, caps: [spaces]int{1, 2, 3}}, plan{clients: 3, phases: 8, calls: 5, most: 3, settles: true}},
		{"changes", setup{limits: [spaces][]spillgate.Limit{{bucket, upgrade}, {fixed}, {bucket, upgrade}}, caps: roomy},
			plan{clients: 4, phases: 6, calls: 6, most: 3, changes: []int{0, 2}}},
		{"changes, tiny tables and settles", setup{limits: [spaces][]spillgate.Limit{{bucket, upgrade}, {fixed}, {bucket, upgrade}}, caps: [spaces]int{2, 1, 100}},
			plan{clients: 3, phases: 6, calls: 6, most: 3, settles: true, changes: []int{0, 2}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			overlaps, calls := 0, 0
			for seed := range uint64(*histories) {
				r := newMemoryRun(t, c.setup)
				h := r.run(seed, c.plan)
				h.check(t, &r.setup)
				n, of := h.overlaps()
				overlaps, calls = overlaps+n, calls+of
			}
			t.Logf("%d of %d calls began while another ran", overlaps, calls)
		})
	}
}
