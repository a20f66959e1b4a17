package client

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/spillgate/spillgate"
)

// A Patience says how long and how often a client waits before it asks again.
// The zero value waits for up to 30 s before each of two more tries.
type Patience struct {
	// MaxWait is the longest wait before one try, its spread included. 0
	// means 30 s; below 0 nobody waits, and what was refused stays so.
	MaxWait time.Duration
	// Tries is how often a request is sent at most; 0 or less means 3, and 1
	// that it is never sent again.
	Tries int
	// Spread is the most by which a wait is made longer at random, so that
	// those who were told the same do not come back in the same instant: by
	// up to the wait itself, and no more than this. 0 means 5 s, below 0
	// nothing.
	Spread time.Duration
}

// Defaults of [Patience].
const (
	defaultMaxWait = 30 * time.Second
	defaultTries   = 3
	defaultSpread  = 5 * time.Second

	// firstBackoff is how long is waited at most before the second try if
	// nothing was told; twice as long before the third.
	firstBackoff = 500 * time.Millisecond
)

// Untold is the wait of an answer that tells none.
const Untold time.Duration = -1

// Next returns how long to wait before the next try of something that was
// sent so many times and told to wait so long: never less than that. If nothing
// was told ([Untold]) it is a random part of a time that doubles with each try
// (exponential backoff with full jitter). ok is false if there shall be no
// other try: there were enough, or the wait would be longer than MaxWait or
// outlast ctx.
func (p Patience) Next(ctx context.Context, tried int, told time.Duration) (wait time.Duration, ok bool) {
	if p.Tries <= 0 {
		p.Tries = defaultTries
	}
	if tried >= p.Tries {
		return 0, false
	}
	room, ok := p.room(ctx)
	if !ok || told > room || told == spillgate.Never {
		return 0, false
	}
	backoff := firstBackoff << min(max(tried, 1)-1, 20)
	if told < 0 {
		return part(min(backoff, room)), true
	}
	return told + part(min(max(told, backoff), p.spread(), room-told)), true
}

// room returns the time in which a wait has to end.
func (p Patience) room(ctx context.Context) (time.Duration, bool) {
	room := p.MaxWait
	if room == 0 {
		room = defaultMaxWait
	}
	if deadline, ok := ctx.Deadline(); ok {
		room = min(room, time.Until(deadline)-1) // a wait up to it would be for nothing
	}
	return room, room > 0 && ctx.Err() == nil
}

func (p Patience) spread() time.Duration {
	if p.Spread == 0 {
		return defaultSpread
	}
	return p.Spread
}

// part returns a random part of d: less than d, or 0.
func part(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return rand.N(d)
}

// sleep waits for d, or for ctx's error.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
