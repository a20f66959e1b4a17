package promises

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillgate/spillgate"
)

// I1 and I2: what is admitted conforms, and what is denied would not. The
// check knows the admitted steps alone. I7, first half: a step dated in the
// past is one at the latest time seen.
func TestConformance(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		l := drawLimit(rt, exactOnes...)
		k := newKey(t, l)
		now := rapid.Int64Range(0, 5*int64(l.Period)).Draw(rt, "start")
		var admitted []move
		var d spillgate.Decision
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			given := now + drawGap(rt, l, d.RetryAfter, d.ResetAfter)
			if len(admitted) == 0 {
				given = max(given, now)
			}
			now = max(now, given)
			n := drawCost(rt, l, d.Remaining)
			d = k.take(t, given, n)
			if want := n == 0 || conforms(l, admitted, now, n); d.Allowed != want {
				rt.Fatalf("%s: %d at %d: allowed %t, want %t after %v: %+v", l, n, now, d.Allowed, want, admitted, d)
			}
			if int64(d.At) != now {
				rt.Fatalf("%s: decided at %d, dated %d, latest %d", l, d.At, given, now)
			}
			if d.Allowed && n > 0 {
				admitted = append(admitted, move{now, n})
			}
		}
	})
}

// I3, I4, I5: after a random history each answer is tried. Waiting is part of
// the history that follows.
func TestAnswersKeepTheirWord(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		l := drawLimit(rt, exactOnes...)
		k := newKey(t, l)
		now := rapid.Int64Range(0, 5*int64(l.Period)).Draw(rt, "start")
		var d spillgate.Decision
		for range rapid.IntRange(1, 30).Draw(rt, "steps") {
			now += max(0, drawGap(rt, l, d.RetryAfter, d.ResetAfter))
			n := drawCost(rt, l, d.Remaining)
			if rapid.IntRange(0, 9).Draw(rt, "debt") == 0 {
				k.settle(t, now, now, n, 0)
			}
			d = k.take(t, now, n)
			if d.Remaining < 0 || d.Remaining > l.Cap() || !k.would(t, now, d.Remaining) || k.would(t, now, d.Remaining+1) {
				rt.Fatalf("%s: remaining %d is not the most that passes: %+v", l, d.Remaining, d)
			}
			if (d.RetryAfter == spillgate.Never) != (n > l.Cap()) || d.Allowed != (d.RetryAfter == 0) || d.RetryAfter < 0 {
				rt.Fatalf("%s: retry after %d of %d", l, d.RetryAfter, n)
			}
			if d.Allowed != (d.Err() == nil) {
				rt.Fatalf("%s: %+v has error %v", l, d, d.Err())
			}
			switch rapid.IntRange(0, 3).Draw(rt, "try") {
			case 0:
				now = tryRetry(rt, t, k, l, d, now, n)
			case 1:
				now = tryReset(rt, t, k, l, d, now)
			}
		}
	})
}

func tryRetry(rt *rapid.T, t *testing.T, k *key, l spillgate.Limit, d spillgate.Decision, now, n int64) int64 {
	if d.Allowed || d.RetryAfter == spillgate.Never {
		return now
	}
	now += int64(d.RetryAfter)
	if d.RetryAfter > 1 {
		if e := k.take(t, now-1, n); e.Allowed || e.RetryAfter != 1 {
			rt.Fatalf("%s: 1 ns before the retry after %d: %+v", l, d.RetryAfter, e)
		}
	}
	if e := k.take(t, now, n); !e.Allowed {
		rt.Fatalf("%s: after waiting the retry after %d: %+v", l, d.RetryAfter, e)
	}
	return now
}

func tryReset(rt *rapid.T, t *testing.T, k *key, l spillgate.Limit, d spillgate.Decision, now int64) int64 {
	now += int64(d.ResetAfter)
	fresh := newKey(t, l).take(t, now, 0)
	if d.ResetAfter > 0 {
		if e := k.take(t, now-1, 0); e.ResetAfter != 1 {
			rt.Fatalf("%s: 1 ns before the reset after %d: %+v", l, d.ResetAfter, e)
		}
	}
	if e := k.take(t, now, 0); e != fresh {
		rt.Fatalf("%s: after the reset after %d: %+v, a new one %+v", l, d.ResetAfter, e, fresh)
	}
	return now
}

// I6: steps that take nothing change no other answer.
func TestNothingIsNothing(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		l := drawLimit(rt, append(exactOnes, spillgate.Concurrency)...)
		with, without := newKey(t, l), newKey(t, l)
		now := rapid.Int64Range(0, 5*int64(l.Period)).Draw(rt, "start")
		var d spillgate.Decision
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			now += max(0, drawGap(rt, l, d.RetryAfter, d.ResetAfter))
			n := drawCost(rt, l, d.Remaining)
			if rapid.Bool().Draw(rt, "refused by another") {
				with.would(t, now, n)
			}
			d = with.take(t, now, n)
			if d.Taken == 0 {
				continue
			}
			e := without.take(t, now, n)
			if d.Slot, e.Slot = 0, 0; d != e {
				rt.Fatalf("%s: %d at %d: with what was denied %+v, without %+v", l, n, now, d, e)
			}
		}
	})
}

