package redisstore

import (
	"context"
	"fmt"
	"strings"

	"github.com/spillgate/spillgate"
)

// seedScript puts down the secret that it is given, unless there is one, and
// returns what is there.
const seedScript = `local seed = redis.call('GET', KEYS[1])
if not seed then
	seed = ARGV[1]
	redis.call('SET', KEYS[1], seed)
end
return {seed}`

// Seed returns the secret under which all who share the store digest their
// keys: the one that the server keeps, at the prefix and "seed", or a new one
// that it keeps from now on. It never ends by itself; a server that may drop
// keys to make room must be one that drops only those that end
// (maxmemory-policy volatile-ttl), or none (noeviction). Errors wrap
// [spillgate.ErrUnavailable] or [ErrType].
func (s *Store) Seed(ctx context.Context) (spillgate.Seed, error) {
	fresh := spillgate.NewSeed()
	secret := fresh.Bytes()
	key := s.options.prefix + "seed"
	calls := []Call{{Source: seedScript, Keys: []string{key}, Args: []string{string(secret[:])}}}
	s.conn.Eval(ctx, calls)
	if err := calls[0].Err; err != nil && !strings.Contains(err.Error(), "WRONGTYPE") {
		return spillgate.Seed{}, fmt.Errorf("redisstore: %w: the seed: %w", spillgate.ErrUnavailable, err)
	}
	if len(calls[0].Reply) == 1 {
		if text, ok := calls[0].Reply[0].(string); ok && len(text) == len(secret) {
			copy(secret[:], text)
			return spillgate.SeedFrom(secret), nil
		}
	}
	return spillgate.Seed{}, fmt.Errorf("redisstore: %w: %q is no seed: something else writes under this prefix; delete it, or choose another prefix", ErrType, key)
}
