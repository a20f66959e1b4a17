package concurrent

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/spillgate/spillgate"
)

const leaseNodes = 2

// A leaseWorld is what the model of leases knows of a key: what a limit would say
// that is larger by what leases may add, and what is left of the limit itself,
// which may be in debt.
type leaseWorld struct {
	larger, left spillgate.State
}

// A leaseModel says which answers leases may give, in some order of the calls:
//
// Whoever is allowed would be allowed by a limit whose burst is larger by extra,
// which is the same as saying that in no interval more is admitted than that
// burst and what is earned. Whoever is refused would find less than what it asks
// for and stranded units more.
type leaseModel struct {
	meter, larger *spillgate.Meter
	stranded      int64
}

func (m *leaseModel) step(w leaseWorld, in input, allowed bool) (bool, leaseWorld) {
	n := in.charges[0].n
	if !allowed {
		_, d := m.meter.Take(w.left, in.now, 0)
		return d.Remaining < n+m.stranded, w
	}
	after, d := m.larger.Take(w.larger, in.now, n)
	return d.Allowed, leaseWorld{after, m.meter.Settle(w.left, in.now, in.now, n)}
}

func (m *leaseModel) model() porcupine.Model {
	return porcupine.Model{
		Partition: func(ops []porcupine.Operation) [][]porcupine.Operation {
			of := make([][]porcupine.Operation, keys)
			for _, op := range ops {
				k := op.Input.(input).charges[0].key
				of[k] = append(of[k], op)
			}
			return of
		},
		Init: func() any { return leaseWorld{} },
		Step: func(state, in, out any) (bool, any) {
			return m.step(state.(leaseWorld), in.(input), out.([]spillgate.Decision)[0].Allowed)
		},
	}
}

