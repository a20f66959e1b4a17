package policy

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate"
)

// leasing returns an engine that leases from a store.
func leasing(t *testing.T, mixed bool, rules ...Rule) (*Engine, *spillgate.Leased) {
	t.Helper()
	p, err := Compile(rules)
	if err != nil {
		t.Fatal(err)
	}
	s, err := spillgate.NewLeased(spillgate.NewMemory(), spillgate.LeaseOptions{Nodes: 1, Mixed: mixed})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return NewEngine(p, s), s
}

// Through leases a penalty counts, blocks and frees as without, whether or not
// logs may be asked for.
func TestPenaltiesThroughLeases(t *testing.T) {
	for _, mixed := range []bool{false, true} {
		t.Run(fmt.Sprintf("mixed %t", mixed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, _ := leasing(t, mixed, guarded(t), testRule(t, "wide", "1000/s burst 1000"))
				const ip = "203.0.113.7"
				punish := func() {
					t.Helper()
					if v := ask(e, ip); !v.Allowed {
						t.Fatal(v.Err())
					}
					for i, want := range []spillgate.Reason{spillgate.OverLimit, spillgate.OverLimit, spillgate.Blocked, spillgate.Blocked} {
						if v := refuse(t, e, ip, 1); v.Refusing().Decision.Reason != want || v.Fault != nil || v.RetryAfter() > time.Hour {
							t.Fatalf("refusal %d: %v", i, v.Err())
						}
					}
				}
				punish()
				after(time.Hour - 1)
				if v := refuse(t, e, ip, 1); v.Refusing().Decision.Reason != spillgate.Blocked {
					t.Errorf("before its end: %v", v.Err())
				}
				after(1)
				punish()
				key, err := e.KeyOf("login", Attrs{"client.ip": ip})
				if err != nil {
					t.Fatal(err)
				}
				if was, err := e.Free(t.Context(), "login", key); !was || err != nil {
					t.Errorf("freed %t, %v", was, err)
				}
				if v := refuse(t, e, ip, 1); v.Refusing().Decision.Reason != spillgate.OverLimit {
					t.Errorf("freed: %v", v.Err())
				}
			})
		})
	}
}

// Keys that are not blocked stay fast: that they are not is remembered as well
// as what they may spend.
func TestPenaltiesCostLeasesLittle(t *testing.T) {
	r := guarded(t)
	r.Limit = testRule(t, "x", "1000/s burst 10000").Limit
	e, s := leasing(t, false, r)
	for i := range 1000 {
		if v := decide(e, time.Duration(i)*time.Millisecond, Attrs{"client.ip": "203.0.113.7"}); !v.Allowed {
			t.Fatal(v.Err())
		}
	}
	if st := s.Stats(); st.Asked > 100 {
		t.Errorf("%d calls for 1000 requests: %+v", st.Asked, st)
	}
}

// noLogs is a store that can't carry out logs.
type noLogs struct{ spillgate.Store }

func (s noLogs) Take(ctx context.Context, at time.Time, cs []spillgate.Charge, out []spillgate.Decision) error {
	for i := range cs {
		if cs[i].Meter.Limit().Algorithm == spillgate.SlidingLog {
			return spillgate.ErrCharge
		}
	}
	return s.Store.Take(ctx, at, cs, out)
}

// A store that can't count refusals is an error, not a penalty that never
// comes.
func TestAStoreThatCantCountRefusals(t *testing.T) {
	other := guarded(t)
	other.Name = "other"
	p, err := Compile([]Rule{guarded(t), other})
	if err != nil {
		t.Fatal(err)
	}
	e := NewEngine(p, noLogs{spillgate.NewMemory()})
	who := Attrs{"client.ip": "203.0.113.7"}
	if v := decide(e, 0, who); !v.Allowed {
		t.Fatal(v.Err())
	}
	v := decide(e, 0, who)
	if err := v.Err(); v.Allowed || v.Refusing() != nil || !errors.Is(err, spillgate.ErrCharge) || errors.Is(err, spillgate.ErrDenied) {
		t.Errorf("%+v: %v", v, err)
	}
}
