package promises

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/proof/exact"
	"github.com/spillgate/spillgate/proof/oracle"
)

var oracleNames = map[spillgate.Algorithm]string{
	spillgate.Bucket: oracle.TokenBucket, spillgate.Queue: oracle.Queue, spillgate.FixedWindow: oracle.FixedWindow,
	spillgate.SlidingCounter: oracle.SlidingWindowCounter, spillgate.SlidingLog: oracle.SlidingWindowLog,
}

func newOracle(t testing.TB, l spillgate.Limit) *oracle.Limiter {
	o, err := oracle.New(oracleNames[l.Algorithm], l.Rate, int64(l.Period), l.Burst)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// same fails unless d is what the oracle says.
func same(rt *rapid.T, what string, l spillgate.Limit, n, now int64, d spillgate.Decision, want oracle.Answer) {
	rt.Helper()
	got, err := exact.Answer(d, l, n, spillgate.Instant(now))
	if err != nil {
		rt.Fatalf("%s: %v", what, err)
	}
	if got != want {
		rt.Fatalf("%s, %s, %d at %d:\n got %+v\nwant %+v", what, l, n, now, got, want)
	}
}

// keyOf spreads small numbers over all shards and sets of a table.
func keyOf(i int) spillgate.Key {
	return spillgate.Key{(uint64(i) + 1) * 0x9e3779b97f4a7c15, uint64(i)}
}

// I9: the answers of a key depend on its own steps only, in whatever spaces
// and tables they are beside others'.
func TestKeysAreIndependent(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		type slot struct{ space, key int }
		memory := spillgate.NewMemory()
		var spaces []*spillgate.Space
		var limits []spillgate.Limit
		for i := range 3 {
			spaces = append(spaces, newSpace(t, fmt.Sprint("space ", i), spillgate.SpaceOptions{MaxKeys: []int{8, 100, 10_000}[i]}))
			limits = append(limits, drawLimit(rt, exactOnes...))
		}
		alone := map[slot]*oracle.Limiter{}
		now := int64(0)
		for range rapid.IntRange(1, 80).Draw(rt, "steps") {
			s := slot{rapid.IntRange(0, 2).Draw(rt, "space"), rapid.IntRange(0, 7).Draw(rt, "key")}
			l := limits[s.space]
			if alone[s] == nil {
				alone[s] = newOracle(t, l)
			}
			now += max(0, drawGap(rt, l))
			n := drawCost(rt, l, rapid.Int64Range(0, 3).Draw(rt, "remaining"))
			d := takeAll(t, memory, now, spillgate.Charge{Space: spaces[s.space], Key: keyOf(s.key), Meter: newMeter(t, l), Ask: spillgate.Ask{N: n}})
			same(rt, fmt.Sprint(s), l, n, now, d[0], alone[s].Step(now, n))
		}
	})
}

// I9: different kinds or parts never have the same encoding, equal ones always
// do, whatever bytes they hold.
func TestKeyEncodingsAreInjective(t *testing.T) {
	type part struct{ Kind, Text string }
	text := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"", "\x00", "\x01", "a", "ab", "b", "\x01a\x01b", "ip", "203.0.113.9", "\xff\xfe"}))
	parts := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) part { return part{text.Draw(rt, "kind"), text.Draw(rt, "text")} }), 1, 4)
	encode := func(ps []part) (b []byte) {
		for _, p := range ps {
			b = spillgate.AppendPart(b, p.Kind, p.Text)
		}
		return b
	}
	seed := spillgate.SeedFrom([16]byte{1})
	rapid.Check(t, func(rt *rapid.T) {
		a, b := parts.Draw(rt, "a"), parts.Draw(rt, "b")
		if rapid.Bool().Draw(rt, "equal") {
			b = slices.Clone(a)
		}
		x, y := encode(a), encode(b)
		if slices.Equal(a, b) != bytes.Equal(x, y) {
			rt.Fatalf("%q and %q: %x and %x", a, b, x, y)
		}
		if bytes.Equal(x, y) != (seed.Key(x) == seed.Key(y)) {
			rt.Fatalf("%q and %q: keys %x and %x", a, b, seed.Key(x), seed.Key(y))
		}
	})
}

