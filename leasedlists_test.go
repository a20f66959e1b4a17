package spillgate

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// A leasedKey is what is known of one key of a list beside what its nodes say.
type leasedKey struct {
	charge Charge
	bound  LeaseBound
	larger *Meter // of the limit and what leases may add
	// most is the state under larger, less what was given back; left is that of an
	// exact store, which may be in debt, and has back of each charge at the most
	// what it still costs.
	most, left State
	taken      []leasedTaking
	backAt     []Instant // by node: when it gave back last
}

// A leasedTaking is a charge that can be given back.
type leasedTaking struct {
	Decision
	node int
}

func (k *leasedKey) name() string { return k.charge.Meter.limit.String() }

// note enters what a node said to one ask of a request that passes or not.
func (k *leasedKey) note(nodes []*Leased, node int, now Instant, q Ask, d *Decision, passes bool) error {
	m, limit := k.charge.Meter, k.charge.Meter.limit
	want := int64(0)
	if passes && q.Min == 0 {
		want = q.N
	}
	least := max(q.Least(), q.Need)
	never := least > 0 && least+q.Keep > m.most
	wait := limit.Period
	if limit.Algorithm == Bucket {
		wait = m.lasting(m.most) + 2
	}
	switch {
	case q.Min == 0 && d.Taken != want || passes && (d.Taken < q.Min || d.Taken > q.N) || !passes && d.Taken != 0:
		return fmt.Errorf("it took %d", d.Taken)
	case d.Remaining < 0 || d.Remaining > max(0, m.most-q.Keep):
		return fmt.Errorf("%d remain", d.Remaining)
	case d.ResetAfter < 0 || d.Taken > 0 && limit.Algorithm == Bucket && d.ResetAfter < limit.Earn(d.Taken):
		return fmt.Errorf("as new after %s", d.ResetAfter)
	case d.Allowed && d.RetryAfter != 0:
		return fmt.Errorf("it passes after %s", d.RetryAfter)
	case !d.Allowed && never != (d.Reason == NeverFits) || d.Allowed && never:
		return fmt.Errorf("reason %s", d.Reason)
	case !d.Allowed && !never && (d.Reason != OverLimit || d.RetryAfter < 1 || d.RetryAfter > wait || d.Remaining >= least):
		return fmt.Errorf("refused: %s, retry after %s, %d remain", d.Reason, d.RetryAfter, d.Remaining)
	}
	if !d.Allowed && !never && !k.hidden(node, now) {
		_, exact := m.Grant(k.left, now, Ask{Keep: q.Keep})
		if exact.Remaining >= least+k.bound.Stranded {
			return fmt.Errorf("refused, but %d are left, at most %d may be unspent", exact.Remaining, k.bound.Stranded)
		}
	}
	if d.Taken == 0 {
		return nil
	}
	var larger Decision
	if k.most, larger = k.larger.Grant(k.most, now, Ask{N: d.Taken}); !larger.Allowed {
		return fmt.Errorf("%d more than a limit that is larger by %d has", d.Taken-larger.Remaining, k.bound.Extra)
	}
	k.left = m.Settle(k.left, now, now, d.Taken)
	k.taken = append(k.taken, leasedTaking{*d, node})
	return nil
}

// hidden reports whether a node may not know yet of a give-back at another one.
func (k *leasedKey) hidden(node int, now Instant) bool {
	for i, at := range k.backAt {
		if i != node && at != never && now-at <= recall {
			return true
		}
	}
	return false
}

// giveBack gives a part of a charge back where it was taken.
func (k *leasedKey) giveBack(nodes []*Leased, at time.Time, i int, n int64) error {
	t, m, now := k.taken[i], k.charge.Meter, instantOf(at)
	k.taken = append(k.taken[:i], k.taken[i+1:]...)
	c := k.charge
	err := nodes[t.node].Settle(context.Background(), at, []Correction{{Space: c.Space, Key: c.Key, Meter: m, Delta: -n, At: t.At, Until: t.until()}})
	k.most = k.larger.Settle(k.most, now, t.At, -n)
	costs := n
	if m.limit.Algorithm == Bucket { // what the charge still costs at least
		costs = min(n, t.Taken-1-m.units(span{ns: int64(now - t.At)}))
	}
	if costs > 0 {
		k.left = m.Settle(k.left, now, t.At, -costs)
	}
	k.backAt[t.node] = now
	return err
}

