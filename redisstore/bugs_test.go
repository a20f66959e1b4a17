package redisstore_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/redisstore"
	"github.com/spillgate/spillgate/redisstore/redistest"
)

// onlyKey returns the one key of c's space.
func onlyKey(t *testing.T, server *redistest.Server, c spillgate.Charge) any {
	t.Helper()
	keys := server.Do("keys", "*"+c.Space.Name()+":*").([]any)
	if len(keys) != 1 {
		t.Fatalf("keys %v, want one", keys)
	}
	return keys[0]
}

// A counter without an expiry refused for ever: every key has one, and one that lost
// it is repaired by the next charge, of a bucket by one that ends some seconds later.
func TestB076AKeyWithoutExpiryIsRepaired(t *testing.T) {
	server := redistest.Start(t)
	s := open(t, server.Client(), redisstore.Remember(0))
	for _, limit := range []string{"1/4s burst 2", "2/300ms fixed", "2/300ms sliding", "2/300ms log", "2 at once for 300ms"} {
		c := charge(t, limit)
		mustTake(t, s, c)
		key := onlyKey(t, server, c)
		server.Do("persist", key)
		mustTake(t, s, c)
		if server.Do("exists", key) == int64(1) {
			if ttl := server.Do("pttl", key).(int64); ttl < 0 {
				t.Errorf("%s: no expiry after the next charge", limit)
			}
			server.Do("persist", key)
		}
		eventually(t, limit+": passes again", func() bool { return mustTake(t, s, c).Allowed })
	}
}

// The count and the reset of a fixed window belong to one window, also in the
// instant in which it ends.
func TestB079CountAndResetOfOneWindow(t *testing.T) {
	s := open(t, redistest.Start(t).Client(), redisstore.Remember(0))
	const window = 40 * time.Millisecond
	c := charge(t, "5/40ms fixed")
	inWindow, last := int64(0), int64(0)
	for range 1000 {
		d := mustTake(t, s, c)
		number := int64(d.At) / int64(window)
		if number != last {
			inWindow, last = 0, number
		}
		if end := (number + 1) * int64(window); int64(d.At)+int64(d.ResetAfter) != end {
			t.Fatalf("%+v: the reset is not the end of the window", d)
		}
		if inWindow += d.Taken; d.Allowed != (inWindow <= 5 && d.Taken == 1) || d.Remaining != 5-inWindow {
			t.Fatalf("%+v with %d taken in this window", d, inWindow)
		}
	}
}

// An expiry in the wrong unit kept keys 1000 times too long, one that was
// rounded to nothing kept no key. Ours ends within four seconds of when it may.
func TestB081ExpiryInTheRightUnit(t *testing.T) {
	server := redistest.Start(t)
	s := open(t, server.Client())
	for limit, most := range map[string]time.Duration{
		"60/60s fixed": 60 * time.Second, "60/60s sliding": 120 * time.Second, "60/60s log": 60 * time.Second,
		"60/60s burst 60": time.Second, "5 at once for 60s": 60 * time.Second,
	} {
		c := charge(t, limit)
		mustTake(t, s, c)
		ttl := time.Duration(server.Do("pttl", onlyKey(t, server, c)).(int64)) * time.Millisecond
		if ttl <= 0 || ttl > most+4*time.Second {
			t.Errorf("%s: the key ends after %s, want at most %s", limit, ttl, most)
		}
	}
}

// A state lives as long as anything of it is in view.
func TestB083InViewAFullPeriod(t *testing.T) {
	s := open(t, redistest.Start(t).Client())
	c := charge(t, "10/1h log")
	at := func(d time.Duration) time.Time { return time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC).Add(d) }
	for _, step := range []struct {
		at   time.Duration
		n    int64
		pass bool
	}{{0, 1, true}, {59 * time.Minute, 8, true}, {61 * time.Minute, 3, false}, {61 * time.Minute, 2, true}, {61 * time.Minute, 1, false}} {
		c.N = step.n
		out := make([]spillgate.Decision, 1)
		if err := s.Take(context.Background(), at(step.at), []spillgate.Charge{c}, out); err != nil || out[0].Allowed != step.pass {
			t.Errorf("%d at %s: %+v, %v", step.n, step.at, out[0], err)
		}
	}
}

// A time to live of less than a second must not be rounded to none.
func TestB084ExpiryIsNeverRoundedToZero(t *testing.T) {
	s := open(t, redistest.Start(t).Client(), redisstore.Remember(0))
	for range 20 {
		c := charge(t, "3/s burst 1")
		first := mustTake(t, s, c)
		if !first.Allowed {
			t.Fatalf("%+v", first)
		}
		for {
			d := mustTake(t, s, c)
			if since := time.Duration(d.At - first.At); d.Allowed != (since >= 333333334*time.Nanosecond) {
				t.Fatalf("after %s: %+v", since, d)
			}
			if d.Allowed {
				break
			}
			<-time.After(d.RetryAfter / 2)
		}
	}
}

