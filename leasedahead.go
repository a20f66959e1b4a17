package spillgate

import (
	"context"
	"math/bits"
	"sync"
	"time"
)

const (
	// aheadAtOnce is how many calls that nobody waits for are under way at most.
	aheadAtOnce = 64
	// maxLow is how many leases wait for such a call at most. That many run low
	// at once where all of them were filled at once.
	maxLow = 8192
)

// A lowLease is one that runs low: units are to be fetched before the last are
// spent. It is pinned.
type lowLease struct {
	sh      *leaseShard
	e       *lease
	n, keep int64 // of the request that noticed
}

// runsLow reports, once after each answer, whether what is left of e would be
// spent in four round trips at the rate since that answer. That is at most half
// of what a block was to have.
func (e *lease) runsLow(now Instant) bool {
	if e.topped || e.have > e.want/2 {
		return false
	}
	if e.have > 0 { // compared without a division: used / age and have / trips
		hi, lo := bits.Mul64(uint64(e.used), 4*uint64(e.rtt))
		most, least := bits.Mul64(uint64(e.have), uint64(max(0, e.there(now)-e.since)))
		if hi < most || hi == most && lo < least {
			return false
		}
	}
	e.topped = true
	return true
}

// lowLeases are those that wait for a call, first come first served.
type lowLeases struct {
	mu       sync.Mutex
	waiting  []lowLease
	fetching int // who makes calls until none waits
	closed   bool
	done     sync.WaitGroup
}

// add puts low last, and reports whether there was room for it.
func (q *lowLeases) add(low lowLease) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || len(q.waiting) == maxLow {
		return false
	}
	q.waiting = append(q.waiting, low)
	return true
}

// begin reports whether one more is to make calls until none waits. Who does
// that tells next so, and is done then.
func (q *lowLeases) begin() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || len(q.waiting) == 0 || q.fetching == aheadAtOnce {
		return false
	}
	q.fetching++
	q.done.Add(1)
	return true
}

// next returns the first one, none after close.
func (q *lowLeases) next() (low lowLease, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || len(q.waiting) == 0 {
		q.fetching--
		q.done.Done()
		return lowLease{}, false
	}
	low, q.waiting = q.waiting[0], q.waiting[1:]
	return low, true
}

// join reports whether a call may begin that close waits for. Who makes it says
// when it is done.
func (q *lowLeases) join() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	q.done.Add(1)
	return true
}

// close waits for the calls that are under way.
func (q *lowLeases) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.done.Wait()
}

// ahead has units fetched for a lease that runs low, which the caller has pinned:
// beside the request that noticed, or, if times are given, by [Leased.Return].
func (l *Leased) ahead(at time.Time, low lowLease) {
	if !l.low.add(low) {
		low.sh.Lock()
		low.e.pins--
		low.sh.Unlock()
	} else if at.IsZero() && l.low.begin() {
		go l.fetchAll(at)
	}
}

func (l *Leased) fetchAll(at time.Time) {
	for low, ok := l.low.next(); ok; low, ok = l.low.next() {
		l.fetch(at, low)
	}
}

// fetch makes one call for a lease that runs low, if that pays and there is
// enough to fetch. It asks for all or nothing: whoever comes next asks for the
// rest.
func (l *Leased) fetch(at time.Time, low lowLease) {
	c := l.calls.Get().(*leaseCall)
	defer l.put(at, c)
	if !c.prepareAhead(l, l.instant(at), low) {
		return
	}
	l.aheads.Add(1)
	nothing := [1]Charge{c.charges[0]} // beyond whose need all that was asked is
	nothing[0].N = 0
	var out [1]Decision
	_ = l.ask(context.Background(), at, c, nothing[:], out[:]) // counted; the next request asks
}

// prepareAhead makes c the call for a lease that runs low, and unpins that.
func (c *leaseCall) prepareAhead(l *Leased, now Instant, low lowLease) bool {
	sh, e := low.sh, low.e
	sh.Lock()
	defer sh.Unlock()
	e.pins--
	m := meterOf(e.meter)
	if e.since == never || !e.topped || e.space.inForce(m) != m { // or there was an answer meanwhile
		return false
	}
	now = e.advance(now)
	more := l.more(e, m, e.there(now), 0)
	if more/2 < low.n {
		return false
	}
	var d Decision
	if e.decide(m, e.there(now), Ask{N: e.portion(Ask{N: 2 * more, Keep: low.keep}), Keep: low.keep}, &d); !d.Allowed {
		return false
	}
	c.n, c.asks, c.sent = 1, 1, now
	c.parts[0] = leasePart{sh: sh, m: m, e: e, now: now, more: more}
	c.parts[0].ahead()
	c.parts[0].pin()
	c.charges[0] = Charge{Space: e.space, Key: e.key, Meter: m, Ask: Ask{N: more, Keep: low.keep}}
	c.answers[0] = Decision{}
	return true
}
