// Command gin limits a server of gin by a policy file, whose rules name the
// patterns of its router.
package main

import (
	"log"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
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
	gin.SetMode(gin.ReleaseMode)
	router := gin.New()
	router.Use(gin.Recovery())
	router.POST("/orders/:id", func(c *gin.Context) {
		c.String(http.StatusOK, "ordered %s\n", c.Param("id"))
	})
	router.POST("/login", func(c *gin.Context) {
		if c.PostForm("password") != "open sesame" {
			c.String(http.StatusUnauthorized, "wrong password\n")
			return
		}
		c.String(http.StatusOK, "welcome\n")
	})
	return limit(policy.NewEngine(pol, spillgate.NewMemory()), router)
}
