package policy_test

import (
	"testing"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/policy"
)

func TestOnlyAsksTheRulesOfOneUnit(t *testing.T) {
	p, err := policy.Compile([]policy.Rule{
		{Name: "calls", Limit: limitOf(t, "1/h burst 5")},
		{Name: "messages", Unit: "messages", Limit: limitOf(t, "1/h burst 5")},
		{Name: "shut", Match: policy.Match{{Attribute: policy.Attribute{Kind: policy.User}, Values: []string{"eve"}}}, Deny: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	eng := policy.NewEngine(p, spillgate.NewMemory())
	attrs := policy.Attrs{"user": "eve"}
	v := eng.Decide(t.Context(), attrs, policy.Only("messages"), policy.Cost("messages", 4))
	if !v.Allowed || v.Len() != 1 || v.Of("messages").Decision.Remaining != 1 {
		t.Errorf("allowed %t by %d rules: %v", v.Allowed, v.Len(), v.Err())
	}
	if v = eng.Decide(t.Context(), attrs, policy.Only("none")); !v.Allowed || v.Len() != 0 {
		t.Errorf("allowed %t by %d rules", v.Allowed, v.Len())
	}
	if v = eng.Decide(t.Context(), attrs); v.Allowed {
		t.Error("the rule that denies was passed over")
	}
	if v = eng.Decide(t.Context(), policy.Attrs{}); v.Of("calls").Decision.Remaining != 4 || v.Of("messages").Decision.Remaining != 0 {
		t.Errorf("calls %+v, messages %+v", v.Of("calls").Decision, v.Of("messages").Decision)
	}
}

func limitOf(t *testing.T, text string) spillgate.Limit {
	l, err := spillgate.ParseLimit(text)
	if err != nil {
		t.Fatal(err)
	}
	return l
}
