package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/redisstore"
	"github.com/spillgate/spillgate/redisstore/redistest"
)

var spaces int

// charge returns a charge of one unit in a space of its own.
func charge(t testing.TB, limit string) spillgate.Charge {
	t.Helper()
	return chargeTTL(t, limit, 0)
}

// chargeTTL is the same in a space with a time to live.
func chargeTTL(t testing.TB, limit string, ttl time.Duration) spillgate.Charge {
	t.Helper()
	l, err := spillgate.ParseLimit(limit)
	if err != nil {
		t.Fatal(err)
	}
	m, err := l.Meter()
	if err != nil {
		t.Fatal(err)
	}
	spaces++
	sp, err := spillgate.NewSpace(fmt.Sprintf("%s/%d", t.Name(), spaces), spillgate.SpaceOptions{TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	return spillgate.Charge{Space: sp, Key: spillgate.Key{uint64(spaces), 7}, Meter: m, Ask: spillgate.Ask{N: 1}}
}

// take takes one charge by the server's clock.
func take(s spillgate.Store, c spillgate.Charge) (spillgate.Decision, error) {
	var out [1]spillgate.Decision
	err := s.Take(context.Background(), time.Time{}, []spillgate.Charge{c}, out[:])
	return out[0], err
}

func mustTake(t testing.TB, s spillgate.Store, c spillgate.Charge) spillgate.Decision {
	t.Helper()
	d, err := take(s, c)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// eventually waits until ok is true.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("not after 20s: %s", what)
		}
		<-time.After(5 * time.Millisecond)
	}
}

// budget is that of the stores that meet faults here. What else runs on the
// machine may delay an answer by as much as slack.
const (
	budget = 100 * time.Millisecond
	slack  = 2 * time.Second
)

func through(t *testing.T, addr string) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { c.Close() })
	return c
}

