//go:build !race

package policy

import (
	"context"
	"testing"
	"time"

	"github.com/spillgate/spillgate"
)

// The race detector makes sync.Pool forget at random, and time run
// differently, so allocations and times are measured without it.

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

// TestManyRulesCostWhatFewDo takes turns between a policy of ten rules and one of
// a thousand, of which the same three match, and compares the best that each
// ever did. Rules that were walked would cost a hundred times as much.
func TestManyRulesCostWhatFewDo(t *testing.T) {
	engines := [2]*Engine{testEngine(t, someRules(t, 10)...), testEngine(t, someRules(t, 1000)...)}
	var attrs Attributes = aVisit()
	ctx := context.Background()
	for _, e := range engines {
		if n := testing.AllocsPerRun(1000, func() { e.Decide(ctx, attrs) }); n != 0 {
			t.Errorf("%d rules: %v allocations a decision", len(e.policy.rules), n)
		}
	}
	best := [2]time.Duration{time.Hour, time.Hour}
	for range 500 {
		for i, e := range engines {
			begin := time.Now()
			for range 200 {
				e.Decide(ctx, attrs)
			}
			best[i] = min(best[i], time.Since(begin))
		}
	}
	t.Logf("%s with 10 rules, %s with 1000", best[0]/200, best[1]/200)
	if best[1] > 2*best[0] {
		t.Errorf("200 decisions take %s with 1000 rules and %s with 10", best[1], best[0])
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
		if !tt.rule.Deny {
			tt.rule.MaxKeys = 64
		}
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

// TestListsCostAdmissionsNothing takes turns between an engine with lists and
// one without, and compares the best that each ever did: noise only adds. A
// list that every admission reached would cost half as much again.
func TestListsCostAdmissionsNothing(t *testing.T) {
	p, err := Compile([]Rule{testRule(t, "r", "1000000000/s burst 1000000000", "user")})
	if err != nil {
		t.Fatal(err)
	}
	var engines [2]*Engine
	for i, k := range []int{0, MaxTracked} {
		m := spillgate.NewMemory()
		t.Cleanup(func() { m.Close() })
		engines[i] = NewEngine(p, m, Track(k))
	}
	var attrs Attributes = &stranger{}
	ctx := context.Background()
	best := [2]time.Duration{time.Hour, time.Hour}
	for range 1000 {
		for i, e := range engines {
			begin := time.Now()
			for range 200 {
				e.Decide(ctx, attrs)
			}
			best[i] = min(best[i], time.Since(begin))
		}
	}
	t.Logf("%s without lists, %s with", best[0]/200, best[1]/200)
	if best[1] > best[0]*5/4 {
		t.Errorf("200 admissions take %s with lists and %s without", best[1], best[0])
	}
	if c := engines[1].Limited("r", 1); c != nil {
		t.Errorf("admissions were listed: %+v", c)
	}
}

func TestAllocSecretsCostNothing(t *testing.T) {
	s := testRule(t, "r", "1/h burst 1", "user secret")
	s.MaxKeys = 64
	e := testEngine(t, s)
	st := &stranger{}
	var attrs Attributes = st
	run := func() {
		st.n++
		e.Decide(context.Background(), attrs)
	}
	for range 5000 { // until the list is full
		run()
	}
	if n := testing.AllocsPerRun(1000, run); n != 0 {
		t.Errorf("%v allocations a denial that makes a fingerprint", n)
	}
}
