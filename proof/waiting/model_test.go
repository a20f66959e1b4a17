package waiting

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/proof/exact"
	"github.com/spillgate/spillgate/proof/oracle"
)

// A caller comes at an instant, counted from the start, and waits; or, if it
// is in a hurry, takes or leaves.
type caller struct {
	at, n    int64
	hurry    bool
	deadline int64 // 0: none
	cancel   int64 // 0: never

	// What comes of it, and when.
	end    int64
	result string
}

const (
	granted = "granted"
	denied  = "denied"
	late    = "a deadline that can't be met"
	never   = "never fits"
	gaveUp  = "cancelled"
	closed  = "closed"
)

// foretell says what comes of each caller of one key, all of whom come at
// different instants; false if two things happen at one instant.
//
// alone is the delay of so many units that a shaper lets go with nobody ahead.
func foretell(o *oracle.Limiter, alone func(n int64) int64, callers []caller, end int64) bool {
	var line []*caller
	now := int64(0)
	// serve returns the instant at which c is served from an instant on. A
	// shaper serves who waits when nobody is ahead, but for the rounding of the
	// one before.
	serve := func(o *oracle.Limiter, c *caller, from int64) int64 {
		for {
			a := o.Clone().Step(from, c.n)
			switch lead := a.Delay - alone(c.n); {
			case !a.Allowed:
				from += a.RetryAfter
			case a.Delay > 0 && lead > 1:
				from += lead - 1
			default:
				c.end = from + o.Step(from, c.n).Delay
				return from
			}
		}
	}
	settleUntil := func(until int64) bool {
		for {
			// What is next: the head is served, or somebody gives up.
			next, who, gives := until, -1, false
			if len(line) > 0 {
				probe := *line[0]
				if at := serve(o.Clone(), &probe, now); at < next {
					next, who = at, 0
				} else if at == next {
					return false
				}
			}
			for i, c := range line {
				if c.cancel == 0 {
					continue
				}
				if c.cancel == next {
					return false
				}
				if c.cancel < next {
					next, who, gives = c.cancel, i, true
				}
			}
			if who < 0 {
				now = until
				return true
			}
			c := line[who]
			if now = next; gives {
				c.end, c.result = now, gaveUp
			} else {
				serve(o, c, now)
				if c.cancel > 0 && c.cancel <= c.end {
					return false
				}
				c.result = granted
			}
			line = slices.Delete(line, who, who+1)
		}
	}
	for i := range callers {
		c := &callers[i]
		if !settleUntil(c.at) {
			return false
		}
		c.end = c.at
		switch {
		case c.n > o.Cap():
			c.result = never
		case c.hurry:
			c.result = denied
			if len(line) == 0 && o.Step(c.at, c.n).Allowed {
				c.result = granted
			}
		default:
			ahead, from := o.Clone(), now
			for _, other := range line {
				probe := *other
				from = serve(ahead, &probe, from)
			}
			probe := *c
			serve(ahead, &probe, from)
			if c.deadline > 0 && probe.end > c.deadline {
				c.result = late
			} else {
				line = append(line, c)
			}
		}
	}
	if !settleUntil(end) {
		return false
	}
	for _, c := range line {
		c.end, c.result = end, closed
	}
	return true
}

// play lets the callers come to a limiter, which is closed at the end.
func play(t *testing.T, l spillgate.Limit, callers []caller, end int64) (balance spillgate.Decision) {
	lim, err := spillgate.New(l)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	done := make(chan struct{}, len(callers))
	for i := range callers {
		go func() {
			defer func() { done <- struct{}{} }()
			c := &callers[i]
			<-time.After(time.Duration(c.at))
			if c.result = call(lim, c, start); c.end == 0 {
				c.end = int64(time.Since(start))
			}
		}()
	}
	<-time.After(time.Duration(end))
	balance = lim.Peek("key")
	if err := lim.Close(); err != nil {
		t.Error(err)
	}
	for range callers {
		<-done
	}
	return balance
}

