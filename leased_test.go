package spillgate

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A calledStore counts what it is asked, and can lose calls.
type calledStore struct {
	Store
	takes, settles atomic.Int64
	lose           func(taken bool) error // of a call: before, and after it was carried out
}

func (c *calledStore) Take(ctx context.Context, at time.Time, cs []Charge, out []Decision) error {
	c.takes.Add(1)
	if c.lose != nil {
		if err := c.lose(false); err != nil {
			return err
		}
	}
	err := c.Store.Take(ctx, at, cs, out)
	if c.lose != nil && err == nil {
		err = c.lose(true)
	}
	return err
}

func (c *calledStore) Settle(ctx context.Context, at time.Time, cs []Correction) error {
	c.settles.Add(1)
	return c.Store.Settle(ctx, at, cs)
}

// A leaseTest is nodes that lease from one memory, at times that it gives.
type leaseTest struct {
	*testing.T
	inner *calledStore
	nodes []*Leased
	space *Space
	at    time.Duration
}

var leaseStart = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

func newLeaseTest(t *testing.T, nodes int, o LeaseOptions) *leaseTest {
	t.Helper()
	lt := &leaseTest{T: t, inner: &calledStore{Store: NewMemory()}}
	lt.space = lt.newSpace("leases")
	o.Nodes = nodes
	for range nodes {
		l, err := NewLeased(lt.inner, o)
		if err != nil {
			t.Fatal(err)
		}
		lt.nodes = append(lt.nodes, l)
	}
	return lt
}

