package redisstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/policy"
	"github.com/spillgate/spillgate/redisstore"
	"github.com/spillgate/spillgate/redisstore/redistest"
)

// strict is a policy with a penalty that grows, a backup, and overrides of all
// three kinds.
func strict(t *testing.T) *policy.Policy {
	t.Helper()
	limit := func(text string) spillgate.Limit {
		l, err := spillgate.ParseLimit(text)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	user := policy.Attribute{Kind: policy.User}
	by := func(v string) policy.Match { return policy.Match{{Attribute: user, Values: []string{v}}} }
	p, err := policy.Compile([]policy.Rule{
		{Name: "login", Key: []policy.Part{{Attributes: []policy.Attribute{user}}}, Limit: limit("1/10s burst 2"),
			Penalty: policy.Penalty{After: 3, Within: time.Minute, Block: time.Hour, Grow: 2, Most: 3 * time.Hour},
			Backup:  &policy.Backup{Upstream: "http://b.test", Match: by("bob")}},
		{Name: "all", Limit: limit("20/min burst 10")},
	})
	if err == nil {
		p, err = p.WithOverrides([]policy.Override{
			{Rules: []string{"login"}, Match: by("wide"), Limit: limit("1/5s burst 4")},
			{Rules: []string{"login"}, Match: by("free"), Exempt: true},
			{Match: by("shut"), Deny: true, Until: start.Add(2 * time.Hour)},
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

var start = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// Penalties and overrides are the same on a server as in memory: the same
// requests have the same verdicts, also through leases.
func TestPenaltiesAndOverridesAgainstMemory(t *testing.T) {
	client := redistest.Start(t).Client()
	for name, wrap := range map[string]func(*testing.T, spillgate.Store) spillgate.Store{
		"exact":  func(_ *testing.T, s spillgate.Store) spillgate.Store { return s },
		"leased": func(t *testing.T, s spillgate.Store) spillgate.Store { return lease(t, s, true) },
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(5) {
				s := wrap(t, open(t, client, redisstore.Prefix(fmt.Sprintf("%s%d:", name, seed))))
				p := strict(t)
				there, here := policy.NewEngine(p, s), policy.NewEngine(p, spillgate.NewMemory())
				blocks := replayed(t, seed, there, here)
				if blocks == 0 {
					t.Errorf("seed %d: nobody was blocked", seed)
				}
			}
		})
	}
}

// lease leases from s, as a node of one.
func lease(t *testing.T, s spillgate.Store, mixed bool) *spillgate.Leased {
	t.Helper()
	l, err := spillgate.NewLeased(s, spillgate.LeaseOptions{Nodes: 1, Mixed: mixed})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// replayed asks both engines the same, and returns how often both blocked.
func replayed(t *testing.T, seed uint64, there, here *policy.Engine) (blocks int) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 1))
	users := []string{"alice", "bob", "wide", "free", "shut"}
	at := start
	for i := range 400 {
		at = at.Add(time.Duration(rng.Int64N(int64(8 * time.Second))))
		if rng.IntN(40) == 0 {
			at = at.Add(time.Duration(rng.Int64N(int64(2 * time.Hour))))
		}
		who := policy.Attrs{"user": users[rng.IntN(len(users))]}
		decide := func(e *policy.Engine) policy.Verdict {
			return e.Decide(context.Background(), who, policy.At(at), policy.UseBackup())
		}
		got, want := decide(there), decide(here)
		if got.Fault != nil {
			t.Fatal(got.Fault)
		}
		if told(&got) != told(&want) {
			t.Fatalf("seed %d, step %d, %v at %s: %s, in memory %s", seed, i, who, at.Sub(start), told(&got), told(&want))
		}
		if o := want.Refusing(); o != nil && o.Decision.Reason == spillgate.Blocked && o.Override == nil {
			blocks++
		}
	}
	return blocks
}

// told is what a verdict says.
func told(v *policy.Verdict) string {
	s := fmt.Sprint(v.Allowed, " ", v.Exemption() != nil, " ", v.Backup() != nil)
	for i := range v.Len() {
		o := v.Outcome(i)
		s += fmt.Sprintf("; %s %s took %d, %d left, retry %s, %v", o.Rule.Name, o.Decision.Reason, o.Decision.Taken, o.Decision.Remaining, o.Decision.RetryAfter, o.Override != nil)
	}
	return s
}

// Nodes that lease count together and block for each other: what a node knows of
// a key that it need not ask about is as old as a lease is held, and who is
// freed elsewhere is free here when a refusal is no longer remembered.
func TestNodesBlockForEachOther(t *testing.T) {
	client := redistest.Start(t).Client()
	for _, mixed := range []bool{false, true} {
		var e [2]*policy.Engine
		for i := range e {
			s := open(t, client, redisstore.Prefix(fmt.Sprintf("mixed%t:", mixed)))
			seed, err := s.Seed(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			e[i] = policy.NewEngine(strict(t), lease(t, s, mixed), policy.Seeded(seed))
		}
		who, began := policy.Attrs{"user": "alice"}, time.Now() // Free asks at the server's time
		step := func(what string, node int, after time.Duration, want spillgate.Reason) {
			t.Helper()
			v := e[node].Decide(t.Context(), who, policy.At(began.Add(after)))
			if d := v.Of("login").Decision; v.Fault != nil || d.Reason != want {
				t.Fatalf("mixed %t: %s: %s, want %s (%v)", mixed, what, d.Reason, want, v.Err())
			}
		}
		step("first", 0, 0, spillgate.Granted)
		step("second", 1, 0, spillgate.Granted)
		step("refused once", 0, 0, spillgate.OverLimit)
		step("refused twice", 1, 0, spillgate.OverLimit)
		step("refused three times", 0, 0, spillgate.Blocked)
		step("on the node that blocks", 0, 1, spillgate.Blocked)
		step("on the other", 1, spillgate.DefaultLeaseHold+1, spillgate.Blocked)
		key, err := e[0].KeyOf("login", who)
		if err != nil {
			t.Fatal(err)
		}
		if was, err := e[0].Free(t.Context(), "login", key); !was || err != nil {
			t.Fatalf("mixed %t: freed %t, %v", mixed, was, err)
		}
		step("freed here", 0, 21*time.Second, spillgate.Granted)
		step("freed elsewhere", 1, 22*time.Second, spillgate.Granted)
	}
}
