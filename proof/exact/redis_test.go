package exact

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/proof/oracle"
	"github.com/spillgate/spillgate/redisstore"
	"github.com/spillgate/spillgate/redisstore/redistest"
)

var onRedis = flag.Int("redis", 120, "random lists for each algorithm that are played on a Redis server, half of them with changes")

// TestRandomListsOnRedis plays random lists on a store in a real server. Their
// times are given, as to the store in memory.
func TestRandomListsOnRedis(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: redistest.Start(t).Addr})
	t.Cleanup(func() { client.Close() })
	s, err := redisstore.New(client, redisstore.Budget(10*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	made := 0
	way := Way{Name: "redis", New: func(l spillgate.Limit) (Subject, error) {
		made++
		subject, err := NewStoredIn(s, fmt.Sprint("exact", made), l)
		if l.Algorithm == spillgate.SlidingLog {
			subject = &changedOnce{Subject: subject}
		}
		return subject, err
	}}
	for _, algorithm := range Algorithms {
		t.Run(algorithm, func(t *testing.T) {
			calls := 0
			for seed := *first; seed < *first+uint64(*onRedis); seed++ {
				list, err := oracle.Random(rand.New(rand.NewPCG(seed, 3)), algorithm, 16, seed%2 == 1)
				if err != nil {
					t.Fatal(err)
				}
				n, err := Compare(list, way)
				calls += n
				if err != nil {
					small := Shrink(list, func(l oracle.List) bool { _, err := Compare(l, way); return err != nil })
					_, err = Compare(small, way)
					t.Fatalf("seed %d, made small: %v", seed, err)
				}
			}
			t.Logf("%d lists, %d calls", *onRedis, calls)
		})
	}
}

// A changedOnce ends a list at the second change of a limit: of several that
// came while a log in Redis was not written it knows but the last.
type changedOnce struct {
	Subject
	changed bool
}

func (c *changedOnce) Do(op oracle.Op) (oracle.Answer, error) {
	changes := op.Kind == oracle.Set || op.Kind == oracle.SetFill
	if changes && c.changed {
		return oracle.Answer{}, spillgate.ErrLimit
	}
	c.changed = c.changed || changes
	return c.Subject.Do(op)
}
