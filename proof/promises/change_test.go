package promises

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/proof/exact"
	"github.com/spillgate/spillgate/proof/oracle"
)

// drawChange draws another limit of l's algorithm, now and then near it.
func drawChange(rt *rapid.T, l spillgate.Limit) (to spillgate.Limit) {
	to = drawLimit(rt, l.Algorithm)
	if rapid.Bool().Draw(rt, "near") {
		to = l
		to.Rate += rapid.Int64Range(0, 2).Draw(rt, "more rate")
		if l.Algorithm == spillgate.Bucket || l.Algorithm == spillgate.Queue {
			to.Burst = rapid.Int64Range(0, 2*l.Burst+2).Draw(rt, "other burst")
		}
	}
	to.OnRaise = spillgate.Keep
	if l.Algorithm == spillgate.Bucket && rapid.Bool().Draw(rt, "fill") {
		to.OnRaise = spillgate.Fill
	}
	return to
}

func setOf(l spillgate.Limit, now int64) oracle.Op {
	op := oracle.Op{Kind: oracle.Set, At: now, Limit: l.Rate, Period: int64(l.Period), Burst: l.Burst}
	if l.OnRaise == spillgate.Fill {
		op.Kind = oracle.SetFill
	}
	return op
}

// I19: a change of limit holds for every key from its instant on, whenever
// that key comes back, and however often the limit was changed since, back and
// forth among a few.
func TestChangeReachesEveryKey(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		limits := []spillgate.Limit{drawLimit(rt, exactOnes...)}
		for range rapid.IntRange(1, 3).Draw(rt, "other limits") {
			limits = append(limits, drawChange(rt, limits[0]))
		}
		l := limits[0]
		m := newMeter(t, l)
		sp := newSpace(t, "changing", spillgate.SpaceOptions{MaxKeys: 50})
		memory := spillgate.NewMemory()
		const keys = 5
		var own [keys]*oracle.Limiter
		var late [keys]exact.Slack
		for i := range own {
			own[i] = newOracle(t, l)
			own[i].Forget = forgets
		}
		now := int64(0)
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			now += max(0, drawGap(rt, l))
			if rapid.IntRange(0, 7).Draw(rt, "change") == 0 {
				to := limits[rapid.IntRange(0, len(limits)-1).Draw(rt, "to")]
				if to == l {
					continue
				}
				var err error
				if m, err = sp.Change(m, newMeter(t, to), spillgate.Instant(now)); err != nil {
					rt.Fatal(err)
				}
				l = to
				for i := range own {
					op := setOf(l, now)
					own[i].Do(op)
					late[i].Change(op)
				}
				continue
			}
			i := rapid.IntRange(0, keys-1).Draw(rt, "key")
			before := own[i].Clone()
			n := drawCost(rt, l, before.Clone().Step(now, 0).Remaining)
			d := takeAll(t, memory, now, spillgate.Charge{Space: sp, Key: keyOf(i), Meter: m, Ask: spillgate.Ask{N: n}})[0]
			got, err := exact.Answer(d, l, n, spillgate.Instant(now))
			if err != nil {
				rt.Fatal(err)
			}
			if want := own[i].Step(now, n); got != want {
				if !late[i].Allows(got, want) {
					rt.Fatalf("key %d, %s, %d at %d:\n got %+v\nwant %+v", i, l, n, now, got, want)
				}
				if want.Allowed && !got.Allowed {
					before.Step(now, 0)
					own[i] = before
				}
			}
		}
	})
}

// I19, what it says in words.
func TestChangeOfBurst(t *testing.T) {
	for _, c := range []struct {
		name             string
		used             int64
		to               spillgate.Limit
		remaining, reset int64
	}{
		{"a larger burst grants nothing by itself", 5, spillgate.Limit{Rate: 1, Period: 10, Burst: 8}, 0, 80},
		{"what was earned stays", 3, spillgate.Limit{Rate: 1, Period: 10, Burst: 8}, 2, 60},
		{"fill is full at once", 5, spillgate.Limit{Rate: 1, Period: 10, Burst: 8, OnRaise: spillgate.Fill}, 8, 0},
		{"fill without a raise fills nothing", 5, spillgate.Limit{Rate: 2, Period: 10, Burst: 5, OnRaise: spillgate.Fill}, 0, 25},
		{"a smaller burst clamps", 1, spillgate.Limit{Rate: 1, Period: 10, Burst: 2}, 2, 0},
		{"and takes nothing from what is below", 4, spillgate.Limit{Rate: 1, Period: 10, Burst: 2}, 1, 10},
		{"another rate is felt at once", 5, spillgate.Limit{Rate: 10, Period: 10, Burst: 5}, 0, 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := newKey(t, spillgate.Limit{Rate: 1, Period: 10, Burst: 5})
			k.take(t, 0, c.used)
			var err error
			if k.meter, err = k.space.Change(k.meter, newMeter(t, c.to), 0); err != nil {
				t.Fatal(err)
			}
			if d := k.take(t, 0, 0); d.Remaining != c.remaining || d.ResetAfter != time.Duration(c.reset) {
				t.Errorf("%+v", d)
			}
		})
	}
}

