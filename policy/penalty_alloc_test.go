//go:build !race

package policy

import (
	"context"
	"testing"
)

func TestAllocPenalties(t *testing.T) {
	var attrs Attributes = Attrs{"client.ip": "203.0.113.7"}
	ctx := context.Background()
	for name, tt := range map[string]struct {
		limit string
		after int64
	}{
		"admitted": {"1000000000/s burst 1000000000", 3},
		"refused":  {"1/d burst 1", MaxAfter},
		"blocked":  {"1/d burst 1", 1},
	} {
		r := guarded(t, func(p *Penalty) { p.After = tt.after })
		r.Limit = testRule(t, "x", tt.limit).Limit
		e := testEngine(t, r, testRule(t, "all", "1000000000/s burst 1000000000"))
		for range MaxAfter / 2 { // until the log of the refused has its room
			e.Decide(ctx, attrs)
		}
		if n := testing.AllocsPerRun(300, func() {
			if v := e.Decide(ctx, attrs); v.Allowed != (name == "admitted") {
				t.Fatalf("%s: allowed %t", name, v.Allowed)
			}
		}); n >= 0.1 {
			t.Errorf("%s: %v allocations a decision", name, n)
		}
	}
}
