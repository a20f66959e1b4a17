package redisstore

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/redisstore/redistest"
)

// A counter is a store that counts, and what it told.
type counter struct {
	*Store
	mu   sync.Mutex
	told []Nodes
}

func countOn(t *testing.T, client redis.UniversalClient, opts ...Option) *counter {
	t.Helper()
	s, err := New(client, append([]Option{Budget(10 * time.Second)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return &counter{Store: s}
}

func (c *counter) begin() *counter {
	c.CountNodes(func(n Nodes) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.told = append(c.told, n)
	})
	return c
}

func (c *counter) last() Nodes {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.told[len(c.told)-1]
}

// counts counts until that is what is told, as the goroutine does that looks after it:
// a machine that stands still may end a single one.
func (c *counter) counts(t *testing.T, want int) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; c.recount() {
		if n := c.last(); n.Count == want && n.Fault == NoFault {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%+v after 20s, want %d", c.last(), want)
		}
	}
}

// falls counts until fewer are told, at times that are far apart.
func (c *counter) falls(t *testing.T, want int) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); c.last().Count != want; c.recount() {
		c.patient(16 * time.Second)
		if time.Now().After(deadline) {
			t.Fatalf("%+v after 20s, want %d", c.last(), want)
		}
	}
}

// here says how many are on the server.
func here(server *redistest.Server) any { return server.Do("zcard", "sg1:nodes") }

// patient makes c take the next count for one that comes so much later.
func (c *counter) patient(d time.Duration) {
	c.census.mu.Lock()
	defer c.census.mu.Unlock()
	for _, at := range []*time.Time{&c.census.first, &c.census.last, &c.census.fewer} {
		if !at.IsZero() {
			*at = at.Add(-d)
		}
	}
}

// TestCountNodes: stores under one prefix count each other. Who is closed or lost is
// missed after a while, and who comes again, or was lost with all that the server had,
// is not.
func TestCountNodes(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client()
	quiet := countOn(t, client)
	if quiet.recount(); here(server) != int64(0) || quiet.Stats().Nodes != 0 {
		t.Fatalf("%v are here, and nobody counts", here(server))
	}
	a := countOn(t, client).begin()
	a.counts(t, 1)
	b := countOn(t, client).begin()
	b.counts(t, 2)
	c := countOn(t, client).begin()
	other := countOn(t, client, Prefix("other:")).begin()
	for s, want := range map[*counter]int{a: 3, b: 3, c: 3, other: 1} {
		if s.counts(t, want); s.Stats().Nodes != want {
			t.Errorf("%+v, want %d", s.Stats(), want)
		}
	}
	if ttl, ok := server.Do("ttl", "sg1:nodes").(int64); !ok || ttl < 1 || ttl > 3600 {
		t.Errorf("it ends in %v s", ttl)
	}

	c.Close()
	if n := here(server); n != int64(2) {
		t.Errorf("%v are here, one of three is closed", n)
	}
	a.recount()
	a.counts(t, 3) // it may be back at once
	a.falls(t, 2)
	b.falls(t, 2)

	server.Do("zincrby", "sg1:nodes", -16_000, b.census.name) // b was killed long ago
	a.recount()
	a.counts(t, 2)
	a.falls(t, 1)
	if n := here(server); n != int64(1) {
		t.Errorf("%v are here, one of two is lost", n)
	}
	b.recount()
	b.counts(t, 2)
	a.recount()
	a.counts(t, 2)

	server.Do("flushall")
	for _, s := range []*counter{a, b, a} {
		s.recount()
		s.counts(t, 2)
	}
	if n := here(server); n != int64(2) {
		t.Errorf("%v are here after a flush", n)
	}
	for _, s := range []*counter{a, b, c} {
		s.mu.Lock()
		for i, n := range s.told[1:] {
			if n == s.told[i] {
				t.Errorf("told twice: %+v", s.told)
			}
		}
		s.mu.Unlock()
	}

	server.Do("zincrby", "sg1:nodes", 3_600_000, b.census.name) // the clock was set back since
	a.falls(t, 1)
}

// TestCountWhileAway: while the server is away the last count stands, and it does not
// fall when all announce themselves anew, one after the other, on one that begins empty.
func TestCountWhileAway(t *testing.T) {
	server := redistest.Start(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr, MaxRetries: -1, DialerRetries: 1})
	t.Cleanup(func() { client.Close() })
	a, b := countOn(t, client), countOn(t, client)
	a.begin().counts(t, 1)
	b.begin().counts(t, 2)
	a.counts(t, 2)
	server.Kill()
	for range 2 {
		a.patient(5 * time.Second)
		a.recount()
	}
	if n := a.last(); n.Count != 2 || n.Fault == NoFault || n.Mutual {
		t.Errorf("%+v while the server is away", n)
	}
	late := countOn(t, client).begin()
	if n := late.last(); n.Count != 0 || n.Fault == NoFault {
		t.Errorf("%+v of one that began meanwhile", n)
	}
	a.patient(time.Hour)
	server.Run()
	a.counts(t, 2)
	if n := here(server); n != int64(1) {
		t.Errorf("%v are here at first", n)
	}
	b.recount() // or within 5 s, if that fails
	late.counts(t, 3)
	a.counts(t, 3)
}

