package oracle

import "math/big"

// A queue is the leaky bucket that shapes: units leave it one by one, each a
// period/limit after the one before, the first at once when it comes to an
// idle output. A step is admitted if, with its units, no more than so many
// units as there are places still wait. A unit that leaves at this very
// instant doesn't wait.
//
// The backlog is the time until the output is idle, told in units: with
// backlog x, the next unit to come leaves after x intervals, and the n-th of
// a step after x+n-1 intervals. It waits if that is above 0, and then the
// units waiting are those x+n-1, rounded up: they leave one an interval. So
// the condition is x+n-1 <= places.
type queue struct {
	limit, period, places int64
	now                   int64
	backlog               *big.Rat // never below 0
}

func (q *queue) rate() *big.Rat { return ratio(q.limit, q.period) }

// after returns how many intervals from now the last of cost units leaves.
func (q *queue) after(cost int64) *big.Rat {
	return add(q.backlog, sub(whole(cost), whole(1)))
}

func (q *queue) settle(now int64) {
	left := mul(whole(now-q.now), q.rate())
	q.drop(left)
	q.now = now
}

func (q *queue) drop(n *big.Rat) {
	q.backlog = sub(q.backlog, n)
	if q.backlog.Sign() < 0 {
		q.backlog = new(big.Rat)
	}
}

func (q *queue) fits(cost int64) bool {
	if q.limit == 0 {
		return q.after(cost).Sign() == 0
	}
	return !less(whole(q.places), q.after(cost))
}

func (q *queue) delay(cost int64) int64 {
	if q.limit == 0 {
		return 0 // fits let only that through
	}
	return span(div(q.after(cost), q.rate()))
}

func (q *queue) take(cost int64) { q.backlog = add(q.backlog, whole(cost)) }

func (q *queue) retry(cost int64) int64 {
	// The last of cost units waits behind the cost-1 others even in an idle
	// queue.
	if cost-1 > q.places || q.limit == 0 {
		return Never
	}
	return span(div(sub(q.after(cost), whole(q.places)), q.rate()))
}

func (q *queue) remaining() int64 {
	if q.limit == 0 {
		if q.backlog.Sign() == 0 {
			return 1
		}
		return 0
	}
	return units(sub(add(whole(q.places), whole(1)), q.backlog))
}

func (q *queue) reset() int64 {
	switch {
	case q.backlog.Sign() == 0:
		return 0
	case q.limit == 0:
		return Never
	}
	return span(div(q.backlog, q.rate()))
}

func (q *queue) refund(amount, _ int64) { q.drop(whole(amount)) }

func (q *queue) set(limit, period, burst int64, _ bool) {
	q.limit, q.period, q.places = limit, period, burst
}

func (q *queue) clone() model { c := *q; return &c }
