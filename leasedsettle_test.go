package spillgate

import (
	"context"
	"errors"
	"testing"
	"time"
)

func TestLeasedReturnsWhenOver(t *testing.T) {
	lt := newLeaseTest(t, 2, LeaseOptions{Share: 0.5})
	c := lt.charge(lt.meter("1/1h burst 100"), 1)
	used := lt.warm(0, c, 10)
	lt.at += 499 * time.Millisecond
	l := lt.nodes[0]
	if err := l.Return(context.Background(), leaseStart.Add(lt.at)); err != nil || lt.held(0) == 0 {
		t.Fatalf("given back too early, error %v", err)
	}
	lt.at += time.Millisecond
	if err := l.Return(context.Background(), leaseStart.Add(lt.at)); err != nil || lt.held(0) != 0 {
		t.Fatalf("%d held after Hold, error %v", lt.held(0), err)
	}
	if left := lt.left(c); left != 100-used {
		t.Errorf("%d left, %d used of 100", left, used)
	}
	if st := l.Stats(); st.Returned == 0 || st.Forfeited != 0 {
		t.Errorf("%+v", st)
	}
}

func TestLeasedReturnsAtClose(t *testing.T) {
	lt := newLeaseTest(t, 2, LeaseOptions{Share: 0.5})
	c := lt.charge(lt.meter("1/1h burst 100"), 1)
	used := lt.warm(0, c, 10)
	for range 2 {
		if err := lt.nodes[0].Close(); err != nil {
			t.Fatal(err)
		}
	}
	if left := lt.left(c); left != 100-used {
		t.Errorf("%d left, %d used of 100", left, used)
	}
	if err := lt.nodes[0].Take(context.Background(), leaseStart, []Charge{c}, make([]Decision, 1)); !errors.Is(err, ErrClosed) {
		t.Errorf("take after close: %v", err)
	}
	if err := lt.nodes[0].Settle(context.Background(), leaseStart, nil); !errors.Is(err, ErrClosed) {
		t.Errorf("settle after close: %v", err)
	}
}

// TestLeasedReturnsLate: what the bucket has earned meanwhile is not given back
// on top.
func TestLeasedReturnsLate(t *testing.T) {
	lt := newLeaseTest(t, 2, LeaseOptions{Share: 0.5, Hold: time.Minute})
	c := lt.charge(lt.meter("1000/s burst 1000"), 1)
	lt.warm(0, c, 100)
	lt.at += time.Minute // full since long
	if d := lt.take(1, c)[0]; d.Remaining != 999 {
		t.Fatalf("%+v", d)
	}
	if err := lt.nodes[0].Close(); err != nil {
		t.Fatal(err)
	}
	if left := lt.left(c); left != 999 {
		t.Errorf("%d left of 1000, one used", left)
	}
}

// TestLeaseDiesWithItsWindow: units of a window are worth nothing in the next,
// neither here nor to the store.
func TestLeaseDiesWithItsWindow(t *testing.T) {
	lt := newLeaseTest(t, 1, LeaseOptions{Share: 1, Hold: time.Minute})
	c := lt.charge(lt.meter("100/10s fixed"), 1)
	for window := range 3 {
		lt.at = time.Duration(window) * 10 * time.Second
		lt.warm(0, c, 5)
		lt.at = time.Duration(window+1)*10*time.Second - 1
		if d := lt.take(0, c)[0]; !d.Allowed || d.ResetAfter != 1 {
			t.Fatalf("at the end of the window: %+v", d)
		}
	}
	lt.at = 30 * time.Second
	calls, admitted := lt.inner.takes.Load(), int64(0)
	for range 200 {
		admitted += lt.take(0, c)[0].Taken
	}
	if admitted != 100 || lt.inner.takes.Load() == calls {
		t.Errorf("%d of 100 admitted in a new window", admitted)
	}
}

// TestLeasedSettles: what was used beyond a charge, and what is given back, is
// settled in the lease where that can be, and counts the same.
func TestLeasedSettles(t *testing.T) {
	lt := newLeaseTest(t, 1, LeaseOptions{Share: 0.5})
	l, ctx := lt.nodes[0], context.Background()
	c := lt.charge(lt.meter("1/1h burst 1000"), 1)
	used := lt.warm(0, c, 20)
	charged := int64(0)
	settle := func(d Decision, delta int64) {
		t.Helper()
		cs := []Correction{{Space: c.Space, Key: c.Key, Meter: c.Meter, Delta: delta, At: d.At,
			Until: d.until() + Instant(c.Meter.limit.Earn(charged))}}
		charged += delta
		if err := l.Settle(ctx, leaseStart.Add(lt.at), cs); err != nil {
			t.Fatal(err)
		}
		used += delta
	}
	d := lt.take(0, c)[0]
	used++
	settles := lt.inner.settles.Load()
	settle(d, 5)
	settle(d, -6)
	if n := lt.inner.settles.Load(); n != settles {
		t.Errorf("%d calls to settle small corrections", n-settles)
	}
	settle(d, 700) // more than any lease
	if d := lt.take(0, Charge{Space: c.Space, Key: c.Key, Meter: c.Meter})[0]; d.Remaining != 1000-used {
		t.Errorf("%d remain, %d used", d.Remaining, used)
	}
	settle(d, -700)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if left := lt.left(c); left != 1000-used {
		t.Errorf("%d left, %d used of 1000", left, used)
	}
}

// TestLeasedGivesBackOnce: a charge that is given back when it was earned back
// already does not come to the lease a second time.
func TestLeasedGivesBackOnce(t *testing.T) {
	lt := newLeaseTest(t, 1, LeaseOptions{Share: 0.5, Hold: time.Minute})
	c := lt.charge(lt.meter("100/s burst 100"), 1)
	lt.warm(0, c, 5)
	d := lt.take(0, c)[0]
	lt.at += 20 * time.Second
	held := lt.held(0)
	for range 10 {
		cs := []Correction{{Space: c.Space, Key: c.Key, Meter: c.Meter, Delta: -1, At: d.At, Until: d.until()}}
		if err := lt.nodes[0].Settle(context.Background(), leaseStart.Add(lt.at), cs); err != nil {
			t.Fatal(err)
		}
	}
	if now := lt.held(0); now != held {
		t.Errorf("%d held, before %d", now, held)
	}
}

// TestLeasedReturnsAPart: where a bucket takes back a part only of what a lease held,
// since the rest was earned meanwhile, whoever is refused then is told the truth.
func TestLeasedReturnsAPart(t *testing.T) {
	lt := newLeaseTest(t, 1, LeaseOptions{Share: 0.2, Hold: 10 * time.Millisecond})
	c := lt.charge(lt.meter("1000/s burst 1000"), 1)
	lt.warm(0, c, 150)
	sh, tag, set := lt.nodes[0].find(c.Space, c.Key)
	lt.at = sh.lookup(tag, set, c.Space, c.Key).until.sub(instantOf(leaseStart)) - 60*time.Millisecond
	drain := c
	drain.N, drain.Min = 1000, 1
	lt.take(0, drain)
	lt.at += 10 * time.Millisecond
	if err := lt.nodes[0].Return(context.Background(), leaseStart.Add(lt.at)); err != nil || lt.held(0) != 0 {
		t.Fatalf("%d held, error %v", lt.held(0), err)
	}
	c.N = 500
	d := lt.take(0, c)[0]
	if d.Allowed {
		t.Fatalf("%+v", d)
	}
	lt.at += d.RetryAfter
	if d = lt.take(0, c)[0]; !d.Allowed {
		t.Errorf("after the retry: %+v", d)
	}
}
