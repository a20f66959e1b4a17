package redisstore_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/redisstore"
	"github.com/spillgate/spillgate/redisstore/redistest"
)

// TestVersionsOfARuleSideBySide has two nodes count one rule under the limits of two
// versions of a policy, in turn, as while a new one is rolled out: what both admit is
// bounded by the larger limit where they count in one way, by the sum where they don't.
func TestVersionsOfARuleSideBySide(t *testing.T) {
	server := redistest.Start(t)
	a, b := open(t, server.Client(), redisstore.Remember(0)), open(t, server.Client(), redisstore.Remember(0))
	limits := []string{"5/1d burst 5", "6/1d burst 6", "5/1d queue 5", "5/366d fixed", "6/366d fixed", "5/366d sliding", "5/1d log", "6/1d log", "5 at once for 1d"}
	for _, one := range limits {
		for _, two := range limits {
			c, d := charge(t, one), charge(t, two)
			d.Space, d.Key = c.Space, c.Key
			n := int64(0)
			for range 20 {
				n += mustTake(t, a, c).Taken + mustTake(t, b, d).Taken
			}
			kind, other := c.Meter.Limit().Algorithm, d.Meter.Limit().Algorithm
			least := min(c.Meter.Limit().Cap(), d.Meter.Limit().Cap())
			most := max(c.Meter.Limit().Cap(), d.Meter.Limit().Cap())
			if kind != other {
				most = c.Meter.Limit().Cap() + d.Meter.Limit().Cap()
			}
			if n < least || n > most {
				t.Errorf("%s and %s side by side admit %d, want %d at the most", one, two, n, most)
			}
		}
	}
}

// TestHotKeyOfTwoVersions has many callers of two nodes ask for one key under two
// limits, so that each finds the other's state: all are answered, and what both admit
// is bounded by the larger limit.
func TestHotKeyOfTwoVersions(t *testing.T) {
	server := redistest.Start(t)
	c := charge(t, "100/1d burst 100")
	d := c
	d.Meter = charge(t, "200/1d burst 200").Meter
	var taken atomic.Int64
	var wg sync.WaitGroup
	for _, c := range []spillgate.Charge{c, d} {
		s := open(t, server.Client(), redisstore.Remember(0))
		for range 16 {
			wg.Go(func() {
				for range 30 {
					out, err := take(s, c)
					if err != nil {
						t.Error(err)
					}
					taken.Add(out.Taken)
				}
			})
		}
	}
	wg.Wait()
	if n := taken.Load(); n < 100 || n > 201 {
		t.Errorf("%d admitted, want 200 at most", n)
	}
}
