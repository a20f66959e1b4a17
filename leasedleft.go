package spillgate

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"
)

// A leaseFlight is a request that is asked for beside its caller, who may leave
// before it is decided.
type leaseFlight struct {
	cs   []Charge // the caller's are the caller's again once it left
	out  []Decision
	err  error
	over atomic.Bool // it is decided, or the caller left: whatever came first
	done chan struct{}
}

// fetches reports whether c asks for more than its request needs.
func (c *leaseCall) fetches() bool {
	for i := range c.parts[:c.n] {
		if c.parts[i].more > 0 {
			return true
		}
	}
	return false
}

// askBeside is [Leased.ask] for a call that fetches units for others, too: it goes
// on when the caller leaves, so that these are held and not lost, and what the
// request itself took is given back then. Close waits for it.
func (l *Leased) askBeside(ctx context.Context, at time.Time, c *leaseCall, cs []Charge, out []Decision) error {
	if !l.low.join() {
		c.fail()
		l.put(at, c)
		return ErrClosed
	}
	l.asked.Add(1)
	f := &leaseFlight{cs: slices.Clone(cs), out: slices.Clone(out), done: make(chan struct{})}
	go func() {
		defer l.low.done.Done()
		f.err = l.ask(context.WithoutCancel(ctx), at, c, f.cs, f.out)
		if !f.over.CompareAndSwap(false, true) && f.err == nil {
			c.giveAll(l, at, f.cs, f.out)
		}
		l.put(at, c)
		close(f.done)
	}()
	select {
	case <-f.done:
	case <-ctx.Done():
		if f.over.CompareAndSwap(false, true) {
			return fmt.Errorf("spillgate: left while the store was asked, nothing stays charged: %w", ctx.Err())
		}
		<-f.done
	}
	copy(out, f.out)
	return f.err
}

// giveAll gives back what a request took that nobody waits for any more: to the
// leases where they have room for it.
func (c *leaseCall) giveAll(l *Leased, at time.Time, cs []Charge, out []Decision) {
	now := l.instant(at)
	var rest []Correction
	for i := range cs {
		d := &out[i]
		back := Correction{Space: cs[i].Space, Key: cs[i].Key, Meter: cs[i].Meter, Delta: -d.Taken,
			At: d.At, Slot: d.Slot, Until: d.until(), Overflow: d.Overflow}
		done, holds := l.settleHere(now, &back)
		if c.keeps = c.keeps || holds; !done {
			rest = append(rest, back)
		}
	}
	if len(rest) > 0 {
		_ = l.settleBack(context.Background(), at, rest) // counted as forfeited
	}
}
