package promises

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/proof/oracle"
)

// A rule is a space and the limit of its keys.
type rule struct {
	space *spillgate.Space
	limit spillgate.Limit
	meter *spillgate.Meter
	trial bool
}

// I14: a request is charged to all its limits or to none; a trial never
// refuses and never changes an answer; the order of charges is of no matter.
// Three memories are asked: with the charges in order, shuffled, and without
// the trials.
func TestAllOrNone(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		ordered, shuffled, enforced := spillgate.NewMemory(), spillgate.NewMemory(), spillgate.NewMemory()
		memories := []*spillgate.Memory{ordered, shuffled, enforced}
		rules := make([][]rule, len(memories)) // of each memory
		for i := range rapid.IntRange(1, 4).Draw(rt, "rules") {
			l, trial := drawLimit(rt, exactOnes...), rapid.IntRange(0, 3).Draw(rt, "trial") == 0
			for k := range memories {
				rules[k] = append(rules[k], rule{newSpace(t, fmt.Sprint("rule ", i), spillgate.SpaceOptions{MaxKeys: 100}), l, newMeter(t, l), trial})
			}
		}
		states := map[[2]int]*oracle.Limiter{} // by rule and key
		type one struct {
			rule, key int
			n         int64
		}
		now := int64(0)
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			now += max(0, drawGap(rt, rules[0][rapid.IntRange(0, len(rules[0])-1).Draw(rt, "whose gap")].limit))
			var ask []one
			for i, r := range rules[0] {
				if rapid.IntRange(0, 4).Draw(rt, "matches") > 0 {
					k := rapid.IntRange(0, 2).Draw(rt, "key")
					s := states[[2]int{i, k}]
					if s == nil {
						s = newOracle(t, r.limit)
						states[[2]int{i, k}] = s
					}
					ask = append(ask, one{i, k, drawCost(rt, r.limit, s.Clone().Step(now, 0).Remaining)})
				}
			}
			if len(ask) == 0 {
				continue
			}
			// What must be said: each by its own oracle, which keeps it only
			// if all pass.
			pass, want := true, make([]oracle.Answer, len(ask))
			after := make([]*oracle.Limiter, len(ask))
			for i, a := range ask {
				after[i] = states[[2]int{a.rule, a.key}].Clone()
				want[i] = after[i].Step(now, a.n)
				pass = pass && (want[i].Allowed || rules[0][a.rule].trial)
			}
			for i, a := range ask {
				s := states[[2]int{a.rule, a.key}]
				if pass {
					*s = *after[i]
				} else if want[i].Allowed {
					want[i] = s.Step(now, 0)
				}
			}
			for k, m := range memories {
				order := rand.New(rand.NewPCG(uint64(now), uint64(len(ask)))).Perm(len(ask))
				var cs []spillgate.Charge
				var which []int
				for i := range ask {
					if m == shuffled {
						i = order[i]
					}
					if r := rules[k][ask[i].rule]; m != enforced || !r.trial {
						which = append(which, i)
						cs = append(cs, spillgate.Charge{Space: r.space, Key: keyOf(ask[i].key), Meter: r.meter, Ask: spillgate.Ask{N: ask[i].n}, Trial: r.trial})
					}
				}
				for j, d := range takeAll(t, m, now, cs...) {
					i := which[j]
					l, w, n := rules[k][ask[i].rule].limit, want[i], ask[i].n
					if !pass && w.Allowed {
						n = 0 // it would have passed, and was not charged
					}
					same(rt, fmt.Sprintf("memory %d, charge %d of %+v, pass %t", k, i, ask, pass), l, n, now, d, w)
				}
			}
		}
	})
}

// The same key twice in one request counts once, as the sum: alone it decides
// as one charge of the sum does.
func TestSameKeyTwiceIsTheSum(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		l := drawLimit(rt, exactOnes...)
		k, o := newKey(t, l), newOracle(t, l)
		now := int64(0)
		for range rapid.IntRange(1, 30).Draw(rt, "steps") {
			now += max(0, drawGap(rt, l))
			var cs []spillgate.Charge
			sum := int64(0)
			for range rapid.IntRange(1, 9).Draw(rt, "charges") {
				n := rapid.Int64Range(0, l.Cap()/2+1).Draw(rt, "cost")
				cs = append(cs, k.charge(n))
				sum += n
			}
			want := o.Step(now, sum)
			taken := int64(0)
			for i, d := range takeAll(t, k.memory, now, cs...) {
				if d.Allowed != want.Allowed || d.Remaining != want.Remaining || int64(d.ResetAfter) != want.ResetAfter {
					rt.Fatalf("%s: charge %d of %d in all at %d: %+v, want %+v", l, i, sum, now, d, want)
				}
				taken += d.Taken
			}
			if want.Allowed != (taken == sum) || !want.Allowed && taken != 0 {
				rt.Fatalf("%s: taken %d of %d, allowed %t", l, taken, sum, want.Allowed)
			}
		}
	})
}

