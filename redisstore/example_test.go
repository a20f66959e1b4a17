package redisstore_test

import (
	"context"
	"log"

	"github.com/redis/go-redis/v9"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/policy"
	"github.com/spillgate/spillgate/redisstore"
)

// An engine that counts together with those of other machines, and asks the server
// for each request. The folder examples/redis has a whole program.
func ExampleNew() {
	limit, err := spillgate.ParseLimit("100/s burst 200")
	if err != nil {
		log.Fatal(err)
	}
	pol, err := policy.Compile([]policy.Rule{{Name: "all", Limit: limit}})
	if err != nil {
		log.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"})
	defer client.Close()
	store, err := redisstore.New(client, redisstore.Prefix("shop:"))
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	seed, err := store.Seed(context.Background()) // without the same one, each would count keys of its own
	if err != nil {
		log.Fatal(err)
	}
	eng := policy.NewEngine(pol, store, policy.Seeded(seed))

	// While the server is away each decides for its part of a limit.
	store.CountNodes(func(n redisstore.Nodes) { eng.SetNodes(n.Count) })
}

// Most requests are decided without the server, by units that were taken from it in
// blocks. Blocks are parts of a limit, so it has to be known of how many: leases rest
// until the others have counted this store, too.
func ExampleStore_CountNodes_leases() {
	var ( // as in the example of New
		pol   *policy.Policy
		store *redisstore.Store
		seed  spillgate.Seed
	)
	leased, err := spillgate.NewLeased(store, spillgate.LeaseOptions{Nodes: 1, Mixed: true})
	if err != nil {
		log.Fatal(err)
	}
	defer leased.Close() // before the store
	eng := policy.NewEngine(pol, leased, policy.Seeded(seed))
	store.CountNodes(func(n redisstore.Nodes) { // called once before CountNodes returns
		eng.SetNodes(n.Count)
		if n.Mutual {
			leased.SetNodes(n.Count)
		} else {
			leased.SetNodes(0) // not n.Count: the others do not know of this one
		}
	})
}

// A log line when the server is not asked any more, and when it is again.
func ExampleWatch() {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"})
	defer client.Close()
	store, err := redisstore.New(client, redisstore.Watch(func(server string, away bool, why redisstore.Fault) {
		log.Printf("store %s away: %t (%s)", server, away, why)
	}))
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
}
