package main

import (
	"cmp"
	"net/http"

	"github.com/go-chi/chi/v5"
	"github.com/spillgate/spillgate/httplimit"
	"github.com/spillgate/spillgate/policy"
)

// limit is middleware for router, whose patterns are the routes. It stands
// before the routing, so it asks the router.
func limit(eng *policy.Engine, router chi.Router) func(http.Handler) http.Handler {
	route := func(r *http.Request) string {
		return router.Find(chi.NewRouteContext(), r.Method, cmp.Or(r.URL.RawPath, r.URL.Path)) // as chi routes
	}
	return httplimit.Policy(eng, httplimit.Route(route))
}
