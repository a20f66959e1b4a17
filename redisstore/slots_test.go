package redisstore_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/redisstore"
	"github.com/spillgate/spillgate/redisstore/redistest"
)

// between is a hook of go-redis that does something before the second command
// that names a key: between the round that asks and the round that takes.
type between struct {
	name  string
	then  func() error
	times atomic.Int32
}

func (b *between) of(cmd redis.Cmder) error {
	for _, word := range cmd.Args() {
		if text, ok := word.(string); ok && strings.Contains(text, ":"+b.name+":") && b.times.Add(1) == 2 {
			return b.then()
		}
	}
	return nil
}

func (b *between) DialHook(next redis.DialHook) redis.DialHook { return next }

func (b *between) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := b.of(cmd); err != nil {
			cmd.SetErr(err)
			return err
		}
		return next(ctx, cmd)
	}
}

func (b *between) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		var rest []redis.Cmder
		for _, cmd := range cmds {
			if err := b.of(cmd); err != nil {
				cmd.SetErr(err)
			} else {
				rest = append(rest, cmd)
			}
		}
		return next(ctx, rest)
	}
}

// TestRefusedInTheSecondSlot has a request on two slots of a cluster pass the
// round that asks, and then be refused, or not be answered, in one of them: what
// it took in the other is given back, and counted.
func TestRefusedInTheSecondSlot(t *testing.T) {
	nodes := redistest.Cluster(t, 3)
	direct := open(t, clusterClient(t, nodes), redisstore.Remember(0))
	long := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC) // a clock of the caller's, far from the server's
	for i, limit := range []string{"1/h burst 5", "5/h queue 5", "5/h fixed", "5/h sliding", "5/h log", "5 at once"} {
		for j, lost := range []bool{false, true, false, true} {
			at := time.Time{}
			if j > 1 {
				at = long.Add(time.Duration(i) * time.Hour)
			}
			first, second := charge(t, limit), charge(t, "1/h burst 5")
			out := make([]spillgate.Decision, 2)
			first.N, second.N = 0, 0 // both servers know the script from here on
			if err := direct.Take(context.Background(), at, []spillgate.Charge{first, second}, out); err != nil {
				t.Fatal(err)
			}
			first.N, second.N = 2, 2
			full := out[0].Remaining
			client := clusterClient(t, nodes)
			hook := &between{name: second.Space.Name(), then: func() error {
				if lost {
					return io.EOF
				}
				all := second
				all.N = 4
				return direct.Take(context.Background(), at, []spillgate.Charge{all}, make([]spillgate.Decision, 1))
			}}
			client.OnNewNode(func(c *redis.Client) { c.AddHook(hook) })
			s := open(t, client)
			mustTake(t, s, charge(t, "1/h burst 5")) // and the client the slots
			err := s.Take(context.Background(), at, []spillgate.Charge{first, second}, out)
			switch {
			case lost:
				if !errors.Is(err, spillgate.ErrUnavailable) || !strings.Contains(err.Error(), "charged in 1 of 2 slots, which is given back") {
					t.Errorf("%s: error %v", limit, err)
				}
			case err != nil || out[1].Allowed || out[1].Reason != spillgate.OverLimit || out[1].Remaining != 1 || out[0].Taken != 0 || out[0].Remaining != full:
				t.Errorf("%s: %+v, %v", limit, out, err)
			}
			if n := s.Stats().OverDenied; n != 1 {
				t.Errorf("%s: OverDenied %d, want 1", limit, n)
			}
			first.N = 0
			if err := direct.Take(context.Background(), at, []spillgate.Charge{first}, out[:1]); err != nil || out[0].Remaining != full {
				t.Errorf("%s, lost %t, at %s: not given back: %+v, %v", limit, lost, at, out[0], err)
			}
		}
	}
	t.Run("after nothing", func(t *testing.T) { lostAfterNothing(t, nodes, direct) })
}

