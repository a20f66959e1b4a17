package main

import (
	"testing"

	"github.com/spillgate/spillgate/examples/internal/shoptest"
)

func TestRoutesAreLimited(t *testing.T) { shoptest.Run(t, handler) }
