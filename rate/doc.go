// Package rate is a drop-in for golang.org/x/time/rate, counting in integers:
// change the import, and nothing else.
//
//	import "github.com/spillgate/spillgate/rate"
//
//	lim := rate.NewLimiter(rate.Every(100*time.Millisecond), 20)
//	if !lim.Allow() {
//		return errBusy
//	}
//
// It has the whole exported API of that package (v0.16.0), whose own tests
// pass against it. A Limiter is for one thing that is limited; for one limit
// over many keys see [spillgate.Limiter], whose bucket this is: the same
// instants, to the nanosecond.
//
// # Arithmetic
//
// Tokens are counted in whole parts of a nanosecond's earnings, 128 bits wide.
// No token is lost or made by rounding, however long a Limiter runs: three a
// second is three a second for ever. A wait is rounded up to the nanosecond,
// so that after it the tokens are there.
//
// A [Limit] is a float64, and the rate that is carried out is a fraction
// within one part in 10^15 of it: a second in 30 million years. It is exactly
// the rate that was meant
//
//   - for whole numbers below 2^53: Limit(100);
//   - for fractions up to a denominator of 2^20, within the precision of a
//     float64: Limit(0.1), Limit(5.0/60), Limit(33.3);
//   - for intervals up to 13 days, and for whole seconds up to 136 years:
//     Every(7*time.Millisecond), Every(90*24*time.Hour).
//
// A change of limit or burst keeps the tokens as they are. Where one change of
// limit follows another they may be rounded, to the strict side and by less
// than 2^-60 tokens at rates up to one a nanosecond.
//
// # Differences
//
// What golang.org/x/time/rate does otherwise, and why this package doesn't:
//
//   - Nothing passes early. There, waits are cut to whole nanoseconds and
//     tokens are floats, so that events can pass up to 1 ns too soon.
//   - Time does not flow back in Allow, Reserve, Wait, Cancel, Tokens,
//     SetLimit and SetBurst. There, a goroutine that read the clock and was
//     overtaken turns the limiter's time back, which earns the overlap twice.
//     Where a caller names the time, as in AllowN, an earlier one turns it
//     back here as there: programs may go through several timelines with one
//     Limiter, and that package's tests do.
//   - A wait that never ends is refused at once: at a Limit of 0 with too few
//     tokens, ReserveN is not OK and takes nothing, and WaitN fails. There,
//     the reservation is OK with a delay of 292 years, and WaitN blocks.
//   - A negative n is refused. There, it makes tokens.
//   - Cancel gives back no more than was taken, and once. There, a second
//     Cancel gives back again, as may one after a raised limit, or after
//     reservations of different sizes were canceled; and one of a reservation
//     made at the rate Inf gives back what was not taken.
//   - A wait whose context ends when its tokens are earned, or after, is
//     granted. There, chance decides, and if it decides against it the tokens
//     are lost.
//   - What canceled waits could not give back, because others waited behind
//     them, is given back when nobody waits any more, up to a burst. There, it
//     stays a debt: after a hundred waits were canceled the next one can take
//     as long as if they had not been.
//   - Errors of WaitN have causes, and their texts, which begin as those
//     there, say more: past the deadline of the context it is a
//     [context.DeadlineExceeded] that tells how long the wait would be; above
//     the burst, a [spillgate.ErrNeverFits].
//   - Odd limits have a meaning: NaN is 0, +Inf is [Inf], less than one event
//     in 146 years is 0, and what lies between 2^62 per second and Inf is 2^62
//     per second.
//   - Instants lie within 146 years before and 292 years after the program's
//     start, or the first 146 years of the calendar (the zero [time.Time] is
//     where fake clocks begin); those beyond are taken as the nearest. Times
//     without a monotonic reading are placed by the wall clock as it was at
//     the program's start.
package rate
