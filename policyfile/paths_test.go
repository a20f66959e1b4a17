package policyfile

import (
	"context"
	"testing"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/policy"
)

func TestPaths(t *testing.T) {
	for text, want := range map[string]policy.Paths{
		"":                                   {},
		"paths: {case: matters}\n":           {},
		"paths: {trailing_slash: ignored}\n": {},
		"paths: {case: ignored}\n":           {AnyCase: true},
		"paths: {case: ignored, trailing_slash: matters}\n": {AnyCase: true, Slash: true},
	} {
		f, err := Parse("x", []byte("rules: [{name: a, deny: true, match: {path: /Login}}]\n"+text))
		if err != nil {
			t.Error(err)
			continue
		}
		if got := f.Policy.Paths(); got != want {
			t.Errorf("%q: %+v", text, got)
		}
		v := policy.NewEngine(f.Policy, spillgate.NewMemory()).Decide(context.Background(), policy.Attrs{"path": "/LOGIN"})
		if v.Allowed == want.AnyCase {
			t.Errorf("%q: allowed %t", text, v.Allowed)
		}
	}
	if _, err := Parse("x", []byte("rules: [{name: a, deny: true, match: {path: [/login/, \"!/x/\", /]}}]\npaths: {trailing_slash: matters}")); err != nil {
		t.Error(err)
	}
	f, err := Parse("x", []byte("paths: {case: ignored}\nrules: [{name: a, limit: 1/h, match: {path: /Login}}]\ntests:\n- name: t\n  requests:\n  - {path: /LOGIN, expect: allowed}\n  - {path: /login, expect: denied}\n"))
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range f.Tests {
		if fails := test.Run().Failures; len(fails) > 0 {
			t.Error(fails)
		}
	}
}
