package redisstore_test

import (
	"testing"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/redisstore"
	"github.com/spillgate/spillgate/redisstore/redistest"
	"github.com/spillgate/spillgate/storetest"
)

func TestSingle(t *testing.T) {
	client := redistest.Start(t).Client()
	storetest.Run(t, func(t *testing.T) spillgate.Store {
		s, err := redisstore.New(client, redisstore.Budget(5e9))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	})
}
