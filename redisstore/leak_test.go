package redisstore_test

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain wants nothing to run on when all stores and clients are closed.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
