package rate

import (
	"sync"
	"time"
)

// A Limiter lets events happen at a rate, with bursts: it is a bucket that
// holds Burst tokens, is full at first, and earns tokens evenly at its Limit.
//
// [Limiter.Allow] takes a token if there is one. [Limiter.Reserve] takes one
// that may still have to be earned, and says when that will be. [Limiter.Wait]
// sleeps until then. AllowN, ReserveN and WaitN take n at once.
//
// The zero Limiter is valid and refuses every event until it is given a burst
// and a limit; it begins empty. Make others with [NewLimiter]. A Limiter is
// safe for concurrent use, and must not be copied after first use.
type Limiter struct {
	mu     sync.Mutex
	pace   pace
	used   parts // how much was missing from full at last; above cap is debt
	cap    parts // a full burst
	last   instant
	latest moment // when the latest event happens that was let through

	// A wait that is given up before others can't give all back at once, see giveBack.
	left    parts  // how much of used was left behind so
	waiting uint64 // for how many tokens WaitN waits
	held    bool   // whether there are reservations of ReserveN up to
	until   instant

	unlimited bool
	burst     int
	limit     Limit
}

// A moment is an instant to the part: late parts of a nanosecond before at, of
// which gain are one nanosecond.
type moment struct {
	at         instant
	late, gain uint64
}

// NewLimiter returns a limiter of rate r and bursts of up to b events. It is
// full.
func NewLimiter(r Limit, b int) *Limiter {
	lim := &Limiter{pace: pace{token: 1}, burst: b}
	lim.setLimit(r)
	return lim
}

// lock locks lim and returns the time. Nobody who used lim before read the
// clock after that, so time never flows back here: where lim is ahead
// nevertheless, a caller named a time to come.
func (lim *Limiter) lock() instant {
	now := clock()
	lim.mu.Lock()
	if now < lim.last {
		now = clock()
	}
	return now
}

// at returns how much is missing from full at now, and how much of that was
// left behind. Nothing was earned up to a time before the last one.
func (lim *Limiter) at(now instant) (used, left parts) {
	used = lim.used
	if now > lim.last {
		used = used.minus(times(uint64(now)-uint64(lim.last), lim.pace.gain))
		if lim.unlimited {
			used = parts{}
		}
	}
	if lim.left == (parts{}) {
		return used, parts{}
	}
	// A bucket that nothing was left behind in would not have been more than
	// full, before those who wait take from it.
	left = used.minus(times(lim.waiting, lim.pace.token))
	if left.above(lim.left) {
		left = lim.left
	}
	if lim.waiting == 0 {
		return used.minus(left), parts{}
	}
	return used, left
}

// take takes n tokens at now if all of them are there.
func (lim *Limiter) take(now instant, n int) bool {
	_, _, ok := lim.reserve(now, n, 0)
	return ok
}

// reserve takes n tokens at now, into debt if need be, unless the wait for
// them is above longest. It returns that wait, [InfDuration] if no wait is
// long enough, and when it ends.
func (lim *Limiter) reserve(now instant, n int, longest time.Duration) (act moment, wait time.Duration, ok bool) {
	if n < 0 {
		return moment{}, InfDuration, false
	}
	act = moment{at: now, gain: lim.pace.gain}
	if lim.unlimited {
		return act, 0, true
	}
	if n > lim.burst {
		return moment{}, InfDuration, false
	}
	used, left := lim.at(now)
	used = used.plus(times(uint64(n), lim.pace.token))
	if used.above(lim.cap) {
		ns, rest, fits := used.minus(lim.cap).over(lim.pace.gain)
		if rest > 0 {
			ns, act.late = ns+1, lim.pace.gain-rest
		}
		if !fits || ns >= uint64(InfDuration) {
			return moment{}, InfDuration, false
		}
		wait = time.Duration(ns)
		act.at = later(now, wait)
	}
	if wait > longest {
		return moment{}, wait, false
	}
	lim.used, lim.left, lim.last, lim.latest = used, left, now, act
	return act, wait, true
}

// Allow reports whether an event may happen now, and takes a token if so.
func (lim *Limiter) Allow() bool {
	now := lim.lock()
	ok := lim.take(now, 1)
	lim.mu.Unlock()
	return ok
}