// An ask with a least amount is granted what fits, up to what it wants; an ask
// that keeps some leaves them.
func TestMinAndKeep(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		l := drawLimit(rt, exactOnes...)
		k, o := newKey(t, l), newOracle(t, l)
		now := int64(0)
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			now += max(0, drawGap(rt, l))
			q := spillgate.Ask{N: rapid.Int64Range(0, l.Cap()+2).Draw(rt, "n")}
			q.Min = rapid.Int64Range(0, q.N).Draw(rt, "min")
			q.Keep = rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, l.Cap()+1)).Draw(rt, "keep")
			c := k.charge(0)
			c.Ask = q
			free := o.Clone().Step(now, 0).Remaining - q.Keep
			least, want := q.N, int64(0)
			if q.Min > 0 {
				least = q.Min
			}
			if least <= free {
				want = min(q.N, max(free, 0))
			}
			d := takeAll(t, k.memory, now, c)[0]
			if d.Taken != want || d.Allowed != (q.N == 0 || want > 0) {
				rt.Fatalf("%s: %+v with %d free: %+v", l, q, free, d)
			}
			a := o.Step(now, want)
			if d.Remaining != max(0, a.Remaining-q.Keep) || int64(d.ResetAfter) != a.ResetAfter || int64(d.Delay) != a.Delay {
				rt.Fatalf("%s: %+v: %+v, want %+v", l, q, d, a)
			}
			if !d.Allowed {
				// Waiting is enough, and a nanosecond less is not.
				if wait := int64(d.RetryAfter); d.RetryAfter != spillgate.Never {
					if now += wait; wait < 1 || o.Clone().Step(now-1, 0).Remaining-q.Keep >= least || o.Clone().Step(now, 0).Remaining-q.Keep < least {
						rt.Fatalf("%s: %+v: retry after %d", l, q, wait)
					}
				} else if least+q.Keep <= l.Cap() {
					rt.Fatalf("%s: %+v never passes", l, q)
				}
			}
		}
	})
}

// Every charge that can't be carried out is a named error, and nothing of its
// request is charged.
func TestBadChargesAreErrors(t *testing.T) {
	l := spillgate.Limit{Rate: 1, Period: 1000, Burst: 5}
	k := newKey(t, l)
	lasting := newMeter(t, spillgate.Limit{Rate: 0, Period: 1, Burst: 5})
	for name, bad := range map[string]spillgate.Charge{
		"negative cost":       k.charge(-1),
		"least negative cost": k.charge(-1 << 63),
		"negative min":        {Space: k.space, Key: k.key, Meter: k.meter, Ask: spillgate.Ask{N: 1, Min: -1}},
		"min above n":         {Space: k.space, Key: k.key, Meter: k.meter, Ask: spillgate.Ask{N: 1, Min: 2}},
		"negative keep":       {Space: k.space, Key: k.key, Meter: k.meter, Ask: spillgate.Ask{N: 1, Keep: -1}},
		"no space":            {Key: k.key, Meter: k.meter, Ask: spillgate.Ask{N: 1}},
		"no meter":            {Space: k.space, Key: k.key, Ask: spillgate.Ask{N: 1}},
		"rate 0, no ttl":      {Space: k.space, Key: k.key, Meter: lasting, Ask: spillgate.Ask{N: 1}},
	} {
		for i := range 2 {
			cs := []spillgate.Charge{k.charge(1), k.charge(1)}
			cs[i] = bad
			if err := k.memory.Take(context.Background(), at(0), cs, make([]spillgate.Decision, 2)); err == nil {
				t.Errorf("%s: no error", name)
			}
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := k.memory.Take(ctx, at(0), []spillgate.Charge{k.charge(1)}, make([]spillgate.Decision, 1)); err == nil {
		t.Error("a call that is over: no error")
	}
	if d := k.take(t, 0, 0); d.Remaining != 5 {
		t.Errorf("something was charged: %+v", d)
	}
	// Costs whose sum is no int64 are no error: they never fit.
	for _, d := range takeAll(t, k.memory, 0, k.charge(1<<63-1), k.charge(1<<63-1), k.charge(2)) {
		if d.Allowed || d.RetryAfter != spillgate.Never || d.Taken != 0 {
			t.Errorf("%+v", d)
		}
	}
}

// However large a debt is, it is one: it saturates and never wraps, and more
// of it is never less.
func TestDebtOfCenturies(t *testing.T) {
	for _, l := range []spillgate.Limit{
		{Rate: 1, Period: 1, Burst: 5}, {Rate: 1, Period: 1e9, Burst: 5}, {Rate: 7, Period: 3600e9, Burst: 5}, {Rate: 1, Period: 366 * 86400e9, Burst: 5},
		{Algorithm: spillgate.Queue, Rate: 1, Period: 1e9, Burst: 5}, {Algorithm: spillgate.Queue, Rate: 3, Period: 86400e9, Burst: 5},
	} {
		last := spillgate.Decision{}
		for shift := range 63 {
			for _, more := range []int64{0, 1} {
				owed := int64(1)<<shift + more<<max(shift-1, 0)
				k := newKey(t, l)
				k.take(t, 0, l.Cap())
				k.settle(t, 0, 0, owed, 0)
				d := k.take(t, 0, 1)
				if d.Allowed || d.Remaining != 0 || d.RetryAfter <= 0 || d.ResetAfter <= 0 || d.ResetAfter < last.ResetAfter {
					t.Fatalf("%s, %d owed: %+v, after %+v", l, owed, d, last)
				}
				last = d
				k.settle(t, 0, 0, owed, 0)
				if d := k.take(t, 0, 1); d.Allowed || d.ResetAfter < last.ResetAfter {
					t.Fatalf("%s, %d owed twice: %+v", l, owed, d)
				}
			}
		}
	}
}
