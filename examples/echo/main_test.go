package main

import (
	"net/http"
	"testing"

	"github.com/labstack/echo/v4"
	"github.com/spillgate/spillgate/examples/internal/shoptest"
	"github.com/spillgate/spillgate/policy"
)

func TestRoutesAreLimited(t *testing.T) { shoptest.Run(t, handler) }

func TestWholePolicy(t *testing.T) {
	shoptest.Policy(t, http.StatusTeapot, func(eng *policy.Engine, h http.Handler) http.Handler {
		router := echo.New()
		router.Use(limit(eng))
		router.GET("/do", echo.WrapHandler(h))
		return router
	})
}