// lostAfterNothing has two charges of one key, of which the first asks for nothing,
// taken in one slot while the other slot does not answer: what the second took is given
// back.
func lostAfterNothing(t *testing.T, nodes []*redistest.Server, direct *redisstore.Store) {
	for _, limit := range []string{"1/h burst 5", "5/h queue 5", "5/h fixed", "5/h sliding", "5/h log", "5 at once"} {
		first, second := charge(t, limit), charge(t, "1/h burst 5")
		out := make([]spillgate.Decision, 3)
		first.N, second.N = 0, 0 // both servers know the script from here on
		nothing := first
		if err := direct.Take(context.Background(), time.Time{}, []spillgate.Charge{first, second}, out[:2]); err != nil {
			t.Fatal(err)
		}
		full := out[0].Remaining
		first.N, second.N = 2, 2
		client := clusterClient(t, nodes)
		hook := &between{name: second.Space.Name(), then: func() error { return io.EOF }}
		client.OnNewNode(func(c *redis.Client) { c.AddHook(hook) })
		s := open(t, client)
		mustTake(t, s, charge(t, "1/h burst 5")) // and the client the slots
		err := s.Take(context.Background(), time.Time{}, []spillgate.Charge{nothing, first, second}, out)
		if n := s.Stats().OverDenied; !errors.Is(err, spillgate.ErrUnavailable) || n != 1 {
			t.Errorf("%s: error %v, OverDenied %d, want %v, 1", limit, err, n, spillgate.ErrUnavailable)
		}
		if d := mustTake(t, direct, nothing); d.Remaining != full {
			t.Errorf("%s: not given back: %+v", limit, d)
		}
	}
}

// TestOneNodeAway wants the slots of the other nodes to be decided as ever while
// one is away, and those of that one again when it is back.
func TestOneNodeAway(t *testing.T) {
	nodes := redistest.Cluster(t, 3)
	s, err := redisstore.New(clusterClient(t, nodes), redisstore.Budget(budget))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	var there, away []spillgate.Charge
	for range 20 {
		c := charge(t, "1000/h burst 1000")
		eventually(t, "an answer", func() bool { _, err := take(s, c); return err == nil })
		if len(nodes[0].Do("keys", "*"+c.Space.Name()+":*").([]any)) == 1 {
			away = append(away, c)
		} else {
			there = append(there, c)
		}
	}
	if len(there) == 0 || len(away) == 0 {
		t.Fatal("all keys are at one node")
	}
	nodes[0].Pause()
	eventually(t, "an open breaker", func() bool {
		if _, err := take(s, away[0]); err != nil && !errors.Is(err, spillgate.ErrUnavailable) {
			t.Fatal(err)
		}
		return s.Stats().Open == 1
	})
	for _, c := range there {
		eventually(t, "an answer of another node", func() bool { _, err := take(s, c); return err == nil })
	}
	if n := s.Stats().Open; n != 1 {
		t.Errorf("%d breakers are open, want that of one node", n)
	}
	nodes[0].Continue()
	for _, c := range away {
		eventually(t, "an answer again", func() bool { _, err := take(s, c); return err == nil })
	}
}

// TestServersAtOnce has requests and corrections on three servers of which none
// answers: they wait for all of them at once, and so for one budget.
func TestServersAtOnce(t *testing.T) {
	nodes := redistest.Cluster(t, 3)
	var addrs []string
	for _, n := range nodes {
		addrs = append(addrs, n.Addr)
	}
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs, ContextTimeoutEnabled: true})
	t.Cleanup(func() { client.Close() })
	s, err := redisstore.New(client, redisstore.Budget(1500*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	at := make([]*spillgate.Charge, len(nodes))
	for found := 0; found < len(nodes); {
		c := charge(t, "1000/h burst 1000")
		mustTake(t, s, c)
		for i, n := range nodes {
			if at[i] == nil && len(n.Do("keys", "*"+c.Space.Name()+":*").([]any)) == 1 {
				at[i], found = &c, found+1
			}
		}
	}
	var cs []spillgate.Charge
	var fixes []spillgate.Correction
	for i, c := range at {
		nodes[i].Pause()
		cs, fixes = append(cs, *c), append(fixes, spillgate.Correction{Space: c.Space, Key: c.Key, Meter: c.Meter, Delta: 1})
	}
	for what, ask := range map[string]func() error{
		"take": func() error {
			return s.Take(context.Background(), time.Time{}, cs, make([]spillgate.Decision, len(cs)))
		},
		"settle": func() error { return s.Settle(context.Background(), time.Time{}, fixes) },
	} {
		began := time.Now()
		err := ask()
		if took := time.Since(began); took > 4*time.Second || !errors.Is(err, spillgate.ErrUnavailable) {
			t.Errorf("%s: after %s: %v", what, took, err)
		}
	}
	for _, n := range nodes {
		n.Continue()
	}
}
