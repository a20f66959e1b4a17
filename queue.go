package spillgate

import "time"

// takeQueue is the leaky bucket as a queue, the shaper. Units leave one by
// one, each a period/rate after the one before, the first at once when it
// comes to an idle output. A request of n units goes when its last one leaves:
// its Delay is the wait for that, rounded up to a whole nanosecond. It is
// admitted if then no more than Burst units wait beside the one that leaves.
//
// The state is the instant at which the output is idle. With u the time until
// then, the last of n units leaves after u + (n-1)/rate, which must not be
// above burst/rate: a bucket of burst+1 units, with a delay.
func (m *Meter) takeQueue(s State, now Instant, q Ask, d *Decision) State {
	ahead := flowOf(s, now)
	s = m.takeBucket(s, now, q, d)
	if d.Taken > 0 {
		own, _ := m.spanOf(d.Taken - 1)
		d.Delay = time.Duration(ahead.add(own, m.den).ns)
	}
	return s
}
