package redisstore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/redisstore"
	"github.com/spillgate/spillgate/redisstore/redistest"
)

// TestLateCorrections makes more corrections than may wait while the server is
// away: those that found room are carried out once it is back, each once, and the
// others are an error and counted.
func TestLateCorrections(t *testing.T) {
	server := redistest.Start(t)
	s, err := redisstore.New(server.Client(), redisstore.Budget(5*budget), redisstore.Remember(0))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	c := charge(t, "1/h burst 5000")
	c.N = 2000
	d := mustTake(t, open(t, server.Client()), c) // which waits as long as it takes
	server.Pause()
	one := c
	one.N = 0 // so that what is not answered is not charged, either
	eventually(t, "an open breaker", func() bool { _, _ = take(s, one); return s.Stats().Open == 1 })
	before := s.Stats()
	back := []spillgate.Correction{{Space: c.Space, Key: c.Key, Meter: c.Meter, Delta: -1, At: d.At}}
	const wait, more = 1024, 10
	for i := range wait + more {
		err := s.Settle(context.Background(), time.Time{}, back)
		if i < wait && err != nil || i >= wait && !errors.Is(err, spillgate.ErrUnavailable) {
			t.Fatalf("correction %d: %v", i, err)
		}
	}
	if st := s.Stats(); st.Late != wait || st.Dropped-before.Dropped != more || st.Calls != before.Calls {
		t.Errorf("%d wait, %d dropped, %d calls; want %d, %d and none", st.Late, st.Dropped-before.Dropped, st.Calls-before.Calls, wait, more)
	}
	short, err := redisstore.New(server.Client(), redisstore.Budget(budget))
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "an open breaker", func() bool { _, _ = take(short, one); return short.Stats().Open == 1 })
	for range 3 {
		if err := short.Settle(context.Background(), time.Time{}, back); err != nil {
			t.Fatal(err)
		}
	}
	short.Close()
	if st := short.Stats(); st.Late != 0 || st.Dropped != 3 {
		t.Errorf("after Close %d of 3 wait, and %d are dropped", st.Late, st.Dropped)
	}
	server.Continue()
	eventually(t, "all are carried out", func() bool { // and maybe those three, which were sent
		d, err := take(s, one)
		return err == nil && d.Remaining >= 3000+wait && d.Remaining <= 3000+wait+3
	})
	if st := s.Stats(); st.Late != 0 || st.Dropped-before.Dropped != more {
		t.Errorf("then %d wait, and %d are dropped", st.Late, st.Dropped-before.Dropped)
	}
}

// A node that is cut off for longer than a window gives back what it took in
// windows of before: nothing of that reaches the window of now.
func TestB044LateCorrectionsAreOfTheirWindow(t *testing.T) {
	for _, limit := range []string{"10/10s fixed", "10/10s sliding"} {
		server := redistest.Start(t)
		s, err := redisstore.New(server.Client(), redisstore.Budget(5*budget), redisstore.Remember(0))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		direct := open(t, server.Client(), redisstore.Remember(0))
		at := func(sec int) time.Time { return time.Date(2030, 1, 1, 0, 0, sec, 0, time.UTC) }
		c := charge(t, limit)
		ask := func(store spillgate.Store, sec int, n int64) spillgate.Decision {
			t.Helper()
			c.N = n
			out := make([]spillgate.Decision, 1)
			if err := store.Take(context.Background(), at(sec), []spillgate.Charge{c}, out); err != nil {
				t.Fatal(err)
			}
			return out[0]
		}
		hit := [2]spillgate.Decision{ask(direct, 1, 8), ask(direct, 12, 1)}
		server.Pause()
		look := c
		look.N = 0
		eventually(t, "an open breaker", func() bool { _, _ = take(s, look); return s.Stats().Open == 1 })
		for i := range 8 { // what both windows took is given back one by one
			back := []spillgate.Correction{{Space: c.Space, Key: c.Key, Meter: c.Meter, Delta: -1, At: hit[i/7].At}}
			if err := s.Settle(context.Background(), at(25), back); err != nil {
				t.Fatal(err)
			}
		}
		gathered := s.Stats().Gathered
		server.Continue()
		const passing = 4
		if limit == "10/10s fixed" {
			for i := range 10 {
				if d := ask(direct, 26, 1); !d.Allowed || d.Remaining != int64(9-i) {
					t.Fatalf("ask %d at 26 s: %+v", i, d)
				}
			}
		} else {
			ask(direct, 26, passing)
		}
		eventually(t, "all are sent", func() bool { return s.Stats().Gathered == gathered+8 })
		s.Close() // which waits for what is under way
		d := ask(direct, 26, 0)
		if limit == "10/10s fixed" && d.Remaining != 0 || limit != "10/10s fixed" && d.Remaining != 10-passing {
			t.Errorf("%s: %d left after what came late", limit, d.Remaining)
		}
		if limit == "10/10s fixed" {
			if d := ask(direct, 26, 1); d.Allowed {
				t.Errorf("an eleventh passes: %+v", d)
			}
		}
	}
}

// TestSettledTogether wants the corrections of one call to be one round trip,
// and all of them within one budget if nobody answers.
func TestSettledTogether(t *testing.T) {
	server := redistest.Start(t)
	s := open(t, server.Client())
	short, err := redisstore.New(server.Client(), redisstore.Budget(budget))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { short.Close() })
	var back []spillgate.Correction
	for range 64 {
		c := charge(t, "1/h burst 3")
		d := mustTake(t, s, c)
		back = append(back, spillgate.Correction{Space: c.Space, Key: c.Key, Meter: c.Meter, Delta: -1, At: d.At})
	}
	calls := s.Stats().Calls
	if err := s.Settle(context.Background(), time.Time{}, back); err != nil {
		t.Fatal(err)
	}
	if n := s.Stats().Calls - calls; n != 1 {
		t.Errorf("%d calls for one of 64 corrections", n)
	}
	if n := len(server.Do("keys", "*"+t.Name()+"*").([]any)); n != 0 {
		t.Errorf("%d keys are not as new", n)
	}
	server.Pause()
	defer server.Continue()
	if err := short.Settle(context.Background(), time.Time{}, back); !errors.Is(err, spillgate.ErrUnavailable) {
		t.Errorf("error %v", err)
	}
	if st := short.Stats(); st.Calls != 1 || st.Open != 0 {
		t.Errorf("%d calls, one after the other, for one of 64 corrections that nobody answers", st.Calls)
	}
}

// What waits for a server is sent when the store is closed, though it was not seen yet
// that the server is back.
func TestLateCorrectionsAtClose(t *testing.T) {
	server := redistest.Start(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr, MaxRetries: -1, DialerRetries: 1})
	t.Cleanup(func() { client.Close() })
	s, after := open(t, client), open(t, server.Client())
	server.Kill()
	c := charge(t, "1/h burst 5000")
	eventually(t, "an open breaker", func() bool { _, _ = take(s, c); return s.Stats().Open == 1 })
	const late = 700 // more than go in one call
	for range late {
		if err := s.Settle(context.Background(), time.Time{}, []spillgate.Correction{{Space: c.Space, Key: c.Key, Meter: c.Meter, Delta: 1}}); err != nil {
			t.Fatal(err)
		}
	}
	server.Run()
	s.Close()
	if st := s.Stats(); st.Late != 0 || st.Dropped != 0 {
		t.Errorf("%d wait, and %d are dropped", st.Late, st.Dropped)
	}
	c.N = 0
	if d := mustTake(t, after, c); d.Remaining != 5000-late {
		t.Errorf("%d remain of 5000, where %d more were used", d.Remaining, late)
	}
}
