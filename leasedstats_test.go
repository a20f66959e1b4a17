package spillgate

import (
	"context"
	"testing"
	"time"
)

// The numbers of leases are told key by key: what is in force, what it holds,
// and who is refused, until that is over.
func TestLeaseStats(t *testing.T) {
	lt := newLeaseTest(t, 2, LeaseOptions{Share: 0.5})
	want := func(what string, blocks int, remembered int) {
		t.Helper()
		st := lt.nodes[0].Stats()
		if st.Blocks != blocks || st.Remembered != remembered || (st.Held > 0) != (blocks > 0) {
			t.Errorf("%s: %+v, want %d blocks and %d remembered", what, st, blocks, remembered)
		}
	}
	want("at first", 0, 0)
	busy, drained := lt.charge(lt.meter("1000/s burst 100"), 1), lt.charge(lt.meter("1/s burst 10"), 1)
	drained.Space = lt.newSpace("drained")
	lt.warm(0, busy, 5)
	want("one key is busy", 1, 0)
	if b, held := lt.nodes[0].Bound(busy.Meter.Limit()), lt.held(0); held > b.Block || b.Extra != 2*b.Block || b.Stranded != b.Extra {
		t.Errorf("%d held, bound %+v", held, b)
	}
	for range 12 {
		lt.take(0, drained)
	}
	want("another is drained", 1, 1)
	if err := lt.nodes[0].Return(context.Background(), leaseStart.Add(lt.at+time.Minute)); err != nil {
		t.Fatal(err)
	}
	want("a minute later", 0, 0)
	lt.at += time.Minute
	lt.warm(0, busy, 5)
	want("busy again", 1, 0)
	if err := lt.nodes[0].Close(); err != nil {
		t.Fatal(err)
	}
	want("closed", 0, 0)
}
