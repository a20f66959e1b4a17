package redisstore

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/spillgate/spillgate"
)

// A part is what one request asks of one key under one limit: the sum of its
// charges, as in [spillgate.Memory]. Parts of one key under several limits
// work on one state, that of their root.
type part struct {
	ask
	sp    *spillgate.Space
	id    spillgate.Key
	kind  kind
	key   string
	first int // charge, whose decision is also that of the sum
	root  int
	place int // of the key in the call, from 0

	left int64 // of what was granted, beyond what each charge has to have
	took bool
	tell tally // of logs and slots

	// Of roots: the state as it was and as the request leaves it, unless the
	// script keeps that to itself, and whether anything was taken.
	before, after held
	charged       bool
}

// A held is a state and when it was last charged.
type held struct {
	s     spillgate.State
	stamp int64
}

// A tally is what the script says of a log or slots.
type tally struct {
	used          int64
	newest, leave spillgate.Instant // when the newest came, and the one that has to leave
	any           bool
	slot          uint64
	charged       spillgate.Instant // when anybody last was
}

// A request is a Take as this package works on it. It holds copies, since
// whoever asked may leave before the answer comes.
type request struct {
	charges []spillgate.Charge
	out     []spillgate.Decision
	parts   []part
	of      []int // the part of each charge
	now     spillgate.Instant
	passes  bool
}

// newRequest sums the charges up.
func newRequest(cs []spillgate.Charge, name func(*spillgate.Space, spillgate.Key, spillgate.Algorithm) string) (r request, err error) {
	err = r.fill(cs, name)
	return r, err
}

