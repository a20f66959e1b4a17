package main

import (
	"net/http"

	"github.com/labstack/echo/v4"
	"github.com/spillgate/spillgate/httplimit"
	"github.com/spillgate/spillgate/policy"
)

// limit is middleware for echo, whose path is the route. The handler's error
// is answered here, so that rules that count failures see its status.
func limit(eng *policy.Engine) echo.MiddlewareFunc {
	limited := httplimit.Policy(eng)
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			c.Request().Pattern = c.Path()
			limited(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				c.SetRequest(r)
				c.SetResponse(echo.NewResponse(w, c.Echo()))
				if err := next(c); err != nil {
					c.Error(err)
				}
			})).ServeHTTP(c.Response(), c.Request())
			return nil
		}
	}
}
