// Command chi limits a server of chi by a policy file, whose rules name the
// patterns of its router.
package main

import (
	"fmt"
	"log"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"
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
	router := chi.NewRouter()
	router.Use(limit(policy.NewEngine(pol, spillgate.NewMemory()), router))
	router.Post("/orders/{id}", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "ordered", chi.URLParam(r, "id"))
	})
	router.Post("/login", func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("password") != "open sesame" {
			http.Error(w, "wrong password", http.StatusUnauthorized)
			return
		}
		fmt.Fprintln(w, "welcome")
	})
	return router
}