// fill makes r the sum of the charges, in the memory that it has.
func (r *request) fill(cs []spillgate.Charge, name func(*spillgate.Space, spillgate.Key, spillgate.Algorithm) string) error {
	r.charges = append(r.charges[:0], cs...)
	r.out = slices.Grow(r.out[:0], len(cs))[:len(cs)]
	r.of = slices.Grow(r.of[:0], len(cs))[:len(cs)]
	r.parts = slices.Grow(r.parts[:0], len(cs))
	for _, trial := range [2]bool{false, true} {
		for i := range r.charges {
			if r.charges[i].Trial == trial {
				if err := r.add(i, name); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (r *request) add(i int, name func(*spillgate.Space, spillgate.Key, spillgate.Algorithm) string) error {
	c := &r.charges[i]
	m := c.Space.InForce(c.Meter)
	k := kindOf(m)
	root := len(r.parts)
	key := ""
	for j := range r.parts {
		p := &r.parts[j]
		if p.id != c.Key || p.sp != c.Space || p.kind == kindNone || k == kindNone || p.m.Limit().Algorithm != m.Limit().Algorithm {
			continue
		}
		if k.kept() && p.m != m {
			return fmt.Errorf("redisstore: %w: charge %d of %q: one key counted under two limits, each a %s: give each a space of its own",
				spillgate.ErrCharge, i, c.Space.Name(), m.Limit().Algorithm)
		}
		if p.m == m && p.trial == c.Trial {
			p.q = p.q.Plus(c.Ask)
			r.of[i] = j
			return nil
		}
		root, key = min(root, p.root), p.key
	}
	r.of[i] = len(r.parts)
	p := part{sp: c.Space, id: c.Key, kind: k, key: key, first: i, root: root}
	p.m, p.q, p.trial, p.ttl = m, c.Ask, c.Trial, c.Space.Options().TTL
	if k == kindNone {
		p.root = len(r.parts)
	} else if key == "" {
		p.key = name(c.Space, c.Key, m.Limit().Algorithm)
	}
	if k.kept() {
		p.changed, p.space = changed(c.Space)
	}
	r.parts = append(r.parts, p)
	return nil
}

// changed returns when the limit of sp was last changed, and sp: never yet is the
// end of time, and nil.
func changed(sp *spillgate.Space) (spillgate.Instant, *spillgate.Space) {
	if at, ok := sp.Changed(); ok {
		return at, sp
	}
	return math.MaxInt64, nil
}

// idle reports whether nothing has to be asked.
func (r *request) idle() bool {
	for i := range r.parts {
		if r.parts[i].kind != kindNone {
			return false
		}
	}
	return true
}

// judge decides every part at r.now on the states of the roots, and tells what
// comes of it as [spillgate.Memory] does: this is where the answers come from,
// whether the request passes the script has said before.
func (r *request) judge() {
	r.passes = true
	for i := range r.parts {
		p := &r.parts[i]
		root, d := &r.parts[p.root], &r.out[p.first]
		if root == p {
			p.after, p.charged = p.before, false
		}
		s := r.decide(p, p.q, root.after.s, d)
		if d.Taken > 0 && p.kind != kindNone {
			root.after, root.charged = held{s, int64(r.now)}, true
		}
		if !d.Allowed && !p.trial {
			r.passes = false
		}
	}
	if !r.passes {
		r.withdraw()
	}
	r.share(false)
}

// retell makes the decisions of logs and slots those of the round that took: the one
// before told what each would have found alone.
func (r *request) retell() {
	for i := range r.parts {
		if p := &r.parts[i]; p.kind.kept() {
			r.decide(p, p.q, spillgate.State{}, &r.out[p.first])
		}
	}
	r.share(true)
}

// decide decides one part on a state, into d, and returns the state after.
func (r *request) decide(p *part, q spillgate.Ask, s spillgate.State, d *spillgate.Decision) spillgate.State {
	root := &r.parts[p.root]
	if p.kind.kept() {
		*d = p.tell.decide(p.m, r.now, q)
	} else {
		if p.kind != kindNone {
			s = p.sp.Settled(s, p.m, r.now)
		}
		s, *d = p.m.Grant(s, r.now, q)
	}
	if p.ttl > 0 && d.ResetAfter > 0 && p.kind != kindNone {
		stamp := root.before.stamp
		if p.kind.kept() && p.tell.any {
			stamp = int64(p.tell.charged)
		}
		if root.charged || d.Taken > 0 {
			stamp = int64(r.now)
		}
		if stamp != unstamped {
			if left := time.Duration(later(stamp, p.ttl) - int64(r.now)); left > 0 {
				d.ResetAfter = min(d.ResetAfter, left)
				if d.Reason == spillgate.OverLimit {
					d.RetryAfter = min(d.RetryAfter, left)
				}
			}
		}
	}
	return s
}

// decide decides as a log or slots of a key do.
func (t *tally) decide(m *spillgate.Meter, now spillgate.Instant, q spillgate.Ask) spillgate.Decision {
	l := m.Limit()
	d := spillgate.Decision{Limit: l.Cap(), At: now}
	free := l.Rate - t.used - q.Keep
	n := q.N
	if n > free && q.Min > 0 {
		n = max(min(n, free), q.Min)
	}
	d.Remaining = max(0, free)
	if t.any {
		d.ResetAfter = l.Period - time.Duration(now-t.newest)
	}
	switch {
	case n == 0:
		d.Allowed, d.Reason = true, spillgate.Granted
	case n > l.Rate-q.Keep:
		d.Reason, d.RetryAfter = spillgate.NeverFits, spillgate.Never
	case n > free:
		d.RetryAfter = l.Period - time.Duration(now-t.leave)
	default:
		d.Allowed, d.Reason, d.Taken = true, spillgate.Granted, n
		d.Remaining, d.ResetAfter, d.Slot = free-n, l.Period, t.slot
	}
	return d
}

// withdraw makes the decisions those of a request that took nothing. A limit
// that refused still says so; the others say what they would have said to it
// alone, and what is left.
func (r *request) withdraw() {
	for i := range r.parts {
		p := &r.parts[i]
		p.after, p.charged = p.before, false
	}
	for i := range r.parts {
		p := &r.parts[i]
		s, d := r.parts[p.root].before.s, &r.out[p.first]
		if p.trial {
			r.decide(p, p.q, s, d)
		}
		if d.Taken > 0 {
			r.decide(p, spillgate.Ask{Keep: p.q.Keep}, s, d)
		}
	}
}

// share gives every charge the decision of its part, and its share of what
// that was granted: at least what it has to have, then what is left, in order. It
// may do so for those of logs and slots alone.
func (r *request) share(kept bool) {
	for i := range r.parts {
		if p := &r.parts[i]; !kept || p.kind.kept() {
			p.left = r.out[p.first].Taken
			p.took = p.left > 0
		}
	}
	for i := range r.charges {
		p := &r.parts[r.of[i]]
		p.left -= r.charges[i].Least()
	}
	for i := range r.charges {
		p, c := &r.parts[r.of[i]], &r.charges[i]
		if kept && !p.kind.kept() {
			continue
		}
		if p.first != i {
			r.out[i] = r.out[p.first]
		}
		if !p.took {
			continue
		}
		more := min(p.left, c.N-c.Least())
		r.out[i].Taken, p.left = c.Least()+more, p.left-more
	}
}
