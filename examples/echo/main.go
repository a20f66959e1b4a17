// Command echo limits a server of echo by a policy file, whose rules name the
// patterns of its router.
package main

import (
	"log"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/policy"
	"github.com/spillgate/spillgate/policyfile"
)

func main() { // start it in this folder
	pol, err := policyfile.Load("limits.yaml")
	if err != nil {
		log.Fatal(err)
	}
	server := &http.Server{Addr: "127.0.0.1:8080", Handler: handler(pol), ReadHeaderTimeout: 10 * time.Second}
	log.Fatal(server.ListenAndServe())
}

func handler(pol *policy.Policy) http.Handler {
	router := echo.New()
	router.Use(limit(policy.NewEngine(pol, spillgate.NewMemory())))
	router.POST("/orders/:id", func(c echo.Context) error {
		return c.String(http.StatusOK, "ordered "+c.Param("id")+"\n")
	})
	router.POST("/login", func(c echo.Context) error {
		if c.FormValue("password") != "open sesame" {
			return echo.NewHTTPError(http.StatusUnauthorized, "wrong password")
		}
		return c.String(http.StatusOK, "welcome\n")
	})
	return router
}
