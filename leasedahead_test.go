package spillgate

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A slowStore takes its time to answer.
type slowStore struct {
	Store
	takes, underWay, most atomic.Int64
}

func (s *slowStore) Take(ctx context.Context, at time.Time, cs []Charge, out []Decision) error {
	s.takes.Add(1)
	if n := s.underWay.Add(1); n > s.most.Load() {
		s.most.Store(n)
	}
	defer s.underWay.Add(-1)
	<-time.After(2 * time.Millisecond)
	return s.Store.Take(ctx, at, cs, out)
}

func slowLeased(t *testing.T, o LeaseOptions) (*Leased, *slowStore) {
	t.Helper()
	slow := &slowStore{Store: NewMemory()}
	l, err := NewLeased(slow, o)
	if err != nil {
		t.Fatal(err)
	}
	return l, slow
}

// TestLeasedFetchesAhead: once a key is warm nobody waits for the store, and
// each call fetches a block.
func TestLeasedFetchesAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, slow := slowLeased(t, LeaseOptions{Nodes: 2, Share: 0.2})
		sp, _ := NewSpace("s", SpaceOptions{})
		m, _ := Limit{Rate: 1000, Period: time.Second, Burst: 1000}.Meter()
		cs := []Charge{{Space: sp, Key: Key{1, 2}, Meter: m, Ask: Ask{N: 1}}}
		two := append(cs, Charge{Space: sp, Key: Key{3, 4}, Meter: m, Ask: Ask{N: 1}})
		out := make([]Decision, 2)
		for i := range 4000 {
			time.Sleep(time.Millisecond + time.Microsecond)
			began := time.Now()
			cs := cs
			if i >= 2000 {
				cs = two
			}
			if err := l.Take(context.Background(), time.Time{}, cs, out[:len(cs)]); err != nil || !out[0].Allowed {
				t.Fatal(err, out)
			}
			if i%2000 > 500 && time.Since(began) > 0 {
				t.Fatalf("request %d waited %s", i, time.Since(began))
			}
		}
		st := l.Stats()
		if st.Ahead < 40 || st.Asked > 20 || uint64(slow.takes.Load()) != st.Ahead+st.Asked || st.Ahead > 2*6000/100 {
			t.Errorf("%d calls ahead of need, %d for requests", st.Ahead, st.Asked)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestLeasedFetchesAreBounded: of many keys that run low at once some are fetched
// for at once, the others wait, and closing waits for none of these.
func TestLeasedFetchesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, slow := slowLeased(t, LeaseOptions{Nodes: 1, Share: 0.004})
		sp, _ := NewSpace("s", SpaceOptions{})
		m, _ := Limit{Rate: 1000, Period: time.Second, Burst: 1000}.Meter()
		const keys = 1000
		var group sync.WaitGroup
		round := func() {
			for k := range uint64(keys) {
				group.Go(func() {
					cs := []Charge{{Space: sp, Key: Key{k * 0x9e3779b97f4a7c15, k}, Meter: m, Ask: Ask{N: 1}}}
					out := make([]Decision, 1)
					if err := l.Take(context.Background(), time.Time{}, cs, out); err != nil || !out[0].Allowed {
						t.Error(err, out)
					}
				})
			}
			group.Wait()
		}
		for range 5 { // an exact answer, a block of four, and they are spent
			round()
		}
		slow.most.Store(0)
		asked := l.Stats().Asked
		time.Sleep(5 * time.Millisecond)
		if most := slow.most.Load(); most > aheadAtOnce || most < aheadAtOnce/2 {
			t.Errorf("%d calls at once, want %d", most, aheadAtOnce)
		}
		time.Sleep(100 * time.Millisecond)
		if st := l.Stats(); st.Ahead != keys || st.Blocks != keys {
			t.Errorf("%+v", st)
		}
		for range 4 {
			round()
		}
		if now := l.Stats().Asked; now > asked+aheadAtOnce { // whose block was asked for before it was spent
			t.Errorf("%d requests asked", now-asked)
		}
		ahead := l.Stats().Ahead
		began := time.Now()
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if st := l.Stats(); time.Since(began) > 2*time.Millisecond || st.Ahead-ahead > aheadAtOnce || st.Held != 0 {
			t.Errorf("closed in %s, after %d more calls: %+v", time.Since(began), st.Ahead-ahead, st)
		}
	})
}

// TestLeasedFetchFails: a call ahead of need that fails, or finds too little, is
// nobody's answer, and what it asked for is not held.
func TestLeasedFetchFails(t *testing.T) {
	lt := newLeaseTest(t, 2, LeaseOptions{Share: 0.2})
	c := lt.charge(lt.meter("1000/s burst 1000"), 1)
	lt.warm(0, c, 50)
	held := lt.held(0)
	lt.inner.lose = func(bool) error { return ErrUnavailable }
	calls := lt.inner.takes.Load()
	for range held {
		lt.at += time.Microsecond
		if d := lt.take(0, c)[0]; !d.Allowed || d.Taken != 1 {
			t.Fatalf("%+v", d)
		}
	}
	if err := lt.nodes[0].Return(context.Background(), leaseStart.Add(lt.at)); err != nil {
		t.Error(err)
	}
	if n, st := lt.inner.takes.Load()-calls, lt.nodes[0].Stats(); n != 1 || st.Errors != 1 || lt.held(0) != 0 {
		t.Errorf("%d calls: %+v", n, st)
	}
	lt.inner.lose = nil
	drain := c
	drain.N = lt.left(c) - 10
	if !lt.take(1, drain)[0].Allowed {
		t.Fatal("not drained")
	}
	for range 10 {
		if d := lt.take(0, c)[0]; !d.Allowed || d.Taken != 1 {
			t.Fatalf("%+v", d)
		}
	}
	if d := lt.take(0, c)[0]; d.Allowed || lt.held(0) != 0 || lt.left(c) != 0 {
		t.Errorf("%+v, %d held, %d left", d, lt.held(0), lt.left(c))
	}
}

