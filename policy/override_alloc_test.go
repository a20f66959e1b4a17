//go:build !race

package policy

import (
	"context"
	"testing"
	"time"

	"github.com/spillgate/spillgate"
)

// A list of 100,000 networks, a list of values and a few overrides cost a
// decision no allocation, and under a microsecond.
func TestAllocOverrides(t *testing.T) {
	rule := testRule(t, "r", "1000000000/s burst 1000000000", "client.ip")
	e := overridden(t, []Override{
		{Deny: true, List: "deny.txt", Entries: manyEntries(100_000), Until: time.Now().Add(time.Hour)},
		{Exempt: true, List: "users.txt", Key: mustPart(t, "user"), Entries: []Entry{{Value: "root"}}},
		{Limit: limitOf(t, "2000000000/s burst 2000000000"), Rules: []string{"r"}, Match: on(t, "client.ip", "198.51.100.0/24")},
		{Exempt: true, Match: on(t, "path", "/health")},
	}, rule)
	blocked := manyEntries(1)[0].Network.Addr()
	for name, tt := range map[string]struct {
		attrs Attributes
		check func(*Verdict) bool
	}{
		"of nobody":     {&visit{addr: prefixes(t, "203.0.113.9")[0].Addr(), user: "bob", path: "/"}, func(v *Verdict) bool { return v.Allowed && v.Len() == 1 }},
		"blocked":       {&visit{addr: blocked, user: "bob", path: "/"}, func(v *Verdict) bool { return !v.Allowed && v.RetryAfter() != spillgate.Never }},
		"exempt":        {&visit{addr: prefixes(t, "203.0.113.9")[0].Addr(), user: "root", path: "/"}, func(v *Verdict) bool { return v.Allowed && v.Len() == 0 }},
		"another limit": {&visit{addr: prefixes(t, "198.51.100.9")[0].Addr(), path: "/"}, func(v *Verdict) bool { return v.Outcome(0).Decision.Limit == 2_000_000_000 }},
	} {
		ctx := context.Background()
		var v Verdict
		run := func() {
			e.DecideInto(ctx, &v, tt.attrs)
			if !tt.check(&v) {
				t.Fatalf("%s: %d outcomes, allowed %t", name, v.Len(), v.Allowed)
			}
		}
		if n := testing.AllocsPerRun(1000, run); n != 0 {
			t.Errorf("%s: %v allocations a decision", name, n)
		}
	}

	// The best of many is what it costs; noise only adds.
	addrs := manyAddresses(256)
	o := e.overrides.Load()
	best := time.Hour
	for range 200 {
		begin := time.Now()
		for _, a := range addrs {
			o.network(a)
		}
		best = min(best, time.Since(begin))
	}
	if each := best / 256; each > time.Microsecond {
		t.Errorf("looking up one of 100,000 networks takes %s", each)
	}
}