// TestFaults makes a server fail in every way, and wants an answer within the
// budget that is no denial, a breaker that opens, no call while it is open, and
// answers again when the server is back.
func TestFaults(t *testing.T) {
	scripts, stop := context.WithCancel(t.Context())
	defer stop()
	loop := func(s *redistest.Server, words ...any) { // until it is ended
		c := redis.NewClient(&redis.Options{Addr: s.Addr, MaxRetries: -1, ReadTimeout: -1})
		t.Cleanup(func() { c.Close() })
		go c.Do(scripts, words...)
	}
	for _, f := range []struct {
		name  string
		kinds []redisstore.Fault
		spoil func(*redistest.Server, *redistest.Proxy)
		mend  func(*redistest.Server, *redistest.Proxy)
	}{
		{"killed", []redisstore.Fault{redisstore.Refused, redisstore.Broken, redisstore.TimedOut},
			func(s *redistest.Server, p *redistest.Proxy) { s.Kill() },
			func(s *redistest.Server, p *redistest.Proxy) { s.Run() }},
		{"frozen", []redisstore.Fault{redisstore.TimedOut},
			func(s *redistest.Server, p *redistest.Proxy) { s.Pause() },
			func(s *redistest.Server, p *redistest.Proxy) { s.Continue() }},
		{"never heard", []redisstore.Fault{redisstore.TimedOut},
			func(s *redistest.Server, p *redistest.Proxy) { p.Swallow.Store(true) },
			func(s *redistest.Server, p *redistest.Proxy) { p.Swallow.Store(false); p.Cut() }},
		{"half open", []redisstore.Fault{redisstore.TimedOut},
			func(s *redistest.Server, p *redistest.Proxy) { p.Deaf.Store(true) },
			func(s *redistest.Server, p *redistest.Proxy) { p.Deaf.Store(false); p.Cut() }},
		{"slow", []redisstore.Fault{redisstore.TimedOut},
			func(s *redistest.Server, p *redistest.Proxy) { p.Delay.Store(int64(5 * budget)) },
			func(s *redistest.Server, p *redistest.Proxy) { p.Delay.Store(0); p.Cut() }},
		{"cut in the middle", []redisstore.Fault{redisstore.Broken, redisstore.TimedOut, redisstore.Refused, redisstore.Other},
			func(s *redistest.Server, p *redistest.Proxy) { p.CutAfter.Store(9); p.Cut() },
			func(s *redistest.Server, p *redistest.Proxy) { p.CutAfter.Store(0) }},
		{"out of memory", []redisstore.Fault{redisstore.OutOfMemory},
			func(s *redistest.Server, p *redistest.Proxy) { s.Do("config", "set", "maxmemory", "1") },
			func(s *redistest.Server, p *redistest.Proxy) { s.Do("config", "set", "maxmemory", "0") }},
		{"too few replicas", []redisstore.Fault{redisstore.NotWriting},
			func(s *redistest.Server, p *redistest.Proxy) { s.Do("config", "set", "min-replicas-to-write", "1") },
			func(s *redistest.Server, p *redistest.Proxy) { s.Do("config", "set", "min-replicas-to-write", "0") }},
		{"a replica", []redisstore.Fault{redisstore.ReadOnly},
			func(s *redistest.Server, p *redistest.Proxy) { s.Do("replicaof", "127.0.0.1", "1") },
			func(s *redistest.Server, p *redistest.Proxy) { s.Do("replicaof", "no", "one") }},
		{"no right", []redisstore.Fault{redisstore.Denied},
			func(s *redistest.Server, p *redistest.Proxy) { s.Do("acl", "setuser", "default", "-evalsha", "-eval") },
			func(s *redistest.Server, p *redistest.Proxy) { s.Do("acl", "setuser", "default", "+evalsha", "+eval") }},
		{"a script that does not end", []redisstore.Fault{redisstore.Busy},
			func(s *redistest.Server, p *redistest.Proxy) {
				s.Do("config", "set", "busy-reply-threshold", "1")
				loop(s, "eval", "while true do end", 0)
			},
			func(s *redistest.Server, p *redistest.Proxy) { s.Do("script", "kill") }},
		{"loading", []redisstore.Fault{redisstore.Loading},
			func(s *redistest.Server, p *redistest.Proxy) {
				s.Do("config", "set", "key-load-delay", "200", "loading-process-events-interval-bytes", "1024")
				s.Do("debug", "populate", 20000)
				loop(s, "debug", "reload")
			},
			func(s *redistest.Server, p *redistest.Proxy) { s.Do("config", "set", "key-load-delay", "0") }},
		{"no server for the slot", []redisstore.Fault{redisstore.ClusterDown},
			func(s *redistest.Server, p *redistest.Proxy) { s.Do("cluster", "delslotsrange", 0, 16383) },
			func(s *redistest.Server, p *redistest.Proxy) { s.Do("cluster", "addslotsrange", 0, 16383) }},
	} {
		t.Run(f.name, func(t *testing.T) {
			server := redistest.Start(t, "--enable-debug-command", "yes")
			if f.kinds[0] == redisstore.ClusterDown {
				server = redistest.Cluster(t, 1)[0]
			}
			proxy := redistest.NewProxy(t, server.Addr)
			s, err := redisstore.New(through(t, proxy.Addr), redisstore.Budget(budget))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.Close() })
			c := charge(t, "1000/h burst 1000")
			eventually(t, "an answer", func() bool { _, err := take(s, c); return err == nil })
			f.spoil(server, proxy)
			eventually(t, "an open breaker", func() bool {
				began := time.Now()
				d, err := take(s, c)
				if took := time.Since(began); took > budget+slack {
					t.Fatalf("an answer after %s", took)
				}
				if err != nil && (!errors.Is(err, spillgate.ErrUnavailable) || errors.Is(err, spillgate.ErrDenied)) || d.Reason != spillgate.Granted && err == nil {
					t.Fatalf("%+v, %v, want an error that is ErrUnavailable", d, err)
				}
				return s.Stats().Open == 1
			})
			stats := s.Stats()
			seen := uint64(0)
			for _, k := range f.kinds {
				seen += stats.Faults[k]
			}
			if seen == 0 {
				t.Errorf("faults %v, want some of %v", stats.Faults, f.kinds)
			}
			calls := stats.Calls
			for range 100 {
				if _, err := take(s, c); !errors.Is(err, spillgate.ErrUnavailable) {
					t.Fatalf("while the breaker is open: %v", err)
				}
			}
			if got := s.Stats(); got.Calls != calls || got.Shut < 100 {
				t.Errorf("%d calls on the way of 100 requests while the breaker is open", got.Calls-calls)
			}
			f.mend(server, proxy)
			eventually(t, "an answer again", func() bool { _, err := take(s, c); return err == nil })
			if s.Stats().Open != 0 {
				t.Error("the breaker is still open")
			}
		})
	}
}

// TestFlush wants the script to be found again, whatever became of it.
func TestFlush(t *testing.T) {
	server := redistest.Start(t)
	s := open(t, server.Client())
	c := charge(t, "1/h burst 3")
	for i, forget := range [][]any{{"ping"}, {"script", "flush"}, {"ping"}} {
		server.Do(forget...)
		if d := mustTake(t, s, c); !d.Allowed || d.Remaining != int64(2-i) {
			t.Errorf("take %d: %+v", i, d)
		}
	}
	server.Do("flushall")
	if d := mustTake(t, s, c); d.Remaining != 2 {
		t.Errorf("after a flush: %+v", d)
	}
}
