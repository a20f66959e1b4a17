package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/spillgate/spillgate/redisstore/redistest"
)

// clustered is a policy of rules whose keys are in many slots.
func clustered(store string) string {
	rules := fmt.Sprintf("server: {store: {%s}}\nrules:\n", store)
	for i := range 8 {
		rules += fmt.Sprintf("  - {name: r%d, match: {query.r: '%d'}, limit: 1/h burst 1, key: client.ip, on_fault: closed}\n", i, i)
	}
	return rules
}

// Over TLS each server of a cluster is held to its own name, and shown the
// certificate that it wants.
func TestStoreTLS(t *testing.T) {
	servers, addrs, authority := redistest.ClusterTLS(t)
	crt, key := authority.Issue("127.0.0.9")
	p := start(t, clustered(fmt.Sprintf("redis: [rediss://%s, rediss://%s], cluster: true, prefix: 'tls:', timeout: 5s, ca_file: %s, certificate_file: %s, key_file: %s",
		addrs[0], addrs[1], authority.File, crt, key)), "--demo")
	for i := range 8 {
		for _, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
			if got := status(t, fmt.Sprintf("%s/?r=%d", p.url, i)); got != want {
				t.Errorf("rule %d: %d, want %d\n%s", i, got, want, p.log)
			}
		}
	}
	for i, s := range servers {
		if n, _ := s.Do("dbsize").(int64); n == 0 {
			t.Errorf("server %d keeps nothing", i)
		}
	}
}

// Without one of the files nothing is decided by such a cluster, and the start
// says what is the matter.
func TestStoreTLSNeedsFiles(t *testing.T) {
	_, addr, _ := redistest.StartTLS(t)
	seed := filepath.Join(t.TempDir(), "seed")
	if err := os.WriteFile(seed, []byte("0123456789abcdef0123456789abcdef"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, clustered(fmt.Sprintf("redis: rediss://%s, seed_file: %s, timeout: 5s", addr, seed)), "--demo")
	for range 4 {
		if got := status(t, p.url+"/?r=1"); got != http.StatusServiceUnavailable {
			t.Errorf("%d from a server with a certificate of nobody's", got)
		}
	}
	if !strings.Contains(p.log.String(), "the store does not answer") {
		t.Errorf("nothing of it in the log:\n%s", p.log)
	}
}

// Sentinels have a password of their own, and may have a user, who needs the rights
// that the manual names.
func TestSentinelPassword(t *testing.T) {
	g := redistest.Replicated(t)
	manual, err := os.ReadFile(filepath.Join("..", "..", "docs", "operations.md"))
	if err != nil {
		t.Fatal(err)
	}
	var watcher []any
	for _, word := range strings.Fields(string(regexp.MustCompile(`(?m)^ACL SETUSER watcher .*$`).Find(manual))) {
		watcher = append(watcher, word)
	}
	g.Sentinel.Do(watcher...)
	g.Sentinel.Do("acl", "setuser", "default", "resetpass", ">of the sentinels")
	g.Primary.Do("acl", "setuser", "gate", "on", ">of the primary", "~*", "+@all")
	dir := t.TempDir()
	for name, text := range map[string]string{"sentinel": "of the sentinels\n", "watcher": "PASSWORD\n", "primary": "of the primary\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, as := range []string{"sentinel_password_file: %s/sentinel", "sentinel_user: watcher, sentinel_password_file: %s/watcher"} {
		store := fmt.Sprintf("redis: redis://gate@%s, sentinel: main, prefix: 's:', timeout: 5s, password_file: %s/primary, ", g.Sentinel.Addr, dir)
		p := start(t, clustered(store+fmt.Sprintf(as, dir)), "--demo")
		for _, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
			if got := status(t, p.url+"/?r=1"); got != want {
				t.Errorf("%s: %d, want %d\n%s", as, got, want, p.log)
			}
		}
		g.Primary.Do("flushall")
	}
	c := redis.NewClient(&redis.Options{Addr: g.Sentinel.Addr, Password: "of the sentinels"})
	t.Cleanup(func() { c.Close() })
	if refused, err := c.ACLLog(t.Context(), 10).Result(); err != nil || len(refused) > 0 {
		t.Errorf("the Sentinel refused %v, error %v", refused, err)
	}
}
