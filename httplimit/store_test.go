package httplimit_test

import (
	"context"
	"sync"
	"time"

	"github.com/spillgate/spillgate"
)

// A scripted store says what a test wants and notes what it is asked.
type scripted struct {
	decide func(c spillgate.Charge) (spillgate.Decision, error)
	settle error

	mu      sync.Mutex
	settled []spillgate.Correction
}

func (s *scripted) Take(ctx context.Context, at time.Time, cs []spillgate.Charge, out []spillgate.Decision) error {
	for i := range cs {
		var err error
		if out[i], err = s.decide(cs[i]); err != nil {
			return err
		}
	}
	return nil
}

func (s *scripted) Settle(ctx context.Context, at time.Time, cs []spillgate.Correction) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settled = append(s.settled, cs...)
	return s.settle
}

// grants allows everything, as the first charge of a limit.
func grants(c spillgate.Charge) (spillgate.Decision, error) {
	most := c.Meter.Limit().Cap()
	return spillgate.Decision{
		Allowed: true, Reason: spillgate.Granted, Limit: most, Remaining: most - c.N, Taken: c.N,
		ResetAfter: 1500 * time.Millisecond, At: 1, Slot: 7,
	}, nil
}

// refuses denies everything for so long.
func refuses(retry, reset time.Duration, reason spillgate.Reason) func(spillgate.Charge) (spillgate.Decision, error) {
	return func(c spillgate.Charge) (spillgate.Decision, error) {
		return spillgate.Decision{Reason: reason, Limit: c.Meter.Limit().Cap(), RetryAfter: retry, ResetAfter: reset, At: 1}, nil
	}
}

// fails answers nothing.
func fails(err error) func(spillgate.Charge) (spillgate.Decision, error) {
	return func(spillgate.Charge) (spillgate.Decision, error) { return spillgate.Decision{}, err }
}
