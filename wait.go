package spillgate

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// MaxWaiting is how many may wait at a [Limiter] at once, over all its keys.
const MaxWaiting = 1 << 16

// ErrTooManyWaiting is wrapped by the error of a wait that found [MaxWaiting]
// others.
var ErrTooManyWaiting = errors.New("too many are waiting (65536)")

// A DeadlineError says that a wait would end after the context's deadline. It
// is told at once, and nothing was charged. It wraps
// [context.DeadlineExceeded].
type DeadlineError struct {
	Needed time.Duration // the wait that would have been
	Left   time.Duration // until the deadline
}

// Error says how long the wait would have been.
func (e *DeadlineError) Error() string {
	return fmt.Sprintf("spillgate: a wait of %s is needed, but the deadline is in %s", e.Needed, e.Left)
}

// Unwrap returns [context.DeadlineExceeded].
func (e *DeadlineError) Unwrap() error { return context.DeadlineExceeded }

// Wait takes n units of key's as soon as they are there. Calls that wait for
// the same key get theirs in the order in which they came, each at the earliest
// instant that the limit permits; [Limiter.Take] finds nothing left meanwhile.
//
// Wait fails at once if ctx is over, if its deadline can't be met
// ([*DeadlineError]), if n can never fit, or if [MaxWaiting] others wait. It
// fails later when ctx ends or the limiter is closed ([ErrClosed]). A call that
// fails has paid nothing, also where ctx ends in the very instant of the grant.
//
// The decision returned is that of the charge, for [Limiter.Spent] and
// [Limiter.GiveBack]; a slot of a [Concurrency] limit is freed by the latter.
// Nobody knows when slots are given back, so there a deadline that can't be met
// is found out only when it comes.
func (l *Limiter) Wait(ctx context.Context, key string, n int64) (Decision, error) {
	if err := ctx.Err(); err != nil {
		return Decision{}, err
	}
	w := &waiter{limiter: l, tag: l.tag(key), n: n, woken: make(chan struct{})}
	if deadline, ok := ctx.Deadline(); ok {
		w.patience = time.Until(deadline)
	} else {
		w.patience = Never
	}
	if err := l.line.join(w); err != nil {
		return Decision{}, err
	}
	select {
	case <-w.woken:
		return w.decision, w.err
	case <-ctx.Done():
		l.line.mu.Lock()
		defer l.line.mu.Unlock()
		return l.line.leave(w, ctx.Err())
	}
}

// Hold waits for d, as a front does with a call that [Limiter.Take] admitted with
// a Delay. It fails at once if ctx is over or ends before ([*DeadlineError]), and
// later if ctx is cancelled or the limiter closed ([ErrClosed]). The caller then
// gives back what was charged.
func (l *Limiter) Hold(ctx context.Context, d time.Duration) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if deadline, ok := ctx.Deadline(); ok {
		if left := time.Until(deadline); left <= d {
			return &DeadlineError{d, left}
		}
	}
	// One of its own for each who holds: a test that runs in a bubble of
	// testing/synctest may use a limiter that was made outside.
	closed := make(chan struct{})
	if !l.line.hold(closed) {
		return ErrClosed
	}
	defer l.line.release(closed)
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-closed:
		return ErrClosed
	}
}

// A Reservation is a place in line that was taken without waiting there. It
// is safe for concurrent use.
type Reservation struct{ w *waiter }

// Reserve takes a place in line for n units of key's, behind all who wait. The
// caller may act after [Reservation.Delay]. Errors are those of
// [Limiter.Wait]; a [Concurrency] limit has no future to reserve, which is
// [ErrCharge].
func (l *Limiter) Reserve(key string, n int64) (*Reservation, error) {
	if m := l.meter.Load(); m.limit.Algorithm == Concurrency {
		return nil, fmt.Errorf("spillgate: %w: nobody knows when a slot of %q is given back: wait for it", ErrCharge, m.limit)
	}
	w := &waiter{limiter: l, tag: l.tag(key), n: n, patience: Never, woken: make(chan struct{})}
	if err := l.line.join(w); err != nil {
		return nil, err
	}
	return &Reservation{w}, nil
}

// Delay returns how long the caller still has to wait before it may act: 0
// when it may now, [Never] when it was cancelled, or the limiter closed, or
// its limit lowered below what was reserved. It becomes shorter when others
// in line give up, and longer when the limit is lowered.
func (r *Reservation) Delay() time.Duration {
	ln := r.w.limiter.line
	ln.mu.Lock()
	defer ln.mu.Unlock()
	return r.delay()
}

// delay is Delay with the line locked. A caller that may act has paid before.
func (r *Reservation) delay() time.Duration {
	l, w := r.w.limiter, r.w
	l.line.serveDue()
	now := l.now(l.meter.Load())
	switch w.state {
	case failed:
		return Never
	case served:
		return 0
	case standing:
		l.line.expect(w, now)
	}
	return max(1, w.expected.sub(now))
}

// Cancel gives the place in line back, and what was paid for it, if the caller
// may not act yet; afterwards, and a second time, it does nothing.
func (r *Reservation) Cancel() {
	ln := r.w.limiter.line
	ln.mu.Lock()
	defer ln.mu.Unlock()
	if r.delay() > 0 {
		_, _ = ln.leave(r.w, context.Canceled)
	}
}
