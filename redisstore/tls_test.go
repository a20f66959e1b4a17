package redisstore_test

import (
	"crypto/tls"
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/redisstore/redistest"
)

// TestTLS decides over TLS, and tells of a fault where the server is not the
// one that is trusted, or does not trust the client.
func TestTLS(t *testing.T) {
	server, addr, config := redistest.StartTLS(t)
	over := func(c *tls.Config) spillgate.Store {
		client := redis.NewClient(&redis.Options{Addr: addr, TLSConfig: c, DialerRetries: 1, MaxRetries: -1})
		t.Cleanup(func() { client.Close() })
		return open(t, client)
	}
	c := charge(t, "1/h burst 2")
	if d := mustTake(t, over(config), c); d.Remaining != 1 {
		t.Errorf("over TLS: %+v", d)
	}
	if d := mustTake(t, open(t, server.Client()), c); d.Remaining != 0 {
		t.Errorf("and without: %+v", d)
	}
	for name, wrong := range map[string]*tls.Config{
		"another authority": {Certificates: config.Certificates, MinVersion: tls.VersionTLS12},
		"no certificate":    {RootCAs: config.RootCAs, MinVersion: tls.VersionTLS12},
	} {
		if d, err := take(over(wrong), c); !errors.Is(err, spillgate.ErrUnavailable) {
			t.Errorf("%s: %+v, %v", name, d, err)
		}
	}
}
