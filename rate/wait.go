package rate

import (
	"context"
	"fmt"
	"time"

	"github.com/spillgate/spillgate"
)

// Wait takes one token when it is there: [Limiter.WaitN] of one.
func (lim *Limiter) Wait(ctx context.Context) (err error) { return lim.WaitN(ctx, 1) }

// WaitN takes n tokens and returns when they are earned, first come, first
// served. It takes nothing and returns an error at once
//
//   - if n is above the burst: [spillgate.ErrNeverFits];
//   - if n is negative: [spillgate.ErrCost];
//   - if ctx is done: the error of ctx;
//   - if the wait would end after the deadline of ctx:
//     [context.DeadlineExceeded], with a text that says how long the wait is;
//   - if no wait is long enough, as at a limit of 0: [spillgate.ErrDenied].
//
// If ctx is done before the tokens are earned it gives them back, as
// [Reservation.Cancel] does, and returns the error of ctx. A call that fails has
// not paid. The burst does not matter at the rate [Inf].
func (lim *Limiter) WaitN(ctx context.Context, n int) (err error) {
	done := ctx.Err()
	deadline, limited := ctx.Deadline()
	longest := InfDuration
	if limited {
		longest = time.Until(deadline)
	}
	r := Reservation{lim: lim}
	now := lim.lock()
	burst, fits := lim.burst, n <= lim.burst || lim.unlimited
	var delay time.Duration
	if fits && done == nil {
		if delay = r.make(now, n, longest); r.ok && delay > 0 {
			lim.waiting += uint64(n)
		}
	}
	lim.mu.Unlock()
	switch {
	case !fits:
		return refuse(spillgate.ErrNeverFits, "rate: Wait(n=%d) exceeds limiter's burst %d", n, burst)
	case n < 0:
		return refuse(spillgate.ErrCost, "rate: Wait(n=%d) is negative: to give tokens back, cancel their reservation", n)
	case done != nil:
		return done
	case !r.ok && limited && delay == InfDuration:
		return refuse(context.DeadlineExceeded, "rate: Wait(n=%d) would exceed context deadline: it takes for ever, as nothing more is earned", n)
	case !r.ok && limited:
		return refuse(context.DeadlineExceeded, "rate: Wait(n=%d) would exceed context deadline: it takes %s of %s", n, delay, max(0, longest))
	case !r.ok:
		return refuse(spillgate.ErrDenied, "rate: Wait(n=%d) would take for ever: nothing more is earned; raise the limit", n)
	case delay == 0:
		return nil
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return r.end(ctx)
}

// end ends the wait for r: granted once its instant has come, given back
// before.
func (r *Reservation) end(ctx context.Context) error {
	lim := r.lim
	now := lim.lock()
	defer lim.mu.Unlock()
	if lim.left != (parts{}) {
		lim.settle(now)
	}
	lim.waiting -= uint64(r.n)
	err := ctx.Err()
	if err == nil || now >= r.act.at {
		return nil
	}
	// What is left behind is given back when nobody waits any more, unless
	// there are reservations of which nobody knows whether their holders act.
	if left := r.giveBack(now); !lim.held || lim.until < now {
		lim.left = lim.left.plus(left)
	}
	return err
}

// A refusal is why a wait did not begin: a text for people, and a cause for
// [errors.Is].
type refusal struct {
	text  string
	cause error
}

func refuse(cause error, format string, args ...any) error {
	return &refusal{fmt.Sprintf(format, args...), cause}
}

func (e *refusal) Error() string { return e.text }
func (e *refusal) Unwrap() error { return e.cause }
