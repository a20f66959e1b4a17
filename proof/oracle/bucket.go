package oracle

import "math/big"

// A bucket is the token bucket: it starts with burst units, earns limit units
// a period, evenly and without end, holds burst at most, and a step takes its
// cost if that much is there.
//
// GCRA (ITU-T I.371) and the leaky bucket as a meter are the same seen from
// elsewhere: GCRA's theoretical arrival time is the instant at which the
// bucket will be full, the meter's level is what is missing in the bucket.
type bucket struct {
	limit, period, burst int64
	now                  int64
	balance              *big.Rat // below 0: debt
}

// rate returns the units earned in one nanosecond.
func (b *bucket) rate() *big.Rat { return ratio(b.limit, b.period) }

func (b *bucket) settle(now int64) {
	earned := mul(whole(now-b.now), b.rate())
	b.balance = least(add(b.balance, earned), whole(b.burst))
	b.now = now
}

func (b *bucket) fits(cost int64) bool { return !less(b.balance, whole(cost)) }

func (b *bucket) delay(int64) int64 { return 0 }

func (b *bucket) take(cost int64) { b.balance = sub(b.balance, whole(cost)) }

func (b *bucket) retry(cost int64) int64 {
	if cost > b.burst {
		return Never
	}
	return b.until(whole(cost))
}

func (b *bucket) remaining() int64 { return units(b.balance) }

func (b *bucket) reset() int64 { return b.until(whole(b.burst)) }

// until returns the wait until there are want units, want <= burst.
func (b *bucket) until(want *big.Rat) int64 {
	missing := sub(want, b.balance)
	switch {
	case missing.Sign() <= 0:
		return 0
	case b.limit == 0:
		return Never
	}
	return span(div(missing, b.rate()))
}

func (b *bucket) refund(amount, _ int64) {
	b.balance = least(add(b.balance, whole(amount)), whole(b.burst))
}

func (b *bucket) set(limit, period, burst int64, fill bool) {
	if fill && burst > b.burst {
		b.balance = whole(burst)
	}
	b.limit, b.period, b.burst = limit, period, burst
	b.balance = least(b.balance, whole(burst))
}

func (b *bucket) clone() model { c := *b; return &c }
