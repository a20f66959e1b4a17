package simulation

import (
	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/proof/oracle"
)

// oracles foretell what the store answers (I15): one for each account, asked
// with the instant at which the store decided.
type oracles struct {
	ledger *ledger
	of     map[*entry]*oracle.Limiter
}

func newOracles(l *ledger) *oracles {
	return &oracles{ledger: l, of: map[*entry]*oracle.Limiter{}}
}

func (o *oracles) limiter(e *entry) *oracle.Limiter {
	if o.of[e] == nil {
		l := e.limit
		name := oracle.TokenBucket
		if l.Algorithm == spillgate.FixedWindow {
			name = oracle.FixedWindow
		}
		limiter, err := oracle.New(name, l.Rate, int64(l.Period), l.Burst)
		if err != nil {
			o.ledger.world.fail("%v", err)
		}
		o.of[e] = limiter
	}
	return o.of[e]
}

// compare holds the answers to one request against the oracles': all charges or
// none (I14), and every number.
func (o *oracles) compare(w *world, cs []spillgate.Charge, ds []spillgate.Decision) {
	passes := true
	for i := range cs {
		limiter := o.limiter(o.ledger.of(cs[i].Space, cs[i].Key)).Clone()
		passes = passes && limiter.Step(int64(ds[i].At), cs[i].N).Allowed
	}
	for i := range cs {
		e, d := o.ledger.of(cs[i].Space, cs[i].Key), &ds[i]
		limiter := o.limiter(e)
		at := int64(d.At)
		var want oracle.Answer
		switch ask := limiter.Clone().Step(at, cs[i].N); {
		case passes:
			want = limiter.Step(at, cs[i].N)
		case ask.Allowed: // refused by another one
			want = limiter.Step(at, 0)
		default:
			want = limiter.Step(at, cs[i].N)
		}
		got := oracle.Answer{Allowed: d.Allowed, Remaining: d.Remaining, RetryAfter: int64(d.RetryAfter), ResetAfter: int64(d.ResetAfter)}
		if d.RetryAfter == spillgate.Never {
			got.RetryAfter = oracle.Never
		}
		if got != want || passes && d.Taken != cs[i].N || !passes && d.Taken != 0 {
			w.fail("%s: the store says %+v to %d, the oracle %+v", e.name, *d, cs[i].N, want)
		}
	}
}
