package policy

import (
	"context"
	"time"

	"github.com/spillgate/spillgate"
)

// What those are told who do not get into a line, or leave it unserved: an
// instant at which all who stand there are served, by what the store said.

// foresee returns the line of o, which refuses, as it is without anybody in it, and
// with what it will be told. Its units are those of the request.
func (e *Engine) foresee(ctx context.Context, v *Verdict, s *scratch, o *Outcome) (q line) {
	q.key, q.units = lineKey{o.index, o.key, o.keep}, 1
	for i := range s.charges {
		if c := &s.charges[i]; int32(s.index[i]) == o.index && c.Key == o.key && c.Need == 0 {
			q.units = c.N
		}
	}
	m, sp := e.meter(o), e.spaces[o.index]
	if m.Limit().Algorithm == spillgate.Concurrency {
		return q
	}
	if f, ok := v.store(o.from).(spillgate.Forecaster); ok && sp.Options().TTL == 0 { // what is forgotten is not foreseen
		q.told, _ = f.Forecast(ctx, &spillgate.Charge{Space: sp, Key: o.key, Meter: m})
	}
	if !q.told.Known() {
		q.told = m.Forecast(q.ask(q.units), o.Decision)
	}
	q.asked = time.Now()
	return q
}

// learn notes what the first in line was told, for those behind.
func (h *held) learn(told *line) {
	h.lines.mu.Lock()
	defer h.lines.mu.Unlock()
	q := h.lines.of[told.key]
	if q == nil || h.place == nil || q.first != h.place || q.told.Same(&told.told) {
		return
	}
	q.told, q.asked, q.known = told.told, told.asked, false
}

// ask is what one in q asks for.
func (q *line) ask(units int64) spillgate.Ask {
	return spillgate.Ask{N: units, Keep: q.key.keep}
}

// wait returns how long it takes until n units are there behind all in q. Of
// slots nobody knows: 1 ns.
func (q *line) wait(now time.Time, n int64) time.Duration {
	if !q.told.Known() {
		return 1
	}
	if !q.known {
		q.end, q.known = q.told.Clone(), true
		for p := q.first; p != nil; p = p.next {
			q.end.Serve(q.ask(p.units))
		}
	}
	wait := q.end.Wait(q.ask(n))
	if wait == spillgate.Never {
		return wait
	}
	return max(1, q.asked.Add(wait).Sub(now))
}

// longer returns a+b, saturated. b is not negative.
func longer(a, b time.Duration) time.Duration {
	if a > spillgate.Never-b {
		return spillgate.Never
	}
	return a + b
}

// tells returns the wait that c is told behind all in q, d being what was said of it
// just now.
func (q *line) tells(r *Rule, c *spillgate.Charge, d *spillgate.Decision) time.Duration {
	l := c.Meter.Limit()
	if l.Algorithm != spillgate.Concurrency {
		return max(d.RetryAfter, q.wait(time.Now(), c.N))
	}
	// Those who hold slots may never give them back, and those who get them then
	// neither: so each expires.
	f := c.Meter.Forecast(q.ask(c.N), *d)
	for p := q.first; p != nil; p = p.next {
		f.Serve(q.ask(p.units))
	}
	// And nobody waits longer than a delay lasts.
	return max(1, d.RetryAfter, min(f.Wait(q.ask(c.N)), longer(r.Delay.Most, l.Period)))
}

// tellLines makes those whom v refuses for a while wait for the others in line
// as well. None of these is the request itself.
func (e *Engine) tellLines(v *Verdict, s *scratch) {
	l := &e.lines
	if v.Allowed || v.err != nil || l.busy.Load() == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range s.charges {
		c := &s.charges[i]
		q := l.of[lineKey{int32(s.index[i]), c.Key, c.Keep}]
		if q == nil || c.Trial || c.Need > 0 {
			continue
		}
		for k := range v.Len() {
			o := v.Outcome(k)
			d := &o.Decision
			if int(o.index) != s.index[i] || o.key != c.Key || !o.Refuses() || d.Reason != spillgate.OverLimit || d.RetryAfter == spillgate.Never {
				continue
			}
			d.RetryAfter = q.tells(o.Rule, c, d)
			if d.ResetAfter != spillgate.Never {
				d.ResetAfter = max(d.ResetAfter, d.RetryAfter)
			}
		}
	}
}
