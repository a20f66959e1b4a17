package spillgate

import (
	"math"
	"math/bits"
	"sync"
	"time"
	"unsafe"
)

// A lease is what a node knows of one key: units that are paid, and the state
// that its inner store last told of.
//
// Instants in it are on the inner store's clock, which skew tells from the
// local one.
type lease struct {
	space *Space
	key   Key
	// state is that of the inner store without what is held here, so that one
	// step on it says what the limit does, as far as is known here. It is early
	// by up to 1 ns, since answers are rounded up: it never refuses what the
	// store would admit.
	state  State
	skew   int64
	latest Instant // on the local clock
	meter  uint32
	pins   uint32 // requests that ask for this key now
	rtt    uint32 // of the last answer, in ns

	have    int64   // units that are paid and unspent
	back    int64   // how many of them can be given back
	coming  int64   // units beyond its need that a request asks for now
	until   Instant // when what is held would have been earned back; of a window, its end
	expires Instant // when what is held is given back

	since   Instant // the last answer
	used    int64   // units since
	want    int64   // units the last block was to have
	keep    int64   // what the lane keeps that was drained last
	refused int64   // units refused here in that lane since the last answer
	chunk   int64   // ask for nothing in that lane until so many units can be there
	least   bool    // state counts the least that it can be, in a window that is full
	topped  bool    // it was looked at whether to fetch units ahead since the last answer
}

const (
	leaseSet     = 8 // leases that can lie where a key's can
	leaseSets    = 128
	leasesAShard = leaseSet * leaseSets

	// recall is how long an answer is remembered at the most: a refusal, in case
	// somebody gives back elsewhere, and units that need not be given back.
	recall = Instant(10 * time.Second)

	never = Instant(math.MinInt64) // of an answer that there was not yet
)

// A leaseShard holds the leases of one part of the keys, in flat memory that is
// made when the first comes.
type leaseShard struct {
	sync.Mutex
	index  uint32             // the order of locks
	tags   [][leaseSet]uint64 // one line of memory a set; 0 is unused
	leases []lease
	keys   int   // leases in use
	held   int   // of them, those that hold units
	units  int64 // held by all of them

	here, refused, forfeited, lapses uint64

	_ [8]byte // to 128 bytes: shards share no pair of cache lines
}

func newLeaseShards(keys int) []leaseShard {
	shards := make([]leaseShard, (keys+leasesAShard-1)/leasesAShard)
	for i := range shards {
		shards[i].index = uint32(i)
	}
	return shards
}

func (sh *leaseShard) bytes() int64 {
	return int64(unsafe.Sizeof(*sh)) + int64(len(sh.tags))*leaseSet*8 + int64(len(sh.leases))*int64(unsafe.Sizeof(lease{}))
}

// find returns where the lease of a key can be.
func (l *Leased) find(sp *Space, key Key) (sh *leaseShard, tag uint64, set int) {
	tag = max(1, key[0]+sp.salt)
	i, at := bits.Mul64(tag, uint64(len(l.shards)))
	s, _ := bits.Mul64(at, leaseSets)
	return &l.shards[i], tag, int(s)
}

// advance returns now, or the latest instant that e has seen if that is later:
// an instant of the local clock.
func (e *lease) advance(now Instant) Instant {
	e.latest = max(e.latest, now)
	return e.latest
}

// lookup returns a key's lease, nil if there is none.
func (sh *leaseShard) lookup(tag uint64, set int, sp *Space, key Key) *lease {
	if sh.tags == nil {
		return nil
	}
	for i, t := range &sh.tags[set] {
		if t == tag {
			if e := &sh.leases[set*leaseSet+i]; e.space == sp && e.key == key {
				return e
			}
		}
	}
	return nil
}

// make makes a lease for a key that has none: in a place that is not used, or
// that of a key that nobody asks for now and that holds nothing, or nothing that
// has to be given back; of those the one whose last answer is oldest. It returns
// nil if there is no such place.
func (sh *leaseShard) make(tag uint64, set int, sp *Space, key Key, now Instant) *lease {
	if sh.tags == nil {
		sh.tags = make([][leaseSet]uint64, leaseSets)
		sh.leases = make([]lease, leasesAShard)
	}
	at, oldest := -1, Instant(math.MaxInt64)
	for i, t := range &sh.tags[set] {
		if t == 0 {
			at = i
			sh.keys++
			break
		}
		if e := &sh.leases[set*leaseSet+i]; e.pins == 0 && e.since < oldest && (e.have == 0 || e.lapsed(e.there(now))) {
			at, oldest = i, e.since
		}
	}
	if at < 0 {
		return nil
	}
	sh.tags[set][at] = tag
	e := &sh.leases[set*leaseSet+at]
	if e.have > 0 {
		sh.lapse(e)
	}
	*e = lease{space: sp, key: key, since: never, latest: never}
	return e
}

