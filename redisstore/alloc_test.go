//go:build !race

package redisstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/redisstore"
	"github.com/spillgate/spillgate/redisstore/redistest"
)

// TestAllocRefusing wants a remembered refusal to cost no memory.
func TestAllocRefusing(t *testing.T) {
	s := open(t, redistest.Start(t).Client(), redisstore.Remember(time.Hour))
	c := charge(t, "1/h burst 1")
	mustTake(t, s, c)
	mustTake(t, s, c)
	cs, out, ctx := []spillgate.Charge{c}, make([]spillgate.Decision, 1), context.Background()
	if n := testing.AllocsPerRun(100, func() {
		if err := s.Take(ctx, time.Time{}, cs, out); err != nil || out[0].Allowed {
			t.Fatal(out, err)
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// answering is a library whose server has every bucket full.
type answering struct{ reply [4]any }

func (a *answering) Lane(context.Context, uint16, string) (string, error) { return "", nil }
func (a *answering) Slots() bool                                          { return false }
func (a *answering) Punctual() bool                                       { return true }
func (a *answering) Eval(_ context.Context, calls []redisstore.Call)      { calls[0].Reply = a.reply[:] }

// TestAllocTake bounds what a charge costs in memory beside the library: the name of
// the key, what the script is given, and the time limit of the call. The request
// itself, its timer and its answer are kept for the next.
func TestAllocTake(t *testing.T) {
	a := &answering{[4]any{int64(1_900_000_000), int64(0), "A", nil}}
	s, err := redisstore.Open(a)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	cs, out, ctx := []spillgate.Charge{charge(t, "10/s burst 20")}, make([]spillgate.Decision, 1), context.Background()
	if n := testing.AllocsPerRun(1000, func() {
		if err := s.Take(ctx, time.Time{}, cs, out); err != nil || !out[0].Allowed {
			t.Fatal(out, err)
		}
	}); n > 11 {
		t.Errorf("%v allocations", n)
	}
}
