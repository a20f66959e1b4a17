// Command middleware limits an HTTP server: each user who is logged in for
// themselves, wherever they come from, and everybody else by address.
package main

import (
	"fmt"
	"log"
	"net/http"
	"time"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/httplimit"
)

func main() {
	server := &http.Server{Addr: "127.0.0.1:8080", Handler: handler(), ReadHeaderTimeout: 10 * time.Second}
	log.Fatal(server.ListenAndServe())
}

func handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "hello", userOf(r)) })
	lim := spillgate.Must("5/s burst 20")
	return httplimit.New(lim, httplimit.User(userOf), httplimit.ClientIP())(mux)
}

// sessions stands for the program's own way to know its users.
var sessions = map[string]string{"s3cr3t": "alice", "h1dd3n": "bob"}

// userOf returns the user of a session, "" if nobody is logged in. It asks the
// program's sessions, not what the client says of itself.
func userOf(r *http.Request) string {
	cookie, err := r.Cookie("session")
	if err != nil {
		return ""
	}
	return sessions[cookie.Value]
}
