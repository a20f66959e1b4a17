package policy

import (
	"context"
	"fmt"
	"net/netip"
	"testing"

	"github.com/spillgate/spillgate"
)

// A visit is a request as a front offers it: read from fields, not from a map.
type visit struct {
	addr               netip.Addr
	method, path, host string
	user, plan         string
}

func (v *visit) ClientAddr() netip.Addr { return v.addr }

func (v *visit) AppendAttr(dst []byte, a Attribute) ([]byte, bool) {
	s := ""
	switch a.Kind {
	case ClientIP:
		return v.addr.AppendTo(dst), v.addr.IsValid()
	case Method:
		s = v.method
	case Path:
		return AppendPath(dst, v.path), true
	case Host:
		s = v.host
	case User:
		s = v.user
	case Header:
		if a.Name == "x-plan" {
			s = v.plan
		}
	}
	return append(dst, s...), s != ""
}

// someRules are n rules of which three match a visit: one of everybody, one of
// its service, one of its method and path. The others are of other services,
// half of them by the path and half by the host.
func someRules(t testing.TB, n int) []Rule {
	rules := []Rule{
		testRule(t, "everybody", "1000000000/s burst 1000000000", "client.ip"),
		testRule(t, "service", "1000000000/s burst 1000000000", "user"),
		testRule(t, "login", "1000000000/s burst 1000000000", "client.ip", "host"),
	}
	rules[1].Match = Match{{Attribute{Kind: Path}, []string{"/accounts/**"}}}
	rules[2].Match = Match{{Attribute{Kind: Method}, []string{"POST"}}, {Attribute{Kind: Path}, []string{"/accounts/login"}}}
	for i := len(rules); i < n; i++ {
		r := testRule(t, fmt.Sprintf("other-%d", i), "1000000000/s burst 1000000000", "client.ip")
		if i%2 == 0 {
			r.Match = Match{{Attribute{Kind: Method}, []string{"POST"}}, {Attribute{Kind: Path}, []string{fmt.Sprintf("/service-%d/**", i)}}}
		} else {
			r.Match = Match{{Attribute{Kind: Host}, []string{fmt.Sprintf("service-%d.example", i)}}}
		}
		rules = append(rules, r)
	}
	return rules
}

func aVisit() *visit {
	return &visit{addr: netip.MustParseAddr("203.0.113.7"), method: "POST", path: "/accounts/login", host: "api.example", user: "u-4711"}
}

// BenchmarkDecide decides a request that three rules of n match.
func BenchmarkDecide(b *testing.B) {
	for _, n := range []int{3, 10, 1000, MaxRules} {
		b.Run(fmt.Sprintf("3 of %d", n), func(b *testing.B) {
			e := testEngine(b, someRules(b, n)...)
			var attrs Attributes = aVisit()
			ctx := context.Background()
			if v := e.Decide(ctx, attrs); v.Len() != 3 {
				b.Fatalf("%d rules match", v.Len())
			}
			b.ReportAllocs()
			for b.Loop() {
				v := e.Decide(ctx, attrs)
				if !v.Allowed {
					b.Fatal("denied")
				}
			}
		})
	}
}

// BenchmarkDecideParts measures what a decision on three charges consists of:
// all that could be won in this package is what these are not.
func BenchmarkDecideParts(b *testing.B) {
	e := testEngine(b, someRules(b, 3)...)
	var attrs Attributes = aVisit()
	ctx := context.Background()
	b.Run("store", func(b *testing.B) {
		var cs []spillgate.Charge
		v := e.Decide(ctx, attrs)
		for i := range v.Len() {
			o := v.Outcome(i)
			cs = append(cs, spillgate.Charge{Space: e.spaces[o.index], Key: o.key, Meter: e.meter(o), Ask: spillgate.Ask{N: 1}})
		}
		out := make([]spillgate.Decision, len(cs))
		for b.Loop() {
			if err := e.store.Take(ctx, v.at, cs, out); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("digests", func(b *testing.B) {
		key := spillgate.AppendPart(nil, "", "203.0.113.7 api.example")
		for b.Loop() {
			for range 3 {
				e.seed.Key(key)
			}
		}
	})
}
