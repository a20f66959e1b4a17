package redisstore

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillgate/spillgate/redisstore/redistest"
)

// TestSeedIsPutBack wants a server that lost all to have the seed again from those who
// know it, so that who starts later counts with them, and another one to be told, once.
func TestSeedIsPutBack(t *testing.T) {
	server := redistest.Start(t)
	var told atomic.Int64
	s, err := New(server.Client(), Budget(10*time.Second), OtherSeed(func() { told.Add(1) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	s.restoreSeed() // nobody asked for one yet
	if n := server.Do("exists", "sg1:seed"); n != int64(0) {
		t.Fatalf("a seed that nobody asked for: %v", n)
	}
	seed, err := s.Seed(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	server.Do("flushall")
	s.restoreSeed()
	if again, err := s.Seed(context.Background()); err != nil || again != seed || told.Load() != 0 {
		t.Errorf("after a flush: %v, told %d times", err, told.Load())
	}
	for _, other := range []string{"0123456789abcdef", "no seed"} {
		server.Do("set", "sg1:seed", other)
		for range 2 {
			s.restoreSeed()
		}
		if got := server.Do("get", "sg1:seed"); told.Load() != 1 || got != other {
			t.Errorf("another seed is told %d times, and is %v", told.Load(), got)
		}
		secret := seed.Bytes()
		server.Do("set", "sg1:seed", string(secret[:]))
		s.restoreSeed()
		told.Store(0)
	}
}
