package redisstore_test

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/redisstore"
	"github.com/spillgate/spillgate/redisstore/redistest"
)

// TestUnseenChanges changes the limit of logs and slots once or several times
// while nobody comes, and wants the answers of memory: every limit in between
// counts from its instant to the next.
func TestUnseenChanges(t *testing.T) {
	s := open(t, redistest.Start(t).Client(), redisstore.Remember(0))
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 3))
		kind, m := spillgate.SlidingLog, spillgate.NewMemory()
		if seed%2 == 1 {
			kind = spillgate.Concurrency
		}
		// No limit comes back, and each period is longer than a history, but for
		// those that nobody sees: what was written ends by no period of its own.
		made := time.Duration(0)
		limit := func(short bool) *spillgate.Meter {
			made++
			l := spillgate.Limit{Algorithm: kind, Rate: 3 + rng.Int64N(3), Period: 10*time.Minute + made*time.Second}
			if short {
				l.Period = time.Duration(1+rng.IntN(8))*time.Second + made
			}
			meter, err := l.Meter()
			if err != nil {
				t.Fatal(err)
			}
			return meter
		}
		c := charge(t, "1/s")
		c.Meter = limit(false)
		at := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
		for step := range 25 {
			at = at.Add(time.Duration(rng.IntN(2000)) * time.Millisecond)
			if rng.IntN(3) == 0 {
				for i := range 1 + rng.IntN(4) {
					next, err := c.Space.Change(c.Meter, limit(i%2 == 0), spillgate.Instant(at.UnixNano()))
					if err != nil {
						t.Fatal(err)
					}
					c.Meter = next
					at = at.Add(time.Duration(rng.IntN(1500)) * time.Millisecond)
				}
				next, err := c.Space.Change(c.Meter, limit(false), spillgate.Instant(at.UnixNano()))
				if err != nil {
					t.Fatal(err)
				}
				c.Meter = next
			}
			c.N = rng.Int64N(3)
			got, want := make([]spillgate.Decision, 1), make([]spillgate.Decision, 1)
			if err := s.Take(context.Background(), at, []spillgate.Charge{c}, got); err != nil {
				t.Fatal(err)
			}
			if err := m.Take(context.Background(), at, []spillgate.Charge{c}, want); err != nil {
				t.Fatal(err)
			}
			if got[0].Slot, want[0].Slot = 0, 0; got[0] != want[0] {
				t.Fatalf("seed %d, step %d, %s:\n%+v, in memory\n%+v", seed, step, c.Meter.Limit(), got[0], want[0])
			}
		}
	}
}

// TestChangedForSeveralCharges has several charges for one key come first under a
// changed limit, the first of which asks for nothing: all learn the slot, and the
// last limit that anything was taken under is the one that the state is kept by.
func TestChangedForSeveralCharges(t *testing.T) {
	s, m := open(t, redistest.Start(t).Client(), redisstore.Remember(0)), spillgate.NewMemory()
	at := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	both := func(cs ...spillgate.Charge) (got []spillgate.Decision) {
		t.Helper()
		at = at.Add(time.Second)
		got, want := make([]spillgate.Decision, len(cs)), make([]spillgate.Decision, len(cs))
		if err := s.Take(context.Background(), at, cs, got); err != nil {
			t.Fatal(err)
		}
		if err := m.Take(context.Background(), at, cs, want); err != nil {
			t.Fatal(err)
		}
		for i := range got {
			told := got[i].Slot
			if (told == 0) != (want[i].Slot == 0) {
				t.Errorf("charge %d has slot %d, in memory %d", i, told, want[i].Slot)
			}
			if got[i].Slot, want[i].Slot = 0, 0; got[i] != want[i] {
				t.Errorf("charge %d:\n%+v, in memory\n%+v", i, got[i], want[i])
			}
			got[i].Slot = told
		}
		return got
	}
	asks := func(c spillgate.Charge, n int64, limit string) spillgate.Charge {
		c.N, c.Meter = n, charge(t, limit).Meter
		return c
	}
	for _, limits := range [][2]string{
		{"10 at once", "5 at once"},
		{"10/h burst 10", "40/h burst 20"},
		{"10/h fixed", "20/h fixed"},
		{"10/h sliding", "20/2h sliding"},
		{"10/h log", "20/2h log"},
	} {
		c := charge(t, limits[0])
		both(asks(c, 1, limits[0]))
		next, err := c.Space.Change(c.Meter, charge(t, limits[1]).Meter, spillgate.Instant(at.Add(time.Second).UnixNano()))
		if err != nil {
			t.Fatal(err)
		}
		c.Meter = next
		at = at.Add(time.Second)
		none, two := c, c
		none.N, two.N = 0, 2
		free, held := charge(t, "3 at once"), charge(t, "3 at once")
		free.N, held.N, held.Space, held.Key = 0, 2, free.Space, free.Key
		trial := held
		trial.Trial = true // it finds what is left by the others
		both(none, two, none, trial, free, held)
		if strings.Contains(limits[0], "burst") {
			more := asks(c, 3, "60/h burst 30")
			no := asks(c, 0, "60/h burst 30")
			both(none, no, more)
		}
		both(two)
	}
}

// TestBeforeTheEpoch wants of logs and slots what memory says also where the time is one
// before 1970.
func TestBeforeTheEpoch(t *testing.T) {
	s, m := open(t, redistest.Start(t).Client(), redisstore.Remember(0)), spillgate.NewMemory()
	at := time.Date(1960, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, limit := range []string{"5/10s log", "5 at once for 10s", "5/10s burst 5", "5/10s fixed"} {
		c := charge(t, limit)
		for step, n := range []int64{3, 3, 0, 2, 1} {
			c.N = n
			got, want := make([]spillgate.Decision, 1), make([]spillgate.Decision, 1)
			if err := s.Take(context.Background(), at, []spillgate.Charge{c}, got); err != nil {
				t.Fatal(err)
			}
			if err := m.Take(context.Background(), at, []spillgate.Charge{c}, want); err != nil {
				t.Fatal(err)
			}
			if got[0].Slot, want[0].Slot = 0, 0; got[0] != want[0] {
				t.Errorf("%s, step %d:\n%+v, in memory\n%+v", limit, step, got[0], want[0])
			}
		}
	}
}

// TestGivenBackBesideAChange charges a log together with a bucket whose limit has changed,
// which takes a second round, by the server's clock, and gives the log's units back.
func TestGivenBackBesideAChange(t *testing.T) {
	s := open(t, redistest.Start(t).Client(), redisstore.Remember(0))
	for _, limit := range []string{"10/h log", "10 at once"} {
		bucket, log := charge(t, "10/h burst 10"), charge(t, limit)
		mustTake(t, s, bucket)
		bucket.Meter = charge(t, "20/h burst 20").Meter
		log.N = 3
		out := make([]spillgate.Decision, 2)
		if err := s.Take(context.Background(), time.Time{}, []spillgate.Charge{bucket, log}, out); err != nil {
			t.Fatal(err)
		}
		back := spillgate.Correction{Space: log.Space, Key: log.Key, Meter: log.Meter, Delta: -3, At: out[1].At, Slot: out[1].Slot}
		if err := s.Settle(context.Background(), time.Time{}, []spillgate.Correction{back}); err != nil {
			t.Fatal(err)
		}
		log.N = 0
		if d := mustTake(t, s, log); d.Remaining != 10 {
			t.Errorf("%s: %d left of 10 after all was given back", limit, d.Remaining)
		}
	}
}
