package nemesis

import (
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/spillgate/spillgate"
)

// A story is a history as one exact limiter would have it, two or three calls at a
// time, and what is then changed in it.
type story struct {
	limiter
	pair   bool
	line   line
	now    int64
	of     []*asked
	losses []loss
}

const step = int64(2 * time.Millisecond)

func (s *story) ask(member int) *asked {
	s.now += step
	a := &asked{Pair: s.pair, Member: member, Call: s.now - step, Return: s.now + step + 1}
	var said [2]spillgate.Decision
	s.line, said = s.take(s.line, a, spillgate.Instant(s.now))
	a.Said = said[:len(s.meters)]
	s.of = append(s.of, a)
	return a
}

// several has members ask in turn.
func (s *story) several(n int) {
	for i := range n {
		if s.pair {
			s.ask(i % members)
		} else {
			s.ask(0)
		}
	}
}

// lose has a request charged so many times, and nobody told.
func (s *story) lose(times int) {
	for range times {
		s.ask(0)
		s.of = s.of[:len(s.of)-1]
	}
	s.of = append(s.of, &asked{Pair: s.pair, Call: s.now - step, Return: s.now, Lost: true})
}

// fault notes what happens to the server now.
func (s *story) fault(failover bool) {
	s.now += step
	l := loss{from: s.now, to: s.now, place: -1}
	if failover {
		l.joining, l.joined = s.now+10*step, s.now+10*step
	}
	s.losses = append(s.losses, l)
}

// first returns the first answer that is one, or is none, after so many.
func (s *story) first(allowed bool, after int) *asked {
	for _, a := range s.of[after:] {
		if (a.Said[0].Taken > 0) == allowed {
			return a
		}
	}
	panic("none")
}

