package main

import (
	"context"
	"errors"
	"log"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/policy"
	"github.com/spillgate/spillgate/redisstore"
)

// A shared is an engine that counts together with those of all other servers on
// the same Redis, by leases.
type shared struct {
	engine *policy.Engine
	leased *spillgate.Leased
	store  *redisstore.Store
}

func open(ctx context.Context, pol *policy.Policy, client *redis.Client, opts ...redisstore.Option) (*shared, error) {
	opts = append(opts, redisstore.Prefix("shop:"), redisstore.Watch(watch))
	store, err := redisstore.New(client, opts...)
	if err != nil {
		return nil, err
	}
	seed, err := seedOf(ctx, store)
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	leased, err := spillgate.NewLeased(store, spillgate.LeaseOptions{Nodes: 1, Mixed: true})
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	s := &shared{policy.NewEngine(pol, leased, policy.Seeded(seed)), leased, store}
	store.CountNodes(s.counted) // calls it once before it returns
	return s, nil
}

// seedOf returns the secret that all servers have in common; without it each would
// count keys of its own. Redis may be a moment late at a start.
func seedOf(ctx context.Context, store *redisstore.Store) (spillgate.Seed, error) {
	for tries := 0; ; tries++ {
		seed, err := store.Seed(ctx)
		if tries == 50 || !errors.Is(err, spillgate.ErrUnavailable) {
			return seed, err
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return seed, ctx.Err()
		}
	}
}

// counted goes by how many servers there are. Leases rest until all others have
// counted this one, and while counting fails: who leased by its own count alone
// would hold more than its part.
func (s *shared) counted(n redisstore.Nodes) {
	s.engine.SetNodes(n.Count) // while Redis is away each decides for its part
	if n.Mutual {
		s.leased.SetNodes(n.Count)
	} else {
		s.leased.SetNodes(0)
	}
}

func watch(_ string, away bool, why redisstore.Fault) {
	log.Printf("Redis is away: %t (%s)", away, why)
}

// close gives back what is leased, and leaves. The client stays open.
func (s *shared) close() error {
	return errors.Join(s.leased.Close(), s.store.Close())
}
