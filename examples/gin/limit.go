package main

import (
	"net/http"

	"github.com/gin-gonic/gin"
	"github.com/spillgate/spillgate/httplimit"
	"github.com/spillgate/spillgate/policy"
)

// limit is middleware for gin, whose full path is the route.
func limit(eng *policy.Engine) gin.HandlerFunc {
	limited := httplimit.Policy(eng)
	return func(c *gin.Context) {
		passed := false
		c.Request.Pattern = c.FullPath()
		limited(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			passed, c.Request, c.Writer = true, r, writer{c.Writer, w}
			c.Next()
		})).ServeHTTP(c.Writer, c.Request)
		if !passed {
			c.Abort()
		}
	}
}

// A writer lets the limit see the status, for rules that count failures.
type writer struct {
	gin.ResponseWriter
	seen http.ResponseWriter
}

func (w writer) WriteHeader(status int) { w.seen.WriteHeader(status) }
