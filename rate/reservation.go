package rate

import (
	"math"
	"time"
)

// InfDuration is the delay of a [Reservation] that is not OK.
const InfDuration = time.Duration(math.MaxInt64)

// A Reservation is a number of tokens that a [Limiter] has given away, perhaps
// before they are earned. Its holder may act after [Reservation.Delay], or
// give it up with [Reservation.Cancel].
type Reservation struct {
	lim  *Limiter
	ok   bool
	n    int    // taken: 0 at the rate Inf, and when given back
	pace pace   // at which it was made
	act  moment // when its holder may act
}

// Reserve takes one token now: [Limiter.ReserveN] of one.
func (lim *Limiter) Reserve() *Reservation {
	r := &Reservation{lim: lim}
	now := lim.lock()
	r.hold(now, 1)
	lim.mu.Unlock()
	return r
}

// ReserveN takes n tokens at t, even if they have to be earned yet, and says
// in its Reservation how long that takes. Those who ask later come later. The
// reservation is not OK, and takes nothing, if n is above the burst, if no
// wait is long enough, and if n is negative.
func (lim *Limiter) ReserveN(t time.Time, n int) *Reservation {
	r := &Reservation{lim: lim}
	now := instantOf(t)
	lim.mu.Lock()
	r.hold(now, n)
	lim.mu.Unlock()
	return r
}

// make fills in r, of a locked limiter, and returns the wait.
func (r *Reservation) make(now instant, n int, longest time.Duration) (wait time.Duration) {
	r.act, wait, r.ok = r.lim.reserve(now, n, longest)
	if r.ok && !r.lim.unlimited {
		r.n, r.pace = n, r.lim.pace
	}
	return wait
}

// hold is make for those who will not tell whether they acted.
func (r *Reservation) hold(now instant, n int) {
	lim := r.lim
	if wait := r.make(now, n, InfDuration); !r.ok || wait == 0 {
		return
	}
	if !lim.held || r.act.at > lim.until {
		lim.held, lim.until = true, r.act.at
	}
	lim.left = parts{}
}

// OK reports whether the tokens were taken. If not, Delay is [InfDuration] and
// Cancel does nothing.
func (r *Reservation) OK() bool { return r.ok }

// Delay returns how long the holder has to wait from now: 0 means not at all,
// [InfDuration] for ever. After exactly this wait the tokens are earned.
func (r *Reservation) Delay() time.Duration { return r.delay(clock()) }

// DelayFrom returns what [Reservation.Delay] would at t.
func (r *Reservation) DelayFrom(t time.Time) time.Duration { return r.delay(instantOf(t)) }

func (r *Reservation) delay(now instant) time.Duration {
	switch {
	case !r.ok:
		return InfDuration
	case r.act.at <= now:
		return 0
	}
	return time.Duration(min(uint64(r.act.at)-uint64(now), uint64(InfDuration)))
}

// Cancel says that the holder will not act, and gives the tokens back but for
// those on which later reservations build: these keep the time that they were
// told. It does nothing once the holder may have acted, nor a second time.
func (r *Reservation) Cancel() {
	if !r.ok {
		return
	}
	now := r.lim.lock()
	defer r.lim.mu.Unlock()
	if now <= r.act.at {
		r.giveBack(now)
	}
}

// CancelAt is [Reservation.Cancel] at t.
func (r *Reservation) CancelAt(t time.Time) {
	if !r.ok {
		return
	}
	now := instantOf(t)
	r.lim.mu.Lock()
	defer r.lim.mu.Unlock()
	if now <= r.act.at {
		r.giveBack(now)
	}
}

// giveBack gives back, at now, what no later reservation builds on: each of
// those moved the latest event away from r's by the time that it takes to earn
// its tokens. It returns how much of what r took is left behind so. The
// limiter is locked.
func (r *Reservation) giveBack(now instant) (left parts) {
	lim := r.lim
	if lim.unlimited || r.n == 0 {
		return parts{}
	}
	all := times(uint64(r.n), r.pace.token)
	r.n = 0
	// No more than was taken, even where a raised limit let later
	// reservations act sooner.
	back := all.minus(lim.latest.since(r.act, r.pace.gain))
	left, _ = all.minus(back).convert(lim.pace.token, r.pace.token)
	if back == (parts{}) {
		return left
	}
	if lim.latest == r.act {
		if before := r.act.before(all); before.at >= now {
			lim.latest = before
		}
	}
	lim.settle(now)
	back, _ = back.convert(lim.pace.token, r.pace.token)
	lim.used = lim.used.minus(back)
	return left
}

// since returns what is earned from n to m at a gain in parts a nanosecond; 0
// if m is not after n.
func (m moment) since(n moment, gain uint64) parts {
	if m.at < n.at {
		return parts{}
	}
	// m's own parts count where they are of the same size; elsewhere it is
	// taken as later than it is, and less is given back.
	p := times(uint64(m.at)-uint64(n.at), gain).plus(parts{lo: n.late})
	if m.gain == gain {
		p = p.minus(parts{lo: m.late})
	}
	return p
}

// before returns the moment so many parts before m.
func (m moment) before(p parts) moment {
	ns, rest, ok := p.plus(parts{lo: m.late}).over(m.gain)
	if !ok || ns >= uint64(InfDuration) {
		return moment{at: math.MinInt64, gain: m.gain}
	}
	return moment{at: earlier(m.at, time.Duration(ns)), late: rest, gain: m.gain}
}
