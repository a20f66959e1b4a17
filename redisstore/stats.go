package redisstore

import "sync/atomic"

// Stats are the numbers of a [Store] since it was made.
type Stats struct {
	// Calls counts runs of the script, Gathered the requests and corrections
	// that they carried.
	Calls, Gathered uint64
	// Faults counts by kind, whose numbers are its indices: each run of the script
	// that failed; as [TimedOut] also each request or correction that had no answer
	// in time, or, by slot, each part of one; and as [WrongType] each that found
	// something else at a key.
	Faults [faults]uint64
	// Open is how many breakers are open now, Opened how often one opened, and
	// Shut counts requests that were answered without asking because of one; of a
	// request whose keys are in several slots each slot that was not asked counts.
	Open         int
	Opened, Shut uint64
	// Probes counts the calls that ask whether an open server is back.
	Probes uint64
	// Refused counts requests that were refused without a round trip, since
	// the same had been refused before; Remembered is how many keys are.
	Refused    uint64
	Remembered int
	// OverDenied counts requests on several slots that were taken in some, refused or
	// not answered in others, and given back: for that moment they may have been in the
	// way of somebody else.
	OverDenied uint64
	// Late is how many corrections wait for the server to be back; Dropped
	// counts those that found no room, or no answer when they were sent at last.
	Late    int
	Dropped uint64
	// Nodes is how many stores share the server, as [Store.CountNodes] told last; 0 if it
	// was not asked to, or does not know yet.
	Nodes int
}

type counters struct {
	calls, gathered, opened, shut, probes atomic.Uint64
	refused, overDenied, dropped          atomic.Uint64
	open, nodes                           atomic.Int64
	faults                                [faults]atomic.Uint64
}

// Stats returns the numbers of s.
func (s *Store) Stats() Stats {
	c := &s.stats
	st := Stats{
		Calls: c.calls.Load(), Gathered: c.gathered.Load(),
		Open: int(c.open.Load()), Opened: c.opened.Load(), Shut: c.shut.Load(), Probes: c.probes.Load(),
		Refused: c.refused.Load(), Remembered: s.refusals.size(),
		OverDenied: c.overDenied.Load(), Late: s.late.size(), Dropped: c.dropped.Load(), Nodes: int(c.nodes.Load()),
	}
	for i := range st.Faults {
		st.Faults[i] = c.faults[i].Load()
	}
	return st
}