// I10: in a table that is too small, a key that has an entry answers as if it
// were alone, whatever was forgotten before; a key that still is limited never
// loses its entry; newcomers share one bucket only while all entries limit
// somebody; and that bucket is exact, too.
func TestForgettingNeverShows(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		l := drawLimit(rt, exactOnes...)
		m := newMeter(t, l)
		most := rapid.IntRange(1, 5).Draw(rt, "cap")
		sp := newSpace(t, "tiny", spillgate.SpaceOptions{MaxKeys: most})
		memory := spillgate.NewMemory()
		own, shared := map[int]*oracle.Limiter{}, newOracle(t, l)
		limited := func(i int, now int64) bool { return own[i] != nil && own[i].Clone().Step(now, 0).ResetAfter != 0 }
		now := int64(0)
		type taken struct {
			key int
			d   spillgate.Decision
		}
		var past []taken
		for range rapid.IntRange(1, 80).Draw(rt, "steps") {
			i := rapid.IntRange(0, 2*most).Draw(rt, "key")
			now += max(0, drawGap(rt, l)/int64(rapid.IntRange(1, 4).Draw(rt, "part of the gap")))
			live := 0
			for k := range own {
				if limited(k, now) {
					live++
				}
			}
			if len(past) > 0 && rapid.IntRange(0, 4).Draw(rt, "give back") == 0 {
				p := past[rapid.IntRange(0, len(past)-1).Draw(rt, "which")]
				k := &key{memory: memory, space: sp, meter: m, key: keyOf(p.key)}
				if !p.d.Overflow && !limited(p.key, now) {
					continue // forgotten: there is nothing to give back
				}
				o := own[p.key]
				if p.d.Overflow {
					o = shared
				}
				o.Refund(now, 1, int64(p.d.At))
				giveBack(t, k, now, p.d)
				continue
			}
			n := drawCost(rt, l, rapid.Int64Range(0, 3).Draw(rt, "remaining"))
			d := takeAll(t, memory, now, spillgate.Charge{Space: sp, Key: keyOf(i), Meter: m, Ask: spillgate.Ask{N: n}})[0]
			if want := !limited(i, now) && live >= most; d.Overflow != want {
				rt.Fatalf("%s, key %d at %d: overflow %t, with %d of %d entries that limit", l, i, now, d.Overflow, live, most)
			}
			o := shared
			if !d.Overflow {
				if own[i] == nil {
					own[i] = newOracle(t, l)
				}
				o = own[i]
			}
			same(rt, fmt.Sprintf("key %d, overflow %t", i, d.Overflow), l, n, now, d, o.Step(now, n))
			if d.Taken > 0 {
				past = append(past, taken{i, d})
			}
			if st := memory.Stats(sp); st.Live > most || st.Cap != most || st.Evicted != 0 {
				rt.Fatalf("cap %d: %+v", most, st)
			}
		}
	})
}

