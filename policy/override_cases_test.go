package policy

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// B119: an address is known by its bits, however it is spelt, in lists too.
func TestB119ListsKnowAddressesByTheirBits(t *testing.T) {
	e := overridden(t, []Override{{Deny: true, List: "x", Entries: listOf(t, "1.2.3.4", "2001:db8:1234:5678::/64")}}, testRule(t, "r", "10/s", "client.ip"))
	for ip, want := range map[string]bool{
		"::ffff:1.2.3.4": false, "::ffff:102:304": false, "1.2.3.4": false, "0:0:0:0:0:ffff:0102:0304": false,
		"2001:db8:1234:5678::1.2.3.4": false, "2001:DB8:1234:5678::": false, "fe80::1%eth0": true, "1.2.3.5": true, "unknown": true, "": true,
	} {
		if v := decide(e, 0, Attrs{"client.ip": ip}); v.Allowed != want {
			t.Errorf("%q: allowed %t", ip, v.Allowed)
		}
	}
}

// B032: what is refused changes nothing unless a rule says so; where one does,
// asking on while blocked does not make the block longer.
func TestB032AskingOnProlongsNoBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := testEngine(t, guarded(t))
		ask(e, "192.0.2.1")
		refuse(t, e, "192.0.2.1", 3)
		for range 60 {
			refuse(t, e, "192.0.2.1", 10)
			time.Sleep(time.Minute)
		}
		if v := ask(e, "192.0.2.1"); !v.Allowed {
			t.Errorf("still refused after the hour: %+v", v.Refusing())
		}
	})
}

// B163: what is counted outlives a change of what has nothing to do with it.
func TestB163CountersOutliveOtherOverrides(t *testing.T) {
	e := testEngine(t, testRule(t, "r", "5/h burst 5", "user"))
	for range 5 {
		decide(e, 0, Attrs{"user": "ann"})
	}
	for _, o := range [][]Override{
		{{Deny: true, Match: on(t, "client.ip", "192.0.2.1")}},
		{{Limit: limitOf(t, "50/h burst 50"), Rules: []string{"r"}, Match: on(t, "user", "bob")}},
		nil,
	} {
		p, err := e.Policy().WithOverrides(o)
		if err != nil {
			t.Fatal(err)
		}
		if err := e.SetOverrides(p.Overrides()); err != nil {
			t.Fatal(err)
		}
		if v := e.Decide(context.Background(), Attrs{"user": "ann"}, At(start)); v.Allowed {
			t.Error("a change of overrides gave a new burst")
		}
	}
}
