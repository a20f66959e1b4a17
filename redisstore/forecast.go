package redisstore

import (
	"context"
	"time"

	"github.com/spillgate/spillgate"
)

// Forecast implements [spillgate.Forecaster] for sliding counters: a round trip like
// that of a look. Of buckets and fixed windows a refusal tells enough, and of what is in
// a log the server tells no more than a decision needs.
func (s *Store) Forecast(ctx context.Context, c *spillgate.Charge) (f spillgate.Forecast, err error) {
	if c.Meter.Limit().Algorithm != spillgate.SlidingCounter {
		return f, nil
	}
	if err := ctx.Err(); err != nil {
		return f, err
	}
	if s.closed.Load() {
		return f, spillgate.ErrClosed
	}
	o := s.newOp()
	if err := o.fill([]spillgate.Charge{{Space: c.Space, Key: c.Key, Meter: c.Meter}}, s.key); err != nil {
		s.free(o)
		return f, err
	}
	began := time.Now()
	o.now = s.nowAt(began)
	if err := s.ask(ctx, o, began); err != nil {
		return f, err // whoever carries o may still do so
	}
	p := &o.parts[0]
	f = p.m.Foresee(p.sp.Settled(p.before.s, p.m, o.now), o.now)
	s.free(o)
	return f, nil
}
