// Command policyfile is an application that reads its limits from a file, and
// whose login counts wrong passwords only.
package main

import (
	"fmt"
	"log"
	"net/http"
	"time"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/httplimit"
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
	mux := http.NewServeMux()
	mux.HandleFunc("GET /login", login)
	mux.HandleFunc("POST /login", login) // no other method: the rule counts this one
	return httplimit.Policy(policy.NewEngine(pol, spillgate.NewMemory()))(mux)
}

// login was charged a try before it began, so that no number of guesses sent
// at the same time gets past the limit. A right password gives its try back.
func login(w http.ResponseWriter, r *http.Request) {
	v := policy.FromContext(r.Context())
	if r.PostFormValue("password") == "open sesame" {
		if err := v.GiveBack("password"); err != nil {
			log.Print(err) // the try stays charged; the password is right all the same
		}
		fmt.Fprintln(w, "welcome")
		return
	}
	if r.Method == http.MethodPost { // it was wrong
		w.WriteHeader(http.StatusUnauthorized)
	}
	if d, ok := v.Peek(r.Context(), "password"); ok {
		fmt.Fprintln(w, "tries left:", d.Remaining)
	}
}
