package policy

import (
	"strings"
	"testing"
)

func TestAnswersTellNoLimitsOfTheirOwn(t *testing.T) {
	for name, c := range map[string]struct {
		header map[string]string
		want   string // "" if it may be
	}{
		"a dialect's":         {map[string]string{"X-RateLimit-Limit": "10"}, "header X-RateLimit-Limit: a dialect tells"},
		"of a token dialect":  {map[string]string{"x-ratelimit-remaining-requests": "0"}, "header x-ratelimit-remaining-requests: a dialect tells"},
		"the draft's":         {map[string]string{"ratelimit": "10"}, "header ratelimit: set by the server itself"},
		"one twice":           {map[string]string{"x-a": "1", "X-A": "2"}, "header x-a: the same as X-A, in other letters"},
		"others":              {map[string]string{"X-A": "1", "X-B": "2", "X-RateLimited": "yes"}, ""},
		"names with an under": {map[string]string{"X_A": "1", "X-A": "2"}, ""},
	} {
		err := (&Answer{Header: c.header}).Validate()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
