package client_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/client"
)

func TestAWaitIsNeverShorterThanTold(t *testing.T) {
	p := client.Patience{MaxWait: time.Minute, Spread: 2 * time.Second}
	spread := make(map[bool]int)
	for range 1000 {
		d, ok := p.Next(t.Context(), 1, 10*time.Second)
		if !ok || d < 10*time.Second || d >= 12*time.Second {
			t.Fatalf("waits %s, %t", d, ok)
		}
		spread[d < 11*time.Second]++
	}
	if spread[true] < 300 || spread[false] < 300 {
		t.Errorf("in the first half of the spread: %d, in the second: %d of 1000", spread[true], spread[false])
	}
}

func TestBoundsOfPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		soon, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		over, cut := context.WithCancel(t.Context())
		cut()
		for _, c := range []struct {
			name      string
			ctx       context.Context
			p         client.Patience
			tried     int
			told      time.Duration
			low, high time.Duration // of the wait, both included; high 0: none
		}{
			{"defaults", t.Context(), client.Patience{}, 1, 2 * time.Second, 2 * time.Second, 4 * time.Second},
			{"the spread is bounded", t.Context(), client.Patience{}, 1, 20 * time.Second, 20 * time.Second, 25 * time.Second},
			{"and by the longest wait", t.Context(), client.Patience{MaxWait: 21 * time.Second}, 1, 20 * time.Second, 20 * time.Second, 21 * time.Second},
			{"no spread", t.Context(), client.Patience{Spread: -1}, 1, 20 * time.Second, 20 * time.Second, 20 * time.Second},
			{"told to come at once", t.Context(), client.Patience{}, 1, 0, 0, time.Second / 2},
			{"nothing told", t.Context(), client.Patience{}, 2, client.Untold, 0, time.Second},
			{"nothing told, many tries", t.Context(), client.Patience{Tries: 100}, 99, client.Untold, 0, 30 * time.Second},
			{"as long as may be", t.Context(), client.Patience{}, 1, 30 * time.Second, 30 * time.Second, 30 * time.Second},
			{"too long", t.Context(), client.Patience{}, 1, 30*time.Second + 1, 0, 0},
			{"for ever", t.Context(), client.Patience{MaxWait: spillgate.Never}, 1, spillgate.Never, 0, 0},
			{"no patience", t.Context(), client.Patience{MaxWait: -1}, 1, 0, 0, 0},
			{"enough tries", t.Context(), client.Patience{}, 3, 0, 0, 0},
			{"one try", t.Context(), client.Patience{Tries: 1}, 1, 0, 0, 0},
			{"before the deadline", soon, client.Patience{}, 1, 4 * time.Second, 4 * time.Second, 5 * time.Second},
			{"beyond the deadline", soon, client.Patience{}, 1, 5 * time.Second, 0, 0},
			{"nothing told before the deadline", soon, client.Patience{Tries: 100}, 50, client.Untold, 0, 5 * time.Second},
			{"cancelled", over, client.Patience{}, 1, 0, 0, 0},
		} {
			for range 50 {
				d, ok := c.p.Next(c.ctx, c.tried, c.told)
				if ok != (c.high > 0) || d < c.low || d > c.high {
					t.Errorf("%s: waits %s, %t; want %s to %s", c.name, d, ok, c.low, c.high)
					break
				}
			}
		}
	})
}
