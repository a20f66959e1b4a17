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

// TestFault wants a fault that is told as one, and an answer when the server is
// back.
func TestFault(t *testing.T) {
	server := redistest.Start(t)
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr}, DisableCache: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	s, err := rueidisstore.New(client, redisstore.Budget(200*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	m, err := spillgate.Limit{Rate: 1000, Period: time.Hour, Burst: 1000}.Meter()
	if err != nil {
		t.Fatal(err)
	}
	sp, err := spillgate.NewSpace("fault", spillgate.SpaceOptions{})
	if err != nil {
		t.Fatal(err)
	}
	take := func() error {
		return s.Take(t.Context(), time.Time{}, []spillgate.Charge{{Space: sp, Meter: m, Ask: spillgate.Ask{N: 1}}}, make([]spillgate.Decision, 1))
	}
	eventually := func(what string, ok func() bool) {
		t.Helper()
		for deadline := time.Now().Add(20 * time.Second); !ok(); <-time.After(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("not after 20s: %s", what)
			}
		}
	}
	eventually("an answer", func() bool { return take() == nil })
	server.Kill()
	eventually("an open breaker", func() bool {
		if err := take(); err != nil && !errors.Is(err, spillgate.ErrUnavailable) {
			t.Fatal(err)
		}
		return s.Stats().Open == 1
	})
	eventually("forty probes", func() bool { return s.Stats().Probes >= 40 })
	server.Run()
	probes := s.Stats().Probes
	eventually("an answer again", func() bool { return take() == nil })
	if n := s.Stats().Probes - probes; n > 5 {
		t.Errorf("back at probe %d after the server's return, want one of the first five", n)
	}
}