// A call whose reply is lost is not made again.
func TestB086LostReplyIsChargedOnce(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr)
	for name, spoil := range map[string]func(bool){
		"never heard":       func(on bool) { proxy.Swallow.Store(on) },
		"cut in the middle": func(on bool) { proxy.CutAfter.Store(map[bool]int64{true: 40}[on]) },
	} {
		s, err := redisstore.New(through(t, proxy.Addr), redisstore.Budget(500*time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		mustTake(t, s, charge(t, "1/h burst 9"))
		direct := open(t, server.Client())
		c := charge(t, "1/h burst 9")
		spoil(true)
		if _, err := take(s, c); !errors.Is(err, spillgate.ErrUnavailable) {
			t.Errorf("%s: error %v", name, err)
		}
		spoil(false)
		proxy.Cut()
		c.N = 0
		<-time.After(50 * time.Millisecond)
		if d := mustTake(t, direct, c); d.Remaining < 8 {
			t.Errorf("%s: %d left of 9 after one charge", name, d.Remaining)
		}
	}
}

// The same where a second try would get through: only the library could make one.
func TestB086NoLibraryTriesAgain(t *testing.T) {
	server, node := redistest.Start(t), redistest.Cluster(t, 1)[0]
	single, cluster := redistest.NewProxy(t, server.Addr), redistest.NewProxy(t, node.Addr)
	through := redis.NewClusterClient(&redis.ClusterOptions{ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
		return []redis.ClusterSlot{{Start: 0, End: 16383, Nodes: []redis.ClusterNode{{Addr: cluster.Addr}}}}, nil
	}})
	t.Cleanup(func() { through.Close() })
	for name, way := range map[string]struct {
		proxy  *redistest.Proxy
		client redis.UniversalClient
	}{
		"one server": {single, redis.NewClient(&redis.Options{Addr: single.Addr})},
		"cluster":    {cluster, through},
	} {
		t.Cleanup(func() { way.client.Close() })
		s := open(t, way.client)
		mustTake(t, s, charge(t, "1/h burst 9")) // there is a connection
		for range 3 {
			c := charge(t, "1/h burst 9")
			way.proxy.LoseNext.Store(true)
			if _, err := take(s, c); !errors.Is(err, spillgate.ErrUnavailable) {
				t.Errorf("%s: error %v", name, err)
			}
			if way.proxy.LoseNext.Load() {
				t.Fatalf("%s: nothing was lost", name)
			}
			c.N = 0
			if d := mustTake(t, s, c); d.Remaining != 8 {
				t.Errorf("%s: %d left of 9 after one charge whose reply was lost", name, d.Remaining)
			}
		}
	}
}

// While packets are dropped, only the first calls wait.
func TestB092OnlyTheFirstWait(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr)
	s, err := redisstore.New(through(t, proxy.Addr), redisstore.Budget(budget))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	c := charge(t, "1000/s burst 1000")
	eventually(t, "an answer", func() bool { _, err := take(s, c); return err == nil })
	proxy.Deaf.Store(true)
	waited, took := 0, make([]time.Duration, 100)
	for i := range took {
		began := time.Now()
		if _, err := take(s, c); !errors.Is(err, spillgate.ErrUnavailable) {
			t.Fatalf("error %v", err)
		}
		if took[i] = time.Since(began); took[i] >= budget {
			waited++
		}
	}
	if waited > 10 {
		t.Errorf("%d of 100 waited for the budget", waited)
	}
	// Some microseconds each: what else runs here delays a few, but not half of them.
	if slices.Sort(took); took[len(took)/2] >= time.Millisecond {
		t.Errorf("half of the answers took %s and more", took[len(took)/2])
	}
}

// A denial is an answer, no fault.
func TestB094DenialIsNoFault(t *testing.T) {
	s := open(t, redistest.Start(t).Client())
	c := charge(t, "2/s burst 2")
	c.N = 3
	d, err := take(s, c)
	if err != nil || d.Allowed || d.Reason != spillgate.NeverFits {
		t.Errorf("%+v, %v", d, err)
	}
	if st := s.Stats(); st.Faults != (redisstore.Stats{}).Faults {
		t.Errorf("faults %v", st.Faults)
	}
}

