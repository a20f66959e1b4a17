package policy

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/spillgate/spillgate"
)

// passing counts who of n passes at once, that long after the start.
func passing(e *Engine, at time.Duration, n int, attrs Attrs) (passed int) {
	for range n {
		if v := decide(e, at, attrs); v.Allowed {
			passed++
		}
	}
	return passed
}

// TestSetNodes: while the store fails a node decides by its part of a limit as the
// number of nodes is now, and what a key has used it has used.
func TestSetNodes(t *testing.T) {
	ten, three := Attrs{"user": "x"}, Attrs{"user": "vip"}
	p, err := Compile([]Rule{testRule(t, "r", "10/s burst 10", "user")})
	if err != nil {
		t.Fatal(err)
	}
	if p, err = p.WithOverrides([]Override{{Rules: []string{"r"}, Match: on(t, "user", "vip"), Limit: limitOf(t, "3/s burst 3")}}); err != nil {
		t.Fatal(err)
	}
	e := NewEngine(p, brokenStore{spillgate.ErrUnavailable})
	for _, step := range []struct {
		nodes       int
		at          time.Duration
		ten, three  int
		nodesAfter  int
		description string
	}{
		{1, 0, 10, 3, 1, "the whole limit"},
		{2, 0, 0, 0, 2, "nothing comes back by a change"},
		{2, time.Second, 5, 1, 2, "a second was earned at the whole rate, up to half of the burst"},
		{2, 2 * time.Second, 5, 1, 2, "half of the rate"},
		{1, 2 * time.Second, 0, 0, 1, "a larger part grants nothing by itself"},
		{1, 2200 * time.Millisecond, 1, 0, 1, "half of the rate up to the first that passes"},
		{1, 2500 * time.Millisecond, 3, 0, 1, "the whole rate from then on"},
		{4, 2500 * time.Millisecond, 0, 0, 4, "nothing is left"},
		{4, 10 * time.Second, 2, 1, 4, "⌊10/4⌋, and at least one"},
		{20, 60 * time.Second, 1, 1, 20, "at least one"},
		{0, 120 * time.Second, 10, 3, 1, "less than one is one"},
	} {
		e.SetNodes(step.nodes)
		if got := e.Nodes(); got != step.nodesAfter {
			t.Errorf("%s: %d nodes, want %d", step.description, got, step.nodesAfter)
		}
		if x, vip := passing(e, step.at, 20, ten), passing(e, step.at, 20, three); x != step.ten || vip != step.three {
			t.Errorf("%d nodes at %s, %s: %d and %d passed, want %d and %d", step.nodes, step.at, step.description, x, vip, step.ten, step.three)
		}
	}
}

// TestLocalAgain: of several times that the store is away each may find a node's own
// count full, as the formula in docs/operations.md says, and its numbers.
func TestLocalAgain(t *testing.T) {
	for _, c := range []struct {
		begins []time.Duration
		length time.Duration
		most   int
	}{
		{[]time.Duration{0, 12200 * time.Millisecond}, 1200 * time.Millisecond, 224},
		{[]time.Duration{0}, 2400 * time.Millisecond, 124},
		{[]time.Duration{0, 2200 * time.Millisecond}, 1200 * time.Millisecond, 134}, // b′ + r′·d
	} {
		p, err := Compile([]Rule{testRule(t, "r", "10/s burst 100", "user")})
		if err != nil {
			t.Fatal(err)
		}
		e, passed := NewEngine(p, brokenStore{spillgate.ErrUnavailable}), 0
		for _, begin := range c.begins {
			for at := time.Duration(0); at <= c.length; at += 100 * time.Millisecond {
				passed += passing(e, begin+at, 110, Attrs{"user": "x"})
			}
		}
		if passed != c.most {
			t.Errorf("away from %s on, for %s each: %d passed, want %d", c.begins, c.length, passed, c.most)
		}
	}
}

// TestSetNodesRate: the rate of a part is exact, whatever the number was before.
func TestSetNodesRate(t *testing.T) {
	p, err := Compile([]Rule{testRule(t, "r", "10/s burst 10", "user")})
	if err != nil {
		t.Fatal(err)
	}
	e := NewEngine(p, brokenStore{spillgate.ErrUnavailable}, Nodes(2))
	who := Attrs{"user": "x"}
	passing(e, 0, 20, who)
	e.SetNodes(7)
	passing(e, 0, 20, who)
	passed := 0
	for at := range 700 { // 70 s in steps of 100 ms: 10/7 a second are 100
		passed += passing(e, time.Duration(at+1)*100*time.Millisecond, 3, who)
	}
	if passed != 100 {
		t.Errorf("%d passed in 70 s, want 100 of a rate of 10/7s", passed)
	}
}

// TestSetNodesBetween: what was charged by one part is settled by it, though the
// number has changed meanwhile.
func TestSetNodesBetween(t *testing.T) {
	for _, limit := range []string{"10/h burst 10", "10/h fixed", "10/h log", "10/h sliding", "10 at once for 1h"} {
		p, err := Compile([]Rule{testRule(t, "r", limit, "user")})
		if err != nil {
			t.Fatal(err)
		}
		e := NewEngine(p, brokenStore{spillgate.ErrUnavailable})
		who := Attrs{"user": "x"}
		v := decide(e, 0, who)
		before := 4
		if e.meter(v.Outcome(0)).Limit().Algorithm == spillgate.Bucket { // of which five are left in any case
			before = 9
		}
		for range before - 1 {
			decide(e, 0, who)
		}
		e.SetNodes(2)
		if n := passing(e, 0, 1, who); n != 1 {
			t.Errorf("%s: %d passed of the one that is left of five", limit, n)
		}
		if n := passing(e, 0, 1, who); n != 0 {
			t.Errorf("%s: %d passed beyond five", limit, n)
		}
		if err := v.GiveBack(); err != nil {
			t.Fatal(err)
		}
		v.Done()
		if n := passing(e, 0, 3, who); n != 1 {
			t.Errorf("%s: %d passed of the one that was given back", limit, n)
		}
	}
}

// TestSetNodesWhileDeciding has the number change all the time while requests are
// decided: no request sees half a change, and none passes more than the whole.
func TestSetNodesWhileDeciding(t *testing.T) {
	rules := []Rule{testRule(t, "a", "64/h burst 64", "user"), testRule(t, "b", "64/h fixed", "user")}
	p, err := Compile(rules)
	if err != nil {
		t.Fatal(err)
	}
	e := NewEngine(p, brokenStore{spillgate.ErrUnavailable})
	stop := make(chan struct{})
	var changing, deciding sync.WaitGroup
	changing.Go(func() {
		for n := 1; ; n = n%8 + 1 {
			select {
			case <-stop:
				return
			default:
				e.SetNodes(n)
			}
		}
	})
	var passed [4]int
	for i := range passed {
		deciding.Go(func() {
			for range 500 {
				v := e.Decide(context.Background(), Attrs{"user": "x"}, At(start))
				if !errors.Is(v.Fault, spillgate.ErrUnavailable) {
					t.Errorf("fault %v", v.Fault)
				}
				if a, b := v.Of("a"), v.Of("b"); a.Decision.Limit != b.Decision.Limit {
					t.Errorf("one request by parts of %d and %d", a.Decision.Limit, b.Decision.Limit)
				}
				if v.Allowed {
					passed[i]++
				}
			}
		})
	}
	deciding.Wait()
	close(stop)
	changing.Wait()
	if n := passed[0] + passed[1] + passed[2] + passed[3]; n < 8 || n > 64 {
		t.Errorf("%d passed, want from 8 to 64", n)
	}
}
