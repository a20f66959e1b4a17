package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/redisstore"
	"github.com/spillgate/spillgate/redisstore/redistest"
)

// named returns a charge of one unit in a space of that name.
func named(t testing.TB, name, limit string) spillgate.Charge {
	t.Helper()
	c := charge(t, limit)
	sp, err := spillgate.NewSpace(name, spillgate.SpaceOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.Space = sp
	return c
}

// limited returns a client of a user who has all that the manual names, and then what
// is said here.
func limited(t *testing.T, server *redistest.Server, but ...any) *redis.Client {
	server.Do(rights(t)...)
	server.Do(append([]any{"acl", "setuser", "gate"}, but...)...)
	client := redis.NewClient(&redis.Options{Addr: server.Addr, Username: "gate", Password: "PASSWORD", MaxRetries: -1})
	t.Cleanup(func() { client.Close() })
	return client
}

// all has every charge, alone or with others, taken by so many at once, and returns how
// many of each were taken and how many failed.
func all(s *redisstore.Store, rounds int, requests ...[]spillgate.Charge) (taken, failed []int) {
	taken, failed = make([]int, len(requests)), make([]int, len(requests))
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i, cs := range requests {
		for range 8 {
			wg.Go(func() {
				for range rounds {
					out := make([]spillgate.Decision, len(cs))
					err := s.Take(context.Background(), time.Time{}, cs, out)
					mu.Lock()
					if err != nil {
						failed[i]++
					} else if out[0].Allowed {
						taken[i]++
					}
					mu.Unlock()
				}
			})
		}
	}
	wg.Wait()
	return taken, failed
}

// Without a right to the keys of one rule all others are decided as ever, though
// requests for it go in the same calls, and are charged once.
func TestNoRightToOneRule(t *testing.T) {
	server := redistest.Start(t)
	s := open(t, limited(t, server, "resetkeys", "~sg1:seed", "~sg1:probe", "~sg1:good*"), redisstore.Remember(0))
	good, log, bad := named(t, "good", "1/h burst 100000"), named(t, "goodlog", "50000/h log"), named(t, "bad", "1/h burst 100000")
	requests := [][]spillgate.Charge{{good}, {log}, {bad}, {good, bad}, {good, log}}
	taken, failed := all(s, 20, requests...)
	for i, want := range []int{160, 160, 0, 0, 160} {
		if taken[i] != want || failed[i] != 160-want {
			t.Errorf("request %d: %d taken, %d failed; want %d, %d", i, taken[i], failed[i], want, 160-want)
		}
	}
	if d := mustTake(t, s, good); d.Remaining != 100000-321 {
		t.Errorf("of the rule with rights %d are left", d.Remaining)
	}
	_, err := take(s, bad)
	if !errors.Is(err, spillgate.ErrUnavailable) || !strings.Contains(err.Error(), "denied") || !strings.Contains(err.Error(), `"sg1:bad:`) {
		t.Errorf("error %v, want one that names the key and what is the matter", err)
	}
	if st := s.Stats(); st.Opened != 0 || st.Faults[redisstore.Denied] == 0 {
		t.Errorf("%+v; want no breaker that opened, and what was denied", st)
	}
	server.Do("acl", "setuser", "gate", "~sg1:*")
	if d := mustTake(t, s, bad); d.Remaining != 99999 {
		t.Errorf("with the right: %+v", d)
	}
	if taken, _ = all(s, 5, requests...); fmt.Sprint(taken) != "[40 40 40 40 40]" {
		t.Errorf("with the right %d are taken", taken)
	}
}

// Without the right to a command that some algorithms need the others are decided, and
// are again after the server was away.
func TestNoRightToOneCommand(t *testing.T) {
	server := redistest.Start(t)
	client := limited(t, server, "-getrange")
	s := open(t, client, redisstore.Remember(0))
	good, bad := named(t, "good", "1/h burst 100000"), named(t, "bad", "50000/h log")
	if _, err := take(s, bad); !errors.Is(err, spillgate.ErrUnavailable) || !strings.Contains(err.Error(), "denied") {
		t.Fatalf("error %v", err)
	}
	both := []spillgate.Charge{good, bad}
	if err := s.Take(context.Background(), time.Time{}, both, make([]spillgate.Decision, 2)); !errors.Is(err, spillgate.ErrUnavailable) {
		t.Fatalf("error %v", err)
	}
	taken, failed := all(s, 20, []spillgate.Charge{good}, []spillgate.Charge{bad}, both)
	if fmt.Sprint(taken, failed) != "[160 0 0] [0 160 160]" {
		t.Errorf("taken %d, failed %d", taken, failed)
	}
	if st := s.Stats(); st.Opened != 0 {
		t.Errorf("the breaker opened %d times", st.Opened)
	}
	short, err := redisstore.New(client, redisstore.Remember(0), redisstore.Budget(budget))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { short.Close() })
	server.Pause()
	eventually(t, "an open breaker", func() bool { _, _ = take(short, good); return short.Stats().Open == 1 })
	server.Continue()
	eventually(t, "an answer again", func() bool { _, err := take(short, good); return err == nil })
}
