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

func TestDenialsAllocateNothing(t *testing.T) {
	deny := testRule(t, "closed", "", "user")
	deny.Deny = true
	for name, tt := range map[string]struct {
		rule  Rule
		flood bool
	}{
		"one caller":            {testRule(t, "r", "1/h burst 1", "user"), false},
		"near":                  {testRule(t, "r", "1000000/h burst 1000000", "user"), false},
		"flood":                 {testRule(t, "r", "1/h burst 1", "user"), true},
		"flood without a limit": {deny, true},
	} {
		tt.rule.MaxKeys = 64
		e := testEngine(t, tt.rule)
		s := &stranger{}
		var attrs Attributes = s
		ctx := context.Background()
		run := func() {
			if tt.flood {
				s.n++
			}
			e.Decide(ctx, attrs)
		}
		if name == "near" {
			e.Decide(ctx, attrs, Cost(Requests, 950_000))
		}
		for range 5000 { // until the list is full
			run()
		}
		if n := testing.AllocsPerRun(1000, run); n != 0 {
			t.Errorf("%s: %v allocations a decision", name, n)
		}
		c := e.Limited(tt.rule.Name, 1)
		if len(c) != 1 || (c[0].Near > 5000) != (name == "near") {
			t.Errorf("%s: %+v", name, c)
		}
	}
}
