package redisstore_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/redisstore"
	"github.com/spillgate/spillgate/redisstore/redistest"
)

// A resharded is a cluster that a store asks by a client.
type resharded struct {
	*testing.T
	nodes  []*redistest.Server
	client *redis.ClusterClient
	store  *redisstore.Store
}

// at returns a charge that the store made at a node, and its key.
func (r *resharded) at(node int) (spillgate.Charge, string) {
	for {
		c := charge(r, "1000000/h burst 1000000")
		eventually(r, "an answer", func() bool { _, err := take(r.store, c); return err == nil })
		if keys := r.nodes[node].Do("keys", "*"+c.Space.Name()+":*").([]any); len(keys) == 1 {
			return c, keys[0].(string)
		}
	}
}

// move gives the slot of a key to another node, tells others, and waits until the client
// knows.
func (r *resharded) move(key string, from, to int, others ...int) {
	r.nodes[from].Do("del", key)
	slot, id := r.nodes[to].Do("cluster", "keyslot", key), r.nodes[to].Do("cluster", "myid")
	r.nodes[to].Do("cluster", "setslot", slot, "importing", r.nodes[from].Do("cluster", "myid")) // so that the others believe it
	for _, i := range append([]int{to, from}, others...) {
		r.nodes[i].Do("cluster", "setslot", slot, "node", id)
	}
	eventually(r, "the client knows where the slot is", func() bool {
		r.client.ReloadState(context.Background())
		c, err := r.client.MasterForKey(context.Background(), key)
		return err == nil && c.Options().Addr == r.nodes[to].Addr
	})
}

// full has a node refuse what would write, or not any more.
func (r *resharded) full(node int, yes bool) {
	most := 0
	if yes {
		most = 1
	}
	r.nodes[node].Do("config", "set", "maxmemory", fmt.Sprint(most))
}

// open has the node of c refuse until its breaker is open.
func (r *resharded) open(c spillgate.Charge) {
	eventually(r, "an open breaker", func() bool { _, _ = take(r.store, c); return r.store.Stats().Open == 1 })
}

// TestProbesAfterReshard has the slot of the first key of a server move to another one:
// from then on the server's breaker goes by the server itself, whether the other one
// answers or not, and by none when no slot is left that it refused to serve.
func TestProbesAfterReshard(t *testing.T) {
	nodes := redistest.Cluster(t, 3)
	client := clusterClient(t, nodes)
	r := &resharded{t, nodes, client, open(t, client, redisstore.Remember(0))}
	_, moved := r.at(0)
	stays, key := r.at(0)
	r.move(moved, 0, 1, 2)

	eventually(t, "no open breaker", func() bool { return r.store.Stats().Open == 0 })
	r.full(0, true)
	r.open(stays)
	before := r.store.Stats()
	eventually(t, "ten probes, or a breaker that closes", func() bool {
		_, _ = take(r.store, stays)
		st := r.store.Stats()
		return st.Probes >= before.Probes+10 || st.Opened > before.Opened
	})
	if r.store.Stats().Opened > before.Opened {
		t.Error("the breaker closed, and opened again, while the server refuses, since the one that has the slot now answers")
	}

	nodes[1].Kill()
	r.open(stays)
	r.full(0, false)
	eventually(t, "an answer while the server that has the slot now is dead", func() bool { _, err := take(r.store, stays); return err == nil })

	r.full(0, true)
	r.open(stays)
	r.move(key, 0, 2)
	eventually(t, "a closed breaker of a server that has none of the slots", func() bool { return r.store.Stats().Open == 0 })
	eventually(t, "an answer there", func() bool { _, err := take(r.store, stays); return err == nil })
}

// TestHalfMovedSlot has all keys in one slot, of which half have moved to another server:
// who asks for one key, or for two on both sides, is answered as ever, and charged once.
func TestHalfMovedSlot(t *testing.T) {
	nodes := redistest.Cluster(t, 3)
	s := open(t, clusterClient(t, nodes), redisstore.Prefix("{shop}:"), redisstore.Remember(0))
	cs := make([]spillgate.Charge, 40)
	for i := range cs {
		cs[i] = charge(t, "1/h burst 1000")
		mustTake(t, s, cs[i])
	}
	from := slices.IndexFunc(nodes, func(n *redistest.Server) bool { return len(n.Do("keys", "*").([]any)) > 0 })
	to := (from + 1) % len(nodes)
	slot := nodes[from].Do("cluster", "keyslot", "{shop}:")
	nodes[to].Do("cluster", "setslot", slot, "importing", nodes[from].Do("cluster", "myid"))
	nodes[from].Do("cluster", "setslot", slot, "migrating", nodes[to].Do("cluster", "myid"))
	for _, key := range nodes[from].Do("keys", "*").([]any)[:len(cs)/2] {
		nodes[from].Do("migrate", "127.0.0.1", nodes[to].Port(), key, 0, 5000)
	}
	const rounds = 20
	var wg sync.WaitGroup
	for i := range cs {
		wg.Go(func() {
			for range rounds {
				both := []spillgate.Charge{cs[i], cs[(i+7)%len(cs)]}
				for _, some := range [][]spillgate.Charge{both[:1], both} {
					if err := s.Take(context.Background(), time.Time{}, some, make([]spillgate.Decision, len(some))); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	for i, c := range cs {
		c.N = 0
		if d := mustTake(t, s, c); d.Remaining != 1000-1-3*rounds {
			t.Errorf("key %d has %d left, want %d", i, d.Remaining, 1000-1-3*rounds)
		}
	}
	if st := s.Stats(); st.Opened != 0 {
		t.Errorf("the breaker opened %d times", st.Opened)
	}
}
