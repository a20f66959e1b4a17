package redisstore_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/redisstore"
	"github.com/spillgate/spillgate/redisstore/redistest"
)

// A server so far away that a connection takes longer to make than a call may is
// used from the first connection on, and when all of them were lost.
func TestFarServer(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr)
	proxy.Delay.Store(int64(budget * 3 / 10))
	client := redis.NewClient(&redis.Options{Addr: proxy.Addr, ClientName: "far", MaxRetries: -1, ContextTimeoutEnabled: true, ReadTimeout: budget})
	t.Cleanup(func() { client.Close() })
	s := open(t, client, redisstore.Budget(budget), redisstore.Remember(0))
	c := charge(t, "1000000/h burst 1000000")
	eventually(t, "an answer", func() bool { _, err := take(s, c); return err == nil })
	for range 3 {
		proxy.Cut()
		_, _ = take(s, c)
		eventually(t, "an answer after the cut", func() bool { _, err := take(s, c); return err == nil })
	}
	if n := client.PoolStats().Misses; n > 40 {
		t.Errorf("%d connections were made", n)
	}
}

// When a primary of a cluster dies its replica is asked as soon as it took over, not
// when go-redis looks at the cluster again, which is after a minute.
func TestClusterFailover(t *testing.T) {
	nodes := redistest.Cluster(t, 3)
	replica := redistest.ReplicaOf(t, nodes, nodes[0])
	s := open(t, clusterClient(t, nodes), redisstore.Budget(budget), redisstore.Remember(0))
	var c spillgate.Charge
	eventually(t, "a key of the first server", func() bool {
		c = charge(t, "1000000/h burst 1000000")
		_, err := take(s, c)
		return err == nil && len(nodes[0].Do("keys", "*").([]any)) > 0
	})
	nodes[0].Kill()
	eventually(t, "an answer of the replica", func() bool {
		_, err := take(s, c)
		return err == nil && strings.Contains(replica.Do("info", "replication").(string), "role:master")
	})
}

