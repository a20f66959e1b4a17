// Command redis limits a server of net/http by a policy file, and counts in Redis
// together with all other servers that do.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillgate/spillgate/httplimit"
	"github.com/spillgate/spillgate/policy"
	"github.com/spillgate/spillgate/policyfile"
)

func main() { // start it in this folder, beside a redis-server, several times
	listen := flag.String("listen", "127.0.0.1:8080", "address")
	server := flag.String("redis", "127.0.0.1:6379", "address of Redis")
	flag.Parse()
	if err := run(*listen, *server); err != nil {
		log.Fatal(err)
	}
}

// run serves until SIGINT or SIGTERM.
func run(listen, server string) error {
	pol, err := policyfile.Load("limits.yaml")
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	client := redis.NewClient(options(server))
	defer client.Close()
	shared, err := open(ctx, pol, client)
	if err != nil {
		return err
	}
	defer shared.close() // after the last request
	srv := &http.Server{Addr: listen, Handler: handler(shared.engine), ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- srv.ListenAndServe() }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return srv.Shutdown(context.Background())
	}
}

// options are those of a client for the store, which tries again by itself.
func options(server string) *redis.Options {
	return &redis.Options{Addr: server, DialerRetries: 1} // so that a refused connection is known as such
}

func handler(eng *policy.Engine) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "hello") })
	mux.HandleFunc("POST /login", func(w http.ResponseWriter, r *http.Request) {
		if r.PostFormValue("password") != "open sesame" {
			http.Error(w, "wrong password", http.StatusUnauthorized)
			return
		}
		fmt.Fprintln(w, "welcome")
	})
	return httplimit.Policy(eng)(mux)
}
