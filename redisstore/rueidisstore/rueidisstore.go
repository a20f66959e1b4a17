// Package rueidisstore opens a redisstore on a client of rueidis, which puts
// the calls of all goroutines into few writes by itself.
package rueidisstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/rueidis"

	"github.com/spillgate/spillgate/redisstore"
)

// New returns a store on a client of rueidis, of a single server, one behind
// Sentinel, or a cluster. The store does not close it. rueidis repeats only
// commands that read, and a script is none of those. In a cluster all servers
// share one breaker here; [redisstore.New] has one for each. Errors wrap
// [redisstore.ErrClient] or [redisstore.ErrOption].
func New(client rueidis.Client, opts ...redisstore.Option) (*redisstore.Store, error) {
	if client == nil {
		return nil, fmt.Errorf("rueidisstore: %w: no client", redisstore.ErrClient)
	}
	return redisstore.Open(&conn{client, client.Mode() == rueidis.ClientModeCluster}, opts...)
}

type conn struct {
	client  rueidis.Client
	cluster bool
}

// Slots is that of [redisstore.Conn].
func (c *conn) Slots() bool { return c.cluster }

// Punctual is that of [redisstore.Conn]. rueidis makes connections, and finds out
// about a cluster, without a look at the time limit of the call that needs them.
func (c *conn) Punctual() bool { return false }

// Lane is that of [redisstore.Conn].
func (c *conn) Lane(context.Context, uint16, string) (string, error) { return "", nil }

// Eval is that of [redisstore.Conn].
func (c *conn) Eval(ctx context.Context, calls []redisstore.Call) {
	words := make([]rueidis.Completed, len(calls))
	for i := range calls {
		words[i] = c.completed(&calls[i])
	}
	var results []rueidis.RedisResult
	if len(words) == 1 {
		results = []rueidis.RedisResult{c.client.Do(ctx, words[0])}
	} else {
		results = c.client.DoMulti(ctx, words...)
	}
	for i := range calls {
		calls[i].Reply, calls[i].Err = reply(results[i])
	}
}

func (c *conn) completed(call *redisstore.Call) rueidis.Completed {
	if call.SHA != "" {
		return c.client.B().Evalsha().Sha1(call.SHA).Numkeys(int64(len(call.Keys))).Key(call.Keys...).Arg(call.Args...).Build()
	}
	return c.client.B().Eval().Script(call.Source).Numkeys(int64(len(call.Keys))).Key(call.Keys...).Arg(call.Args...).Build()
}

// reply returns what came, as go-redis would give it.
func reply(r rueidis.RedisResult) ([]any, error) {
	words, err := r.ToArray()
	if err != nil {
		return nil, err
	}
	out := make([]any, len(words))
	for i := range words {
		w := &words[i]
		switch {
		case w.IsNil():
		case w.IsInt64():
			out[i], err = w.AsInt64()
		case w.IsString():
			out[i], err = w.ToString()
		default:
			err = errors.New("a reply that is none of the script's")
		}
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}
