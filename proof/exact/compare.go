package exact

import (
	"errors"
	"fmt"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/proof/oracle"
)

// Compare plays a list on the oracle and, by one way, on the engine. It
// returns an error that tells the first call whose answers differ, and how
// many calls were compared. A list whose limits the engine doesn't carry ends
// where it names one.
//
// A bucket and a queue may be late from the second change of limit on, by the
// error that is printed for each: see [Slack].
func Compare(list oracle.List, way Way) (calls int, err error) {
	s, err := way.New(Limit(list.Algorithm, list.Limit, list.Period, list.Burst))
	if errors.Is(err, spillgate.ErrLimit) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	o, err := oracle.New(list.Algorithm, list.Limit, list.Period, list.Burst)
	if err != nil {
		return 0, err
	}
	var late Slack
	raised, burst := false, list.Burst
	for i, op := range list.Ops {
		switch op.Kind {
		case oracle.Set:
			raised, burst = raised || op.Burst > burst, op.Burst
		case oracle.SetFill:
			burst = op.Burst
		case oracle.Refund:
			if raised && !way.Forgets && list.Algorithm == oracle.TokenBucket {
				// A key that was forgotten, or was not charged since, has
				// nothing to give back, though after a raised burst it is
				// not full. What is forgotten when is not the oracle's.
				return i, nil
			}
		}
		got, err := s.Do(op)
		switch {
		case errors.Is(err, spillgate.ErrLimit), errors.Is(err, spillgate.ErrCharge):
			return i, nil // a limit that needs a ttl, or that is out of range
		case err != nil:
			return i, fmt.Errorf("%s, call %d: %w\n%s", way.Name, i, err, upTo(list, i))
		}
		if op.Kind == oracle.Set || op.Kind == oracle.SetFill {
			late.Change(op)
		}
		// Where nothing is earned, what a raised burst doesn't give at once it
		// never gives: there a full bucket is as new.
		o.Forget = way.Forgets || op.Kind != oracle.Step && op.Limit == 0
		before := o.Clone()
		want := o.Do(op)
		if got == want {
			continue
		}
		if op.Kind != oracle.Step || !late.Allows(got, want) {
			return i, fmt.Errorf("%s, call %d:\noracle %+v\nengine %+v\nbefore %+v\n%s",
				way.Name, i, want, got, before.Clone().Step(op.At, 0), upTo(list, i))
		}
		if !got.Allowed && want.Allowed {
			o = before // from here on, the oracle without what the engine refused
			o.Step(op.At, 0)
		}
	}
	return len(list.Ops), nil
}

// A Slack is by how much a bucket may be late. A change of limit rounds what
// is used up to parts of the new limit, 2^41 or more of them a nanosecond, or
// 2^60 a unit. That is exact for as long as the limit stays; another change
// carries the rounding over in units, and a nanosecond more is what the ends
// of waits are rounded up to.
type Slack struct {
	lost    float64 // units, by roundings that were carried over
	last    float64 // units, by the latest rounding
	unit    float64 // ns
	changes int
}

// Change tells s of a Set or SetFill.
func (s *Slack) Change(op oracle.Op) {
	s.changes++
	s.lost += s.last
	s.unit = float64(op.Period) / float64(op.Limit)
	s.last = max(0x1p-41/s.unit, 0x1p-60)
	if op.Limit == 0 {
		s.last = 1 // whole units are counted
	}
}

// Allows reports whether got is want, or late by no more than s.
func (s *Slack) Allows(got, want oracle.Answer) bool {
	if s.changes < 2 {
		return false
	}
	most := 1 + int64(s.lost*s.unit)
	later := func(got, want int64) bool {
		return got == want || want != oracle.Never && got != oracle.Never && want < got && got <= want+most
	}
	switch {
	case got.Allowed && !want.Allowed:
		return false
	case want.Allowed && !got.Allowed:
		return 0 < got.RetryAfter && got.RetryAfter <= most
	}
	return later(got.RetryAfter, want.RetryAfter) && later(got.ResetAfter, want.ResetAfter) && later(got.Delay, want.Delay) &&
		got.Remaining <= want.Remaining && got.Remaining >= want.Remaining-1-int64(s.lost)
}

func upTo(list oracle.List, i int) oracle.List {
	list.Ops = list.Ops[:i+1]
	return list
}

// Shrink returns a shorter and simpler list for which still is true.
func Shrink(list oracle.List, still func(oracle.List) bool) oracle.List {
	tries := 20_000
	fails := func(l oracle.List) bool {
		tries--
		return tries > 0 && still(l)
	}
	for again := true; again; {
		again = false
		for i := len(list.Ops) - 1; i >= 0; i-- {
			try := list
			try.Ops = append(append([]oracle.Op(nil), list.Ops[:i]...), list.Ops[i+1:]...)
			if fails(try) {
				list, again = try, true
			}
		}
		for i := range list.Ops {
			for _, field := range fields {
				try := list
				try.Ops = append([]oracle.Op(nil), list.Ops...)
				if n := field(&try.Ops[i]); lower(n, func() bool { return fails(try) }) {
					list, again = try, true
				}
			}
		}
		for _, n := range []func(*oracle.List) *int64{
			func(l *oracle.List) *int64 { return &l.Limit },
			func(l *oracle.List) *int64 { return &l.Period },
			func(l *oracle.List) *int64 { return &l.Burst },
		} {
			try := list
			if lower(n(&try), func() bool { return fails(try) }) {
				list, again = try, true
			}
		}
	}
	return list
}

var fields = []func(*oracle.Op) *int64{
	func(op *oracle.Op) *int64 { return &op.At },
	func(op *oracle.Op) *int64 { return &op.N },
	func(op *oracle.Op) *int64 { return &op.Of },
	func(op *oracle.Op) *int64 { return &op.Limit },
	func(op *oracle.Op) *int64 { return &op.Period },
	func(op *oracle.Op) *int64 { return &op.Burst },
}

// lower makes *n smaller while fails holds, and reports whether it did.
func lower(n *int64, fails func() bool) bool {
	was := *n
	if was <= 0 {
		return false
	}
	for _, less := range []int64{0, 1, was / 16, was / 2, was - was/8, was - 1} {
		if *n = less; less < was && fails() {
			return true
		}
	}
	*n = was
	return false
}
