package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/policyfile"
	"github.com/spillgate/spillgate/redisstore"
	"github.com/spillgate/spillgate/redisstore/redistest"
)

// get returns the status of a GET.
func status(t *testing.T, url string) int {
	t.Helper()
	r, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	return r.StatusCode
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); <-time.After(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not after 20s: %s", what)
		}
	}
}

// TestSharedStore has two gateways count together, in both modes, and lets the
// store die under them: each rule does as it says, and all is well again when
// the store is back.
func TestSharedStore(t *testing.T) {
	for _, mode := range []string{"exact", "leased"} {
		t.Run(mode, func(t *testing.T) {
			server := redistest.Start(t)
			upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			t.Cleanup(upstream.Close)
			policy := fmt.Sprintf(`
server:
  upstream: %s
  store: {redis: redis://%s, nodes: 2, mode: %s, timeout: 2s}
rules:
  - {name: shared, match: {path: /shared}, limit: 1/h burst 10, key: client.ip}
  - {name: open, match: {path: /open}, limit: 1/h burst 2, key: client.ip, on_fault: open}
  - {name: closed, match: {path: /closed}, limit: 1/h burst 50, key: client.ip, on_fault: {closed: {status: 502, text: later}}}
  - {name: local, match: {path: /local}, limit: 1/h burst 8, key: client.ip, on_fault: local}
`, upstream.URL, server.Addr, mode)
			a, b := start(t, policy), start(t, policy)
			if !strings.Contains(a.log.String(), "the store has no prefix") {
				t.Errorf("no warning that there is no prefix:\n%s", a.log)
			}
			passed := 0
			for i := range 20 {
				if status(t, []string{a.url, b.url}[i%2]+"/shared") == http.StatusOK {
					passed++
				}
			}
			if passed != 10 {
				t.Errorf("%d of 20 passed at two gateways, want 10", passed)
			}
			if got := status(t, a.url+"/closed"); got != http.StatusOK {
				t.Errorf("closed: %d", got)
			}
			server.Kill()
			for i := range 12 {
				if got := status(t, a.url+"/open"); got != http.StatusOK {
					t.Errorf("open, while the store is away: %d", got)
				}
				if got := status(t, a.url+"/closed"); got != http.StatusBadGateway {
					t.Errorf("closed, while the store is away: %d, want the rule's own 502", got)
				}
				want := http.StatusOK
				if i >= 4 {
					want = http.StatusTooManyRequests
				}
				if got := status(t, a.url+"/local"); got != want {
					t.Errorf("local, request %d while the store is away: %d, want %d", i, got, want)
				}
			}
			if !strings.Contains(a.log.String(), "the store does not answer") {
				t.Errorf("nothing of it in the log:\n%s", a.log)
			}
			server.Run()
			until(t, "the store is used again", func() bool { return status(t, a.url+"/closed") == http.StatusOK })
			a.signal(t, os.Interrupt)
			if a.exit(t).ExitCode() != 0 {
				t.Errorf("it ends with %v:\n%s", a.cmd.ProcessState, a.log)
			}
			for _, numbers := range map[string][]string{"exact": {"the store's numbers"}, "leased": {"the leases' numbers", "the store's numbers"}}[mode] {
				if !strings.Contains(a.log.String(), numbers) {
					t.Errorf("at the stop nothing of %s in the log:\n%s", numbers, a.log)
				}
			}
		})
	}
}

// What check says of the users and passwords of a store.
func TestStoreText(t *testing.T) {
	s := &policyfile.Server{Store: policyfile.Store{Redis: []string{"redis://gate@a:26379"}, Sentinel: "main", Nodes: 1,
		PasswordFile: "/pw", SentinelUser: "watcher", SentinelPasswordFile: "/sentinels"}}
	if text := strings.Join(storeText(s), "\n"); !strings.Contains(text, "the password is in /pw; that of the Sentinels' user watcher is in /sentinels") {
		t.Error(text)
	}
	if c := storeJSON(s); c.SentinelUser != "watcher" || c.SentinelPasswordFile != "/sentinels" {
		t.Errorf("%+v", c)
	}
}

