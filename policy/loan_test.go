package policy

import (
	"context"
	"sync"
	"testing"
)

func TestLoan(t *testing.T) {
	v := new(Verdict)
	l := new(Loan)
	type key struct{}
	l.Lend(context.WithValue(t.Context(), key{}, "x"), v)
	if got := l.Value(key{}); got != "x" {
		t.Errorf("another value: %v", got)
	}
	if !l.Return() {
		t.Error("nobody asked, and it does not come back")
	}
	if got := FromContext(l); got != nil {
		t.Error("a verdict that was given back")
	}
	if l.Return() {
		t.Error("it comes back twice")
	}
	l = new(Loan)
	l.Lend(t.Context(), v)
	for range 2 {
		if FromContext(l) != v {
			t.Error("who asks does not get it")
		}
	}
	if l.Return() || FromContext(l) != v {
		t.Error("who asked does not keep it")
	}
}

// Either who asks has it or the front has it back, never both.
func TestLoanAskedAndReturnedAtOnce(t *testing.T) {
	for range 2000 {
		v, l := new(Verdict), new(Loan)
		l.Lend(t.Context(), v)
		var got *Verdict
		var back bool
		var both sync.WaitGroup
		both.Go(func() { got = FromContext(l) })
		both.Go(func() { back = l.Return() })
		both.Wait()
		if back != (got == nil) {
			t.Fatalf("asked: %p, returned: %t", got, back)
		}
	}
}
