package main

import (
	"net/http"

	"github.com/spillgate/spillgate/httplimit"
	"github.com/spillgate/spillgate/policy"
)

// limit puts the policy in front of mux, whose patterns are the routes.
func limit(eng *policy.Engine, mux *http.ServeMux) http.Handler {
	route := func(r *http.Request) string {
		_, pattern := mux.Handler(r)
		return pattern
	}
	return httplimit.Policy(eng, httplimit.Route(route))(mux)
}