// TestSeedFile starts while the store is away, which without the file it does
// not.
func TestSeedFile(t *testing.T) {
	server := redistest.Start(t)
	server.Kill()
	seed := filepath.Join(t.TempDir(), "seed")
	if err := os.WriteFile(seed, []byte("0123456789abcdef0123456789abcdef"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, fmt.Sprintf(`
server: {store: {redis: redis://%s, seed_file: %s, prefix: "seeded:"}}
rules:
  - {name: all, limit: 1/h burst 2, key: client.ip, on_fault: open}
`, server.Addr, seed), "--demo")
	if got := status(t, p.url); got != http.StatusOK {
		t.Errorf("%d", got)
	}
	server.Run()
	until(t, "the store is used", func() bool { return status(t, p.url) == http.StatusTooManyRequests })
	if strings.Contains(p.log.String(), "no prefix") {
		t.Errorf("a warning of a prefix that is there:\n%s", p.log)
	}
}

// TestSeedWait starts while the store is away, for some seconds.
func TestSeedWait(t *testing.T) {
	server := redistest.Start(t)
	server.Kill()
	back := make(chan struct{})
	go func() {
		defer close(back)
		<-time.After(2 * time.Second) // longer than one try
		server.Run()
	}()
	p := start(t, fmt.Sprintf("server: {store: {redis: redis://%s, prefix: 'late:'}}\nrules:\n  - {name: all, limit: 1/h burst 2, key: client.ip, on_fault: closed}\n", server.Addr), "--demo")
	<-back
	until(t, "the store is used", func() bool { return status(t, p.url) == http.StatusTooManyRequests })
}

// That a server is gone is known at once, and told as that, though go-redis would go on
// trying to connect for longer than a request may take.
func TestKilledStoreIsRefused(t *testing.T) {
	server := redistest.Start(t)
	server.Kill()
	client, err := redisClient(&policyfile.Store{Redis: []string{"redis://" + server.Addr}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	var tries dials
	client.AddHook(&tries)
	if kind := redisstore.KindOf(client.Ping(t.Context()).Err()); kind != redisstore.Refused || tries.Load() != 1 {
		t.Errorf("%s after %d tries, want refused after one", kind, tries.Load())
	}
}

// At a stop while the store is away the log says what of leases was not given back.
func TestLeasesLostAtStop(t *testing.T) {
	server := redistest.Start(t)
	var log notes
	c := &policyfile.Store{Redis: []string{"redis://" + server.Addr}, Leased: true, Nodes: 1, Timeout: 10 * time.Second}
	leased, _, stop, err := openStore(t.Context(), c, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	m, err := spillgate.Limit{Rate: 1, Period: time.Hour, Burst: 10000}.Meter()
	if err != nil {
		t.Fatal(err)
	}
	sp, err := spillgate.NewSpace("all", spillgate.SpaceOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// At times of its own, so that no lease is over meanwhile.
	at := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	take := func(key uint64) error {
		return leased.Take(t.Context(), at, []spillgate.Charge{{Space: sp, Key: spillgate.Key{key}, Meter: m, Ask: spillgate.Ask{N: 1}}}, make([]spillgate.Decision, 1))
	}
	for range 100 {
		if err := take(0); err != nil {
			t.Fatal(err)
		}
	}
	server.Kill()
	key := uint64(1)
	until(t, "the store is not asked", func() bool {
		key++
		_ = take(key)
		return leased.(*spillgate.Leased).Inner().(*redisstore.Store).Stats().Open == 1
	})
	stop()
	if !strings.Contains(log.String(), "not all units of leases could be given back") || !strings.Contains(log.String(), "corrections_dropped=1") {
		t.Errorf("the log says nothing of what was lost:\n%s", log.String())
	}
}

// dials counts the connections that are tried.
type dials struct{ atomic.Int32 }

func (d *dials) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		d.Add(1)
		return next(ctx, network, addr)
	}
}

func (d *dials) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (d *dials) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
