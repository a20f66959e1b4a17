// Package demo is the small upstream that the gateway can start beside itself
// for a first look: a greeting, a report, and a login to guess at.
package demo

import (
	"fmt"
	"net/http"
	"time"
)

// Password is the one that the demo's login accepts.
const Password = "open-sesame"

// Handler answers GET /, POST /report, GET and POST /login, and GET /stream.
func Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "hello from the demo upstream; you asked for %s\n", r.Host)
	})
	mux.HandleFunc("POST /report", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "a costly report, made for you alone")
	})
	mux.HandleFunc("GET /login", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "password? %s\n", left(r))
	})
	mux.HandleFunc("POST /login", func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("password") == Password {
			fmt.Fprintln(w, "welcome")
			return
		}
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprintf(w, "wrong password; %s\n", left(r))
	})
	mux.HandleFunc("GET /stream", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for i := 1; i <= 10; i++ {
			fmt.Fprintf(w, "data: %d\n\n", i)
			http.NewResponseController(w).Flush()
			select {
			case <-tick.C:
			case <-r.Context().Done():
				return
			}
		}
	})
	return mux
}

// left says what the gateway tells of the limits that apply.
func left(r *http.Request) string {
	if v := r.Header.Get("Spillgate-Remaining"); v != "" {
		return "the gateway says what is left: " + v
	}
	return "nobody counts your tries"
}
