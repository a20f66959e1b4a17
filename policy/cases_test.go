package policy

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate"
)

// A rule on trial that has run out, in whatever place, is no end to the others.
func TestB108TrialDoesNotEndTheRest(t *testing.T) {
	shadow, real := testRule(t, "shadow", "1/h"), testRule(t, "real", "5/h")
	shadow.Spare = 100
	for _, rules := range [][]Rule{{shadow, real}, {real, shadow}} {
		e := testEngine(t, rules...)
		passed, would := 0, 0
		for range 10 {
			v := decide(e, 0, Attrs{})
			if v.Allowed {
				passed++
			} else if v.Refusing().Rule.Name != "real" {
				t.Errorf("refused by %s", v.Refusing().Rule.Name)
			}
			if o := v.Of("shadow"); !o.Decision.Allowed && o.Trial {
				would++
			}
		}
		if passed != 5 || would != 9 {
			t.Errorf("%s first: %d passed, want 5; the rule on trial would have refused %d, want 9", rules[0].Name, passed, would)
		}
	}
}

// Engines share nothing that they were not given to share: not even a policy
// that both decide by makes them count together.
func TestB046EachEngineHasItsOwnStore(t *testing.T) {
	p, err := Compile([]Rule{testRule(t, "r", "2/h", "user")})
	if err != nil {
		t.Fatal(err)
	}
	stores := [3]*spillgate.Memory{spillgate.NewMemory(), spillgate.NewMemory(), spillgate.NewMemory()}
	var engines [3]*Engine
	for i, m := range stores {
		defer m.Close()
		engines[i] = NewEngine(p, m)
	}
	for i, e := range engines { // the last one is the second after its store was changed
		for n := range 3 {
			if v := decide(e, time.Duration(i)*time.Second, Attrs{"user": "ann"}); v.Allowed != (n < 2) {
				t.Errorf("store %d, request %d: allowed %v", i+1, n+1, v.Allowed)
			}
		}
	}
	if err := stores[0].Close(); err != nil {
		t.Fatal(err)
	}
	if v := decide(engines[1], time.Hour, Attrs{"user": "ann"}); !v.Allowed || v.Fault != nil {
		t.Errorf("another store was closed, and this one says %+v", v)
	}
}