// rights are all that the scripts need, as docs/operations.md has them.
func rights(t *testing.T) []any {
	text, err := os.ReadFile(filepath.Join("..", "docs", "operations.md"))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^ACL SETUSER gate on (.*)$`).FindSubmatch(text)
	if m == nil {
		t.Fatal("no rights in the manual")
	}
	words := []any{"acl", "setuser", "gate", "on"}
	for _, w := range strings.Fields(string(m[1])) {
		words = append(words, w)
	}
	return words
}

// The rights that the manual names are enough, and each is needed: a charge that is
// refused for want of one is a fault, which opens the breaker, once until the right is
// given, only where no script is run any more.
func TestRights(t *testing.T) {
	server := redistest.Start(t)
	words := rights(t)
	server.Do(words...)
	client := redis.NewClient(&redis.Options{Addr: server.Addr, Username: "gate", Password: "PASSWORD"})
	t.Cleanup(func() { client.Close() })
	suite(t, client)
	s := open(t, client, redisstore.Remember(0))
	if _, err := s.Seed(t.Context()); err != nil {
		t.Error(err)
	}
	counts := open(t, client)
	counts.CountNodes(func(n redisstore.Nodes) {
		if n.Fault == redisstore.Denied {
			t.Errorf("not counted: %+v", n)
		}
	})
	counts.Close()
	c := charge(t, "1000000/h burst 1000000")
	for _, w := range words {
		right, ok := strings.CutPrefix(w.(string), "+")
		if !ok || right == "hello" || right == "auth" || strings.HasPrefix(right, "client") || right == "ping" ||
			strings.HasPrefix(right, "z") { // which count nodes, as TestCountRights has it
			continue
		}
		mustTake(t, s, c)
		before := s.Stats()
		server.Do("acl", "setuser", "gate", "-"+right)
		for i, began := 0, time.Now(); i < 4 || time.Since(began) < 150*time.Millisecond; i++ {
			for _, limit := range []string{"1/h burst 1", "1/h log"} {
				if _, err := take(s, charge(t, limit)); err != nil && (!errors.Is(err, spillgate.ErrUnavailable) || errors.Is(err, redisstore.ErrType)) {
					t.Fatalf("without %s: %v", right, err)
				}
			}
		}
		after := s.Stats()
		needed := right == "get" || right == "set" || right == "getrange" || right == "time" || right == "evalsha"
		opens := uint64(0)
		if right == "evalsha" {
			opens = 1
		}
		if n := after.Opened - before.Opened; n != opens || needed && after.Faults[redisstore.Denied] == before.Faults[redisstore.Denied] {
			t.Errorf("without %s the breaker opened %d times; faults %v", right, n, after.Faults)
		}
		server.Do("acl", "setuser", "gate", "+"+right)
		eventually(t, "an answer with "+right, func() bool { _, err := take(s, c); return err == nil })
	}
}

// The probe does all that the scripts do.
func TestProbeDoesAll(t *testing.T) {
	text := func(name string) string {
		b, err := os.ReadFile(filepath.Join("script", name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	files, err := os.ReadDir("script")
	if err != nil {
		t.Fatal(err)
	}
	probe, commands := text("probe.lua"), 0
	for _, f := range files {
		for _, m := range regexp.MustCompile(`'([A-Z]{3,})'`).FindAllStringSubmatch(text(f.Name()), -1) {
			commands++
			if m[1] != "EXAT" && m[1] != "WRONGTYPE" && !strings.Contains(probe, "call("+m[0]) {
				t.Errorf("%s has %s, the probe has not", f.Name(), m[1])
			}
		}
	}
	if commands < 20 {
		t.Errorf("%d commands found", commands)
	}
}

// The same rights are enough for another database and for a cluster, with what the
// manual says of those: the servers refuse nothing, and without it there is no answer.
func TestRightsElsewhere(t *testing.T) {
	for _, f := range []struct {
		rights  []any
		db      int
		servers []*redistest.Server
	}{
		{[]any{"+select"}, 3, []*redistest.Server{redistest.Start(t)}},
		{[]any{"+cluster|slots", "+command"}, 0, redistest.Cluster(t, 3)},
	} {
		t.Run(fmt.Sprint(f.rights), func(t *testing.T) {
			var addrs []string
			for _, s := range f.servers {
				addrs = append(addrs, s.Addr)
				s.Do(rights(t)...)
			}
			client := func() redis.UniversalClient {
				c := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: addrs, DB: f.db, Username: "gate", Password: "PASSWORD", MaxRetries: -1, DialerRetries: 1})
				t.Cleanup(func() { c.Close() })
				return c
			}
			if _, err := take(open(t, client()), charge(t, "1/h burst 3")); !errors.Is(err, spillgate.ErrUnavailable) {
				t.Errorf("without %s: error %v", f.rights, err)
			}
			for _, s := range f.servers {
				s.Do(append([]any{"acl", "setuser", "gate"}, f.rights...)...)
				s.Do("acl", "log", "reset")
			}
			s := open(t, client())
			if _, err := s.Seed(t.Context()); err != nil {
				t.Error(err)
			}
			for range 4 { // in as many slots
				for _, limit := range []string{"1/h burst 3", "3/h queue 3", "3/h fixed", "3/h sliding", "3/h log", "3 at once"} {
					c := charge(t, limit)
					d := mustTake(t, s, c)
					back := spillgate.Correction{Space: c.Space, Key: c.Key, Meter: c.Meter, Delta: -1, At: d.At, Slot: d.Slot}
					if err := s.Settle(t.Context(), time.Time{}, []spillgate.Correction{back}); err != nil {
						t.Error(err)
					}
				}
			}
			for _, s := range f.servers {
				if log, _ := s.Do("acl", "log").([]any); len(log) > 0 {
					t.Errorf("refused: %v", log)
				}
			}
		})
	}
}
