package policy

import (
	"context"
	"fmt"
	"time"

	"github.com/spillgate/spillgate"
)

// Close is called when the program is about to stop: from then on e holds
// nobody. Whoever is held, in [Engine.Await] or [Engine.Hold], and who would be,
// is told [spillgate.ErrClosed] at once, and has paid nothing. All else is
// decided and settled as before, so that requests under way can end; the store
// stays open. Each call logs, too, what the engine's journals ([Engine.Journal])
// have not told yet; closing again does nothing else.
//
//	server.RegisterOnShutdown(eng.Close)
func (e *Engine) Close() {
	e.lines.end.Do(func() { close(e.lines.ended) })
	e.closing.Lock()
	defer e.closing.Unlock()
	for _, j := range e.journals {
		j.Tell()
	}
}

// errHeld says why a request is held no longer.
var errHeld = fmt.Errorf("the program is about to stop and holds no requests: %w", spillgate.ErrClosed)

// Hold waits for d, as a front does with a request that it was told a
// [Verdict.Delay] for. It fails at once if ctx is over or ends before
// ([*spillgate.DeadlineError]), and later if ctx is cancelled or e is closed
// ([spillgate.ErrClosed]). The front then gives back what was charged.
func (e *Engine) Hold(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("policy: %w", err)
	}
	if deadline, ok := ctx.Deadline(); ok {
		if left := time.Until(deadline); left <= d {
			return fmt.Errorf("policy: %w", &spillgate.DeadlineError{Needed: d, Left: left})
		}
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("policy: %w", ctx.Err())
	case <-e.lines.ended:
		return fmt.Errorf("policy: %w", errHeld)
	}
}
