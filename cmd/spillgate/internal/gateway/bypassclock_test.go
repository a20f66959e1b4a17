package gateway_test

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/cmd/spillgate/internal/gateway"
	"github.com/spillgate/spillgate/policy"
	"github.com/spillgate/spillgate/redisstore"
	"github.com/spillgate/spillgate/redisstore/redistest"
)

// A clock is a store whose time is the test's, counted from a full hour.
type clock struct {
	*spillgate.Memory
	now atomic.Int64
}

func (c *clock) time() time.Time {
	return time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(c.now.Load()))
}

func (c *clock) Take(ctx context.Context, _ time.Time, cs []spillgate.Charge, out []spillgate.Decision) error {
	return c.Memory.Take(ctx, c.time(), cs, out)
}

func (c *clock) Settle(ctx context.Context, _ time.Time, cs []spillgate.Correction) error {
	return c.Memory.Settle(ctx, c.time(), cs)
}

// TestHeadersOverHTTP plays cases of the public list step by step: what is asked when,
// and what the answer's fields say.
func TestHeadersOverHTTP(t *testing.T) {
	type step struct {
		at     time.Duration
		cost   string
		status int
		left   string // RateLimit, as far as it is said
		wait   int    // Retry-After
	}
	const s = time.Second
	for name, tt := range map[string]struct {
		limit string
		steps []step
	}{
		"B021": {"5/min burst 5", []step{
			{0, "4", 200, `r=1;`, 0}, {0, "1", 200, `r=0;`, 0}, {12 * s, "1", 200, `r=0;`, 0}, {84 * s, "1", 200, `r=4;`, 0},
		}},
		"B035": {"1/s burst 5", []step{
			{0, "5", 200, `r=0;`, 0}, {0, "5", 429, `r=0;`, 5}, {2500 * time.Millisecond, "5", 429, `r=2;`, 3}, {5 * s, "5", 200, `r=0;`, 0},
		}},
		"B053": {"10/60s fixed", []step{
			{0, "9", 200, `r=1;`, 0}, {18 * s, "1", 200, `r=0;t=42`, 0}, {20 * s, "1", 429, `r=0;t=40`, 40},
			{60*s - 1, "1", 429, `r=0;t=1`, 1}, {60 * s, "1", 200, `r=9;`, 0},
		}},
		"B058": {"2/60s log", []step{
			{0, "1", 200, `r=1;`, 0}, {10 * s, "1", 200, `r=0;`, 0}, {20 * s, "1", 429, `r=0;`, 40},
			{60*s - 1, "1", 429, `r=0;`, 1}, {60 * s, "1", 200, `r=0;`, 0},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := rule(t, "r", tt.limit, []string{"client.ip"})
			r.Prices = []policy.Price{{From: policy.Attribute{Kind: policy.Query, Name: "n"}, Most: r.Limit.Cap()}}
			p, at := compile(t, r), &clock{Memory: spillgate.NewMemory()}
			f := serve(t, upstream(t, func(http.ResponseWriter, *http.Request) {}), p, func(c *gateway.Config) { c.Engine = policy.NewEngine(p, at) })
			c := visitor(t, "127.0.0.1")
			for i, step := range tt.steps {
				at.now.Store(int64(step.at))
				got := get(t, c, f.url+"/?n="+step.cost)
				told := got.Header.Get("RateLimit")
				if got.StatusCode != step.status || !strings.Contains(told+";", step.left) || step.wait > 0 && waits(got) != step.wait {
					t.Errorf("step %d: %d, RateLimit %s, Retry-After %q, want %+v", i, got.StatusCode, told, got.Header.Get("Retry-After"), step)
				}
			}
		})
	}
}

// TestSharedOverHTTP has two gateways count on one Redis: by the name of a rule, wherever
// it stands in the file, and apart where they have prefixes of their own.
func TestSharedOverHTTP(t *testing.T) {
	server, seed := redistest.Start(t), spillgate.NewSeed()
	one := func(prefix string, rules ...policy.Rule) func() int {
		client := server.Client()
		s, err := redisstore.New(client, redisstore.Prefix(prefix), redisstore.Budget(10*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		p := compile(t, rules...)
		f := serve(t, upstream(t, func(http.ResponseWriter, *http.Request) {}), p, func(c *gateway.Config) { c.Engine = policy.NewEngine(p, s, policy.Seeded(seed)) })
		c := visitor(t, "127.0.0.1")
		return func() int { return passes(t, 10, func() reply { return get(t, c, f.url) }) }
	}
	r, other := rule(t, "r", "10/h burst 10", []string{"client.ip"}), rule(t, "other", "1000/h burst 1000", []string{"client.ip"})
	t.Run("B098", func(t *testing.T) {
		if a, b := one("a:", r, other)(), one("a:", other, r)(); a+b != 10 {
			t.Errorf("%d and %d passed, want 10 together", a, b)
		}
	})
	t.Run("B162", func(t *testing.T) {
		if a, b := one("b:", r)(), one("c:", r)(); a != 10 || b != 10 {
			t.Errorf("%d and %d passed, want 10 each", a, b)
		}
	})
}
