package spillgate

import (
	"context"
	"slices"
	"time"

	"github.com/spillgate/spillgate/internal/table"
)

// A Forecast says when those are served who wait in line for a key, each at the
// earliest instant that the limit permits, if nobody else comes: the step that will
// decide about them decides here. Slots are taken for held until they expire, since
// nobody knows when one is given back. The zero Forecast foresees nothing.
type Forecast struct {
	m        *Meter
	from, at Instant // when it was made, and when the last of those served is
	s        State
	log      *logState
	slots    *slotState
}

// A Forecaster is a [Store] that can make a [Forecast] of a key. Of one that can't,
// [Meter.Forecast] makes one of what it says.
type Forecaster interface {
	Store
	// Forecast returns how the key of a charge stands now, on the store's clock, or
	// the zero Forecast if it can't be said.
	Forecast(ctx context.Context, c *Charge) (Forecast, error)
}

// Forecast implements [Forecaster].
func (m *Memory) Forecast(_ context.Context, c *Charge) (f Forecast, err error) {
	b, err := m.bind(c.Space)
	if err != nil || c.Meter.limit.Algorithm == Concurrency {
		return f, err
	}
	times := m.instants(time.Time{})
	now := times[times.of(c.Meter)]
	b.with(table.Tag(c.Key[0]), c.Meter, &now, func(s State, _ bool) {
		f = Forecast{m: c.Meter, s: s}
		if !c.Meter.keeps {
			return
		}
		f.log = &logState{}
		if o := b.keeper.of(c.Space, s, c.Meter, now); o != nil && o.log != nil {
			f.log = o.log.clone()
		}
	})
	f.from, f.at = now, now
	return f, nil
}

// Forecast returns what is foreseen after a decision by m that refused q: that q is
// served when it says. It is exact, but for the rounding of a nanosecond, where that
// tells how the key stands then, for buckets and fixed windows. Of others it is the
// instant at which the key is as new, which is enough.
func (m *Meter) Forecast(q Ask, d Decision) Forecast {
	f := Forecast{m: m, from: d.At, at: Instant(later(int64(d.At), int64(d.RetryAfter)))}
	switch m.limit.Algorithm {
	case Bucket, Queue:
		if m.den != 0 { // what it has then is just enough
			need, _ := m.spanOf(q.N + q.Keep)
			f.s = m.packFlow(flow{}.plus(m.cap, m.den).minus(need, m.den), m.within(f.at))
		}
	case SlidingCounter, SlidingLog, Concurrency:
		f.at = max(f.at, Instant(later(int64(d.At), int64(d.ResetAfter))))
		f.log, f.slots = &logState{}, &slotState{}
	}
	return f
}

// Foresee returns what is foreseen of a key whose state is s at an instant. States of
// logs and slots say too little for that.
func (m *Meter) Foresee(s State, at Instant) Forecast {
	if m.keeps {
		return Forecast{}
	}
	return Forecast{m: m, s: s, from: at, at: at}
}

// Known reports whether f foresees anything.
func (f *Forecast) Known() bool { return f.m != nil }

// Same reports whether f and g foresee the same of whoever comes after now.
func (f *Forecast) Same(g *Forecast) bool {
	return f.m == g.m && f.log == nil && g.log == nil && f.s == g.s // a kept state is more
}

// Clone returns a copy of f, which serves others than f.
func (f *Forecast) Clone() Forecast {
	g := *f
	if f.log != nil {
		g.log = f.log.clone()
	}
	if f.slots != nil {
		slots := *f.slots
		slots.places = slices.Clone(slots.places)
		g.slots = &slots
	}
	return g
}

// Wait returns how long after f was made q is served behind all whom f has served;
// [Never] if it never is.
func (f *Forecast) Wait(q Ask) time.Duration {
	_, d := f.ask(q, f.at)
	if d.RetryAfter == Never {
		return Never
	}
	return Instant(later(int64(d.At), int64(d.RetryAfter))).sub(f.from)
}

// Serve serves q, unless it never is.
func (f *Forecast) Serve(q Ask) {
	after, d := f.ask(q, f.at)
	if !d.Allowed && d.RetryAfter != Never {
		after, d = f.ask(q, Instant(later(int64(d.At), int64(d.RetryAfter))))
	}
	if !d.Allowed {
		return
	}
	f.at, f.s = d.At, after
	switch f.m.limit.Algorithm {
	case SlidingLog:
		f.log.commit(f.m, d)
	case Concurrency:
		f.slots.commit(f.m, d, 1)
	}
}

// ask decides about q at an instant, which is not before that of any other ask.
func (f *Forecast) ask(q Ask, at Instant) (after State, d Decision) {
	switch f.m.limit.Algorithm {
	case SlidingLog:
		return f.s, f.log.ask(f.m, at, q)
	case Concurrency:
		return f.s, f.slots.ask(f.m, at, q)
	}
	return f.m.Grant(f.s, at, q)
}

// clone returns a copy of l that is changed apart from it.
func (l *logState) clone() *logState {
	c := *l
	c.ring = slices.Clone(l.ring)
	return &c
}
