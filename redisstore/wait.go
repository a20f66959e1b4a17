package redisstore

import (
	"context"
	"fmt"
	"time"

	"github.com/spillgate/spillgate"
)

// errOpen is what is said without asking.
var errOpen = fmt.Errorf("redisstore: %w: the last calls failed, and none has been answered since", spillgate.ErrUnavailable)

// A wait bounds all the waiting of one call.
type wait struct {
	ctx      context.Context
	deadline time.Time
	timer    *time.Timer
	store    *Store
	late     bool
}

func (s *Store) newWait(ctx context.Context) *wait {
	return s.waitUntil(ctx, time.Now().Add(s.patience))
}

func (s *Store) waitUntil(ctx context.Context, deadline time.Time) *wait {
	return &wait{ctx: ctx, deadline: deadline, timer: time.NewTimer(time.Until(deadline)), store: s}
}

func (w *wait) stop() { w.timer.Stop() }

// for1 waits for the answer to o. If it does not come in time, o is left to
// whoever carries it, and must not be touched any more.
func (w *wait) for1(o *op) error {
	if !w.late {
		select {
		case <-o.done:
			return o.err
		case <-w.timer.C:
			w.late = true
		case <-w.ctx.Done():
		}
	}
	select {
	case <-o.done:
		return o.err
	default:
	}
	cause, over := context.Cause(w.ctx), w.ctx.Err()
	if o.phase.CompareAndSwap(opQueued, opDropped) {
		if over != nil && !w.late {
			return fmt.Errorf("redisstore: nothing charged: %w", cause)
		}
		w.store.stats.faults[TimedOut].Add(1)
		return fmt.Errorf("redisstore: %w: %s: not sent within %s, nothing charged", spillgate.ErrUnavailable, TimedOut, w.store.options.budget)
	}
	if over != nil && !w.late {
		return fmt.Errorf("redisstore: sent, and may be charged: %w", cause)
	}
	w.store.stats.faults[TimedOut].Add(1)
	o.flight.lose()
	return fmt.Errorf("redisstore: %w: %s: no answer within %s; it may be charged", spillgate.ErrUnavailable, TimedOut, w.store.options.budget)
}