func call(lim *spillgate.Limiter, c *caller, start time.Time) string {
	if c.hurry {
		switch d := lim.Take("key", c.n); {
		case d.Allowed:
			return granted
		case d.RetryAfter == spillgate.Never:
			return never
		default:
			return denied
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if c.deadline > 0 {
		ctx, cancel = context.WithDeadline(ctx, start.Add(time.Duration(c.deadline)))
		defer cancel()
	}
	if c.cancel > 0 {
		defer time.AfterFunc(time.Duration(c.cancel-c.at), cancel).Stop()
	}
	d, err := lim.Wait(ctx, "key", c.n)
	var tooLate *spillgate.DeadlineError
	switch {
	case err == nil && d.Allowed && d.Taken == c.n:
		return granted
	case errors.As(err, &tooLate) && errors.Is(err, context.DeadlineExceeded):
		return late
	case errors.Is(err, spillgate.ErrNeverFits):
		return never
	case errors.Is(err, context.Canceled):
		return gaveUp
	case errors.Is(err, spillgate.ErrClosed):
		return closed
	}
	return fmt.Sprintf("%+v, %v", d, err)
}

// I12 and I13: random callers with deadlines and changes of mind come to one
// key; what comes of each, and when, is what the oracle and the order of
// arrival say. What is left in the end is what the granted left.
func TestOrderOfArrivalAtTheEarliestInstant(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		name := rapid.SampledFrom([]string{oracle.TokenBucket, oracle.FixedWindow, oracle.Queue}).Draw(rt, "algorithm")
		rate, period := rapid.Int64Range(1, 5).Draw(rt, "rate"), rapid.Int64Range(1, 100).Draw(rt, "period")*1000
		burst := int64(0)
		if name != oracle.FixedWindow {
			burst = rapid.Int64Range(1, 5).Draw(rt, "burst")
		}
		l := exact.Limit(name, rate, period, burst)
		o, err := oracle.New(name, rate, period, burst)
		if err != nil {
			rt.Fatal(err)
		}
		now := int64(0)
		var callers []caller
		for range rapid.IntRange(1, 12).Draw(rt, "callers") {
			now += rapid.Int64Range(1, 2*period/rate).Draw(rt, "gap")
			c := caller{at: now, n: rapid.Int64Range(1, o.Cap()+1).Draw(rt, "n")}
			switch rapid.IntRange(0, 5).Draw(rt, "kind") {
			case 0:
				c.hurry = true
			case 1:
				c.deadline = now + rapid.Int64Range(1, 5*period).Draw(rt, "deadline")
			case 2:
				if name != oracle.Queue || c.n == 1 { // more units leave one by one
					c.cancel = now + rapid.Int64Range(1, 3*period).Draw(rt, "cancel")
				}
			}
			callers = append(callers, c)
		}
		end := now + rapid.Int64Range(1, 5*period).Draw(rt, "end")
		want := slices.Clone(callers)
		alone := func(n int64) int64 {
			o, err := oracle.New(name, rate, period, burst)
			if err != nil || name != oracle.Queue {
				return 0
			}
			return o.Step(0, n).Delay
		}
		if !foretell(o, alone, want, end) {
			return // two things at one instant
		}
		var balance spillgate.Decision
		synctest.Test(t, func(t *testing.T) {
			// Windows begin with the oracle's.
			time.Sleep(time.Duration(period - time.Now().UnixNano()%period))
			balance = play(t, l, callers, end)
		})
		for i := range callers {
			got, want := callers[i], want[i]
			if want.result == granted && want.end >= end { // paid, and in its delay when the limiter closes
				if want.result, want.end = closed, end; want.end == end && got.result == granted {
					continue
				}
			}
			if got.result != want.result || got.end != want.end {
				rt.Fatalf("%s: caller %d of %+v:\n got %s at %d\nwant %s at %d", l, i, callers, got.result, got.end, want.result, want.end)
			}
		}
		if a := o.Step(end, 0); name != oracle.Queue && balance.Remaining != a.Remaining && !slices.ContainsFunc(callers, func(c caller) bool { return c.result == closed }) {
			rt.Fatalf("%s: %d left, want %d, after %+v", l, balance.Remaining, a.Remaining, callers)
		}
	})
}