// AllowN reports whether n events may happen at t, and takes n tokens if so.
// It is for those who would drop what is too much; see [Limiter.ReserveN] and
// [Limiter.WaitN] for those who would rather wait.
func (lim *Limiter) AllowN(t time.Time, n int) bool {
	now := instantOf(t)
	lim.mu.Lock()
	ok := lim.take(now, n)
	lim.mu.Unlock()
	return ok
}

// Limit returns the rate.
func (lim *Limiter) Limit() Limit {
	lim.mu.Lock()
	defer lim.mu.Unlock()
	return lim.limit
}

// Burst returns how many events may happen at once: the most that one call can
// take. With a burst of 0 none may, unless the rate is [Inf].
func (lim *Limiter) Burst() int {
	lim.mu.Lock()
	defer lim.mu.Unlock()
	return lim.burst
}

// Tokens returns how many tokens there are now; below 0 is how many have been
// reserved before they are earned.
func (lim *Limiter) Tokens() float64 {
	now := lim.lock()
	defer lim.mu.Unlock()
	return lim.tokens(now)
}

// TokensAt returns what [Limiter.Tokens] would at t.
func (lim *Limiter) TokensAt(t time.Time) float64 {
	lim.mu.Lock()
	defer lim.mu.Unlock()
	return lim.tokens(instantOf(t))
}

func (lim *Limiter) tokens(now instant) float64 {
	lim.ready()
	used, _ := lim.at(now)
	there := float64(min(lim.burst, 0))
	if used.above(lim.cap) {
		return there - used.minus(lim.cap).units(lim.pace.token)
	}
	return there + lim.cap.minus(used).units(lim.pace.token)
}

// SetLimit changes the rate from now on. Tokens earned up to now are kept.
// Reservations and waits keep the time that they were told.
func (lim *Limiter) SetLimit(newLimit Limit) {
	now := lim.lock()
	defer lim.mu.Unlock()
	lim.settle(now)
	lim.setLimit(newLimit)
}

// SetLimitAt is [Limiter.SetLimit] at t.
func (lim *Limiter) SetLimitAt(t time.Time, newLimit Limit) {
	lim.mu.Lock()
	defer lim.mu.Unlock()
	lim.settle(instantOf(t))
	lim.setLimit(newLimit)
}

// SetBurst changes the burst from now on. A larger one adds no tokens, they
// have to be earned; a smaller one keeps as many as it holds.
func (lim *Limiter) SetBurst(newBurst int) {
	now := lim.lock()
	defer lim.mu.Unlock()
	lim.settle(now)
	lim.setBurst(newBurst)
}

// SetBurstAt is [Limiter.SetBurst] at t.
func (lim *Limiter) SetBurstAt(t time.Time, newBurst int) {
	lim.mu.Lock()
	defer lim.mu.Unlock()
	lim.settle(instantOf(t))
	lim.setBurst(newBurst)
}

// ready lets the zero Limiter count.
func (lim *Limiter) ready() { lim.pace.token = max(lim.pace.token, 1) }

// settle earns what was earned up to now.
func (lim *Limiter) settle(now instant) {
	lim.ready()
	lim.used, lim.left = lim.at(now)
	lim.last = now
}

// setLimit makes r the rate. The tokens stay as many as they are, rounded down
// to whole parts of the new rate. That alone changes no decision: all that the
// new rate earns and costs is whole parts.
func (lim *Limiter) setLimit(r Limit) {
	lim.limit = r
	lim.unlimited = r >= Inf
	p, ok := paceOf(r)
	if !ok || lim.unlimited {
		lim.pace.gain = 0 // parts stay what they are: to go on later is exact
		lim.setCap()
		return
	}
	used, cut := lim.used.convert(p.token, lim.pace.token)
	if cut {
		used = used.plus(parts{lo: 1})
	}
	lim.left, _ = lim.left.convert(p.token, lim.pace.token)
	lim.used, lim.pace = used, p
	lim.setCap()
}

// setBurst makes b the burst. The tokens stay as many as they are, so what is
// missing from full changes with the burst.
func (lim *Limiter) setBurst(b int) {
	if b > lim.burst {
		lim.used = lim.used.plus(times(uint64(b)-uint64(lim.burst), lim.pace.token))
	} else {
		lim.used = lim.used.minus(times(uint64(lim.burst)-uint64(b), lim.pace.token))
	}
	lim.burst = b
	lim.setCap()
}

func (lim *Limiter) setCap() { lim.cap = times(uint64(max(lim.burst, 0)), lim.pace.token) }