// setHave sets how many units e holds.
func (sh *leaseShard) setHave(e *lease, n int64) {
	sh.units += n - e.have
	if (n > 0) != (e.have > 0) {
		if n > 0 {
			sh.held++
		} else {
			sh.held--
		}
	}
	e.have, e.back = n, min(e.back, n)
}

// spend takes n units of e, which after is the state without.
func (sh *leaseShard) spend(e *lease, after State, n int64) {
	e.state = after
	e.used = later(e.used, n)
	sh.setHave(e, e.have-n)
}

// refuse counts a refusal.
func (sh *leaseShard) refuse(e *lease, q Ask) {
	if q.Keep == e.keep {
		e.refused = later(e.refused, q.N)
	}
	sh.refused++
}

// portion returns how many units have to be there before q is asked for: a lane
// that is drained waits for as many as are worth a call, others are none of its
// business.
func (e *lease) portion(q Ask) int64 {
	if q.Keep == e.keep {
		return max(q.N, e.chunk)
	}
	return q.N
}

// there returns an instant of the local clock on the inner store's, as far as
// the last answer tells: not earlier than it is there.
func (e *lease) there(now Instant) Instant { return now + Instant(e.skew) }

// An outlook is what can be said of a charge without a call.
type outlook uint8

const (
	unknown outlook = iota
	paid
	refused
)

// decide is [Meter.Grant] on the state of e, which is early by up to 1 ns.
func (e *lease) decide(m *Meter, there Instant, q Ask, d *Decision) State {
	after := m.decide(e.state, there, q, d)
	if m.limit.Algorithm == Bucket {
		if d.ResetAfter > 0 {
			d.ResetAfter = time.Duration(later(int64(d.ResetAfter), 1))
		}
		if !d.Allowed && d.Reason == OverLimit {
			d.RetryAfter = time.Duration(later(int64(d.RetryAfter), 1))
		}
	}
	return after
}

// judge decides on what is known of a key, into d if it is not unknown, and
// returns the state after. It takes nothing, but ends a window that is over.
func (sh *leaseShard) judge(e *lease, m *Meter, now Instant, q Ask, d *Decision, hold time.Duration) (State, outlook) {
	there := e.there(now)
	if m.limit.Algorithm == FixedWindow && e.have > 0 && there >= e.until {
		sh.forfeit(e)
	}
	if e.since == never || e.meter != m.id || e.least && m.limit.Rate-int64(e.state.B&partMask)-e.have > q.Keep {
		return e.state, unknown
	}
	age := there - e.since
	switch n := q.N; {
	case n == 0:
		e.decide(m, there, q, d)
		if d.Allowed && age > Instant(hold) {
			return e.state, unknown
		}
		if d.Allowed {
			return e.state, paid
		}
	case e.have >= n:
		after := e.decide(m, there, q, d)
		if d.Allowed {
			return after, paid
		}
	default:
		q.N = e.portion(q)
		e.decide(m, there, q, d)
		if d.Allowed {
			return e.state, unknown
		}
		if q.N != n {
			d.Remaining = min(d.Remaining, n-1)
		}
	}
	if age > recall {
		return e.state, unknown
	}
	if d.Reason == OverLimit {
		// The clock is early by up to a round trip.
		d.RetryAfter = time.Duration(later(int64(d.RetryAfter), int64(e.rtt)))
	}
	return e.state, refused
}

// An answer is what the inner store said to one ask.
type answer struct {
	*Decision
	ask     Ask
	sent    Instant // on the local clock
	rtt     time.Duration
	granted int64 // units of it that are to be held
}