// TestRefusalsAreRemembered wants no round trip for a key that knocks again too
// early, the true wait, and no word of it when something was given back.
func TestRefusalsAreRemembered(t *testing.T) {
	s := open(t, redistest.Start(t).Client(), redisstore.Remember(time.Hour))
	one, two := charge(t, "1/h burst 2"), charge(t, "1/h burst 9")
	d := mustTake(t, s, one)
	mustTake(t, s, one)
	first := mustTake(t, s, one)
	calls := s.Stats().Calls
	for range 50 {
		d := mustTake(t, s, one)
		if d.Allowed || d.RetryAfter > first.RetryAfter || d.RetryAfter < first.RetryAfter-time.Minute || d.Remaining != 0 {
			t.Fatalf("%+v, the first refusal was %+v", d, first)
		}
	}
	out := make([]spillgate.Decision, 2)
	for range 50 {
		if err := s.Take(context.Background(), time.Time{}, []spillgate.Charge{two, one}, out); err != nil {
			t.Fatal(err)
		}
		if !out[0].Allowed || out[0].Taken != 0 || out[0].Remaining != 9 || out[1].Allowed {
			t.Fatalf("%+v", out)
		}
	}
	if st := s.Stats(); st.Calls > calls+1 || st.Refused < 99 {
		t.Errorf("%d calls for 100 refusals, %d without", st.Calls-calls, st.Refused)
	}
	back := spillgate.Correction{Space: one.Space, Key: one.Key, Meter: one.Meter, Delta: -1, At: d.At}
	if err := s.Settle(context.Background(), time.Time{}, []spillgate.Correction{back}); err != nil {
		t.Fatal(err)
	}
	if d := mustTake(t, s, one); !d.Allowed {
		t.Errorf("after one was given back: %+v", d)
	}
	short := charge(t, "20/s burst 1")
	mustTake(t, s, short)
	d = mustTake(t, s, short)
	<-time.After(d.RetryAfter)
	if d := mustTake(t, s, short); !d.Allowed {
		t.Errorf("after the wait that was told: %+v", d)
	}
}

// TestGathered has many at once share calls, and counts them exactly.
func TestGathered(t *testing.T) {
	s := open(t, redistest.Start(t).Client(), redisstore.Remember(0))
	hot := charge(t, "1/h burst 500")
	cold := make([]spillgate.Charge, 20)
	for i := range cold {
		cold[i] = charge(t, "1/h burst 40")
	}
	var mu sync.Mutex
	var passed, fixed int64
	var wg sync.WaitGroup
	for w := range 50 {
		wg.Go(func() {
			for i := range 20 {
				out := make([]spillgate.Decision, 2)
				err := s.Take(context.Background(), time.Time{}, []spillgate.Charge{hot, cold[(w+i)%len(cold)]}, out)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				passed += out[0].Taken
				fixed += out[1].Taken
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if passed != 500 || fixed != 500 {
		t.Errorf("%d and %d passed, want 500", passed, fixed)
	}
	st := s.Stats()
	if st.Calls >= st.Gathered {
		t.Errorf("%d requests in %d calls", st.Gathered, st.Calls)
	}
	left := int64(0)
	for _, c := range cold {
		c.N = 0
		left += mustTake(t, s, c).Remaining
	}
	if left != 20*40-500 {
		t.Errorf("%d left of the others, want %d", left, 20*40-500)
	}
}

// TestUnfitClients are refused by name.
func TestUnfitClients(t *testing.T) {
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	defer ring.Close()
	if _, err := redisstore.New(ring); !errors.Is(err, redisstore.ErrClient) {
		t.Errorf("a ring: error %v", err)
	}
	for _, none := range []redis.UniversalClient{nil, (*redis.Client)(nil), (*redis.ClusterClient)(nil)} {
		if _, err := redisstore.New(none); !errors.Is(err, redisstore.ErrClient) {
			t.Errorf("%T that is nil: error %v", none, err)
		}
	}
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}, ReadOnly: true})
	defer cluster.Close()
	if _, err := redisstore.New(cluster); !errors.Is(err, redisstore.ErrClient) {
		t.Errorf("a cluster client that reads from replicas: error %v", err)
	}
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer client.Close()
	for name, o := range map[string]redisstore.Option{
		"no budget": redisstore.Budget(0), "no flight": redisstore.Flights(0), "no prefix": redisstore.Prefix(""), "no memory": redisstore.Remember(-1),
	} {
		if _, err := redisstore.New(client, o); !errors.Is(err, redisstore.ErrOption) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	s, err := redisstore.New(client)
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	if _, err := take(s, charge(t, "1/s burst 1")); !errors.Is(err, spillgate.ErrClosed) {
		t.Errorf("after Close: error %v", err)
	}
}
