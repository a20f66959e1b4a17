package redisstore

import (
	"fmt"

	"github.com/spillgate/spillgate"
)

// take carries o out, all of whose keys are in one slot, and fills its
// decisions in.
func (s *Store) take(w *wait, o *op) error {
	for range maxRounds {
		o.expect(s)
		if err := s.do(w, o); err != nil {
			return err
		}
		switch {
		case o.letter == 'C':
			o.replace = nil
			if !o.fresh {
				continue
			}
			// Written under another limit, or several in turn: decided here,
			// and written if nobody was faster.
			now, given := o.now, o.given
			o.judge()
			if !o.passes || o.dry {
				return nil
			}
			o.replaced(now, given)
		case o.letter == 'W': // the server's clock is known better now
		case o.replace == nil:
			return nil
		case o.letter == 'A':
			o.retell()
			return nil
		default: // a log or slots refuse what they did not before
			o.replace = nil
		}
		if !o.given {
			o.now = s.now()
		}
	}
	return fmt.Errorf("redisstore: %w: %d rounds, and each time somebody was faster", spillgate.ErrUnavailable, maxRounds)
}

// maxRounds is how often one request is tried whose states were written under
// another limit, if that takes no longer than it may. Nothing is taken by a try that
// fails, and none is a fault of the server.
const maxRounds = 100

// expect fills in what the script can't know: where the windows about now lie,
// and which keys that are not there are no new ones.
func (o *op) expect(s *Store) {
	for i := range o.parts {
		p := &o.parts[i]
		if p.kind == kindFixed || p.kind == kindSliding {
			if period := p.m.Limit().Period; o.given || period <= 0 || period >= shortPeriod {
				start, _ := p.m.Window(o.now)
				if p.near = start; start == 0 {
					p.near = 1
				}
			}
		}
		if _, changed := p.sp.Changed(); changed && !p.kind.kept() && p.kind != kindNone {
			p.strict = p.sp.Settled(spillgate.State{}, p.m, o.now) != spillgate.State{}
		}
	}
}

// replaced makes o one that replaces what was read by what judge left.
func (o *op) replaced(now spillgate.Instant, given bool) {
	o.replace = make([]replacement, len(o.parts))
	for i := range o.parts {
		p := &o.parts[i]
		if p.root != i || p.kind == kindNone || p.kind.kept() {
			continue
		}
		r := &o.replace[i]
		r.given, r.now = given, now
		r.from, _ = o.raws[i].(string)
		if r.same = !p.charged; r.same {
			continue
		}
		by := o.writer(i)
		if p.after.s != (spillgate.State{}) {
			var b []byte
			b, r.until = appendState(nil, p.after.s, by.m, now, int64(by.ttl))
			r.to = string(b)
		}
	}
}

// writer returns the part that was the last to take from root i.
func (o *op) writer(i int) *part {
	by := &o.parts[i]
	for j := range o.parts {
		if p := &o.parts[j]; p.root == i && p.took {
			by = p
		}
	}
	return by
}

// do sends o and waits for the answer.
func (s *Store) do(w *wait, o *op) error {
	l, err := s.laneOf(w, o)
	if err != nil {
		return err
	}
	if l.breaker.open.Load() {
		s.stats.shut.Add(1)
		return errOpen
	}
	l.submit(w.carry(), o)
	return w.for1(o)
}

// oneSlot reports whether all keys of o are in one slot, which it then knows.
func (o *op) oneSlot() bool {
	first := true
	for i := range o.parts {
		p := &o.parts[i]
		if p.kind == kindNone {
			continue
		}
		at := slotOf(p.key)
		if !first && at != o.slot {
			return false
		}
		o.slot, first = at, false
	}
	return true
}