// I7: shifting all times by whole periods, also to before the epoch and far
// away, and multiplying all times and the period, change no decision. What
// came from a clock that was back counts as at the latest time.
func TestTimeShiftsAndScales(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		l := drawLimit(rt, exactOnes...)
		scaledBy := func(factor int64) spillgate.Limit {
			scaled := l
			scaled.Period *= time.Duration(factor)
			return scaled
		}
		most := int64(1000)
		for scaledBy(most).Validate() != nil { // a burst that takes over a century to earn
			most--
		}
		factor := rapid.Int64Range(2, most).Draw(rt, "factor")
		shift := int64(l.Period) * rapid.SampledFrom([]int64{-1 << 61, -1 << 31, -1000, -1, 1, 1 << 31, 1 << 61}).Draw(rt, "shift")
		for shift/int64(l.Period) < -1<<62/int64(l.Period) || shift/int64(l.Period) > 1<<62/int64(l.Period) {
			shift = 0 // wrapped
		}
		if shift%int64(l.Period) != 0 {
			shift = 1 << 61 / int64(l.Period) * int64(l.Period)
		}
		here, shifted, scaled := newKey(t, l), newKey(t, l), newKey(t, scaledBy(factor))
		now := int64(0)
		var d spillgate.Decision
		for i := range rapid.IntRange(1, 30).Draw(rt, "steps") {
			given := now + drawGap(rt, l, d.RetryAfter, d.ResetAfter)
			if i == 0 {
				given = max(given, 0)
			}
			now = max(now, given)
			n := drawCost(rt, l, d.Remaining)
			d = here.take(t, given, n)
			e := shifted.take(t, given+shift, n)
			if e.At -= spillgate.Instant(shift); d != e {
				rt.Fatalf("%s: %d at %d: %+v, shifted by %d: %+v", l, n, given, d, shift, e)
			}
			if f := scaled.take(t, given*factor, n); d.Allowed != f.Allowed || d.Remaining != f.Remaining {
				rt.Fatalf("%s: %d at %d: %+v, scaled by %d: %+v", l, n, given, d, factor, f)
			}
		}
	})
}

// I8: with unit costs, more rate or more burst never lowers how many were
// admitted, in any prefix.
func TestMoreAdmitsNoFewer(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		l := drawLimit(rt, spillgate.Bucket, spillgate.FixedWindow, spillgate.SlidingLog)
		more := l
		more.Rate += rapid.Int64Range(0, 3).Draw(rt, "more rate")
		if l.Algorithm == spillgate.Bucket {
			more.Burst += rapid.Int64Range(0, 3).Draw(rt, "more burst")
		}
		low, high := newKey(t, l), newKey(t, more)
		now, ahead := int64(0), int64(0)
		var d spillgate.Decision
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			now += max(0, drawGap(rt, l, d.RetryAfter, d.ResetAfter))
			d = low.take(t, now, 1)
			if ahead += high.take(t, now, 1).Taken - d.Taken; ahead < 0 {
				rt.Fatalf("%s admits fewer than %s", more, l)
			}
		}
	})
}

// I8: what is admitted with a balance is admitted with a larger one. One key
// owes more than the other; both take what the one that owes may.
func TestLessUsedAdmitsNoLess(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		l := drawLimit(rt, exactOnes...)
		heavy, light := newKey(t, l), newKey(t, l)
		now := int64(0)
		heavy.settle(t, now, now, rapid.Int64Range(1, l.Cap()+3).Draw(rt, "owed"), 0)
		var d spillgate.Decision
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			now += max(0, drawGap(rt, l, d.RetryAfter, d.ResetAfter))
			n := drawCost(rt, l, d.Remaining)
			d = heavy.take(t, now, n)
			if e := light.take(t, now, d.Taken); !e.Allowed || e.Remaining < d.Remaining || e.ResetAfter > d.ResetAfter {
				rt.Fatalf("%s: %d at %d: who owes %+v, who doesn't %+v", l, n, now, d, e)
			}
		}
	})
}

// A log in use: many small admissions come and leave, so that its ring wraps
// and grows, with some given back.
func TestLogsInUse(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		l := spillgate.Limit{Algorithm: spillgate.SlidingLog, Rate: rapid.Int64Range(5, 40).Draw(rt, "rate"), Period: 1000}
		k, o := newKey(t, l), newOracle(t, l)
		now, pace := int64(0), rapid.Int64Range(1, 2000/l.Rate).Draw(rt, "pace")
		var past []int64
		for range 90 {
			if rapid.IntRange(0, 30).Draw(rt, "turn") == 0 {
				pace = rapid.Int64Range(1, 2000/l.Rate).Draw(rt, "pace")
			}
			now += rapid.Int64Range(0, pace).Draw(rt, "gap")
			if len(past) > 0 && rapid.IntRange(0, 9).Draw(rt, "give back") == 0 {
				of := past[max(0, len(past)-1-rapid.IntRange(0, 20).Draw(rt, "which"))]
				k.settle(t, now, of, -1, 0)
				o.Refund(now, 1, of)
			}
			n := rapid.Int64Range(1, 2).Draw(rt, "n")
			d := k.take(t, now, n)
			same(rt, "log", l, n, now, d, o.Step(now, n))
			if d.Allowed {
				past = append(past, now)
			}
		}
	})
}
