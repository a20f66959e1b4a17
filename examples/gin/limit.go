package main

import (
	"net/http"

	"github.com/gin-gonic/gin"
	"github.com/spillgate/spillgate/httplimit"
	"github.com/spillgate/spillgate/policy"
)

// limit puts the policy in front of router, whose full paths are the routes. A
// second router is asked for them, since gin tells only handlers.
func limit(eng *policy.Engine, router *gin.Engine) http.Handler {
	routes := gin.New()
	routes.UseRawPath, routes.UseEscapedPath, routes.RemoveExtraSlash = router.UseRawPath, router.UseEscapedPath, router.RemoveExtraSlash
	routes.RedirectTrailingSlash = false
	for _, r := range router.Routes() {
		routes.Handle(r.Method, r.Path, func(c *gin.Context) { c.Writer.Header().Set("Route", c.FullPath()) })
	}
	return httplimit.Policy(eng, httplimit.Route(func(r *http.Request) string {
		found := nobody{}
		routes.ServeHTTP(found, r)
		return http.Header(found).Get("Route")
	}))(router)
}

// nobody reads an answer, but its header.
type nobody http.Header

func (n nobody) Header() http.Header       { return http.Header(n) }
func (nobody) Write(b []byte) (int, error) { return len(b), nil }
func (nobody) WriteHeader(int)             {}
