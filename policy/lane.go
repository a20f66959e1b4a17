package policy

import (
	"errors"
	"fmt"
	"math/bits"

	"github.com/spillgate/spillgate"
)

// A Lane lets requests that match take of a limit only what leaves Keep units
// of it, so that better requests find some. Of a rule's lanes the first that
// matches decides. An odd path that is in one lane by one reading and in
// another by the next (see [AppendPath]) is in the one that keeps more.
type Lane struct {
	// Match says whose lane this is; empty means all that no lane before it
	// matches.
	Match Match
	// Keep is how many units must stay, below what fits at once.
	Keep int64
	// Percent says it in place of Keep: a part, below 100 %, of what fits at
	// once, rounded up.
	Percent int
}

// Kept returns how many units of l must stay.
func (n *Lane) Kept(l spillgate.Limit) int64 {
	if n.Percent == 0 {
		return n.Keep
	}
	return part(l.Cap(), int64(n.Percent), 100, 99)
}

// part returns (n·of + more)/whole, for of and more up to whole.
func part(n, of, whole, more int64) int64 {
	hi, lo := bits.Mul64(uint64(n), uint64(of))
	lo, carry := bits.Add64(lo, uint64(more), 0)
	q, _ := bits.Div64(hi+carry, lo, uint64(whole))
	return int64(q)
}

// lane is a Lane made ready.
type lane struct {
	match []condition
	keep  int64
}

// compileLanes makes the lanes of r ready, for a limit that fits most at once.
func (r *Rule) compileLanes(most int64, bad func(entry int, err error)) []lane {
	switch {
	case len(r.Lanes) == 0:
		return nil
	case r.Deny:
		bad(0, errors.New("a rule that denies has no limit of which to keep something; remove one of them"))
		return nil
	case r.Limit.Algorithm == spillgate.Unlimited:
		bad(0, errors.New("nothing of unlimited is ever used up, so there is nothing to keep; remove one of them"))
		return nil
	}
	out := make([]lane, len(r.Lanes))
	least, greatest, cost := most, int64(0), r.leastCost()
	for i := range r.Lanes {
		n := &r.Lanes[i]
		var err error
		if out[i].match, err = compileMatch(n.Match); err != nil {
			bad(i+1, fmt.Errorf("match: %w", err))
		}
		switch last := i == len(r.Lanes)-1; {
		case last && len(n.Match) > 0:
			bad(i+1, errors.New("requests that match no lane are not spoken of; add a lane without match at the end, such as {keep: 0}"))
		case !last && len(n.Match) == 0:
			bad(i+1, errors.New("this lane has no match, so it takes every request, and those after it are never used; write it at the end"))
		}
		if n.Percent < 0 || n.Percent > 99 || n.Percent > 0 && n.Keep != 0 {
			bad(i+1, fmt.Errorf("keep: want units, or a percentage from 0 to 99, not %d units and %d percent", n.Keep, n.Percent))
			return nil
		}
		keep := n.Kept(r.Limit)
		out[i].keep = keep
		least, greatest = min(least, keep), max(greatest, keep)
		switch {
		case keep < 0:
			bad(i+1, fmt.Errorf("keep: %d: must not be negative", keep))
		case cost > most: // told as a cost that never fits
		case keep > most-cost:
			bad(i+1, fmt.Errorf("keep: %d of %d leave less than the %d that a request costs, so this lane would always be refused; write keep: %d, the most", keep, most, cost, most-cost))
		}
	}
	switch {
	case greatest == 0:
		bad(0, errors.New("no lane keeps anything, so they have no effect; remove them, or keep something in the lanes of less important requests"))
	case least > 0:
		bad(0, fmt.Errorf("every lane keeps at least %d, which nobody could ever use; write keep: 0 in the best lane, or lower the limit", least))
	}
	return out
}

// keep returns how many units the request must leave. Of lanes that a path is
// in by some of its readings the one counts that keeps most.
func (r *rule) keep(s *request) int64 {
	keep := int64(0)
	for i := range r.lanes {
		n := &r.lanes[i]
		if !s.meets(n.match, false) {
			continue
		}
		keep = max(keep, n.keep)
		if s.meets(n.match, true) {
			break
		}
	}
	return keep
}

// keepOf returns as great a part of another limit as keep is of r's own.
func (r *rule) keepOf(m *spillgate.Meter, keep int64) int64 {
	if keep == 0 || m == r.meter {
		return keep
	}
	own, most := r.meter.Limit().Cap(), m.Limit().Cap()
	return part(most, keep, own, 0)
}

// LaneOnWord returns the number, from 1, of a lane that a client is in or not
// by an attribute that it claims, and that attribute; ok is false if there is
// none. Whoever claims it takes from what is kept for others, though never
// more than the limit.
func (r *Rule) LaneOnWord() (lane int, claimed Attribute, ok bool) {
	for i := range r.Lanes {
		if claimed, ok = r.Lanes[i].Match.onWord(); ok {
			return i + 1, claimed, true
		}
	}
	return 0, Attribute{}, false
}

// Kept returns how many units of the limit stay for better lanes than the
// request's: its Remaining and RetryAfter are without them.
func (o *Outcome) Kept() int64 { return o.keep }
