package redisstore_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/redisstore"
	"github.com/spillgate/spillgate/redisstore/redistest"
)

var (
	lists = flag.Int("lists", 100, "random lists of requests that are played to memory and to a server")
	first = flag.Uint64("first", 0, "seed of the first list")
)

// limits are those of random lists: every algorithm, small enough that all
// that can happen does.
var limits = []string{
	"1/1ns burst 3", "3/1s burst 2", "7/3s burst 5", "1/1h burst 1", "1000/1s burst 4", "5/1s queue 3",
	"3/7ns queue 2", "3/1s fixed", "2/10s fixed", "5/1h fixed", "4/7d fixed", "4/calendar day in Europe/Berlin",
	"6/calendar month", "3/1s sliding", "4/10ms sliding", "100/1m sliding", "5/30d sliding", "3/1s log",
	"5/10s log", "2 at once for 1m", "5 at once for 3s", "unlimited", "0/s burst 4",
}

// TestAgainstMemory plays random requests and corrections to memory and to the
// server, at times that are given, and wants the same answer to each.
func TestAgainstMemory(t *testing.T) {
	client := redistest.Start(t).Client()
	for i := range *lists {
		seed := *first + uint64(i)
		s, err := redisstore.New(client, redisstore.Budget(5*time.Second), redisstore.Prefix(fmt.Sprintf("t%d:", seed)))
		if err != nil {
			t.Fatal(err)
		}
		if err := play(rand.New(rand.NewPCG(seed, 7)), s, spillgate.NewMemory()); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		s.Close()
	}
}

type taken struct {
	charge spillgate.Charge
	r, m   spillgate.Decision
}

func play(rng *rand.Rand, r, m spillgate.Store) error {
	seed := spillgate.SeedFrom([16]byte{1})
	now := time.Date(2030, 3, 30, 23, 59, 50, 0, time.UTC)
	now = now.Add(time.Duration(rng.Int64N(int64(48 * time.Hour))))
	ttl := time.Duration(0)
	if rng.IntN(3) == 0 {
		ttl = time.Duration(1 + rng.Int64N(int64(5*time.Second)))
	}
	var spaces []*spillgate.Space
	var meters []*spillgate.Meter
	for i := range 3 {
		o := spillgate.SpaceOptions{TTL: ttl}
		l, err := spillgate.ParseLimit(limits[rng.IntN(len(limits))])
		if err != nil {
			return err
		}
		if l.Rate == 0 && ttl == 0 {
			o.TTL = time.Second
		}
		meter, err := l.Meter()
		if err != nil {
			return err
		}
		sp, err := spillgate.NewSpace(fmt.Sprint("space", i), o)
		if err != nil {
			return err
		}
		spaces, meters = append(spaces, sp), append(meters, meter)
	}
	var done []taken
	steps := ""
	for range 40 {
		switch rng.IntN(4) {
		case 0:
		case 1:
			now = now.Add(time.Duration(rng.Int64N(10)))
		case 2:
			now = now.Add(time.Duration(rng.Int64N(int64(2 * time.Second))))
		case 3:
			now = now.Add(time.Duration(rng.Int64N(int64(300 * time.Millisecond))))
		}
		if len(done) > 0 && rng.IntN(4) == 0 {
			d := done[rng.IntN(len(done))]
			c := spillgate.Correction{
				Space: d.charge.Space, Key: d.charge.Key, Meter: d.charge.Meter, Delta: []int64{-9, -3, -2, -1, 1, 2, 7}[rng.IntN(7)],
				At: d.r.At, Slot: d.r.Slot,
			}
			if rng.IntN(2) == 0 {
				c.Until = d.r.At + spillgate.Instant(d.r.ResetAfter)
			}
			steps += fmt.Sprintf("\n%s settle %+d of %s %x", now.Format("05.000000000"), c.Delta, d.charge.Space.Name(), d.charge.Key[0]&0xff)
			if err := r.Settle(context.Background(), now, []spillgate.Correction{c}); err != nil {
				return fmt.Errorf("%s: %w", steps, err)
			}
			c.Slot = d.m.Slot
			if err := m.Settle(context.Background(), now, []spillgate.Correction{c}); err != nil {
				return err
			}
			continue
		}
		cs := make([]spillgate.Charge, 1+rng.IntN(3))
		for i := range cs {
			k := rng.IntN(len(spaces))
			c := spillgate.Charge{Space: spaces[k], Meter: meters[k]}
			c.Key = seed.Key(spillgate.AppendPart(nil, "key", fmt.Sprint(rng.IntN(2))))
			c.N = rng.Int64N(4)
			if rng.IntN(5) == 0 {
				c.Min = rng.Int64N(c.N + 1)
				c.N *= 3
			}
			if rng.IntN(5) == 0 {
				c.Keep = rng.Int64N(3)
			}
			if a := c.Meter.Limit().Algorithm; rng.IntN(8) == 0 && a != spillgate.SlidingLog && a != spillgate.Concurrency {
				c.Need = rng.Int64N(5)
			}
			c.Trial = rng.IntN(6) == 0
			cs[i] = c
			steps += fmt.Sprintf("\n%s take %+v trial %t of %s %s %x", now.Format("05.000000000"), c.Ask, c.Trial, c.Space.Name(), c.Meter.Limit(), c.Key[0]&0xff)
		}
		got, want := make([]spillgate.Decision, len(cs)), make([]spillgate.Decision, len(cs))
		if err := r.Take(context.Background(), now, cs, got); err != nil {
			return fmt.Errorf("%s: %w", steps, err)
		}
		if err := m.Take(context.Background(), now, cs, want); err != nil {
			return err
		}
		for i := range cs {
			g, w := got[i], want[i]
			if (g.Slot != 0) != (w.Slot != 0) {
				return fmt.Errorf("%s: charge %d: slot %d, in memory %d", steps, i, g.Slot, w.Slot)
			}
			if g.Taken > 0 {
				done = append(done, taken{cs[i], g, w})
			}
			g.Slot, w.Slot = 0, 0
			if g != w {
				return fmt.Errorf("%s: charge %d:\n%+v, in memory\n%+v", steps, i, g, w)
			}
		}
	}
	return nil
}