// TestModel: the search finds the order of a history that has one, and none for one
// that was made worse.
func TestModel(t *testing.T) {
	for _, tt := range []struct {
		name string
		want porcupine.CheckResult
		do   func(s *story)
	}{
		{"plain", porcupine.Ok, func(s *story) { s.several(60) }},
		{"told later than another", porcupine.Ok, func(s *story) {
			s.several(60)
			s.of[10].Return += 20 * step
			s.of[30].Call -= 15 * step
		}},
		{"one too many", porcupine.Illegal, func(s *story) {
			s.several(70)
			a := s.first(false, 0)
			for i := range a.Said {
				d := &a.Said[i]
				d.Allowed, d.Reason, d.Taken, d.RetryAfter = true, spillgate.Granted, a.cost(), 0
			}
		}},
		{"one too few", porcupine.Illegal, func(s *story) {
			s.several(70)
			s.of[0].Said = slices.Clone(s.of[0].Said)
			s.of[0].Said[0].Allowed = false
		}},
		{"the same remainder twice", porcupine.Illegal, func(s *story) { s.several(60); s.of[9].Said = s.of[3].Said }},
		{"one more remains", porcupine.Illegal, func(s *story) { s.several(60); s.of[9].Said[0].Remaining++ }},
		{"a nanosecond", porcupine.Illegal, func(s *story) { s.several(60); s.of[9].Said[0].ResetAfter++ }},
		{"against real time", porcupine.Illegal, func(s *story) {
			s.several(60)
			s.of[3].Said, s.of[9].Said = s.of[9].Said, s.of[3].Said
		}},
		{"an answer is missing", porcupine.Illegal, func(s *story) { s.several(60); s.of = slices.Delete(s.of, 6, 7) }},
		{"lost, and charged", porcupine.Ok, func(s *story) { s.several(5); s.lose(1); s.lose(1); s.several(40) }},
		{"lost, and not charged", porcupine.Ok, func(s *story) { s.several(5); s.lose(0); s.several(40) }},
		{"lost, and charged late", porcupine.Ok, func(s *story) {
			s.several(5)
			s.lose(0)
			s.several(3)
			s.lose(1)
			s.of = s.of[:len(s.of)-1]
			s.several(40)
		}},
		{"lost, and charged twice", porcupine.Illegal, func(s *story) { s.several(5); s.lose(2); s.several(40) }},
		{"charged before it was asked", porcupine.Illegal, func(s *story) {
			s.several(3)
			s.lose(1)
			a := s.of[3]
			s.of = s.of[:3]
			s.several(2)
			a.Call, a.Return = s.now+2*step, s.now+2*step
			s.now += 3 * step
			s.of = append(s.of, a)
			s.several(40)
		}},
		{"all lost", porcupine.Ok, func(s *story) { s.several(20); s.fault(false); s.line = line{}; s.several(20) }},
		{"all lost by itself", porcupine.Illegal, func(s *story) { s.several(20); s.line = line{}; s.several(20) }},
		{"all lost twice", porcupine.Illegal, func(s *story) {
			s.several(20)
			s.fault(false)
			s.line = line{}
			s.several(20)
			s.line = line{}
			s.several(20)
		}},
		{"nothing lost of all", porcupine.Illegal, func(s *story) { s.several(4); s.fault(false); s.now += step; s.several(20) }},
		{"a failover that loses the last", porcupine.Ok, func(s *story) {
			s.several(6)
			before := s.line
			s.several(3)
			s.fault(true)
			s.line = before
			s.several(20)
		}},
		{"two count until one ceases", porcupine.Ok, func(s *story) {
			s.several(6)
			s.fault(true)
			old, next := s.line, s.line
			for range 3 {
				s.line = old
				s.several(1)
				old, s.line = s.line, next
				s.several(1)
				next = s.line
			}
			s.now += 10 * step
			s.several(20)
		}},
		{"two count for ever", porcupine.Illegal, func(s *story) {
			s.several(6)
			s.fault(true)
			s.now += 12 * step
			old := s.line
			s.several(1)
			s.line = old
			s.several(20)
		}},
	} {
		for _, pair := range []bool{false, true} {
			s := &story{pair: pair, now: int64(time.Hour), limiter: limiter{meters: paceModel}}
			if pair {
				s.meters = pairModel
			}
			tt.do(s)
			ops, forks := operations(s.of, 0, s.losses)
			if got := porcupine.CheckOperationsTimeout(model(pair, forks), ops, patience); got != tt.want {
				t.Errorf("%s, pair %t: %s, want %s", tt.name, pair, got, tt.want)
			}
		}
	}
}

// TestModelOfPairs: what is charged to a member is charged to its group, also where
// nobody was told of it.
func TestModelOfPairs(t *testing.T) {
	for i, tt := range []struct {
		want porcupine.CheckResult
		do   func(s *story)
	}{
		{porcupine.Ok, func(s *story) { s.lose(1) }},
		{porcupine.Illegal, func(s *story) { // to the group alone
			before := s.line
			s.lose(1)
			s.line[1] = before[1]
		}},
		{porcupine.Illegal, func(s *story) { // to the member alone
			before := s.line
			s.lose(1)
			s.line[0] = before[0]
		}},
		{porcupine.Illegal, func(s *story) { // a failover that loses half of it
			before := s.line
			s.several(1)
			s.fault(true)
			s.line[0] = before[0]
		}},
		{porcupine.Illegal, func(s *story) { // to another member
			before := s.line
			s.lose(1)
			s.line[1] = before[1]
			s.line[2], _ = pairModel[1].Take(s.line[2], spillgate.Instant(s.now), 1)
		}},
	} {
		s := &story{pair: true, now: int64(time.Hour), limiter: limiter{meters: pairModel}}
		s.several(9)
		tt.do(s)
		s.several(9)
		ops, forks := operations(s.of, 0, s.losses)
		if got := porcupine.CheckOperationsTimeout(model(true, forks), ops, patience); got != tt.want {
			t.Errorf("%d: %s, want %s", i, got, tt.want)
		}
	}
}
