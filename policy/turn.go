package policy

import (
	"time"

	"github.com/spillgate/spillgate"
)

// What those are told who do not get into a line, or leave it unserved: an
// instant at which all who stand there are served, by what the store said.

// all returns the units of all in q.
func (q *line) all() int64 { return q.first.units + q.units }

// wait returns how long it takes until n units are there behind all in q. Of
// slots nobody knows: 1 ns.
func (q *line) wait(now time.Time, l spillgate.Limit, n int64) time.Duration {
	if l.Algorithm == spillgate.Concurrency {
		return 1
	}
	return max(1, longer(q.due.Sub(now), l.Earn(q.units+n)))
}

// longer returns a+b, saturated. b is not negative.
func longer(a, b time.Duration) time.Duration {
	if a > spillgate.Never-b {
		return spillgate.Never
	}
	return a + b
}

// behind returns how long c, which d refuses, has to wait behind a line of that
// many units until its own are there. Those who hold slots may never give them
// back, and those who get them then neither: so each expires.
func (r *Rule) behind(c *spillgate.Charge, d *spillgate.Decision, units int64) time.Duration {
	l := c.Meter.Limit()
	if l.Algorithm != spillgate.Concurrency {
		return max(1, longer(d.RetryAfter, l.Earn(units)))
	}
	// All that are held now expire by the reset, and as many each time after.
	times := (units + c.N - 1) / max(1, l.Cap()-c.Keep)
	wait := spillgate.Never
	if times < int64(spillgate.Never/l.Period) {
		wait = longer(d.ResetAfter, time.Duration(times)*l.Period)
	}
	// And nobody waits longer than a delay lasts.
	return max(1, d.RetryAfter, min(wait, longer(r.Delay.Most, l.Period)))
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
			d.RetryAfter = o.Rule.behind(c, d, q.all())
			if d.ResetAfter != spillgate.Never {
				d.ResetAfter = max(d.ResetAfter, d.RetryAfter)
			}
		}
	}
}