// I10, by name [spillgate.MakeRoom]: what is dropped at the cap is the entry
// that is nearest to new, and only that.
func TestMakeRoomDropsTheNearestToNew(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		l := drawLimit(rt, exactOnes...)
		m := newMeter(t, l)
		most := rapid.IntRange(1, 5).Draw(rt, "cap")
		sp := newSpace(t, "tiny", spillgate.SpaceOptions{MaxKeys: most, AtCap: spillgate.MakeRoom})
		memory := spillgate.NewMemory()
		own := map[int]*oracle.Limiter{}
		now, evicted := int64(0), uint64(0)
		for range rapid.IntRange(1, 80).Draw(rt, "steps") {
			i := rapid.IntRange(0, 2*most).Draw(rt, "key")
			now += max(0, drawGap(rt, l)/int64(rapid.IntRange(1, 4).Draw(rt, "part of the gap")))
			n := drawCost(rt, l, rapid.Int64Range(0, 3).Draw(rt, "remaining"))
			live, nearest, wait, tie := 0, -1, int64(0), false
			for k, o := range own {
				if r := o.Clone().Step(now, 0).ResetAfter; r == 0 {
					delete(own, k)
				} else {
					if live++; nearest < 0 || r < wait {
						nearest, wait, tie = k, r, false
					} else if r == wait {
						tie = true
					}
				}
			}
			d := takeAll(t, memory, now, spillgate.Charge{Space: sp, Key: keyOf(i), Meter: m, Ask: spillgate.Ask{N: n}})[0]
			if own[i] == nil {
				if d.Taken > 0 && live >= most {
					if evicted++; tie {
						return // either may go
					}
					delete(own, nearest)
				}
				own[i] = newOracle(t, l)
			}
			same(rt, fmt.Sprint("key ", i), l, n, now, d, own[i].Step(now, n))
			if st := memory.Stats(sp); st.Live > most || st.Evicted != evicted || d.Overflow {
				rt.Fatalf("cap %d, %d evicted: %+v, %+v", most, evicted, st, d)
			}
		}
	})
}

// I10's bound, in a table of several shards: never more is admitted in any
// interval than so many buckets as there are places, and one more, would.
func TestFloodStaysWithinTheBound(t *testing.T) {
	l := spillgate.Limit{Rate: 10, Period: time.Second, Burst: 20}
	m := newMeter(t, l)
	const most, keys = 10_000, 65_536
	sp := newSpace(t, "flood", spillgate.SpaceOptions{MaxKeys: most})
	memory := spillgate.NewMemory()
	const victim = keys
	var d spillgate.Decision
	for d.Allowed = true; d.Allowed; {
		d = takeAll(t, memory, 0, spillgate.Charge{Space: sp, Key: keyOf(victim), Meter: m, Ask: spillgate.Ask{N: 1}})[0]
	}
	admitted := int64(0)
	steps := int64(200_000)
	for i := range steps {
		now := i * int64(time.Second) / steps
		d := takeAll(t, memory, now, spillgate.Charge{Space: sp, Key: keyOf(int(i) % keys), Meter: m, Ask: spillgate.Ask{N: 1}})[0]
		admitted += d.Taken
		if now < int64(100*time.Millisecond) && i%1000 == 0 {
			if v := takeAll(t, memory, now, spillgate.Charge{Space: sp, Key: keyOf(victim), Meter: m, Ask: spillgate.Ask{N: 1}})[0]; v.Allowed || v.Overflow {
				t.Fatalf("at %d the drained key passes: %+v", now, v)
			}
		}
	}
	if bound := int64(most+1) * (l.Burst + l.Rate); admitted > bound {
		t.Errorf("admitted %d, more than %d", admitted, bound)
	}
	if st := memory.Stats(sp); st.Live > most || st.Evicted > 0 || st.Overflowed == 0 {
		t.Errorf("%+v", st)
	}
}

// I9 for keys made to collide: all sequences of one or two parts over texts
// that hold what lengths look like.
func TestCraftedKeysDiffer(t *testing.T) {
	texts := []string{"", "\x00", "\x01", "\x02", "x", "x\x01", "x\x02", "\x01x", "\x01y", "y", "x\x02\x01y", "\x02\x01y"}
	var ones [][]byte
	for _, kind := range texts {
		for _, text := range texts {
			ones = append(ones, spillgate.AppendPart(nil, kind, text))
		}
	}
	all := map[string]bool{}
	add := func(encoded []byte) {
		if all[string(encoded)] {
			t.Fatalf("two sequences of parts are encoded as %q", encoded)
		}
		all[string(encoded)] = true
	}
	for _, a := range ones {
		add(a)
		for _, b := range ones {
			add(append(slices.Clone(a), b...))
		}
	}
}
