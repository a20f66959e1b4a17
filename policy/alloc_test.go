//go:build !race

package policy

import (
	"context"
	"testing"
)

// The race detector makes sync.Pool forget at random, so allocations are
// counted without it.

func TestDecideAllocatesNothing(t *testing.T) {
	e := testEngine(t,
		testRule(t, "visitor", "1000000/s burst 1000000", "client.ip"),
		testRule(t, "tunnel", "1000000/s burst 1000000", "host"),
		testRule(t, "both", "1000000/s burst 1000000", "client.ip", "host"))
	var attrs Attributes = Attrs{"client.ip": "203.0.113.7", "host": "a.example"}
	ctx := context.Background()
	if n := testing.AllocsPerRun(1000, func() {
		v := e.Decide(ctx, attrs)
		if !v.Allowed || v.Len() != 3 {
			t.Fatal("denied")
		}
	}); n != 0 {
		t.Errorf("%v allocations a decision", n)
	}
}