// leaseHistory has clients take units at nodes that lease from one memory. Time
// goes on between phases only, and leases are given back there.
func leaseHistory(t *testing.T, seed uint64, limit spillgate.Limit, o spillgate.LeaseOptions) (h *history, bound spillgate.LeaseBound, here uint64) {
	t.Helper()
	const clients, phases, calls = 4, 6, 8
	m, err := limit.Meter()
	if err != nil {
		t.Fatal(err)
	}
	sp, err := spillgate.NewSpace("leases", spillgate.SpaceOptions{})
	if err != nil {
		t.Fatal(err)
	}
	memory := spillgate.NewMemory()
	defer memory.Close()
	nodes := make([]*spillgate.Leased, leaseNodes)
	for i := range nodes {
		if nodes[i], err = spillgate.NewLeased(memory, o); err != nil {
			t.Fatal(err)
		}
		defer nodes[i].Close()
	}
	h = newHistory(clients)
	times := rand.New(rand.NewPCG(seed, 11))
	at := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for range phases {
		now := spillgate.Instant(at.UnixNano())
		var group sync.WaitGroup
		for client := range clients {
			random := rand.New(rand.NewPCG(seed, times.Uint64()))
			group.Go(func() {
				for range calls {
					in := input{now: now, charges: []charge{{key: random.IntN(2), n: 1 + random.Int64N(3)}}}
					h.record(client, in, func() []spillgate.Decision {
						c := spillgate.Charge{Space: sp, Key: keyOf(in.charges[0].key), Meter: m, Ask: spillgate.Ask{N: in.charges[0].n}}
						out := make([]spillgate.Decision, 1)
						if err := nodes[client%leaseNodes].Take(context.Background(), at, []spillgate.Charge{c}, out); err != nil {
							t.Error(err)
						}
						return out
					})
				}
			})
		}
		group.Wait()
		at = at.Add(time.Duration(times.Int64N(int64(12 * time.Millisecond))))
		for _, n := range nodes {
			if err := n.Return(context.Background(), at); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, n := range nodes {
		here += n.Stats().Here
	}
	return h, nodes[0].Bound(limit), here
}

// TestLeaseHistories holds what nodes with leases say at once against both of
// their bounds, in every history; and without the bounds, which has to fail, or
// nothing was at stake.
func TestLeaseHistories(t *testing.T) {
	for _, limit := range []spillgate.Limit{
		{Rate: 1000, Period: time.Second, Burst: 24},
		{Rate: 3, Period: 7 * time.Millisecond, Burst: 10},
		{Algorithm: spillgate.FixedWindow, Rate: 30, Period: 20 * time.Millisecond},
	} {
		t.Run(limit.String(), func(t *testing.T) {
			inexact, here := 0, uint64(0)
			for seed := range uint64(*histories) {
				o := spillgate.LeaseOptions{Nodes: leaseNodes, Share: []float64{0.25, 0.5, 1}[seed%3], Hold: 10 * time.Millisecond}
				h, bound, n := leaseHistory(t, seed, limit, o)
				here += n
				ops := slices.Concat(h.ops...)
				if !porcupine.CheckOperations(leaseBounds(t, limit, bound).model(), ops) {
					t.Fatalf("seed %d: no order of the calls keeps to %+v", seed, bound)
				}
				if !porcupine.CheckOperations(leaseBounds(t, limit, spillgate.LeaseBound{}).model(), ops) {
					inexact++
				}
			}
			t.Logf("%d calls were decided by leases; %d of %d histories are none of the limit alone", here, inexact, *histories)
			if here == 0 || inexact == 0 {
				t.Error("leases were not used, or changed nothing")
			}
		})
	}
}

// leaseBounds returns the model of a limit with a bound. In a fixed window no
// more is admitted than it has.
func leaseBounds(t *testing.T, limit spillgate.Limit, b spillgate.LeaseBound) *leaseModel {
	t.Helper()
	m := &leaseModel{stranded: b.Stranded}
	larger := limit
	if limit.Algorithm == spillgate.Bucket {
		larger.Burst += b.Extra
	}
	var err, err2 error
	m.meter, err = limit.Meter()
	m.larger, err2 = larger.Meter()
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	return m
}

// TestLeaseModel: the model tells histories apart.
func TestLeaseModel(t *testing.T) {
	limit := spillgate.Limit{Rate: 1, Period: time.Second, Burst: 4}
	ask := func(at time.Duration, n int64, allowed bool) porcupine.Operation {
		tick := int64(at)
		return porcupine.Operation{Input: input{now: spillgate.Instant(at), charges: []charge{{n: n}}}, Call: tick, Return: tick + 1,
			Output: []spillgate.Decision{{Allowed: allowed}}}
	}
	for _, tt := range []struct {
		ops  []porcupine.Operation
		want bool
	}{
		{[]porcupine.Operation{ask(1, 4, true), ask(3, 2, true)}, true},
		{[]porcupine.Operation{ask(1, 4, true), ask(3, 3, true)}, false},                                 // 3 beyond, 2 may be
		{[]porcupine.Operation{ask(1, 4, true), ask(3, 2, true), ask(time.Second+3, 1, true)}, true},     // earned since
		{[]porcupine.Operation{ask(1, 4, true), ask(3, 2, true), ask(time.Second/2, 1, true)}, false},    // not yet
		{[]porcupine.Operation{ask(1, 2, true), ask(3, 1, false)}, true},                                 // 2 left, 2 in leases
		{[]porcupine.Operation{ask(1, 1, true), ask(3, 1, false)}, false},                                // 3 left
		{[]porcupine.Operation{ask(1, 4, true), ask(3, 2, true), ask(5*time.Second+3, 1, false)}, false}, // 3 left again, of a debt of 2
		{[]porcupine.Operation{ask(1, 4, true), ask(3, 2, true), ask(4*time.Second, 1, false)}, true},    // 2 left
	} {
		b := spillgate.LeaseBound{Extra: 2, Stranded: 2}
		if got := porcupine.CheckOperations(leaseBounds(t, limit, b).model(), tt.ops); got != tt.want {
			t.Errorf("%v: %t, want %t", tt.ops, got, tt.want)
		}
	}
}
