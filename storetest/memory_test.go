package storetest_test

import (
	"testing"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/storetest"
)

func TestMemory(t *testing.T) {
	storetest.Run(t, func(t *testing.T) spillgate.Store {
		m := spillgate.NewMemory()
		t.Cleanup(func() { m.Close() })
		return m
	})
}