// learn notes an answer, and returns how many of the units it brought have no
// room in the block.
func (sh *leaseShard) learn(l *Leased, e *lease, m *Meter, a answer) (over int64) {
	hold, nodes := l.hold, l.nodes.Load()
	most := l.block(m.most, nodes)
	over = max(0, min(a.granted, e.have+e.coming+a.granted-most))
	a.granted -= over
	older := e.older(&a)
	if !older {
		if a.At < e.since { // the store's clock was set back
			e.back, e.expires = 0, min(e.expires, Instant(later(int64(a.At), int64(hold))))
		}
		e.skew, e.since, e.used = int64(a.At.sub(a.sent)), a.At, 0
		e.rtt = uint32(min(a.rtt, math.MaxUint32))
		e.topped = false
		switch lane := a.ask.Keep; {
		case m.limit.Algorithm == Bucket && (!a.Allowed && a.Reason == OverLimit || a.Allowed && a.Taken > 0 && a.Taken < a.ask.N):
			// It is drained, and many come: wait until there is something to
			// fetch, no longer than an eighth of a lease, and for no more than
			// the block of a limit that has what the lane may use.
			if lane != e.keep {
				e.keep, e.refused, e.chunk = lane, 0, 0
			}
			e.chunk = min(max(e.refused, 2*e.chunk), l.block(m.most-lane, nodes), m.units(span{ns: int64(hold / 8)}))
		case lane == e.keep:
			e.chunk /= 2
		}
		e.refused = 0
	} else if m.limit.Algorithm == FixedWindow && a.granted > 0 && e.until != a.until() {
		return over + a.granted // of a window before
	}
	full := a.until()
	if m.limit.Algorithm == FixedWindow && e.have > 0 && e.until != full && !older {
		sh.forfeit(e)
	}
	if a.granted > 0 {
		sh.setHave(e, e.have+a.granted)
		if e.until < a.At { // what was held is earned back by now
			e.back = 0
		}
		if e.back == 0 || e.until < full { // or an answer overtook this one
			e.until = full
		}
		e.back, e.expires = e.back+a.granted, Instant(later(int64(a.At), int64(hold)))
	}
	if older { // the last answer knew of what this one took
		if a.granted > 0 {
			e.state = m.Settle(e.state, e.since, e.since, -a.granted)
		}
		return over
	}
	e.state, e.least = State{}, false
	switch {
	case a.ResetAfter == 0:
	case m.limit.Algorithm == Bucket:
		e.state = m.pack(int64(full)-1, 0)
		if e.have > 0 {
			e.state = m.settleFlow(e.state, a.At, -e.have)
		}
	default:
		e.until, e.least = full, a.Remaining == 0 && a.Taken == 0
		if count := m.limit.Rate - a.Remaining - a.ask.Keep - e.have; count > 0 {
			e.state = m.pack(int64(full), uint64(count))
		}
	}
	return over
}

// older reports whether an answer is older than the last one: what was asked
// earlier, or decided earlier by no more than what a call can take.
func (e *lease) older(a *answer) bool {
	if e.since == never {
		return false
	}
	return a.sent < e.since-Instant(e.skew) || a.At < e.since && a.At > e.since-Instant(time.Second)
}

// lapsed reports whether a bucket has earned back by itself what e holds. Then
// nobody misses it: given back it would come to nothing.
func (e *lease) lapsed(there Instant) bool {
	return meterOf(e.meter).limit.Algorithm == Bucket && e.until <= there
}

// over reports whether e is to give back what it holds. What has lapsed stays
// until the last answer is forgotten.
func (e *lease) over(there Instant) bool {
	over := e.expires
	if e.lapsed(there) {
		over = max(over, e.since+recall)
	}
	return there >= over
}

// lapse drops units of e that have lapsed.
func (sh *leaseShard) lapse(e *lease) {
	sh.lapses += uint64(e.have)
	sh.setHave(e, 0)
}

// forfeit drops the units of e.
func (sh *leaseShard) forfeit(e *lease) {
	sh.forfeited += uint64(e.have)
	sh.setHave(e, 0)
}

// giveBack takes the units of e off it, and returns the correction that gives
// them back.
func (sh *leaseShard) giveBack(e *lease, there Instant) Correction {
	c := Correction{Space: e.space, Key: e.key, Meter: meterOf(e.meter), Delta: -e.back, At: e.until, Until: e.until}
	if c.Meter.limit.Algorithm == FixedWindow {
		c.At--
	} else if e.back < e.have || !c.Meter.missing(e.until, there, e.back) {
		e.since = never // the store has less back than the state says
	}
	sh.forfeited += uint64(e.have - e.back)
	sh.setHave(e, 0)
	return c
}
