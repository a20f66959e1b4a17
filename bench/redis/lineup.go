package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/redisstore"
	"github.com/spillgate/spillgate/redisstore/rueidisstore"
)

const (
	ours        = "ours, go-redis"
	oursRueidis = "ours, rueidis"
	oursLeased  = "ours, leased"
	redisRate   = "redis_rate"
	floor       = "GET"
	memory      = "memory"
)

// A contestant does some of the workloads: it decides once, for a caller's
// n-th time.
type contestant struct {
	name string
	does map[string]func(caller, n int) error
	key  string // a pattern of the keys that it leaves
}

const keys = 10_000

// pick spreads the calls over the keys evenly, without a random number a call.
func pick(caller, n int) int { return (caller*7919 + n*104_729) % keys }

// lineup makes the contestants.
func lineup(addr string, flights int) (all []contestant, closeAll func(), err error) {
	client := redis.NewClient(&redis.Options{Addr: addr, PoolSize: 64})
	other, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true})
	if err != nil {
		return nil, nil, errors.Join(err, client.Close())
	}
	// A call that the machine delays is no fault to measure here.
	opts := []redisstore.Option{redisstore.Budget(5 * time.Second)}
	if flights > 0 {
		opts = append(opts, redisstore.Flights(flights))
	}
	a, err := redisstore.New(client, opts...)
	if err != nil {
		return nil, nil, err
	}
	b, err := rueidisstore.New(other, append(opts, redisstore.Prefix("sg1r:"))...)
	if err != nil {
		return nil, nil, err
	}
	leased, err := spillgate.NewLeased(a, spillgate.LeaseOptions{Nodes: leaseNodes})
	if err != nil {
		return nil, nil, err
	}
	mem := spillgate.NewMemory()
	closeAll = func() {
		leased.Close()
		a.Close()
		b.Close()
		mem.Close()
		other.Close()
		client.Close()
	}
	ctx := context.Background()
	if err := client.Set(ctx, "floor", "1", 0).Err(); err != nil {
		closeAll()
		return nil, nil, err
	}
	limiter := redis_rate.NewLimiter(client)
	names := make([]string, keys)
	for i := range names {
		names[i] = fmt.Sprintf("user:%016x", i)
	}
	allow := func(key string, l redis_rate.Limit) error {
		_, err := limiter.Allow(ctx, key, l)
		return err
	}
	second := redis_rate.Limit{Rate: 1000, Burst: 1000, Period: time.Second}
	all = []contestant{
		{name: floor, does: map[string]func(int, int) error{
			alone: func(int, int) error { return client.Get(ctx, "floor").Err() },
		}},
		{name: redisRate, key: "rate:user:*", does: map[string]func(int, int) error{
			uniform: func(caller, n int) error { return allow(names[pick(caller, n)], second) },
			hot: func(int, int) error {
				return allow("hot", redis_rate.Limit{Rate: 10_000, Burst: 10_000, Period: time.Second})
			},
			steady: func(caller, n int) error { return allow(names[pick(caller, n)], second) },
			alone:  func(_, n int) error { return allow(names[pick(0, n)], second) },
			refusing: func(int, int) error {
				return allow("refused", redis_rate.Limit{Rate: 1, Burst: 1, Period: time.Hour})
			},
		}},
	}
	for _, c := range []struct {
		name, key string
		store     spillgate.Store
	}{{ours, "sg1:users:*", a}, {oursRueidis, "sg1r:users:*", b}, {oursLeased, "", leased}, {memory, "", mem}} {
		does, err := ourWorkloads(c.store)
		if err != nil {
			closeAll()
			return nil, nil, err
		}
		if c.name == memory || c.name == oursLeased {
			does = map[string]func(int, int) error{refusing: does[refusing]}
		}
		all = append(all, contestant{c.name, does, c.key})
	}
	return all, closeAll, nil
}

// ourWorkloads are the workloads on a store of this repository.
func ourWorkloads(s spillgate.Store) (map[string]func(int, int) error, error) {
	seed := spillgate.NewSeed()
	ids := make([]spillgate.Key, keys)
	for i := range ids {
		ids[i] = seed.Key(spillgate.AppendPart(nil, "user", fmt.Sprint(i)))
	}
	var failed error
	rule := func(name, limit string) spillgate.Charge {
		l, err := spillgate.ParseLimit(limit)
		if err != nil {
			failed = err
		}
		m, err := l.Meter()
		if err != nil {
			failed = err
		}
		sp, err := spillgate.NewSpace(name, spillgate.SpaceOptions{})
		if err != nil {
			failed = err
		}
		return spillgate.Charge{Space: sp, Meter: m, Ask: spillgate.Ask{N: 1}}
	}
	users, hotRule := rule("users", "1000/s burst 1000"), rule("hot", "10000/s burst 10000")
	hour, day, refused := rule("hour", "100000/h burst 100000"), rule("day", "1000000/d burst 1000000"), rule("refused", "100/h burst 100")
	if failed != nil {
		return nil, failed
	}
	ctx := context.Background()
	take := func(cs ...spillgate.Charge) error {
		var out [3]spillgate.Decision
		return s.Take(ctx, time.Time{}, cs, out[:len(cs)])
	}
	spread := func(caller, n int) error {
		c := users
		c.Key = ids[pick(caller, n)]
		return take(c)
	}
	return map[string]func(int, int) error{
		uniform: spread, steady: spread,
		hot: func(int, int) error { return take(hotRule) },
		three: func(caller, n int) error {
			a, b, c := users, hour, day
			a.Key = ids[pick(caller, n)]
			b.Key, c.Key = a.Key, a.Key
			return take(a, b, c)
		},
		alone: func(_, n int) error {
			c := users
			c.Key = ids[pick(0, n)]
			return take(c)
		},
		refusing: func(int, int) error { return take(refused) },
	}, nil
}

// sizes returns what a key of each takes in the server, by its own word: one that is
// charged a whole burst, so that it does not end under the measurement.
func sizes(c *redis.Client, all []contestant) (map[string]float64, error) {
	ctx := context.Background()
	bytes := map[string]float64{}
	for _, one := range all {
		if one.key == "" {
			continue
		}
		if f := one.does[uniform]; f != nil {
			if err := f(0, 0); err != nil {
				return nil, err
			}
		}
		found, _, err := c.Scan(ctx, 0, one.key, 100_000).Result()
		if err != nil {
			return nil, err
		}
		for _, k := range found {
			n, err := c.MemoryUsage(ctx, k).Result()
			if err == nil {
				fmt.Printf("%-20s a key takes %d bytes (%d of name)\n", one.name, n, len(k))
				bytes[one.name] = float64(n)
				break
			}
		}
	}
	return bytes, nil
}
