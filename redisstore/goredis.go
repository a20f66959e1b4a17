package redisstore

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// once is a command that go-redis must not send twice: whoever got no reply
// does not know whether the server carried it out.
type once struct{ *redis.Cmd }

// NoRetry says so to go-redis.
func (once) NoRetry() bool { return true }

// goRedis is a client of go-redis as a Conn.
type goRedis struct {
	client  redis.UniversalClient
	cluster *redis.ClusterClient

	reached atomic.Bool // some server of the cluster, which then is known
	mu      sync.Mutex
	search  *search
}

// A search is for a server of a cluster that nobody has reached yet.
type search struct {
	done chan struct{}
	err  error
}

func newGoRedis(c redis.UniversalClient, budget time.Duration) (*goRedis, error) {
	switch c := c.(type) {
	case *redis.Client:
		if c == nil {
			break
		}
		// The same connections, with the store's budget as the time-out.
		own := c.WithTimeout(budget)
		own.Options().ContextTimeoutEnabled = true // the options are its own, too
		return &goRedis{client: own}, nil
	case *redis.ClusterClient:
		if c == nil {
			break
		}
		if c.Options().ReadOnly {
			return nil, fmt.Errorf("redisstore: %w: the cluster client reads from replicas (ReadOnly, RouteByLatency or RouteRandomly): give the store a client without", ErrClient)
		}
		return &goRedis{client: c, cluster: c}, nil
	}
	return nil, fmt.Errorf("redisstore: %w: %T: only a *redis.Client (also for Sentinel) or *redis.ClusterClient that is not nil will do", ErrClient, c)
}

// Slots is that of [Conn].
func (g *goRedis) Slots() bool { return g.cluster != nil }

// Punctual is that of [Conn].
func (g *goRedis) Punctual() bool {
	return g.cluster == nil || g.cluster.Options().ContextTimeoutEnabled
}

// Lane is that of [Conn].
func (g *goRedis) Lane(ctx context.Context, _ uint16, key string) (string, error) {
	if g.cluster == nil {
		return "", nil
	}
	if !g.reached.Load() {
		if err := g.find(ctx, key); err != nil {
			return "", err
		}
	}
	c, err := g.cluster.MasterForKey(ctx, key)
	if err != nil {
		return "", err
	}
	return c.Options().Addr, nil
}

// searchTime bounds a search, whose client may try each server several times.
const searchTime = 5 * time.Second

// find waits until some server of the cluster was reached. There is one search
// at a time, which takes as long as the library likes: most clients do not keep
// to the time limit of a call.
func (g *goRedis) find(ctx context.Context, key string) error {
	g.mu.Lock()
	f := g.search
	if f == nil {
		f = &search{done: make(chan struct{})}
		g.search = f
		go func() {
			ctx, cancel := context.WithTimeout(background, searchTime)
			defer cancel()
			_, f.err = g.cluster.MasterForKey(ctx, key)
			if f.err == nil {
				g.reached.Store(true)
			}
			g.mu.Lock()
			g.search = nil
			g.mu.Unlock()
			close(f.done)
		}()
	}
	g.mu.Unlock()
	select {
	case <-f.done:
		return f.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Eval is that of [Conn].
func (g *goRedis) Eval(ctx context.Context, calls []Call) {
	if len(calls) == 1 {
		g.one(ctx, &calls[0])
		return
	}
	pipe, err := g.pipeline(ctx, calls[0].Keys)
	if err != nil {
		for i := range calls {
			calls[i].Reply, calls[i].Err = nil, err
		}
		return
	}
	cmds := make([]once, len(calls))
	for i := range calls {
		cmds[i] = once{redis.NewCmd(ctx, calls[i].Words()...)}
		_ = pipe.Process(ctx, cmds[i])
	}
	_, _ = pipe.Exec(ctx)
	var others sync.WaitGroup
	for i := range calls {
		if calls[i].Reply, calls[i].Err = cmds[i].Slice(); g.cluster != nil && elsewhere(calls[i].Err) {
			others.Go(func() { g.one(ctx, &calls[i]) })
		}
	}
	others.Wait()
}

// one makes a call by itself, to whatever server it is led to.
func (g *goRedis) one(ctx context.Context, c *Call) {
	cmd := once{redis.NewCmd(ctx, c.Words()...)}
	_ = g.client.Process(ctx, cmd)
	c.Reply, c.Err = cmd.Slice()
}

// pipeline returns one to the server that has the keys, of a cluster that server's own:
// the cluster's would wait before it follows the server's word that one of the slots is
// elsewhere, and have all of the others wait, too.
func (g *goRedis) pipeline(ctx context.Context, keys []string) (redis.Pipeliner, error) {
	if g.cluster == nil || len(keys) == 0 {
		return g.client.Pipeline(), nil
	}
	c, err := g.cluster.MasterForKey(ctx, keys[0])
	if err != nil {
		return nil, err
	}
	return c.Pipeline(), nil
}

// elsewhere reports whether another server has the key, so that this one did nothing.
func elsewhere(err error) bool {
	return err != nil && (strings.HasPrefix(err.Error(), "MOVED ") || strings.HasPrefix(err.Error(), "ASK "))
}

// reach makes a connection and closes it: it is a [reacher], since the pool of
// go-redis tries only once a second after some connections failed. Which servers a
// cluster has is found out anew, beside it, since go-redis does so but once a minute,
// and would go to one that died as long.
func (g *goRedis) reach(ctx context.Context, key string) error {
	c, _ := g.client.(*redis.Client)
	if g.cluster != nil {
		g.cluster.ReloadState(ctx)
		var err error
		if c, err = g.cluster.MasterForKey(ctx, key); err != nil {
			return err
		}
	}
	o := c.Options()
	conn, err := o.Dialer(ctx, o.Network, o.Addr)
	if err != nil {
		return err
	}
	return conn.Close()
}