func (t *leaseTest) newSpace(name string) *Space {
	sp, err := NewSpace(name, SpaceOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return sp
}

func (t *leaseTest) meter(text string) *Meter {
	t.Helper()
	l, err := ParseLimit(text)
	if err != nil {
		t.Fatal(err)
	}
	m, err := l.Meter()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func (t *leaseTest) charge(m *Meter, n int64) Charge {
	return Charge{Space: t.space, Key: Key{42, 43}, Meter: m, Ask: Ask{N: n}}
}

func (t *leaseTest) take(node int, cs ...Charge) []Decision {
	t.Helper()
	out := make([]Decision, len(cs))
	if err := t.nodes[node].Take(context.Background(), leaseStart.Add(t.at), cs, out); err != nil {
		t.Fatal(err)
	}
	return out
}

// warm uses a key until its node holds n units of it or more.
func (t *leaseTest) warm(node int, c Charge, n int64) (used int64) {
	t.Helper()
	for range 100000 {
		if t.held(node) >= n {
			return used
		}
		t.at += 10 * time.Microsecond
		used += t.take(node, c)[0].Taken
	}
	t.Fatalf("never held %d units", n)
	return 0
}

func (t *leaseTest) held(node int) int64 { return t.nodes[node].Stats().Held }

// left returns what the inner store has left of a charge's key.
func (t *leaseTest) left(c Charge) int64 {
	t.Helper()
	c.Ask = Ask{}
	out := make([]Decision, 1)
	if err := t.inner.Store.Take(context.Background(), leaseStart.Add(t.at), []Charge{c}, out); err != nil {
		t.Fatal(err)
	}
	return out[0].Remaining
}

func TestLeaseOptions(t *testing.T) {
	m := NewMemory()
	for _, o := range []LeaseOptions{{}, {Nodes: -1}, {Nodes: 1, Share: -0.1}, {Nodes: 1, Share: 1.1},
		{Nodes: 1, Hold: time.Millisecond}, {Nodes: 1, Hold: time.Hour}, {Nodes: 1, MaxKeys: -1}, {Nodes: 1, MaxKeys: 1<<24 + 1}} {
		if _, err := NewLeased(m, o); !errors.Is(err, ErrLimit) {
			t.Errorf("%+v: error %v", o, err)
		}
	}
	if _, err := NewLeased(nil, LeaseOptions{Nodes: 1}); !errors.Is(err, ErrLimit) {
		t.Errorf("no store: error %v", err)
	}
}

// TestLeaseBound: what all nodes hold is no more than the configured share.
func TestLeaseBound(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		o := LeaseOptions{Nodes: 1 + r.IntN(100), Share: r.Float64()}
		l, err := NewLeased(NewMemory(), o)
		if err != nil {
			t.Fatal(err)
		}
		burst := r.Int64N(1 << r.IntN(40))
		b := l.Bound(Limit{Rate: 1, Period: 1, Burst: burst})
		if float64(b.Extra) > o.Share*float64(burst) || b.Extra != b.Block*int64(o.Nodes) || b.Stranded != b.Extra {
			t.Fatalf("%+v of burst %d: %+v", o, burst, b)
		}
		if b.Block == 0 && b != (LeaseBound{}) {
			t.Fatalf("nothing is leased: %+v", b)
		}
		if float64(b.Block+1)*float64(o.Nodes) <= o.Share*float64(burst)*(1-1e-9) {
			t.Fatalf("%+v of burst %d: %+v: a larger block would do", o, burst, b)
		}
	}
	l, _ := NewLeased(NewMemory(), LeaseOptions{Nodes: 4})
	if b := l.Bound(Limit{Algorithm: FixedWindow, Rate: 1000, Period: time.Second}); b != (LeaseBound{12, 0, 48, DefaultLeaseHold}) {
		t.Errorf("a window: %+v", b)
	}
	if b := l.Bound(Limit{Algorithm: SlidingLog, Rate: 1000, Period: time.Second}); b != (LeaseBound{}) {
		t.Errorf("a log: %+v", b)
	}
}

// TestLeasedRefusesByName: what can't be leased is not leased silently.
func TestLeasedRefusesByName(t *testing.T) {
	for _, text := range []string{"5/s sliding", "5/s log", "5/s queue 3", "5 at once for 1m"} {
		lt := newLeaseTest(t, 1, LeaseOptions{})
		c := lt.charge(lt.meter(text), 1)
		err := lt.nodes[0].Take(context.Background(), leaseStart, []Charge{c}, make([]Decision, 1))
		if !errors.Is(err, ErrCharge) || !strings.Contains(err.Error(), c.Meter.limit.Algorithm.String()) {
			t.Errorf("%s: error %v", text, err)
		}
		mixed := newLeaseTest(t, 1, LeaseOptions{Mixed: true})
		c.Space = mixed.space
		if d := mixed.take(0, c)[0]; !d.Allowed || mixed.inner.takes.Load() != 1 {
			t.Errorf("%s, mixed: %+v", text, d)
		}
	}
}

// TestLeasedSaves: below its limit a hot key is decided without calls, nearly
// always, and all that is spent is paid.
func TestLeasedSaves(t *testing.T) {
	lt := newLeaseTest(t, 4, LeaseOptions{Share: 0.2})
	c := lt.charge(lt.meter("1000/s burst 1000"), 1)
	r := rand.New(rand.NewPCG(3, 4))
	const checks = 5000
	for i := range checks { // 90 % load
		lt.at += time.Duration(r.Int64N(int64(2 * time.Second / 900)))
		for _, l := range lt.nodes[:4*(i%100/99)] {
			_ = l.Return(context.Background(), leaseStart.Add(lt.at))
		}
		if d := lt.take(r.IntN(4), c)[0]; !d.Allowed {
			t.Fatalf("refused below the limit: %+v", d)
		}
	}
	if calls := lt.inner.takes.Load(); calls > checks/25 {
		t.Errorf("%d calls for %d checks", calls, checks)
	}
}

// TestLeasedBoundHolds: nodes that ask as fast as they can admit no more than
// the limit and the bound.
func TestLeasedBoundHolds(t *testing.T) {
	lt := newLeaseTest(t, 4, LeaseOptions{Share: 0.2})
	c := lt.charge(lt.meter("1000/s burst 1000"), 1)
	lt.at = time.Hour
	began, admitted := lt.at, int64(0)
	const checks = 60000
	most := int64(0)
	for i := range checks {
		lt.at += 20 * time.Microsecond // 50,000 a second
		admitted += lt.take(i%4, c)[0].Taken
		if i%100 < 4 {
			most = max(most, lt.held(i%4))
		}
	}
	bound := lt.nodes[0].Bound(c.Meter.limit)
	if limit := 1000 + int64((lt.at-began)/time.Millisecond) + bound.Extra; admitted > limit {
		t.Errorf("%d admitted, at most %d may be", admitted, limit)
	}
	if limit := 1000 + int64((lt.at-began)/time.Millisecond) - bound.Stranded; admitted < limit {
		t.Errorf("%d admitted, at least %d have to be", admitted, limit)
	}
	if most > bound.Block || most < 10 {
		t.Errorf("a node held %d units, its block is %d", most, bound.Block)
	}
	if calls := lt.inner.takes.Load(); calls > checks/25 {
		t.Errorf("%d calls for %d checks", calls, checks)
	}
}

// TestLeasedRemembersRefusals: who was refused is refused without a call, and
// passes when it was told to come back.
func TestLeasedRemembersRefusals(t *testing.T) {
	for _, text := range []string{"1/2s burst 3", "7/3s burst 2", "3/10s fixed"} {
		lt := newLeaseTest(t, 1, LeaseOptions{})
		c := lt.charge(lt.meter(text), 1)
		for lt.take(0, c)[0].Allowed {
		}
		calls := lt.inner.takes.Load()
		var d Decision
		for range 50 {
			lt.at += 777 * time.Microsecond
			if d = lt.take(0, c)[0]; d.Allowed || d.RetryAfter < 1 {
				t.Fatalf("%s: %+v", text, d)
			}
		}
		if n := lt.inner.takes.Load(); n != calls {
			t.Errorf("%s: %d calls to refuse", text, n-calls)
		}
		lt.at += d.RetryAfter
		if d = lt.take(0, c)[0]; !d.Allowed {
			t.Errorf("%s: as told, but %+v", text, d)
		}
	}
}

// TestLeasedForgetsRefusals: what was given back elsewhere is felt in 10 s.
func TestLeasedForgetsRefusals(t *testing.T) {
	lt := newLeaseTest(t, 2, LeaseOptions{})
	c := lt.charge(lt.meter("1/1h burst 1"), 1)
	d := lt.take(0, c)[0]
	if lt.take(1, c)[0].Allowed {
		t.Fatal("two of one")
	}
	back := Correction{Space: c.Space, Key: c.Key, Meter: c.Meter, Delta: -1, At: d.At, Until: d.until()}
	if err := lt.nodes[0].Settle(context.Background(), leaseStart, []Correction{back}); err != nil {
		t.Fatal(err)
	}
	if lt.at = time.Second; lt.take(1, c)[0].Allowed {
		t.Error("node 1 has asked")
	}
	if lt.at = 11 * time.Second; !lt.take(1, c)[0].Allowed {
		t.Error("what was given back is not felt")
	}
}

// TestLeasedTakesTheRest: near its limit a key gets the part that there is.
func TestLeasedTakesTheRest(t *testing.T) {
	lt := newLeaseTest(t, 1, LeaseOptions{Share: 0.5})
	c := lt.charge(lt.meter("1/1h burst 100"), 1)
	admitted := int64(0)
	for range 200 {
		lt.at += time.Millisecond
		admitted += lt.take(0, c)[0].Taken
	}
	if admitted != 100 {
		t.Errorf("%d of 100 admitted", admitted)
	}
}

// TestLeasedAllOrNone: of several leases all are charged or none.
func TestLeasedAllOrNone(t *testing.T) {
	lt := newLeaseTest(t, 1, LeaseOptions{Share: 0.5})
	other := lt.newSpace("others")
	a, b := lt.charge(lt.meter("1/1h burst 1000"), 1), lt.charge(lt.meter("1/1h burst 200"), 1)
	b.Space = other
	passed := int64(0)
	for i := range 600 {
		lt.at += 100 * time.Microsecond
		cs := []Charge{a, b}
		if i%2 == 1 {
			cs = []Charge{b, a}
		}
		out := lt.take(0, cs...)
		if out[0].Allowed && out[1].Allowed {
			passed++
			if out[0].Taken != 1 || out[1].Taken != 1 {
				t.Fatalf("%+v", out)
			}
		} else if out[0].Taken != 0 || out[1].Taken != 0 || !out[i%2].Allowed {
			t.Fatalf("refused by b alone: %+v", out)
		}
	}
	if passed != 200 {
		t.Errorf("%d of 200 passed", passed)
	}
	if calls := lt.inner.takes.Load(); calls > 60 {
		t.Errorf("%d calls for 600 requests", calls)
	}
	if err := lt.nodes[0].Close(); err != nil {
		t.Fatal(err)
	}
	if left, leftB := lt.left(a), lt.left(b); left != 800 || leftB != 0 {
		t.Errorf("%d and %d left, want 800 and 0", left, leftB)
	}
}

// TestLeasedTrial: a shadow rule never refuses, leased or not.
func TestLeasedTrial(t *testing.T) {
	lt := newLeaseTest(t, 1, LeaseOptions{Share: 0.5})
	other := lt.newSpace("others")
	a, b := lt.charge(lt.meter("1/1h burst 500"), 1), lt.charge(lt.meter("1/1h burst 100"), 1)
	b.Space, b.Trial = other, true
	for i := range 500 {
		lt.at += 100 * time.Microsecond
		if out := lt.take(0, a, b); !out[0].Allowed || out[1].Allowed != (i < 100) {
			t.Fatalf("request %d: %+v", i, out)
		}
	}
}

// TestLeasedLostReply: a call whose reply is lost is not sent again, and what
// it may have taken is not spent.
func TestLeasedLostReply(t *testing.T) {
	for _, after := range []bool{false, true} {
		lt := newLeaseTest(t, 1, LeaseOptions{Share: 0.5})
		c := lt.charge(lt.meter("1/1h burst 100"), 1)
		used := lt.warm(0, c, 5)
		for lt.held(0) > 0 {
			used += lt.take(0, c)[0].Taken
		}
		before, calls := lt.left(c), lt.inner.takes.Load()
		lt.inner.lose = func(taken bool) error {
			if taken == after {
				return fmt.Errorf("cut: %w", ErrUnavailable)
			}
			return nil
		}
		err := lt.nodes[0].Take(context.Background(), leaseStart.Add(lt.at), []Charge{c}, make([]Decision, 1))
		if !errors.Is(err, ErrUnavailable) || lt.inner.takes.Load() != calls+1 || lt.held(0) != 0 {
			t.Errorf("error %v, %d calls, %d held", err, lt.inner.takes.Load()-calls, lt.held(0))
		}
		lt.inner.lose = nil
		left := lt.left(c)
		if !after && left != before || after && left >= before {
			t.Errorf("reply lost %t: %d left, before %d", after, left, before)
		}
		rest := int64(0)
		for range 200 {
			lt.at += time.Millisecond
			rest += lt.take(0, c)[0].Taken
		}
		if rest != left {
			t.Errorf("reply lost %t: %d admitted of %d left", after, rest, left)
		}
	}
}

// TestLeasedOutlivesItsStore: what is paid is spent while the store is away.
func TestLeasedOutlivesItsStore(t *testing.T) {
	lt := newLeaseTest(t, 1, LeaseOptions{Share: 0.5})
	c := lt.charge(lt.meter("1/1h burst 100"), 1)
	lt.warm(0, c, 5)
	lt.inner.lose = func(bool) error { return ErrUnavailable }
	held := lt.held(0)
	for range held {
		if d := lt.take(0, c)[0]; !d.Allowed {
			t.Fatalf("%+v", d)
		}
	}
	// A request that needs more than there is takes nothing of it.
	lt.inner.lose = nil
	lt.warm(0, c, 5)
	held = lt.held(0)
	lt.inner.lose = func(bool) error { return ErrUnavailable }
	c.N = held + 1
	if err := lt.nodes[0].Take(context.Background(), leaseStart.Add(lt.at), []Charge{c}, make([]Decision, 1)); !errors.Is(err, ErrUnavailable) {
		t.Errorf("error %v", err)
	}
	if now := lt.held(0); now != held {
		t.Errorf("%d held, before %d", now, held)
	}
}

// TestLeasedChange: a lease of a limit that has changed is given back.
func TestLeasedChange(t *testing.T) {
	lt := newLeaseTest(t, 1, LeaseOptions{Share: 0.5})
	c := lt.charge(lt.meter("1/1h burst 100"), 1)
	used := lt.warm(0, c, 10)
	m, err := lt.space.Change(c.Meter, lt.meter("2/1h burst 100"), instantOf(leaseStart.Add(lt.at)))
	if err != nil {
		t.Fatal(err)
	}
	if d := lt.take(0, c)[0]; !d.Allowed || d.At == 0 { // a request that read the limit before
		t.Errorf("%+v", d)
	}
	if err := lt.nodes[0].Return(context.Background(), leaseStart.Add(lt.at)); err != nil {
		t.Fatal(err)
	}
	if left := lt.left(lt.charge(m, 1)); left != 100-used-1 {
		t.Errorf("%d left, %d used of 100", left, used+1)
	}
}

// TestLeasedBounded: more keys than there is room for are asked exactly, and
// leases that hold units stay.
func TestLeasedBounded(t *testing.T) {
	lt := newLeaseTest(t, 1, LeaseOptions{Share: 0.5, MaxKeys: 1})
	c := lt.charge(lt.meter("1/1h burst 100"), 1)
	lt.warm(0, c, 10)
	held := lt.held(0)
	for i := range uint64(20000) {
		flood := c
		flood.Key = Key{i * 0x9e3779b97f4a7c15, i}
		if !lt.take(0, flood)[0].Allowed {
			t.Fatal("a new key is refused")
		}
	}
	st := lt.nodes[0].Stats()
	if st.Keys > st.MaxKeys || st.MaxKeys != leasesAShard || st.Held < held || st.Bytes > 200*leasesAShard {
		t.Errorf("%+v", st)
	}
}

// TestLeasedOverflow: what newcomers to a full table share is not leased.
func TestLeasedOverflow(t *testing.T) {
	lt := newLeaseTest(t, 1, LeaseOptions{Share: 0.5})
	sp, err := NewSpace("small", SpaceOptions{MaxKeys: 1})
	if err != nil {
		t.Fatal(err)
	}
	c := lt.charge(lt.meter("1/1h burst 100"), 1)
	c.Space = sp
	lt.take(0, c)
	c.Key = Key{7, 7}
	for i := range 110 {
		if d := lt.take(0, c)[0]; d.Allowed != (i < 100) || !d.Overflow {
			t.Fatalf("request %d: %+v", i, d)
		}
	}
	if lt.held(0) != 0 {
		t.Error("units of the shared bucket are held")
	}
}

// TestLeasedByItself: with its own clock a store gives back what is over by
// itself, and leaves nothing behind.
func TestLeasedByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := NewLeased(NewMemory(), LeaseOptions{Nodes: 2, Share: 0.5})
		if err != nil {
			t.Fatal(err)
		}
		sp, _ := NewSpace("s", SpaceOptions{})
		m, _ := Limit{Rate: 1, Period: time.Hour, Burst: 100}.Meter()
		c := []Charge{{Space: sp, Key: Key{1, 2}, Meter: m, Ask: Ask{N: 1}}}
		out := make([]Decision, 1)
		for range 2 {
			used := 0
			for l.Stats().Held < 5 {
				time.Sleep(time.Millisecond)
				if err := l.Take(context.Background(), time.Time{}, c, out); err != nil || !out[0].Allowed {
					t.Fatal(err, out, used)
				}
				used++
			}
			time.Sleep(time.Second)
			if held := l.Stats().Held; held != 0 {
				t.Errorf("%d held after a second", held)
			}
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestLeasedAtOnce: goroutines on several nodes admit what the limit and the
// bound say, in requests of one and of two keys.
func TestLeasedAtOnce(t *testing.T) {
	lt := newLeaseTest(t, 3, LeaseOptions{Share: 0.3})
	other := lt.newSpace("others")
	m := lt.meter("1/1h burst 3000")
	var group sync.WaitGroup
	var admitted, both atomic.Int64
	for g := range 9 {
		group.Go(func() {
			a, b := lt.charge(m, 1), lt.charge(m, 1)
			b.Space = other
			one, two := []Charge{a}, []Charge{a, b}
			out := make([]Decision, 2)
			for i := range 3000 {
				cs := one
				if i%3 == 0 {
					cs = two
				}
				if err := lt.nodes[g%3].Take(context.Background(), leaseStart, cs, out[:len(cs)]); err != nil {
					t.Error(err)
					return
				}
				if passed := out[0].Allowed && (len(cs) == 1 || out[1].Allowed); passed {
					admitted.Add(1)
					if len(cs) == 2 {
						both.Add(1)
					}
				}
			}
		})
	}
	group.Wait()
	bound := lt.nodes[0].Bound(m.limit)
	if n := admitted.Load(); n > 3000 || n < 3000-bound.Stranded {
		t.Errorf("%d of 3000 admitted", n)
	}
	for _, l := range lt.nodes {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	// Units of a refused request whose lease was renewed meanwhile may be past
	// giving back: those are lost, and counted.
	var lost int64
	for _, l := range lt.nodes {
		lost += int64(l.Stats().Forfeited)
	}
	b := lt.charge(m, 1)
	for sp, n := range map[*Space]int64{b.Space: admitted.Load(), other: both.Load()} {
		b.Space = sp
		if left := lt.left(b); left > 3000-n || left < 3000-n-lost {
			t.Errorf("%d left, %d admitted of 3000, %d forfeited", left, n, lost)
		}
	}
	if lost > 3*bound.Block {
		t.Errorf("%d units forfeited", lost)
	}
}
