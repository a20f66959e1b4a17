package policy

import (
	"testing"
	"time"
)

// What a log says of a refusal is true: a rule that denies has no limit into
// which a request might not fit.
func TestWhyARuleRefuses(t *testing.T) {
	deny := Rule{Name: "r", Deny: true}
	missing := testRule(t, "r", "1/h", "user")
	missing.Missing = Refuse
	penal := testRule(t, "r", "1/h burst 1", "client.ip")
	penal.Penalty = Penalty{After: 1, Within: time.Minute, Block: time.Hour}
	costly := testRule(t, "r", "1/h burst 1")
	shadow := testRule(t, "r", "1/h burst 1")
	shadow.Spare = 100
	for name, tt := range map[string]struct {
		rule     Rule
		override *Override
		opts     []Option
		want     string // of the second request
		ruleless bool
	}{
		"a limit":                {rule: testRule(t, "r", "1/h burst 1"), want: "over limit"},
		"a rule that denies":     {rule: deny, want: "denied by rule"},
		"a missing part":         {rule: missing, want: "key incomplete"},
		"a penalty":              {rule: penal, want: "blocked"},
		"a cost":                 {rule: costly, opts: []Option{Cost(Requests, 2)}, want: "never fits"},
		"an override":            {rule: testRule(t, "r", "1/h"), override: &Override{Deny: true}, want: "blocked", ruleless: true},
		"an override of it":      {rule: testRule(t, "r", "1/h"), override: &Override{Deny: true, Rules: []string{"r"}}, want: "blocked"},
		"a rule that only would": {rule: shadow, want: ""},
	} {
		var overrides []Override
		if tt.override != nil {
			tt.override.Match = on(t, "client.ip", "192.0.2.1")
			overrides = append(overrides, *tt.override)
		}
		e := overridden(t, overrides, tt.rule)
		decide(e, 0, Attrs{"client.ip": "192.0.2.1"}, tt.opts...)
		v := decide(e, 0, Attrs{"client.ip": "192.0.2.1"}, tt.opts...)
		if o := v.Outcome(0); o.Why() != tt.want || o.Ruleless() != tt.ruleless {
			t.Errorf("%s: %q, ruleless %t, want %q", name, o.Why(), o.Ruleless(), tt.want)
		}
	}
}
