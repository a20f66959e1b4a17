package spillgate

import (
	"context"
	"testing"
	"time"
)

// TestLeasedNodesChange: when there are more nodes each holds no more than its smaller
// block within the hold, be it earned back by itself or not, and what it held goes
// back; when it is not known how many there are nothing is leased.
func TestLeasedNodesChange(t *testing.T) {
	for _, limit := range []string{"1000/h burst 1000", "1000/s burst 1000", "1000/h fixed"} {
		lt := newLeaseTest(t, 2, LeaseOptions{Share: 0.2})
		lt.at = time.Hour
		c := lt.charge(lt.meter(limit), 1)
		used := int64(0)
		for node := range 2 {
			used += lt.warm(node, c, 60)
		}
		setNodes := func(n int) {
			t.Helper()
			lt.at += DefaultLeaseHold / 2
			for node, l := range lt.nodes {
				l.SetNodes(n)
				if err := l.Return(context.Background(), leaseStart.Add(lt.at)); err != nil {
					t.Fatal(err)
				}
				if held, block := lt.held(node), l.Bound(c.Meter.limit).Block; held > block {
					t.Errorf("%s: node %d of %d holds %d, its block is %d", limit, node, n, held, block)
				}
			}
		}
		setNodes(2)
		if limit == "1000/s burst 1000" && lt.held(0)+lt.held(1) < 100 {
			t.Errorf("%s: %d and %d held", limit, lt.held(0), lt.held(1))
		}
		setNodes(4)
		if b := lt.nodes[0].Bound(c.Meter.limit); b.Block != 50 || b.Stranded != 200 {
			t.Errorf("%s: of four %+v", limit, b)
		}
		if lt.held(0) == 0 && lt.held(1) == 0 && limit != "1000/s burst 1000" {
			if left := lt.left(c); left != 1000-used {
				t.Errorf("%s: %d left in the store, want %d", limit, left, 1000-used)
			}
		}
		setNodes(-1)
		if b := lt.nodes[0].Bound(c.Meter.limit); b != (LeaseBound{}) {
			t.Errorf("%s: of nobody knows how many %+v", limit, b)
		}
		calls := lt.inner.takes.Load()
		for range 20 {
			lt.at += 100 * time.Microsecond
			if d := lt.take(0, c)[0]; !d.Allowed {
				t.Fatalf("%s: %+v", limit, d)
			}
		}
		if n := lt.inner.takes.Load() - calls; n != 20 || lt.held(0) != 0 {
			t.Errorf("%s: %d calls for 20 requests, %d units held", limit, n, lt.held(0))
		}
		setNodes(1)
		lt.warm(0, c, 1)
	}
}
