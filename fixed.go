package spillgate

// A fixed window's state is the end of the window in which it counted (first
// word) and the count (lower 42 bits of the second), so that a state is as new
// from the end on.

// counted returns what is counted in the window of now, and that window's end
// if anything is.
func counted(s State, now Instant) (n int64, end Instant) {
	if s.B == 0 || s.A <= int64(now) {
		return 0, 0
	}
	return int64(s.B & partMask), Instant(s.A)
}

func (m *Meter) takeFixed(s State, now Instant, q Ask, d *Decision) State {
	used, end := counted(s, now)
	if used > 0 {
		d.ResetAfter = end.sub(now)
	}
	if d.count(m, q, used) > 0 {
		d.RetryAfter = d.ResetAfter
	}
	if d.Taken == 0 {
		return s
	}
	if used == 0 {
		end = m.window.at(now).end
		d.ResetAfter = end.sub(now)
	}
	return m.pack(int64(end), uint64(used+d.Taken))
}

// settleFixed counts more in the window of now, over the limit if need be, or
// gives back into it what was taken in it; what another window was charged is
// past.
func (m *Meter) settleFixed(s State, now, taken Instant, delta int64) State {
	used, end := counted(s, now)
	if delta > 0 {
		if used == 0 {
			end = m.window.at(now).end
		}
		return m.pack(int64(end), uint64(used+min(delta, partMask-used)))
	}
	switch {
	case used == 0:
		return State{}
	case !m.window.at(end - 1).holds(taken):
		return s
	case used+delta <= 0:
		return State{}
	}
	return m.pack(int64(end), uint64(used+delta))
}

func (b bounds) holds(at Instant) bool { return b.start <= at && at < b.end }

// adoptFixed keeps the count. Where the windows lie otherwise under the new
// limit, the count of the old window moves, whole, into the new window in
// which the change is made: nothing is granted twice, and what it costs a
// caller ends with that window.
func (m *Meter) adoptFixed(s State, o *Meter, now Instant) State {
	used, end := counted(s, now)
	if used == 0 {
		return State{}
	}
	if !m.window.same(o.window) {
		end = m.window.at(now).end
	}
	return m.pack(int64(end), uint64(used))
}