// Limits that differ by caller: one key asked under two limits in turn has
// what it used under one carried over to the other, as a change would.
func TestKeysUnderSeveralLimits(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		limits := []spillgate.Limit{drawLimit(rt, exactOnes...)}
		limits = append(limits, drawChange(rt, limits[0]), drawChange(rt, limits[0]))
		k := newKey(t, limits[0])
		o, last := newOracle(t, limits[0]), limits[0]
		o.Forget = true // between classes a full key is a new one
		var late exact.Slack
		now := int64(0)
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			l := rapid.SampledFrom(limits).Draw(rt, "limit")
			now += max(0, drawGap(rt, l))
			here, lateHere := o.Clone(), late
			if l != last {
				op := setOf(l, now)
				here.Do(op)
				lateHere.Change(op)
			}
			before := here.Clone()
			n := drawCost(rt, l, here.Clone().Step(now, 0).Remaining)
			k.meter = newMeter(t, l)
			d := k.take(t, now, n)
			want := here.Step(now, n)
			got, err := exact.Answer(d, l, n, spillgate.Instant(now))
			if err != nil {
				rt.Fatal(err)
			}
			if got != want && !lateHere.Allows(got, want) {
				rt.Fatalf("%s after %s, %d at %d:\n got %+v\nwant %+v", l, last, n, now, got, want)
			}
			if d.Taken == 0 {
				continue // nothing was written, also not the change
			}
			if !want.Allowed {
				rt.Fatal(fmt.Sprint(before))
			}
			o, late, last = here, lateHere, l
		}
	})
}

// forgets says that a full bucket whose burst is raised is as one never seen.
const forgets = false

// I19: a request that read its limit before a change, and is decided after it,
// is decided by the new limit; it doesn't make the change a second time.
func TestStragglersFindTheNewLimit(t *testing.T) {
	for _, several := range []bool{false, true} {
		k := newKey(t, spillgate.Limit{Rate: 1, Period: 1000, Burst: 5})
		take := func(now, n int64) spillgate.Decision {
			if several {
				other := k.charge(0)
				other.Key = keyOf(3)
				return takeAll(t, k.memory, now, other, k.charge(n))[1]
			}
			return k.take(t, now, n)
		}
		old := k.meter
		take(0, 5)
		m, err := k.space.Change(old, newMeter(t, spillgate.Limit{Rate: 1, Period: 1000, Burst: 8, OnRaise: spillgate.Fill}), 10)
		if err != nil {
			t.Fatal(err)
		}
		k.meter = m
		if d := take(10, 8); !d.Allowed {
			t.Fatalf("the raised burst: %+v", d)
		}
		k.meter = old
		if d := take(1010, 1); !d.Allowed || d.Limit != 8 || d.Remaining != 0 {
			t.Fatalf("several %t, one that came with the old limit: %+v", several, d)
		}
		k.settle(t, 1010, 10, 1, 0)
		k.meter = m
		if d := take(1010, 0); d.Remaining != 0 || d.ResetAfter != 9000 {
			t.Errorf("several %t, after it: %+v", several, d)
		}
	}
}

// I19: a limit that comes back, for new callers, is not taken for that of its
// first life.
func TestALimitThatComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := spillgate.Limit{Rate: 1, Period: time.Second, Burst: 5}, spillgate.Limit{Rate: 2, Period: time.Second, Burst: 5}
		lim, err := spillgate.New(first)
		if err != nil {
			t.Fatal(err)
		}
		if err := lim.SetLimit(second); err != nil {
			t.Fatal(err)
		}
		again, err := lim.With(first)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if d := again.Take("key", 5); !d.Allowed || again.Limit() != first {
			t.Fatalf("%+v", d)
		}
		if d := lim.Peek("key"); d.Remaining != 0 || d.ResetAfter != 2500*time.Millisecond {
			t.Errorf("%+v", d)
		}
	})
}
