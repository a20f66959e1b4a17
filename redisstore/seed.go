package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

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

// lookEvery is how often the seed of the server is looked at, and who shares it.
const lookEvery = 5 * time.Second

// Seed returns the secret under which all who share the store digest their
// keys: the one that the server keeps, at the prefix and "seed", or a new one
// that it keeps from now on. It never ends by itself; a server that may drop
// keys to make room must be one that drops only those that end
// (maxmemory-policy volatile-ttl), or none (noeviction). Where it is lost all the
// same, as with a server that starts again empty, it is put back within 5 s, and at
// once when a server answers again; see also [OtherSeed]. It returns at
// the end of ctx at the latest. Errors wrap [spillgate.ErrUnavailable] or [ErrType];
// it asks once, so at a start ask again for a while as long as it is the former.
func (s *Store) Seed(ctx context.Context) (spillgate.Seed, error) {
	fresh := spillgate.NewSeed()
	kept, err := s.keptSeed(ctx, fresh.Bytes())
	if err != nil {
		return spillgate.Seed{}, err
	}
	s.seed.Store(&kept)
	s.look()
	return spillgate.SeedFrom(kept), nil
}

// keptSeed returns the seed that the server keeps: secret, if it had none.
func (s *Store) keptSeed(ctx context.Context, secret [16]byte) ([16]byte, error) {
	key := s.options.prefix + "seed"
	calls := s.eval(ctx, []Call{{Source: seedScript, Keys: []string{key}, Args: []string{string(secret[:])}}})
	if err := calls[0].Err; err != nil && !strings.Contains(err.Error(), "WRONGTYPE") {
		return secret, fmt.Errorf("redisstore: %w: the seed: %w", spillgate.ErrUnavailable, err)
	}
	if len(calls[0].Reply) == 1 {
		if text, ok := calls[0].Reply[0].(string); ok && len(text) == len(secret) {
			copy(secret[:], text)
			return secret, nil
		}
	}
	return secret, fmt.Errorf("redisstore: %w: %q is no seed: something else writes under this prefix; delete it, or choose another prefix", ErrType, key)
}

// look looks after the seed, and counts, as long as s is open.
func (s *Store) look() {
	s.looking.Do(func() { s.runs(s.keepLooking) })
}

func (s *Store) keepLooking() {
	timer := time.NewTicker(s.every)
	defer timer.Stop()
	for {
		select {
		case <-s.closing:
			return
		case <-timer.C:
			s.restoreSeed()
			s.recount()
		}
	}
}

// restoreSeed puts the seed back if the server lost it, and tells if it keeps another.
func (s *Store) restoreSeed() {
	mine := s.seed.Load()
	if mine == nil {
		return
	}
	ctx, cancel := context.WithTimeout(background, s.options.budget)
	defer cancel()
	kept, err := s.keptSeed(ctx, *mine)
	switch {
	case errors.Is(err, spillgate.ErrUnavailable): // later
	case err != nil || kept != *mine:
		if s.otherSeed.CompareAndSwap(false, true) {
			s.options.otherSeed()
		}
	default:
		s.otherSeed.Store(false)
	}
}
