package redisstore_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/redisstore"
	"github.com/spillgate/spillgate/redisstore/redistest"
	"github.com/spillgate/spillgate/storetest"
)

// suite runs the suite of all stores on a client. The budget is large, since
// what else runs on the machine is not what is tested.
func suite(t *testing.T, client redis.UniversalClient, opts ...redisstore.Option) {
	storetest.Run(t, func(t *testing.T) spillgate.Store { return open(t, client, opts...) })
}

func open(t testing.TB, client redis.UniversalClient, opts ...redisstore.Option) *redisstore.Store {
	t.Helper()
	s, err := redisstore.New(client, append([]redisstore.Option{redisstore.Budget(10 * time.Second)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestSingle(t *testing.T) {
	suite(t, redistest.Start(t).Client())
}

func clusterClient(t *testing.T, nodes []*redistest.Server) *redis.ClusterClient {
	var addrs []string
	for _, n := range nodes {
		addrs = append(addrs, n.Addr)
	}
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
	t.Cleanup(func() { c.Close() })
	return c
}

func TestCluster(t *testing.T) {
	client := clusterClient(t, redistest.Cluster(t, 3))
	t.Run("keys spread", func(t *testing.T) { suite(t, client) })
	t.Run("one hash tag", func(t *testing.T) { suite(t, client, redisstore.Prefix("{one}:")) })
	counted(t, client)
}

// counted has stores count each other.
func counted(t *testing.T, client redis.UniversalClient) {
	t.Helper()
	for want := range 3 {
		s := open(t, client, redisstore.Prefix("counted:"))
		eventually(t, "all are counted", func() (all bool) {
			s.CountNodes(func(n redisstore.Nodes) { all = n.Count == want+1 })
			return all
		})
	}
}

func TestSentinel(t *testing.T) {
	g := redistest.Replicated(t)
	client := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "main", SentinelAddrs: []string{g.Sentinel.Addr}})
	t.Cleanup(func() { client.Close() })
	t.Run("before", func(t *testing.T) { suite(t, client) })
	g.Failover()
	wait := open(t, client)
	c := charge(t, "1/s burst 3")
	eventually(t, "an answer of the new primary", func() bool {
		_, err := take(wait, c)
		return err == nil && len(g.Primary.Do("keys", "*"+c.Space.Name()+"*").([]any)) == 1
	})
	t.Run("after", func(t *testing.T) { suite(t, client) })
	counted(t, client)
}
