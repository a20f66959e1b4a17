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
	timer    *time.Timer // made when it is first needed
	set      bool        // the timer
	store    *Store
	late     bool
	whole    bool // all of the budget is left for what was submitted last
	before   bool // something was submitted
}

func (s *Store) newWait(ctx context.Context) *wait {
	return s.waitUntil(ctx, time.Now().Add(s.patience))
}

func (s *Store) waitUntil(ctx context.Context, deadline time.Time) *wait {
	w, ok := s.waits.Get().(*wait)
	if !ok {
		w = &wait{store: s}
	}
	w.ctx, w.deadline, w.late, w.whole, w.before = ctx, deadline, false, true, false
	return w
}

// carry is asked once for each time that something is submitted, and reports whether
// whoever waits may make the call itself: not if a call may take longer than is left
// for this one, since others may have to wait for it, and it says something about the
// server.
func (w *wait) carry() bool {
	w.whole = w.whole && !w.before
	w.before = true
	end, ok := w.ctx.Deadline()
	return w.whole && (!ok || !end.Before(w.deadline))
}

// over is when w ends. Whoever made the call itself needs no timer, since the answer
// is there.
func (w *wait) over() <-chan time.Time {
	if !w.set {
		left := time.Until(w.deadline)
		if w.timer == nil {
			w.timer = time.NewTimer(left)
		} else {
			w.timer.Reset(left)
		}
		w.set = true
	}
	return w.timer.C
}

// stop ends w, which must not be used any more.
func (w *wait) stop() {
	if w.set {
		w.timer.Stop()
		w.set = false
	}
	w.ctx = nil
	w.store.waits.Put(w)
}

// for1 waits for the answer to o. If it does not come in time, o is left to
// whoever carries it, and must not be touched any more.
func (w *wait) for1(o *op) error {
	select {
	case <-o.done:
		return o.err
	default:
	}
	if !w.late {
		select {
		case <-o.done:
			return o.err
		case <-w.over():
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
	flight, key := o.flight, o.key()
	if w.late && w.whole {
		flight.lose(key)
	} else { // the server had less than its time
		time.AfterFunc(w.store.patience, func() { flight.lose(key) })
	}
	if over != nil && !w.late {
		return fmt.Errorf("redisstore: sent, and may be charged: %w", cause)
	}
	w.store.stats.faults[TimedOut].Add(1)
	return fmt.Errorf("redisstore: %w: %s: no answer within %s; it may be charged", spillgate.ErrUnavailable, TimedOut, w.store.options.budget)
}
