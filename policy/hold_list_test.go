package policy

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate"
)

// Whatever refuses, or would have, each request is listed once where requests
// are held as it is where they are not.
func TestWhoIsHeldIsListedOnce(t *testing.T) {
	shadow := testRule(t, "shadow", "", "user")
	shadow.Deny, shadow.Spare = true, 100
	penal := delayed(t, "1/s burst 1", time.Millisecond, 0, "user")
	penal.Penalty = Penalty{After: 1, Within: time.Second, Block: time.Hour}
	ended := func(o Override) Override {
		o.Deny, o.Until, o.Match = true, time.Now().Add(24*time.Hour), on(t, "user", "x")
		return o
	}
	deny := testRule(t, "deny", "", "user")
	deny.Deny = true
	held := delayed(t, "1/s burst 1", 5*time.Second, 0, "user")
	for _, tt := range []struct {
		name      string
		overrides func() []Override
		rules     []Rule
		rule      string
		asked     int           // of x, one after the other
		later     time.Duration // and the last so much later
		denied    uint64
	}{
		{"a block", nil, []Rule{penal}, "r", 4, time.Minute, 3},
		{"an override of a rule", func() []Override { return []Override{ended(Override{Rules: []string{"r"}})} }, []Rule{held}, "r", 2, 0, 2},
		{"an override of all", func() []Override { return []Override{ended(Override{})} }, []Rule{held}, everyRule, 2, 0, 2},
		{"a shadow rule that denies", nil, []Rule{held, shadow}, "shadow", 3, 0, 3},
		{"a shadow rule before one that denies", nil, []Rule{held, shadow, deny}, "shadow", 3, 0, 3},
		{"a rule that denies", nil, []Rule{held, shadow, deny}, "deny", 3, 0, 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for name, ask := range map[string]func(*Engine, *Verdict){
				"held": func(e *Engine, v *Verdict) { e.Await(context.Background(), v, Attrs{"user": "x"}) },
				"not":  func(e *Engine, v *Verdict) { e.DecideInto(context.Background(), v, Attrs{"user": "x"}) },
			} {
				synctest.Test(t, func(t *testing.T) {
					p, err := Compile(tt.rules)
					if err != nil {
						t.Fatal(err)
					}
					if tt.overrides != nil {
						if p, err = p.WithOverrides(tt.overrides()); err != nil {
							t.Fatal(err)
						}
					}
					e := NewEngine(p, spillgate.NewMemory())
					for i := range tt.asked {
						if i == tt.asked-1 {
							after(tt.later)
						}
						ask(e, new(Verdict))
					}
					got := e.Limited(tt.rule, 1)
					if len(got) != 1 || got[0].Denied != tt.denied {
						t.Errorf("%s: listed %+v, want one with %d", name, got, tt.denied)
					}
				})
			}
		})
	}
}

// What a rule on trial would say is its own, also where another's line is full.
func TestShadowRulesBesideAFullLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shadow := testRule(t, "shadow", "", "user")
		shadow.Deny, shadow.Spare = true, 100
		c := newCrowd(t, delayed(t, "1/s burst 1", time.Minute, 1, "user"), shadow)
		c.come("a", "x")
		c.come("b", "x")
		_, v := c.come("c", "x")
		c.wg.Wait()
		o := v.Of("shadow")
		if o == nil || o.Decision.Reason != spillgate.NeverFits || o.Decision.RetryAfter != spillgate.Never || !o.Trial {
			t.Errorf("the shadow rule says %+v", o)
		}
		if r := v.Refusing(); r == nil || r.Rule.Name != "r" || r.Decision.RetryAfter != 2*time.Second {
			t.Errorf("refused by %+v", r)
		}
	})
}

// A decision that may not be the last word is, where the request passes: what
// rules on trial would have done is listed then, and not while it is refused.
func TestTentativeDecisionsListWhoPasses(t *testing.T) {
	shadow := testRule(t, "shadow", "1/h burst 1", "user")
	shadow.Spare = 100
	deny := testRule(t, "deny", "", "user")
	deny.Deny, deny.Match = true, on(t, "path", "/no")
	e := testEngine(t, shadow, testRule(t, "r", "3/h burst 3", "user"), deny)
	for range 5 {
		e.Decide(context.Background(), Attrs{"user": "x"}, Tentative())
		e.Decide(context.Background(), Attrs{"user": "x", "path": "/no"}, Tentative())
	}
	if got := e.Limited("deny", 1); got != nil {
		t.Errorf("listed %+v, want nobody", got)
	}
	if got := e.Limited("shadow", 1); len(got) != 1 || got[0].Denied != 2 {
		t.Errorf("listed %+v, want 2 that the shadow rule would have refused", got)
	}
	if got := e.Limited("r", 1); len(got) != 1 || got[0].Denied != 0 {
		t.Errorf("listed %+v, want nobody denied", got)
	}
}

// A store that fails just when a line is full leaves what rules said without it.
func TestFaultsBesideAFullLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shadow := testRule(t, "shadow", "", "user")
		shadow.Deny, shadow.Spare = true, 100
		deny := testRule(t, "deny", "", "user")
		deny.Deny = true
		held := delayed(t, "1/s burst 1", time.Minute, 1, "user")
		held.OnFault = Open
		c := newCrowd(t, held, shadow)
		var down atomic.Bool
		c.e.store = sometimes{c.e.store, &down}
		c.come("a", "x")
		c.come("b", "x")
		down.Store(true)
		_, v := c.come("c", "x")
		down.Store(false)
		c.want("a passes at 0s", "c passes at 0s", "b passes at 1s")
		if v.Fault == nil || v.Len() != 2 || v.Of("shadow") == nil || v.Of("r") == nil {
			t.Errorf("the verdict of c is %+v", v)
		}
		if got := c.e.Limited("shadow", 1); len(got) != 1 || got[0].Denied != 3 {
			t.Errorf("listed %+v, want each of three once", got)
		}
	})
}

// sometimes is a store that can be down.
type sometimes struct {
	spillgate.Store
	down *atomic.Bool
}

func (s sometimes) Take(ctx context.Context, at time.Time, cs []spillgate.Charge, out []spillgate.Decision) error {
	if s.down.Load() {
		return spillgate.ErrUnavailable
	}
	return s.Store.Take(ctx, at, cs, out)
}
