package policyfile

import "testing"

func TestClosest(t *testing.T) {
	known := ruleForm.keys()
	for word, want := range map[string]string{
		"limt": "limit", "Limit": "limit", "lmiit": "limit", "limits": "limit",
		"max-keys": "max_keys", "maxkeys": "max_keys", "maxKeys": "max_keys", "max": "max_keys",
		"onfault": "on_fault", "failure": "failures", "atcap": "at_cap", "names": "name",
		"": "", "zzz": "", "description": "", "x": "",
	} {
		if got := closest(word, known); got != want {
			t.Errorf("closest to %q is %q, want %q", word, got, want)
		}
	}
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"abc", "abc", 0},
		{"abc", "abd", 1}, {"abc", "acb", 1}, {"abc", "abcd", 1}, {"ab", "ba", 1}, {"kitten", "sitting", 3},
	} {
		if got := distance(c.a, c.b); got != c.want {
			t.Errorf("distance(%q, %q) = %d, want %d", c.a, c.b, got, c.want)
		}
	}
}
