package redisstore_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/policy"
	"github.com/spillgate/spillgate/redisstore"
	"github.com/spillgate/spillgate/redisstore/redistest"
)

// ago runs a node whose clock shows the year 2000: that is what a bubble begins
// with, and waiting for the server does not move it.
func ago(t *testing.T, server *redistest.Server, node func(*testing.T, *redisstore.Store)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		if time.Now().Year() != 2000 {
			t.Fatalf("the clock shows %s", time.Now())
		}
		client := redis.NewClient(&redis.Options{Addr: server.Addr})
		defer client.Close()
		s, err := redisstore.New(client, redisstore.Budget(10*time.Second), redisstore.Remember(0))
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		node(t, s)
	})
}

// Nodes whose clocks differ count by one clock, the server's.
func TestB088OneClock(t *testing.T) {
	server := redistest.Start(t)
	now := open(t, server.Client(), redisstore.Remember(0))
	c := charge(t, "50/s burst 10")
	var taken int64
	var from, to spillgate.Instant
	ask := func(t *testing.T, s *redisstore.Store) {
		for range 30 {
			d := mustTake(t, s, c)
			if from == 0 {
				from = d.At
			}
			if d.At < to {
				t.Fatalf("decided at %d, after %d", d.At, to)
			}
			to = d.At
			taken += d.Taken
		}
	}
	for range 10 {
		ask(t, now)
		ago(t, server, ask)
	}
	if most := 10 + int64(to-from)*50/1e9 + 1; taken < 10 || taken > most {
		t.Errorf("%d admitted in %s, want at most %d", taken, time.Duration(to-from), most)
	}
}

// How long until all is back is a time, not the difference of two clocks.
func TestB089ResetDoesNotDependOnTheNodesClock(t *testing.T) {
	server := redistest.Start(t)
	now := open(t, server.Client(), redisstore.Remember(0))
	const day = 24 * time.Hour // so long that no window ends meanwhile
	for limit, period := range map[string]time.Duration{
		"10/30d fixed": 30 * day, "10/30d burst 10": 3 * day, "10/30d sliding": 60 * day, "10/30d log": 30 * day,
	} {
		c := charge(t, limit)
		look := func(t *testing.T, s *redisstore.Store) spillgate.Decision {
			d := mustTake(t, s, c)
			if d.ResetAfter <= 0 || d.ResetAfter > period {
				t.Errorf("%s: the reset is in %s", limit, d.ResetAfter)
			}
			return d
		}
		before := look(t, now)
		c.N = 0
		ago(t, server, func(t *testing.T, s *redisstore.Store) {
			if d := look(t, s); d.At+spillgate.Instant(d.ResetAfter) != before.At+spillgate.Instant(before.ResetAfter) {
				t.Errorf("%s: %+v at a node in the year 2000, %+v at another", limit, d, before)
			}
		})
	}
}

// engineOf decides by rules of these names, each 10 an hour for each user.
func engineOf(t *testing.T, s *redisstore.Store, names ...string) *policy.Engine {
	t.Helper()
	limit, err := spillgate.ParseLimit("10/h burst 10")
	if err != nil {
		t.Fatal(err)
	}
	var rules []policy.Rule
	for _, name := range names {
		rules = append(rules, policy.Rule{Name: name, Limit: limit, Key: []policy.Part{{Attributes: []policy.Attribute{{Kind: policy.User}}}}})
	}
	p, err := policy.Compile(rules)
	if err != nil {
		t.Fatal(err)
	}
	seed, err := s.Seed(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return policy.NewEngine(p, s, policy.Seeded(seed))
}

// passed counts who passes of n requests at each engine in turn.
func passed(t *testing.T, n int, user string, engines ...*policy.Engine) (passed int) {
	t.Helper()
	for i := range n * len(engines) {
		v := engines[i%len(engines)].Decide(context.Background(), policy.Attrs{"user": user})
		if v.Fault != nil {
			t.Fatal(v.Fault)
		}
		if v.Allowed {
			passed++
		}
	}
	return passed
}

// A rule is known by its name: nodes count together whatever stands before it in
// their files, and whatever else there is.
func TestB098NodesCountByTheNameOfTheRule(t *testing.T) {
	server := redistest.Start(t)
	one, two := open(t, server.Client()), open(t, server.Client())
	if n := passed(t, 10, "ann", engineOf(t, one, "a", "b", "c"), engineOf(t, two, "c", "a")); n != 10 {
		t.Errorf("%d passed at two nodes with one limit of 10", n)
	}
}

// Two programs on one server count apart by their prefixes, and by nothing else.
func TestB162PrefixesKeepProgramsApart(t *testing.T) {
	server := redistest.Start(t)
	under := func(prefix ...redisstore.Option) *policy.Engine {
		return engineOf(t, open(t, server.Client(), prefix...), "login")
	}
	a, b, again := under(redisstore.Prefix("a:")), under(redisstore.Prefix("b:")), under(redisstore.Prefix("a:"))
	for name, c := range map[string]struct {
		want    int
		engines []*policy.Engine
	}{
		"ann": {20, []*policy.Engine{a, b}}, "bob": {10, []*policy.Engine{a, again}}, "eve": {20, []*policy.Engine{b, under()}}, "joe": {10, []*policy.Engine{under(), under()}},
	} {
		if n := passed(t, 15, name, c.engines...); n != c.want {
			t.Errorf("%s: %d passed at two programs, want %d", name, n, c.want)
		}
	}
}

// Keys of any bytes are keys on a server, too.
func TestB116AnyBytesAreAKey(t *testing.T) {
	e := engineOf(t, open(t, redistest.Start(t).Client()), "r")
	for _, user := range []string{"\x00", "\r\n", "\x7f", "\xff", "%", "*", "{x}", "{", "\xed\xa0\x80", "", fmt.Sprint(make([]byte, 1<<16))} {
		if n := passed(t, 12, user, e); n != 10 {
			t.Errorf("%.20q: %d passed, want 10", user, n)
		}
	}
}
