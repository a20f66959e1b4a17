package rueidisstore_test

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/redisstore"
	"github.com/spillgate/spillgate/redisstore/redistest"
	"github.com/spillgate/spillgate/redisstore/rueidisstore"
	"github.com/spillgate/spillgate/storetest"
)

func suite(t *testing.T, o rueidis.ClientOption) {
	client, err := rueidis.NewClient(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	storetest.Run(t, func(t *testing.T) spillgate.Store {
		s, err := rueidisstore.New(client, redisstore.Budget(10*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	})
}

func TestSingle(t *testing.T) {
	suite(t, rueidis.ClientOption{InitAddress: []string{redistest.Start(t).Addr}, DisableCache: true})
}

func TestCluster(t *testing.T) {
	var addrs []string
	for _, s := range redistest.Cluster(t, 3) {
		addrs = append(addrs, s.Addr)
	}
	suite(t, rueidis.ClientOption{InitAddress: addrs, DisableCache: true})
}

func TestSentinel(t *testing.T) {
	g := redistest.Replicated(t)
	suite(t, rueidis.ClientOption{
		InitAddress: []string{g.Sentinel.Addr}, Sentinel: rueidis.SentinelOption{MasterSet: "main"}, DisableCache: true,
	})
}

func TestNoClient(t *testing.T) {
	if _, err := rueidisstore.New(nil); !errors.Is(err, redisstore.ErrClient) {
		t.Errorf("error %v, want %v", err, redisstore.ErrClient)
	}
}

// taker returns a store on a client, and what takes a unit of some key.
func taker(t *testing.T, o rueidis.ClientOption, budget time.Duration) (*redisstore.Store, func(key uint64) error) {
	t.Helper()
	client, err := rueidis.NewClient(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	s, err := rueidisstore.New(client, redisstore.Budget(budget))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s, func(key uint64) error {
		err := s.Take(t.Context(), time.Time{}, []spillgate.Charge{charge(t, key, 1)}, make([]spillgate.Decision, 1))
		if err != nil && !errors.Is(err, spillgate.ErrUnavailable) {
			t.Fatal(err)
		}
		return err
	}
}

// charge returns one of n units of a thousand.
func charge(t *testing.T, key uint64, n int64) spillgate.Charge {
	t.Helper()
	m, err := spillgate.Limit{Rate: 1000, Period: time.Hour, Burst: 1000}.Meter()
	if err != nil {
		t.Fatal(err)
	}
	sp, err := spillgate.NewSpace("fault", spillgate.SpaceOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return spillgate.Charge{Space: sp, Key: spillgate.Key{key}, Meter: m, Ask: spillgate.Ask{N: n}}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); <-time.After(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not after 20s: %s", what)
		}
	}
}

// TestFault wants a fault that is told as one, and an answer when the server is
// back.
func TestFault(t *testing.T) {
	server := redistest.Start(t)
	s, take := taker(t, rueidis.ClientOption{InitAddress: []string{server.Addr}, DisableCache: true}, 200*time.Millisecond)
	eventually(t, "an answer", func() bool { return take(0) == nil })
	server.Kill()
	eventually(t, "an open breaker", func() bool { _ = take(0); return s.Stats().Open == 1 })
	eventually(t, "forty probes", func() bool { return s.Stats().Probes >= 40 })
	server.Run()
	probes := s.Stats().Probes
	eventually(t, "an answer again", func() bool { return take(0) == nil })
	if n := s.Stats().Probes - probes; n > 5 {
		t.Errorf("back at probe %d after the server's return, want one of the first five", n)
	}
}

// While one server of a cluster stands still every answer comes in its time, of the
// others' keys, too, though rueidis itself would wait for many seconds.
func TestClusterWithOneFrozen(t *testing.T) {
	const budget, slack = 200 * time.Millisecond, 2 * time.Second
	nodes := redistest.Cluster(t, 3)
	var addrs []string
	for _, n := range nodes {
		addrs = append(addrs, n.Addr)
	}
	_, take := taker(t, rueidis.ClientOption{InitAddress: addrs, DisableCache: true}, budget)
	of := func(n *redistest.Server) uint64 { // a key that it has
		for key := uint64(0); ; key++ {
			n.Do("flushall")
			eventually(t, "an answer", func() bool { return take(key) == nil })
			if size, _ := n.Do("dbsize").(int64); size > 0 {
				return key
			}
		}
	}
	there, other := of(nodes[1]), of(nodes[0])
	nodes[1].Pause()
	for range 10 { // so long that the client begins to look for another server
		began := time.Now()
		err := take(there)
		if took := time.Since(began); err == nil || took > budget+slack {
			t.Fatalf("after %s: %v; want no answer, in time", took, err)
		}
		_ = take(other) // so that no breaker opens
	}
	nodes[1].Continue()
	eventually(t, "an answer again", func() bool { return take(there) == nil })
}

// The breaker closes when the server of a cluster that failed answers again, also while
// another one is dead whose key was the first that the store ever saw.
func TestClusterProbesWhatFailed(t *testing.T) {
	nodes := redistest.Cluster(t, 3)
	var addrs []string
	for _, n := range nodes {
		addrs = append(addrs, n.Addr)
	}
	s, take := taker(t, rueidis.ClientOption{InitAddress: addrs, DisableCache: true}, 10*time.Second)
	var there [3]uint64 // a key of each server
	for key, found := uint64(0), 0; found < len(nodes); key++ {
		eventually(t, "an answer", func() bool { return take(key) == nil })
		for i, n := range nodes {
			if size, _ := n.Do("dbsize").(int64); size > 0 {
				n.Do("flushall")
				if there[i] == 0 && key > 0 {
					there[i] = key
					found++
				}
				if key == 0 { // the first, whose server is to die
					nodes[0], nodes[i] = nodes[i], nodes[0]
				}
			}
		}
	}
	nodes[0].Kill()
	nodes[1].Do("config", "set", "maxmemory", "1")
	eventually(t, "an open breaker", func() bool { _ = take(there[1]); return s.Stats().Open == 1 })
	nodes[1].Do("config", "set", "maxmemory", "0")
	eventually(t, "an answer", func() bool { return take(there[1]) == nil })
}

// TestLostReplyIsChargedOnce loses the reply of a charge where a second try would get
// through, and finds the charge once.
func TestLostReplyIsChargedOnce(t *testing.T) {
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr)
	one := -1 // connection: each new one would lose its greeting instead
	s, _ := taker(t, rueidis.ClientOption{InitAddress: []string{proxy.Addr}, DisableCache: true, PipelineMultiplex: one}, 10*time.Second)
	take := func(key uint64, n int64) (left int64, err error) {
		var out [1]spillgate.Decision
		err = s.Take(t.Context(), time.Time{}, []spillgate.Charge{charge(t, key, n)}, out[:])
		return out[0].Remaining, err
	}
	eventually(t, "an answer", func() bool { _, err := take(0, 1); return err == nil })
	for key := uint64(1); key <= 3; key++ {
		proxy.LoseNext.Store(true)
		if _, err := take(key, 1); err == nil || proxy.LoseNext.Load() {
			t.Fatalf("error %v; still to be lost: %t", err, proxy.LoseNext.Load())
		}
		if left, err := take(key, 0); left != 999 || err != nil {
			t.Errorf("%d left of 1000 after one charge whose reply was lost, error %v", left, err)
		}
	}
}
