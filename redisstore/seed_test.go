package redisstore_test

import (
	"errors"
	"testing"

	"github.com/spillgate/spillgate/redisstore"
	"github.com/spillgate/spillgate/redisstore/redistest"
)

// What is no seed at the seed's key is left alone, of whatever type.
func TestNoSeed(t *testing.T) {
	server := redistest.Start(t)
	s := open(t, server.Client())
	for _, put := range [][]any{{"set", "sg1:seed", "hello"}, {"lpush", "sg1:seed", "x"}} {
		server.Do(put...)
		if _, err := s.Seed(t.Context()); !errors.Is(err, redisstore.ErrType) {
			t.Errorf("%v: error %v, want %v", put, err, redisstore.ErrType)
		}
		if n := server.Do("del", "sg1:seed"); n != int64(1) {
			t.Errorf("%v: it is gone", put)
		}
	}
}
