package policy

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate"
)

func forgetting(t *testing.T, limit string, ttl time.Duration, keys int, atCap spillgate.AtCap) Rule {
	r := testRule(t, "r", limit, "client.ip")
	r.TTL, r.MaxKeys, r.AtCap = ttl, keys, atCap
	return r
}

func TestWarningsOfWhatForgets(t *testing.T) {
	for name, c := range map[string]struct {
		r    Rule
		want string // "" for none
	}{
		"a ttl below the refill":      {forgetting(t, "2/h burst 2", time.Second, 0, 0), "ttl: a caller is forgotten 1s after its last charge, and its limit is whole again after 1h: whoever pauses so long may use all 2 anew, so this is no 2/h"},
		"a ttl that is the refill":    {forgetting(t, "2/h burst 2", time.Hour, 0, 0), ""},
		"a burst takes longer":        {forgetting(t, "10/s burst 1000", time.Minute, 0, 0), "ttl: a caller is forgotten 1m after its last charge, and its limit is whole again after 100s"},
		"no refill but the ttl":       {forgetting(t, "0/s burst 100", time.Hour, 0, 0), ""},
		"a window":                    {forgetting(t, "10/h fixed", time.Minute, 0, 0), "ttl: a caller is forgotten 1m"},
		"a month":                     {forgetting(t, "10/calendar month", 30*24*time.Hour, 0, 0), "ttl: a caller is forgotten 30d after its last charge, and its limit is whole again after 31d"},
		"slots":                       {forgetting(t, "10 at once for 1m", time.Second, 0, 0), "ttl: a caller is forgotten 1s"},
		"slots, in time":              {forgetting(t, "10 at once for 1m", time.Minute, 0, 0), ""},
		"few keys that make room":     {forgetting(t, "1/h", 0, 1, spillgate.MakeRoom), "max_keys: 1 callers are told apart, and for each newcomer the one nearest to full is forgotten: whoever comes as 2 in turn is never limited"},
		"many keys that make room":    {forgetting(t, "1/h", 0, fewKeys, spillgate.MakeRoom), ""},
		"few keys and an overflow":    {forgetting(t, "1/h", 0, 1, spillgate.Overflow), ""},
		"the default makes room":      {forgetting(t, "1/h", 0, 0, spillgate.MakeRoom), ""},
		"one that refuses nobody":     {func() Rule { r := forgetting(t, "1/h", time.Second, 1, spillgate.MakeRoom); r.Spare = 100; return r }(), ""},
		"one that says neither of it": {forgetting(t, "1/h", 0, 0, 0), ""},
	} {
		p, err := Compile([]Rule{c.r})
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, w := range p.Warnings() {
			if w.Code == "forgets" {
				got += w.Field + ": " + w.Text
			}
		}
		if c.want == "" && got != "" || !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// What is warned of is so: the limit is no limit. And such a rule is no companion.
func TestWhatForgetsIsNoCompanion(t *testing.T) {
	token := testRule(t, "token", "9/s", "header.x-id")
	for name, r := range map[string]Rule{
		"ttl":      forgetting(t, "2/h burst 2", time.Second, 0, 0),
		"max_keys": forgetting(t, "1/h", 0, 1, spillgate.MakeRoom),
	} {
		e := testEngine(t, r)
		passed := 0
		for n := range 20 {
			ip := "203.0.113.7"
			if name == "max_keys" && n%2 == 0 {
				ip = "203.0.113.8"
			}
			if e.Decide(context.Background(), Attrs{"client.ip": ip}, At(start.Add(time.Duration(n)*1100*time.Millisecond))).Allowed {
				passed++
			}
		}
		if passed != 20 {
			t.Errorf("%s: %d of 20 pass, so there is nothing to warn of", name, passed)
		}
		_, err := Compile([]Rule{token, r})
		if err == nil || !strings.Contains(err.Error(), "r is none, since it ") || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, fine := range []Rule{forgetting(t, "2/h burst 2", time.Hour, 0, 0), forgetting(t, "1/h", 0, fewKeys, spillgate.MakeRoom), forgetting(t, "1/h", 0, 1, spillgate.Overflow)} {
		if _, err := Compile([]Rule{token, fine}); err != nil {
			t.Error(err)
		}
	}
}
