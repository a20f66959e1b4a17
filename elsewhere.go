package spillgate

import "iter"

// What follows is for a [Store] that keeps states outside this process, where
// Go does not run: it takes the numbers of a limit along, decides with them
// there, and has the answer told here by the same code that [Memory] uses.

// State returns the state that m writes with a as its first word and part as
// the lower 42 bits of its second: what [State.Part] gave of a state of an
// equal limit, in this process or another one.
func (m *Meter) State(a int64, part uint64) State { return m.pack(a, part) }

// Part returns the lower 42 bits of the second word, all of it but who wrote it.
func (s State) Part() uint64 { return s.B & partMask }

// Parts returns into how many parts the limit of a [Bucket] or [Queue] divides
// a nanosecond, below 2^42: 0 if nothing is ever earned, or for other limits.
func (m *Meter) Parts() uint64 { return m.den }

// Span returns how long n units take at the rate of a [Bucket] or [Queue]: ns
// nanoseconds and part of [Meter.Parts] more. ok is false if that is longer
// than about 146 years, which ns then is.
func (m *Meter) Span(n int64) (ns int64, part uint64, ok bool) {
	if m.den == 0 {
		return 0, 0, false
	}
	s, ok := m.spanOf(n)
	return s.ns, s.part, ok
}

// Room returns, in the measure of [Meter.Span], how far a [Bucket] or [Queue]
// can be from full.
func (m *Meter) Room() (ns int64, part uint64) { return m.cap.ns, m.cap.part }

// Window returns the window in which at lies, [start, end), of a limit that
// counts in windows; zeros for others.
func (m *Meter) Window(at Instant) (start, end Instant) {
	if m.window == nil {
		return 0, 0
	}
	b := m.window.at(m.within(at))
	return b.start, b.end
}

// InForce returns the meter that a request which came with m is decided by:
// m, or that which replaced it in sp since ([Space.Change]).
func (sp *Space) InForce(m *Meter) *Meter { return sp.inForce(m) }

// Settled returns what s is under m at now: carried through the changes of
// limit that sp had since s was written, each at its instant. The zero State
// is that of a key never seen, which after a raised burst is not full at once.
func (sp *Space) Settled(s State, m *Meter, now Instant) State {
	return sp.settled(s, m, m.within(now))
}

// Changed returns the instant of the last [Space.Change]; ok is false if there
// was none.
func (sp *Space) Changed() (at Instant, ok bool) {
	p := sp.changes.Load()
	if p == nil {
		return 0, false
	}
	return (*p)[len(*p)-1].until, true
}

// A LimitChange is one [Space.Change]: From was in force until At, and To since.
type LimitChange struct {
	From, To *Meter
	At       Instant
}

// Changes yields the changes of limit that sp had, the oldest first: the last 64
// of them.
func (sp *Space) Changes() iter.Seq[LimitChange] {
	return func(yield func(LimitChange) bool) {
		if p := sp.changes.Load(); p != nil {
			for _, c := range *p {
				if !yield(LimitChange{c.from, c.to, c.until}) {
					return
				}
			}
		}
	}
}

// Apply returns what s, a state of c's meter, is after the correction. It is
// pure, and no more for limits whose states are two words.
func (c *Correction) Apply(s State, now Instant) State {
	return c.Meter.correct(c.Space, s, now, c)
}

// Least returns the least that q can be granted.
func (q Ask) Least() int64 { return q.least() }

// Plus returns the ask for q and r at once, saturated.
func (q Ask) Plus(r Ask) Ask { return q.plus(r) }
