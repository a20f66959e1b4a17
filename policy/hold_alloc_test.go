//go:build !race

package policy

import (
	"context"
	"testing"
	"time"
)

func TestAllocAwait(t *testing.T) {
	var attrs Attributes = Attrs{"user": "x"}
	for name, r := range map[string]Rule{
		"without a delay": testRule(t, "r", "1000000/s burst 1000000", "user"),
		"with one":        delayed(t, "1000000/s burst 1000000", time.Second, 0, "user"),
	} {
		e := testEngine(t, r)
		var v Verdict
		if n := testing.AllocsPerRun(1000, func() {
			if e.Await(context.Background(), &v, attrs); !v.Allowed {
				t.Fatal("denied")
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
