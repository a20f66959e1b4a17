package spillgate

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Never is the wait that no wait is long enough for.
const Never time.Duration = math.MaxInt64

// An Instant is a point of a store's own clock: nanoseconds, which [Memory]
// counts from the Unix epoch.
type Instant int64

// sub returns i-j, saturated.
func (i Instant) sub(j Instant) time.Duration {
	d := i - j
	if (i < j) != (d < 0) { // wrapped
		if i < j {
			return math.MinInt64
		}
		return Never
	}
	return time.Duration(d)
}

// Errors that a decision or a store can carry. Test with [errors.Is].
var (
	// ErrDenied is wrapped by the error of every denied decision.
	ErrDenied = errors.New("denied")
	// ErrNeverFits is wrapped when the cost is above what fits at once: no
	// wait helps.
	ErrNeverFits = errors.New("cost never fits")
	// ErrBlocked is wrapped when the key is shut out, whatever is left.
	ErrBlocked = errors.New("blocked")
	// ErrCost is wrapped when a cost is negative. Nothing was charged.
	ErrCost = errors.New("bad cost")
	// ErrClosed is returned by everything that is asked after Close.
	ErrClosed = errors.New("spillgate: closed")
	// ErrUnavailable is wrapped when a store can't answer: a fault, never a
	// denial. The charges of the request may or may not have been taken, and
	// must not be sent again.
	ErrUnavailable = errors.New("store unavailable")
)

// A Reason says why a decision went as it did. The zero value is [OverLimit].
type Reason uint8

const (
	// OverLimit : the limit is used up; it passes after RetryAfter.
	OverLimit Reason = iota
	// Granted : the units were taken, or would have been.
	Granted
	// NeverFits : the cost is above what fits at once.
	NeverFits
	// BadCost : the cost is negative.
	BadCost
	// Closed : the limiter was closed.
	Closed
	// Blocked : the key is shut out, whatever is left of the limit; it passes
	// after RetryAfter. No limit says so by itself, a policy does.
	Blocked
)

// String returns the reason in words.
func (r Reason) String() string {
	switch r {
	case OverLimit:
		return "over limit"
	case Granted:
		return "granted"
	case NeverFits:
		return "never fits"
	case BadCost:
		return "bad cost"
	case Closed:
		return "closed"
	case Blocked:
		return "blocked"
	}
	return fmt.Sprintf("reason(%d)", uint8(r))
}

// A Decision is what one limit says. The zero Decision denies.
type Decision struct {
	// Allowed reports whether this limit lets the request pass. Where a
	// request meets several limits it passes only if all of them allow.
	Allowed bool
	// Overflow reports that the table was at its cap and the key was new, so
	// that the bucket which all newcomers share decided.
	Overflow bool
	Reason   Reason
	// Limit is the most that fits at once (see [Limit.Cap]).
	Limit int64
	// Remaining is the greatest whole cost that would be allowed right now,
	// 0 to Limit.
	Remaining int64
	// Taken is how many units were charged: 0 when denied, and 0 when
	// another limit of the same request refused.
	Taken int64
	// RetryAfter is the least wait after which the same request passes if
	// nobody else uses the limit: at least 1 ns when denied, 0 when allowed,
	// [Never] when no wait helps.
	RetryAfter time.Duration
	// ResetAfter is the time until the state is as new: 0 when it is,
	// [Never] when it never will be.
	ResetAfter time.Duration
	// Delay is how long an admitted request has to wait before it goes on.
	// Only a [Queue] gives one.
	Delay time.Duration
	// At is when the decision was made, on the store's clock. A settle of
	// this charge names it.
	At Instant
	// Slot names the place taken in a [Concurrency] limit; 0 otherwise.
	Slot uint64
}

// until returns the instant at which the charge of d alone would have been
// earned back.
func (d *Decision) until() Instant {
	if d.ResetAfter == Never {
		return math.MaxInt64
	}
	return Instant(later(int64(d.At), int64(d.ResetAfter)))
}

// Err returns nil if d allows, or an error that wraps [ErrDenied] and, where
// it applies, [ErrNeverFits], [ErrBlocked], [ErrCost] or [ErrClosed].
func (d Decision) Err() error {
	if d.Allowed {
		return nil
	}
	switch d.Reason {
	case NeverFits:
		return fmt.Errorf("spillgate: %w: %w: at most %d fit at once", ErrDenied, ErrNeverFits, d.Limit)
	case BadCost:
		return fmt.Errorf("spillgate: %w: %w: a cost is never negative; to give units back, settle", ErrDenied, ErrCost)
	case Closed:
		return fmt.Errorf("%w: %w", ErrClosed, ErrDenied)
	case Blocked:
		if d.RetryAfter != Never {
			return fmt.Errorf("spillgate: %w: %w: retry after %s", ErrDenied, ErrBlocked, d.RetryAfter)
		}
		return fmt.Errorf("spillgate: %w: %w: waiting does not help", ErrDenied, ErrBlocked)
	}
	if d.RetryAfter == Never {
		return fmt.Errorf("spillgate: %w: nothing more will be earned", ErrDenied)
	}
	return fmt.Errorf("spillgate: %w: retry after %s", ErrDenied, d.RetryAfter)
}