// TestCountIsMutual: what is divided by the count may be used when all had time to hear
// of it, and as long as the count is not old.
func TestCountIsMutual(t *testing.T) {
	const every = 5 * time.Second
	var c census
	start := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for i, step := range []struct {
		n    int // 0 fails
		want Nodes
	}{
		{0, Nodes{Fault: Refused}}, {2, Nodes{Count: 2}}, {2, Nodes{Count: 2}}, {2, Nodes{Count: 2}}, {2, Nodes{Count: 2, Mutual: true}},
		{0, Nodes{2, true, Refused}}, {0, Nodes{2, false, Refused}}, {3, Nodes{3, true, NoFault}},
		{1, Nodes{3, true, NoFault}}, {1, Nodes{3, true, NoFault}}, {2, Nodes{3, true, NoFault}}, {1, Nodes{2, true, NoFault}}, // the highest of 15 s
		{1, Nodes{2, true, NoFault}}, {1, Nodes{2, true, NoFault}}, {0, Nodes{2, true, Refused}}, // nobody could announce itself
		{1, Nodes{2, true, NoFault}}, {1, Nodes{2, true, NoFault}}, {1, Nodes{2, true, NoFault}}, {1, Nodes{1, true, NoFault}},
	} {
		at := start.Add(time.Duration(i) * every).Add(time.Duration(i%2) * time.Millisecond)
		if step.n > 0 {
			c.counted(step.n, at, every)
		} else {
			c.failed(Refused, at, every)
		}
		if c.nodes != step.want {
			t.Errorf("turn %d: %+v, want %+v", i, c.nodes, step.want)
		}
	}
}

// TestCountGoesOn: the goroutine that looks after the seed counts, with or without one,
// and so does a server that answers again.
func TestCountGoesOn(t *testing.T) {
	server := redistest.Start(t)
	a, b := countOn(t, server.Client()), countOn(t, server.Client())
	if _, err := b.Seed(t.Context()); err != nil { // looks every 5 s
		t.Fatal(err)
	}
	a.every = 20 * time.Millisecond
	a.begin()
	until := func(what string, ok func() bool) {
		t.Helper()
		for deadline := time.Now().Add(20 * time.Second); !ok(); <-time.After(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("not after 20s: %s; %+v", what, a.last())
			}
		}
	}
	until("one", func() bool { return a.last().Count == 1 && a.last().Mutual })
	b.begin()
	until("two", func() bool {
		b.recount()
		return a.last().Count == 2
	})
	a.Close()
	b.resend()
	if n := here(server); n != int64(1) {
		t.Errorf("%v are here", n)
	}
}

// TestCountRights: where a right to count is missing, or something else is at the key,
// that is told, and nothing else fails.
func TestCountRights(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client()
	space, err := spillgate.NewSpace("rights", spillgate.SpaceOptions{})
	if err != nil {
		t.Fatal(err)
	}
	limit, err := spillgate.ParseLimit("1000000/h burst 1000000")
	if err != nil {
		t.Fatal(err)
	}
	meter, err := limit.Meter()
	if err != nil {
		t.Fatal(err)
	}
	a := countOn(t, client).begin()
	a.counts(t, 1)
	fails := func(want Fault) {
		t.Helper()
		until := time.Now().Add(20 * time.Second)
		for a.recount(); a.last().Fault != want; a.recount() {
			if time.Now().After(until) {
				t.Fatalf("%+v, want %s", a.last(), want)
			}
		}
		if n := a.last(); n.Count != 1 {
			t.Errorf("%+v, want the last count", n)
		}
		cs := []spillgate.Charge{{Space: space, Meter: meter, Ask: spillgate.Ask{N: 1}}}
		if err := a.Take(context.Background(), time.Time{}, cs, make([]spillgate.Decision, 1)); err != nil {
			t.Error(err)
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		if n := len(a.told); slices.Index(a.told, a.told[n-1]) != n-1 && n > 9 {
			t.Errorf("told more than once: %+v", a.told)
		}
	}
	for _, right := range []string{"zadd", "zcard", "zremrangebyscore"} {
		server.Do("acl", "setuser", "default", "-"+right)
		fails(Denied)
		server.Do("acl", "setuser", "default", "+"+right)
		a.counts(t, 1)
	}
	server.Do("set", "sg1:nodes", "something else")
	fails(WrongType)
	server.Do("del", "sg1:nodes")
	a.counts(t, 1)
	if err := a.Close(); err != nil || errors.Is(err, spillgate.ErrClosed) {
		t.Error(err)
	}
}
