package spillgate

// LeaseStats are the numbers of a [Leased] store. All but Keys, Blocks, Held,
// Remembered and Bytes only grow.
type LeaseStats struct {
	// Keys is how many keys are known; MaxKeys is the most that can be.
	Keys, MaxKeys int
	// Blocks is how many keys hold units now: the leases in force.
	Blocks int
	// Held is how many units those are, of all keys together. Summed over the
	// nodes it is what is stranded now, and what can be admitted beyond what the
	// inner store has left; of one key it is never more than [LeaseBound] says.
	Held int64
	// Remembered is how many keys are refused a unit now without a call.
	Remembered int
	// Bytes is the memory of the leases.
	Bytes int64
	// Here counts requests that were allowed without a call, and Refused those
	// that were refused without one.
	Here, Refused uint64
	// Asked counts requests that the inner store decided, Ahead calls of it that
	// nobody waited for, which fetch units before the last are spent, and Errors
	// those of both that failed, whose units may be lost.
	Asked, Ahead, Errors uint64
	// Returned counts units that were given back, Lapsed those that need not be,
	// since the bucket had earned them back by itself, and Forfeited those that
	// could not be: the call failed, or their window was over.
	Returned, Lapsed, Forfeited uint64
}

// Stats returns the numbers of l, taken part by part. Counting who is refused
// takes a step for each key that is known.
func (l *Leased) Stats() LeaseStats {
	st := LeaseStats{MaxKeys: len(l.shards) * leasesAShard, Asked: l.asked.Load(), Errors: l.errs.Load(),
		Ahead: l.aheads.Load(), Returned: l.returned.Load(), Forfeited: l.forfeited.Load()}
	now := l.now()
	if l.told.Load() { // whoever gives times of their own says what time it is
		now = l.latest()
	}
	for i := range l.shards {
		sh := &l.shards[i]
		sh.Lock()
		st.Remembered += sh.remembered(now, l)
		st.Keys += sh.keys
		st.Blocks += sh.held
		st.Held += sh.units
		st.Here += sh.here
		st.Refused += sh.refused
		st.Lapsed += sh.lapses
		st.Forfeited += sh.forfeited
		st.Bytes += sh.bytes()
		sh.Unlock()
	}
	return st
}

// remembered counts the keys that are refused a unit at now.
func (sh *leaseShard) remembered(now Instant, l *Leased) (n int) {
	var d Decision
	for i := range sh.leases {
		e := &sh.leases[i]
		if e.meter == 0 || e.since == never {
			continue
		}
		if _, says := sh.judge(e, meterOf(e.meter), max(now, e.latest), Ask{N: 1}, &d, l.hold); says == refused {
			n++
		}
	}
	return n
}
