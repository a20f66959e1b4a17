package spillgate

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// TestLeasedLanes: how one lane is asked for is no matter of another: whoever may use
// little of the limit waits for what that takes, is told so, and passes then, however
// much the best lane would fetch at once.
func TestLeasedLanes(t *testing.T) {
	for _, share := range []float64{0.05, 0.2, 1} {
		for _, keep := range []int64{30, 90, 96, 99} {
			t.Run(fmt.Sprintf("share %v keep %d", share, keep), func(t *testing.T) {
				lt := newLeaseTest(t, 1, LeaseOptions{Share: share})
				m := lt.meter("1000/s burst 100")
				best, lane := lt.charge(m, 2), lt.charge(m, 1)
				lane.Keep = keep
				for i := range 600 { // twice the rate
					lt.at += time.Millisecond
					lt.take(0, best)
					if i%3 > 0 {
						continue
					}
					if d := lt.take(0, lane)[0]; !d.Allowed && (d.Reason != OverLimit || d.RetryAfter > 100*time.Millisecond || d.Remaining != 0) {
						t.Fatalf("beside a flood: %+v", d)
					}
				}
				// Nobody else comes.
				if d := lt.take(0, lane)[0]; !d.Allowed {
					if d.Reason != OverLimit || d.RetryAfter > 100*time.Millisecond {
						t.Fatalf("after a flood: %+v", d)
					}
					lt.at += d.RetryAfter
					if d = lt.take(0, lane)[0]; !d.Allowed {
						t.Fatalf("after the retry: %+v", d)
					}
				}
				lt.at += time.Second
				if d := lt.take(0, lane)[0]; !d.Allowed || d.Remaining != 100-keep-1 {
					t.Errorf("of a full bucket: %+v", d)
				}
			})
		}
	}
}

// TestLeasedBestLane: what is kept for the best lane is there for it, while another
// one is drained and asked for in portions, which saves calls there, too.
func TestLeasedBestLane(t *testing.T) {
	lt := newLeaseTest(t, 1, LeaseOptions{Share: 0.5})
	m := lt.meter("1000/s burst 100")
	best, lane := lt.charge(m, 1), lt.charge(m, 1)
	lane.Keep = 10
	for range 5000 { // 50 times the rate
		lt.at += 20 * time.Microsecond
		lt.take(0, lane)
	}
	calls := lt.inner.takes.Load()
	for range 5000 {
		lt.at += 20 * time.Microsecond
		lt.take(0, lane)
	}
	if calls = lt.inner.takes.Load() - calls; calls > 100 {
		t.Errorf("%d calls for 5000 requests of a drained lane", calls)
	}
	for range 10 {
		if d := lt.take(0, best)[0]; !d.Allowed {
			t.Fatalf("10 are kept for the best lane: %+v", d)
		}
	}
}

// TestLeasedNeed: what a request needs it needs of all that is there, held here or not.
func TestLeasedNeed(t *testing.T) {
	lt := newLeaseTest(t, 1, LeaseOptions{Share: 0.5})
	c := lt.charge(lt.meter("1/1h burst 100"), 1)
	lt.warm(0, c, 10)
	held := lt.held(0)
	drain := []Charge{c}
	drain[0].N = lt.left(c) - 5
	if err := lt.inner.Take(context.Background(), leaseStart.Add(lt.at), drain, make([]Decision, 1)); err != nil {
		t.Fatal(err)
	}
	c.N, c.Need = held+5, held+5
	if d := lt.take(0, c)[0]; !d.Allowed || d.Taken != c.N {
		t.Errorf("%d are held, and 5 there: %+v", held, d)
	}
}
