package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/redisstore"
	"github.com/spillgate/spillgate/redisstore/redistest"
)

// TestClusterNeverReached has a client ask a cluster of which no server answers.
// Such a client would try for many seconds: every request and every settle is
// over in its budget all the same, after some tries nobody waits any more, and all
// is well once the cluster answers.
func TestClusterNeverReached(t *testing.T) {
	nodes := redistest.Cluster(t, 1)
	for _, timely := range []bool{false, true} {
		for _, deaf := range []bool{false, true} {
			t.Run(fmt.Sprintf("deaf %t, keeps to time limits %t", deaf, timely), func(t *testing.T) {
				proxy := redistest.NewProxy(t, nodes[0].Addr)
				if deaf {
					proxy.Deaf.Store(true)
				} else {
					proxy.CutAfter.Store(1)
				}
				client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{proxy.Addr}, ContextTimeoutEnabled: timely})
				t.Cleanup(func() { client.Close() })
				told := make(chan string, 8)
				s, err := redisstore.New(client, redisstore.Budget(budget), redisstore.Watch(func(server string, open bool, _ redisstore.Fault) {
					told <- fmt.Sprint(server, " ", open)
				}))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { s.Close() })
				a, b := charge(t, "1000/h burst 1000"), charge(t, "1000/h burst 1000")
				tries := 0
				for ; s.Stats().Open == 0; tries++ {
					began := time.Now()
					var err error
					if tries%2 == 0 {
						err = s.Take(context.Background(), time.Time{}, []spillgate.Charge{a, b}, make([]spillgate.Decision, 2))
					} else {
						_ = s.Settle(context.Background(), time.Time{}, []spillgate.Correction{{Space: a.Space, Meter: a.Meter, Delta: 1}, {Space: b.Space, Meter: b.Meter, Delta: 1}})
						err = spillgate.ErrUnavailable // it is kept for later
					}
					if took := time.Since(began); took > budget+slack || !errors.Is(err, spillgate.ErrUnavailable) {
						t.Fatalf("after %s: %v", took, err)
					}
				}
				if tries > 3 {
					t.Errorf("the breaker opens after %d tries", tries)
				}
				before := s.Stats()
				for range 1000 {
					if _, err := take(s, a); !errors.Is(err, spillgate.ErrUnavailable) {
						t.Fatal(err)
					}
				}
				if st := s.Stats(); st.Shut < before.Shut+1000 || st.Calls != 0 {
					t.Errorf("%d of 1000 requests were decided at once, %d calls", st.Shut-before.Shut, st.Calls)
				}
				proxy.Deaf.Store(false)
				proxy.CutAfter.Store(0)
				proxy.Cut()
				eventually(t, "an answer", func() bool { _, err := take(s, a); return err == nil })
				eventually(t, "what had to wait was sent", func() bool { return s.Stats().Late == 0 })
				if first, then := <-told, <-told; first != "cluster true" || then != "cluster false" {
					t.Errorf("told: %s, then %s", first, then)
				}
			})
		}
	}
}
