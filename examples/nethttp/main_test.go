package main

import (
	"net/http"
	"testing"

	"github.com/spillgate/spillgate/examples/internal/shoptest"
	"github.com/spillgate/spillgate/policy"
)

func TestRoutesAreLimited(t *testing.T) { shoptest.Run(t, handler) }

func TestWholePolicy(t *testing.T) {
	shoptest.Policy(t, http.StatusTeapot, func(eng *policy.Engine, h http.Handler) http.Handler {
		mux := http.NewServeMux()
		mux.Handle("/do", h)
		return limit(eng, mux)
	})
}