// leases checks what the nodes hold of a key.
func (k *leasedKey) leases(nodes []*Leased) error {
	for i, l := range nodes {
		sh, tag, set := l.find(k.charge.Space, k.charge.Key)
		if e := sh.lookup(tag, set, k.charge.Space, k.charge.Key); e != nil && (e.have < 0 || e.have > k.bound.Block || e.back > e.have || e.coming != 0) {
			return fmt.Errorf("node %d holds %d, %d of which can go back, and %d are coming: at most %d may be", i, e.have, e.back, e.coming, k.bound.Block)
		}
	}
	return nil
}

// TestLeasedLists plays random requests, of one key or two, in all lanes, on up to
// four nodes, with parts of charges given back and time that goes on by nothing or a
// lot. In each list all that leases promise holds: no more is admitted than the limit
// and the bound say, nobody is refused who would find more than the bound there, what
// each is told is true, no node holds more than its block, and at the end all is given
// back.
func TestLeasedLists(t *testing.T) {
	lists := uint64(400)
	if testing.Short() {
		lists = 50
	}
	for seed := range lists {
		if err := leasedList(t, seed); err != nil {
			t.Fatalf("list %d: %v", seed, err)
		}
	}
}

func leasedList(t *testing.T, seed uint64) error {
	r := rand.New(rand.NewPCG(seed, 31))
	limits := []string{"10/s burst 20", "100/s burst 100", "1000/s burst 50", "1/s burst 40", "1/1d burst 1", "1000000/s burst 100000",
		"60/min burst 60", "1/1h burst 300", "3/s burst 1", "1000000000/s burst 1000000000", "50/10s fixed", "100/1s fixed", "1000/min fixed"}
	hold := []time.Duration{10 * time.Millisecond, 500 * time.Millisecond, 5 * time.Second}[r.IntN(3)]
	lt := newLeaseTest(t, 1+r.IntN(4), LeaseOptions{Share: []float64{0.05, 0.2, 0.5, 1}[r.IntN(4)], Hold: hold})
	lt.at = time.Duration(r.Int64N(int64(time.Hour)))
	backs := r.IntN(2) == 0
	keys := make([]*leasedKey, 1+r.IntN(2))
	for i := range keys {
		k := &leasedKey{charge: lt.charge(lt.meter(limits[r.IntN(len(limits))]), 0)}
		k.charge.Space = lt.newSpace(fmt.Sprint("list", i))
		limit := k.charge.Meter.limit
		k.bound = lt.nodes[0].Bound(limit)
		if limit.Algorithm == Bucket {
			limit.Burst += k.bound.Extra
		}
		var err error
		if k.larger, err = limit.Meter(); err != nil {
			return err
		}
		for range lt.nodes {
			k.backAt = append(k.backAt, never)
		}
		keys[i] = k
	}
	at := func() time.Time { return leaseStart.Add(lt.at) }
	take := func(node int, ks []*leasedKey, asks []Ask) (out []Decision, err error) {
		cs, passes := make([]Charge, len(ks)), true
		for i, k := range ks {
			cs[i] = k.charge
			cs[i].Ask = asks[i]
		}
		out = lt.take(node, cs...)
		for i := range out {
			passes = passes && out[i].Allowed
		}
		for i, k := range ks {
			if err := k.note(lt.nodes, node, instantOf(at()), asks[i], &out[i], passes); err != nil {
				return nil, fmt.Errorf("%s: node %d of %d: %+v of %d charges: %w", k.name(), node, len(lt.nodes), asks[i], len(ks), err)
			}
		}
		return out, nil
	}
	for step := range 300 {
		one := keys[r.IntN(len(keys))]
		gap := int64(max(1, one.charge.Meter.limit.Earn(1)))
		switch r.IntN(8) {
		case 0, 1:
			lt.at += time.Duration(r.Int64N(gap + 1))
		case 2, 3:
			lt.at += time.Duration(r.Int64N(4*gap + 1))
		case 4:
			lt.at += time.Duration(r.Int64N(2*int64(hold)) / (1 + r.Int64N(16)*r.Int64N(16)))
		case 5:
			if r.IntN(20) == 0 {
				lt.at += time.Duration(r.Int64N(int64(20 * time.Second)))
			}
		}
		node := r.IntN(len(lt.nodes))
		if r.IntN(10) == 0 {
			if err := lt.nodes[node].Return(context.Background(), at()); err != nil {
				return err
			}
		}
		if backs && len(one.taken) > 0 && r.IntN(6) == 0 {
			i := r.IntN(len(one.taken))
			if err := one.giveBack(lt.nodes, at(), i, 1+r.Int64N(one.taken[i].Taken)); err != nil {
				return err
			}
			continue
		}
		ks := []*leasedKey{one}
		if r.IntN(4) == 0 {
			ks = keys
		}
		asks := make([]Ask, len(ks))
		for i, k := range ks {
			most := k.charge.Meter.most
			q := &asks[i]
			if q.N = r.Int64N(max(2, most/8)); r.IntN(20) == 0 {
				q.N = r.Int64N(most + 2)
			}
			switch r.IntN(6) { // the lanes
			case 0:
				q.Keep = most / 2
			case 1:
				q.Keep = most - most/10
			case 2:
				if r.IntN(4) == 0 {
					q.Keep = r.Int64N(most + 1)
				}
			}
			switch r.IntN(20) {
			case 0:
				q.Min = r.Int64N(q.N + 1)
			case 1:
				q.Need = r.Int64N(most + 1)
			}
		}
		out, err := take(node, ks, asks)
		if err != nil {
			return fmt.Errorf("step %d: %w", step, err)
		}
		for _, k := range keys {
			if err := k.leases(lt.nodes); err != nil {
				return fmt.Errorf("step %d: %s: %w", step, k.name(), err)
			}
		}
		// The store decides on parts and needs, for which what is held here is used.
		plain := asks[0].Min == 0 && asks[0].Need <= asks[0].N
		if d := &out[0]; plain && len(lt.nodes) == 1 && len(ks) == 1 && !d.Allowed && d.Reason == OverLimit && d.RetryAfter < time.Minute && r.IntN(3) == 0 {
			lt.at += d.RetryAfter // nobody else comes
			if out, err = take(node, ks, asks); err != nil || !out[0].Allowed {
				return fmt.Errorf("step %d: %s: %+v: after the retry: %v, %+v", step, one.name(), asks[0], err, out)
			}
		}
	}
	return leasedEnd(lt, keys, at())
}

// leasedEnd closes all nodes, and checks what has come back.
func leasedEnd(lt *leaseTest, keys []*leasedKey, at time.Time) error {
	lost := int64(0)
	for i, l := range lt.nodes {
		if err := l.Close(); err != nil {
			return err
		}
		st := l.Stats()
		if lost += int64(st.Forfeited); st.Held != 0 || st.Blocks != 0 {
			return fmt.Errorf("node %d, closed: %+v", i, st)
		}
	}
	for _, k := range keys {
		_, exact := k.charge.Meter.Grant(k.left, instantOf(at), Ask{})
		_, larger := k.larger.Grant(k.most, instantOf(at), Ask{})
		lapsed := int64(0) // what came back by itself is not given back, though others had a use for it
		if k.charge.Meter.limit.Algorithm == Bucket {
			lapsed = k.bound.Stranded + 1
		}
		if left := lt.left(k.charge); left > larger.Remaining || left < exact.Remaining-lost-lapsed {
			return fmt.Errorf("%s: at the end %d are left, of an exact limit %d, of the larger one %d, %d were forfeited", k.name(), left, exact.Remaining, larger.Remaining, lost)
		}
	}
	return nil
}
