package redisstore

import (
	"sync"
	"time"

	"github.com/spillgate/spillgate"
)

// maxRefusals bounds how many refusals are remembered.
const maxRefusals = 1 << 16

// refusals remembers which keys were refused, so that whoever knocks again
// before its time is told so without a round trip, by the same numbers.
//
// What is remembered can only be too strict: others may have taken more since,
// which makes the wait longer; where another process has given something back,
// or has changed the limit, it is too long by at most what [Remember] says. Logs
// and slots are not remembered, since there giving back is the rule.
type refusals struct {
	mu       sync.RWMutex
	now, old map[refusedKey]*refusal // two generations, so that old ones go
}

type refusedKey struct {
	sp *spillgate.Space
	id spillgate.Key
}

// A refusal holds what the states of a request were when it was refused.
type refusal struct {
	until  time.Time
	states []refusedState
}

type refusedState struct {
	refusedKey
	m *spillgate.Meter
	held
}

func (r *refusals) size() int {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return len(r.now) + len(r.old)
}

func (r *refusals) find(k refusedKey) *refusal {
	r.mu.RLock()
	f := r.now[k]
	if f == nil {
		f = r.old[k]
	}
	r.mu.RUnlock()
	return f
}

func (r *refusals) put(k refusedKey, f *refusal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.now == nil || len(r.now) >= maxRefusals/2 {
		r.now, r.old = map[refusedKey]*refusal{}, r.now
	}
	r.now[k] = f
}

// forget drops what is known of a key to which something is given back.
func (r *refusals) forget(k refusedKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.now, k)
	delete(r.old, k)
}

// of returns what the state of a key was, nil if f does not know.
func (f *refusal) of(k refusedKey) *refusedState {
	for i := range f.states {
		if f.states[i].refusedKey == k {
			return &f.states[i]
		}
	}
	return nil
}

// remember notes that o was refused, sent at an instant of this machine.
func (s *Store) remember(o *op, sent time.Time) {
	if s.options.remember <= 0 || o.given || o.passes {
		return
	}
	var f *refusal
	for i := range o.parts {
		p := &o.parts[i]
		if p.kind.kept() {
			return
		}
		d := &o.out[p.first]
		if p.trial || d.Allowed || d.Reason != spillgate.OverLimit {
			continue
		}
		if f == nil {
			f = &refusal{states: make([]refusedState, 0, len(o.parts))}
			for j := range o.parts {
				if q := &o.parts[j]; q.root == j && q.kind != kindNone {
					f.states = append(f.states, refusedState{refusedKey{q.sp, q.id}, q.m, q.before})
				}
			}
		}
		f.until = sent.Add(min(d.RetryAfter, s.options.remember))
		s.refusals.put(refusedKey{p.sp, p.id}, f)
		return // the first is enough: who comes again has the same keys
	}
}

// refusedOne decides a single charge by what is remembered, and reports
// whether that refuses it.
func (s *Store) refusedOne(c *spillgate.Charge, d *spillgate.Decision) bool {
	k := refusedKey{c.Space, c.Key}
	f := s.refusals.find(k)
	if f == nil || c.Trial || c.Space.Options().TTL > 0 {
		return false
	}
	at := time.Now()
	st := f.of(k)
	if !at.Before(f.until) || c.Space.InForce(c.Meter) != st.m {
		return false
	}
	now := s.nowAt(at)
	_, *d = st.m.Grant(c.Space.Settled(st.s, st.m, now), now, c.Ask)
	if d.Allowed || d.Reason != spillgate.OverLimit {
		return false
	}
	s.stats.refused.Add(1)
	return true
}

// refusedBefore decides o by what is remembered, and reports whether that
// refuses it. The numbers of limits that do not refuse are those of then.
func (s *Store) refusedBefore(o *op) bool {
	for i := range o.parts {
		p := &o.parts[i]
		if p.trial || p.kind == kindNone {
			continue
		}
		f := s.refusals.find(refusedKey{p.sp, p.id})
		if f == nil {
			continue
		}
		at := time.Now()
		if !at.Before(f.until) || !o.recall(f) {
			continue
		}
		o.now = s.nowAt(at)
		if o.judge(); !o.passes {
			s.stats.refused.Add(1)
			return true
		}
	}
	return false
}

// recall gives o's parts the states that f knows, and reports whether it knows
// them all.
func (o *op) recall(f *refusal) bool {
	for i := range o.parts {
		p := &o.parts[i]
		switch {
		case p.kind == kindNone || p.root != i:
			continue
		case p.kind.kept():
			return false
		}
		st := f.of(refusedKey{p.sp, p.id})
		if st == nil || st.m != p.m {
			return false
		}
		p.before = st.held
	}
	return true
}