// TestLeasedKeepsWhatLapsed: what a bucket has earned back meanwhile costs nobody
// anything: it is not given back, and serves until the last answer is 10 s old.
func TestLeasedKeepsWhatLapsed(t *testing.T) {
	lt := newLeaseTest(t, 4, LeaseOptions{Share: 0.2})
	c := lt.charge(lt.meter("1000/s burst 1000"), 1)
	tick := func() {
		t.Helper()
		lt.at += 250 * time.Millisecond
		if err := lt.nodes[0].Return(context.Background(), leaseStart.Add(lt.at)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 160 { // for 40 s
		tick()
		if i%4 != 0 { // three times a second
			lt.take(0, c)
		}
	}
	if calls := lt.inner.takes.Load(); calls < 4 || calls > 6 {
		t.Errorf("%d calls in 40 s", calls)
	}
	if left := lt.left(c); left != 1000 {
		t.Errorf("%d left: what is held is missed", left)
	}
	for range 40 {
		tick()
	}
	if st := lt.nodes[0].Stats(); st.Held != 0 || st.Returned != 0 || st.Forfeited != 0 || st.Lapsed == 0 {
		t.Errorf("10 s after the last answer: %+v", st)
	}
}

// TestLeasedMakesRoom: units that have lapsed don't keep a place from a new key,
// others do.
func TestLeasedMakesRoom(t *testing.T) {
	lt := newLeaseTest(t, 1, LeaseOptions{Share: 0.5, MaxKeys: 1})
	c := lt.charge(lt.meter("1000/s burst 1000"), 1)
	fill := func(first uint64) {
		for i := range uint64(5 * leasesAShard) {
			c.Key = Key{(first + i) * 0x9e3779b97f4a7c15, i}
			for range 2 {
				if !lt.take(0, c)[0].Allowed {
					t.Fatal("a new key is refused")
				}
			}
		}
	}
	fill(0)
	full := lt.nodes[0].Stats()
	if full.Blocks < leasesAShard/2 || full.Lapsed != 0 {
		t.Fatalf("%+v", full)
	}
	if fill(1 << 20); lt.nodes[0].Stats().Lapsed != 0 {
		t.Errorf("what was missed had to go: %+v", lt.nodes[0].Stats())
	}
	lt.at += 450 * time.Millisecond // all is earned back, nothing is over
	if fill(2 << 20); lt.nodes[0].Stats().Lapsed < uint64(full.Held)/2 {
		t.Errorf("what has lapsed keeps its place: %+v", lt.nodes[0].Stats())
	}
}

// TestLeasedNearTheLimit: of four nodes that share one key's load, below, at and
// beyond its limit, nearly all decisions are made without a call, and no more are
// refused than an exact limit refuses, but for what the bound allows.
func TestLeasedNearTheLimit(t *testing.T) {
	for _, tt := range []struct {
		load   float64
		calls  float64 // a decision, at most
		denied float64 // part of all, beyond what an exact limit refuses
	}{{0.9, 0.021, 0}, {1.02, 0.05, 0.015}, {1.1, 0.06, 0.015}, {1.2, 0.06, 0.01}, {2, 0.05, 0.005}, {20, 0.005, 0.001}} {
		lt := newLeaseTest(t, 4, LeaseOptions{Share: 0.2, Hold: time.Second})
		c := lt.charge(lt.meter("1000/s burst 1000"), 1)
		exact := NewMemory()
		r := rand.New(rand.NewPCG(5, 6))
		n, denied := 0, 0
		out := make([]Decision, 1)
		if tt.load > 1 { // what a burst would hide for a while
			all := c
			all.N = 1000
			for _, s := range []Store{lt.inner, exact} {
				if err := s.Take(context.Background(), leaseStart, []Charge{all}, out); err != nil || !out[0].Allowed {
					t.Fatal(err, out)
				}
			}
		}
		for i := 0; lt.at < 8*time.Second; i++ {
			lt.at += time.Duration(r.ExpFloat64() * float64(time.Millisecond) / tt.load)
			for _, l := range lt.nodes[:4*(i%100/99)] {
				if err := l.Return(context.Background(), leaseStart.Add(lt.at)); err != nil {
					t.Fatal(err)
				}
			}
			if lt.at < 3*time.Second { // leases are filled
				lt.inner.takes.Store(0)
				n, denied = 0, 0
			}
			n++
			if !lt.take(r.IntN(4), c)[0].Allowed {
				denied++
			}
			if err := exact.Take(context.Background(), leaseStart.Add(lt.at), []Charge{c}, out); err != nil {
				t.Fatal(err)
			}
			if !out[0].Allowed {
				denied--
			}
		}
		calls, beyond := float64(lt.inner.takes.Load())/float64(n), float64(denied)/float64(n)
		t.Logf("at %3.0f %% load: %.4f calls a decision, %+.2f %% refused", tt.load*100, calls, beyond*100)
		if calls > tt.calls || beyond > tt.denied || beyond < -0.02 {
			t.Errorf("at most %.4f and %.2f %% are due", tt.calls, tt.denied*100)
		}
	}
}
