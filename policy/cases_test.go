package policy

import (
	"fmt"
	"strings"
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

// passes asks with each of the values of an attribute, and counts who passes.
func passes(e *Engine, attribute string, values ...string) (n int) {
	for _, v := range values {
		if v := decide(e, 0, Attrs{attribute: v}); v.Allowed {
			n++
		}
	}
	return n
}

// Whoever has the address of another for a name has a limit of its own.
func TestB112TheKindIsPartOfTheKey(t *testing.T) {
	e := testEngine(t, testRule(t, "r", "1/h burst 1", "user else client.ip"))
	for i, want := range []bool{true, false} {
		for _, who := range []Attrs{{"user": "203.0.113.9"}, {"client.ip": "203.0.113.9"}} {
			if v := decide(e, 0, who); v.Allowed != want {
				t.Errorf("%v, request %d: allowed %t", who, i+1, v.Allowed)
			}
		}
	}
}

// Two rules over the same requests and keys count apart: successes use up only
// what counts them. (Three failures fit, since the request after the second
// might be one.)
func TestB114EachRuleCountsAlone(t *testing.T) {
	all, failures := testRule(t, "all", "200/min fixed", "client.ip"), testRule(t, "failures", "3/min fixed", "client.ip")
	failures.Failures = []string{"401"}
	e := testEngine(t, all, failures)
	ask := func(status string) Verdict {
		v := decide(e, 0, Attrs{"client.ip": "192.0.2.1"})
		if err := v.Ended(status); err != nil {
			t.Fatal(err)
		}
		v.Done()
		return v
	}
	for i, status := range strings.Fields("200 200 200 200 200 200 200 200 200 200 401 401 200") {
		if v := ask(status); !v.Allowed {
			t.Fatalf("request %d is refused by %s", i+1, v.Refusing().Rule.Name)
		}
	}
	if v := ask("401"); !v.Allowed || v.Of("all").Decision.Remaining != 186 || v.Of("failures").Decision.Remaining != 0 {
		t.Errorf("the third failure: %+v", v)
	}
	if v := ask("200"); v.Allowed || v.Refusing().Rule.Name != "failures" {
		t.Errorf("after three failures: %+v", v)
	}
}

// Any bytes are a key, and no others are the same.
func TestB116AnyBytesAreAKey(t *testing.T) {
	e := testEngine(t, testRule(t, "r", "1/h burst 1", "user"))
	for _, user := range []string{"\x00", "\n", "\x7f", "\xff", "%", "*", "{x}", "\xed\xa0\x80", "", "\x00\x00", "a\x00b"} {
		for _, want := range []bool{true, false} {
			if v := decide(e, 0, Attrs{"user": user}); v.Allowed != want || v.Fault != nil {
				t.Errorf("%q: allowed %t, want %t; fault %v", user, v.Allowed, want, v.Fault)
			}
		}
	}
}

// A client has a whole /64 of addresses, and one limit.
func TestB118NetworksAreOneKey(t *testing.T) {
	var subscriber []string
	for i := range 100 {
		subscriber = append(subscriber, fmt.Sprintf("2001:db8:1:2::%x", i+1))
	}
	for _, c := range []struct {
		key                  string
		passed, next, beyond int
	}{
		{"client.ip", 10, 1, 1}, {"client.ip/64", 10, 1, 1}, {"client.ip/48", 10, 0, 1},
		{"client.ip/32", 10, 0, 0}, {"client.ip/128", 100, 1, 1},
	} {
		e := testEngine(t, testRule(t, "r", "10/h burst 10", c.key))
		if n := passes(e, "client.ip", subscriber...); n != c.passed {
			t.Errorf("%s: %d of 100 passed, want %d", c.key, n, c.passed)
		}
		if n := passes(e, "client.ip", "2001:db8:1:3::1"); n != c.next {
			t.Errorf("%s: %d of the next network passed, want %d", c.key, n, c.next)
		}
		if n := passes(e, "client.ip", "2001:db8:2::1"); n != c.beyond {
			t.Errorf("%s: %d of a farther network passed, want %d", c.key, n, c.beyond)
		}
	}
	for _, key := range []string{"client.ip/31", "client.ip/129", "client.ip/0"} {
		if _, err := ParsePart(key); err == nil {
			t.Errorf("%s is taken", key)
		}
	}
}

// An address is a key by its bits.
func TestB119OneAddressIsOneKey(t *testing.T) {
	e := testEngine(t, testRule(t, "r", "1/h burst 1", "client.ip"))
	if n := passes(e, "client.ip", "::ffff:1.2.3.4", "::ffff:102:304", "1.2.3.4", "0:0:0:0:0:ffff:0102:0304"); n != 1 {
		t.Errorf("%d of one address passed", n)
	}
	if n := passes(e, "client.ip", "2001:db8:1234:5678::1.2.3.4", "2001:db8:1234:5678::1"); n != 1 {
		t.Errorf("%d of one network passed", n)
	}
}

// An account is one key however its name is written, if the rule says how the
// program looks it up.
func TestB131OneAccountIsOneKey(t *testing.T) {
	forms := []string{"user@example.org", "User@Example.org", " user@example.org", "user@example.org\x00", "USER@EXAMPLE.ORG ", "\tuser@example.org"}
	for key, want := range map[string]int{"header.x-email lower trim": 5, "header.x-email": 6} {
		e := testEngine(t, testRule(t, "r", "5/h burst 5", key), testRule(t, "companion", "100/h", "client.ip"))
		if n := passes(e, "header.x-email", forms...); n != want {
			t.Errorf("%s: %d of 6 tries passed, want %d", key, n, want)
		}
	}
}
