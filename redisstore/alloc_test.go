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
