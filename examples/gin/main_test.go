package main

import (
	"net/http"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/spillgate/spillgate/examples/internal/shoptest"
	"github.com/spillgate/spillgate/policy"
)

func TestRoutesAreLimited(t *testing.T) { shoptest.Run(t, handler) }

func TestWholePolicy(t *testing.T) {
	shoptest.Policy(t, http.StatusTeapot, func(eng *policy.Engine, h http.Handler) http.Handler {
		gin.SetMode(gin.ReleaseMode)
		router := gin.New()
		router.GET("/do", gin.WrapH(h))
		return limit(eng, router)
	})
}
