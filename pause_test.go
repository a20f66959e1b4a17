package spillgate

import (
	"context"
	"testing"
	"time"

	"github.com/spillgate/spillgate/internal/table"
)

// No call moves more than one shard, nor more than one shard's entries, while
// a table grows, while all of it expires and while it shrinks. That bounds the
// longest pause whatever the number of keys.
func TestB144NoLongPause(t *testing.T) {
	sp, err := NewSpace("pause", SpaceOptions{MaxKeys: 1 << 17})
	if err != nil {
		t.Fatal(err)
	}
	mem := NewMemory()
	b, err := mem.bind(sp)
	if err != nil {
		t.Fatal(err)
	}
	m := meterOfText(t, "1/1s burst 1")
	before := b.table.Stats()
	out := make([]Decision, 1)
	start := time.Unix(1e9, 0)
	at := start
	take := func(k uint64) {
		key := k*0x9e3779b97f4a7c15 + 99
		cs := []Charge{{Space: sp, Key: Key{key ^ key<<32}, Meter: m, Ask: Ask{N: 1}}}
		if err := mem.Take(context.Background(), at, cs, out); err != nil {
			t.Fatal(err)
		}
	}
	worst, probed := uint64(0), uint64(0)
	for k := range uint64(100000) {
		take(k)
		if k%50 == 0 || k > 99000 {
			at = at.Add(11 * time.Millisecond) // lets every such call look at a shard
		}
		if k%10 == 0 || k > 99000 {
			st := b.table.Stats()
			if n := st.Moves - before.Moves; n > 10 {
				t.Fatalf("ten calls moved %d shards", n)
			} else if k > 99000 && n > 1 {
				t.Fatalf("one call moved %d shards", n)
			}
			if k > 99000 {
				worst, probed = max(worst, st.Moved-before.Moved), max(probed, st.Probed-before.Probed)
			}
			before = st
		}
	}
	if bound := uint64(table.ShardKeys); worst > bound {
		t.Errorf("one call moved %d entries, want at most %d", worst, bound)
	}
	if bound := uint64(2 * table.ShardKeys); probed > bound {
		t.Errorf("one call looked at %d entries, want at most %d", probed, bound)
	}
}
