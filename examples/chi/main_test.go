package main

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/spillgate/spillgate/examples/internal/shoptest"
	"github.com/spillgate/spillgate/policyfile"
)

func TestRoutesAreLimited(t *testing.T) { shoptest.Run(t, handler) }

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
