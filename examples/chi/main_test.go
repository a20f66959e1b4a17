package main

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/spillgate/spillgate/examples/internal/shoptest"
	"github.com/spillgate/spillgate/policy"
	"github.com/spillgate/spillgate/policyfile"
)

func TestRoutesAreLimited(t *testing.T) { shoptest.Run(t, handler) }

func TestWholePolicy(t *testing.T) {
	shoptest.Policy(t, http.StatusTeapot, func(eng *policy.Engine, h http.Handler) http.Handler {
		router := chi.NewRouter()
		router.Use(limit(eng, router))
		router.Handle("/do", h)
		return router
	})
}

// The limit asks for the route of the path that chi routes by: the escaped one.
func TestEscapedSlashesDoNotPassTheLimit(t *testing.T) {
	pol, err := policyfile.Load("limits.yaml")
	if err != nil {
		t.Fatal(err)
	}
	h := handler(pol)
	for i, want := range []int{http.StatusOK, http.StatusOK, http.StatusTooManyRequests} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("POST", "/orders/1%2F2", nil))
		if w.Code != want {
			t.Errorf("order %d: %d %s; want %d", i, w.Code, w.Body, want)
		}
	}
}
