//go:build !race

package grpclimit_test

import "testing"

// A call costs one allocation: the context that its handler runs in, which
// carries the verdict.
func TestAllocUnary(t *testing.T) {
	if n := testing.AllocsPerRun(1000, intercept(t)); n > 1 {
		t.Errorf("%v allocations a call, want 1", n)
	}
}
