package main

import (
	"context"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillgate/spillgate/policyfile"
	"github.com/spillgate/spillgate/redisstore"
	"github.com/spillgate/spillgate/redisstore/redistest"
)

// TestServersCountTogether has two servers on one Redis: they admit one limit
// together, lease once they have counted each other, and each decides for its half
// when Redis is gone. Waiting is in virtual time; Redis is real.
func TestServersCountTogether(t *testing.T) {
	pol, err := policyfile.Load("limits.yaml")
	if err != nil {
		t.Fatal(err)
	}
	server := redistest.Start(t)
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(time.Minute) // what still looks for the server ends by itself
		client := redis.NewClient(options(server.Addr))
		defer client.Close()
		var servers [2]*shared
		for i := range servers {
			s, err := open(context.Background(), pol, client, redisstore.Budget(10*time.Second)) // of a busy machine
			if err != nil {
				t.Fatal(err)
			}
			defer s.close()
			servers[i] = s
		}
		passed := func(s *shared, method, path, from string, times int) (n int) {
			for range times {
				r := httptest.NewRequest(method, path, nil)
				r.RemoteAddr = from
				w := httptest.NewRecorder()
				handler(s.engine).ServeHTTP(w, r)
				if w.Code != 429 {
					n++
				}
			}
			return n
		}
		const alice, bob = "192.0.2.1:1000", "192.0.2.2:1000"
		guesses := passed(servers[0], "POST", "/login", alice, 3)
		guesses += passed(servers[1], "POST", "/login", alice, 3)
		if guesses != 4 {
			t.Errorf("%d guesses of 4 passed", guesses)
		}

		passed(servers[0], "GET", "/", alice, 100)
		if n, here := servers[0].engine.Nodes(), servers[0].leased.Stats().Here; here > 0 {
			t.Errorf("%d requests were decided by leases of one of %d, which the other does not know of", here, n)
		}
		for tries := 0; servers[0].leased.Stats().Here == 0; tries++ {
			if tries == 10 {
				t.Fatal("no request was decided by a lease, though both know of both")
			}
			time.Sleep(20 * time.Second)
			passed(servers[0], "GET", "/", alice, 100)
		}
		for i, s := range servers {
			if n := s.engine.Nodes(); n != 2 {
				t.Errorf("server %d knows of %d", i, n)
			}
		}

		server.Kill()
		for i, s := range servers {
			if n := passed(s, "POST", "/login", bob, 10); n != 2 {
				t.Errorf("without Redis server %d of two let %d guesses pass; half of 4 is 2", i, n)
			}
		}
	})
}
