package spillgate

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// The defaults of [LeaseOptions].
const (
	DefaultLeaseShare = 0.05
	DefaultLeaseHold  = 500 * time.Millisecond
	DefaultLeaseKeys  = 1 << 16
)

// LeaseOptions shape a [Leased] store.
type LeaseOptions struct {
	// Nodes is how many processes lease from the inner store, at least 1. The
	// bounds hold for as many. Where that is not known yet, call [Leased.SetNodes]
	// with 0 before the first request.
	Nodes int
	// Share is the part of a limit, of a bucket's burst or a window's rate, that
	// all nodes together may hold in leases: above 0, at most 1; 0 means
	// [DefaultLeaseShare]. A node holds ⌊Share·limit/Nodes⌋ units of a key at
	// the most, its block. Where that is 0 nothing is leased.
	Share float64
	// Hold is how long units are held before those that are left are given
	// back, 10 ms to 1 min, and how far ahead a lease is to last at the rate at
	// which its key is used; 0 means [DefaultLeaseHold]. Units that a bucket has
	// earned back by itself meanwhile are missed by nobody: they stay until the
	// last answer about their key is 10 s old, or their place is wanted.
	Hold time.Duration
	// MaxKeys is how many keys are known at once, of all spaces together, 1 to
	// 2^24: those that hold units, and those whose last answer is remembered. It
	// is rounded up to whole parts of the table; 0 means [DefaultLeaseKeys].
	// Keys beyond are asked for exactly.
	MaxKeys int
	// Mixed sends charges of algorithms that can't be leased to the inner store
	// as they are, in one call with the others of their request. Without it they
	// are refused with [ErrCharge].
	Mixed bool
}

// Leased is a [Store] that decides for hot keys without asking the store behind
// it, its inner store: it takes blocks of units there and spends them here. All
// it spends is paid. Keys that are not hot, and requests that a lease can't
// cover, are decided by the inner store, and what that says of a key is
// remembered: who was refused is refused again, until its retry, at most 10 s,
// without a call.
//
// With n nodes and a block of k units a key, the price is exact: in any interval
// of length t at most n·k units more than the limit's burst + rate·t are
// admitted, and a request may be refused while at most n·k units of its limit
// are still unspent, in leases of other nodes or on their way. See
// [Leased.Bound].
//
// A lease is given back when it is over and at Close. In a fixed window it ends
// with its window. For one that runs low units are fetched beside the requests,
// so that few of them wait. Leased are [Bucket] and [FixedWindow], in spaces without a
// TTL, in requests of up to eight charges of different keys, none of which asks
// for a part (Ask.Min). All else goes to the inner store as it is, except that
// other algorithms are refused unless the options say [LeaseOptions.Mixed]. All
// or none holds across what is leased and what is not.
//
// Whoever gives times of their own calls [Leased.Return]; with the store's own
// clock a timer does, while anything is held, and up to 64 goroutines fetch. A
// request that fetches a block and whose context can end is asked for by another one,
// which goes on if the caller leaves: so the inner store's calls have to end by
// themselves.
//
// It is safe for concurrent use. Deciding without a call allocates nothing.
type Leased struct {
	inner Store
	share float64
	hold  time.Duration
	mixed bool
	nodes atomic.Int64

	base  time.Time
	epoch Instant

	shards []leaseShard
	calls  sync.Pool // of *leaseCall
	closed atomic.Bool
	low    lowLeases // that units are fetched for

	mu     sync.Mutex // held while leases are given back
	timing sync.Mutex
	owed   []Correction // to be given back with what is over
	timer  *time.Timer  // while anything is held by the store's own clock
	armed  atomic.Bool
	told   atomic.Bool // callers have given times of their own

	asked, aheads, forfeited, returned, errs atomic.Uint64
}

// NewLeased returns a store that leases from inner. Close it to give back what
// it holds; inner stays open. Errors wrap [ErrLimit] and name the option.
func NewLeased(inner Store, o LeaseOptions) (*Leased, error) {
	bad := func(option string, value any, want string) (*Leased, error) {
		return nil, fmt.Errorf("spillgate: %w: lease %s %v: %s", ErrLimit, option, value, want)
	}
	if o.Share == 0 {
		o.Share = DefaultLeaseShare
	}
	if o.Hold == 0 {
		o.Hold = DefaultLeaseHold
	}
	if o.MaxKeys == 0 {
		o.MaxKeys = DefaultLeaseKeys
	}
	switch {
	case inner == nil:
		return nil, fmt.Errorf("spillgate: %w: leases need a store to take from", ErrLimit)
	case o.Nodes < 1:
		return bad("nodes", o.Nodes, "say how many processes share the store, at least 1")
	case !(o.Share > 0 && o.Share <= 1):
		return bad("share", o.Share, "must be above 0 and at most 1")
	case o.Hold < 10*time.Millisecond || o.Hold > time.Minute:
		return bad("hold", o.Hold, "must be from 10ms to 1m")
	case o.MaxKeys < 1 || o.MaxKeys > 1<<24:
		return bad("max keys", o.MaxKeys, "must be from 1 to 2^24")
	}
	now := time.Now()
	l := &Leased{inner: inner, share: o.Share, hold: o.Hold, mixed: o.Mixed, base: now, epoch: instantOf(now)}
	l.nodes.Store(int64(o.Nodes))
	l.shards = newLeaseShards(o.MaxKeys)
	l.calls.New = func() any { return new(leaseCall) }
	return l, nil
}

// Inner returns the inner store, for charges that are never to be leased, or
// that can't be. Those for keys that l knows are for l alone.
func (l *Leased) Inner() Store { return l.inner }

// SetNodes says that n processes share the inner store from now on, less than 1 that
// it is not known how many do: then nothing is leased. What is held beyond the new
// block shrinks as it is used, and goes back within Hold. The bounds hold as long as
// no process has a lower number than there are processes that hold anything: tell all
// that one is to come, and let it begin when they have had Hold for it. Where processes
// count each other, as in package redisstore, n is 0 until Nodes.Mutual is true there.
func (l *Leased) SetNodes(n int) { l.nodes.Store(int64(max(0, n))) }

// A LeaseBound says what leasing one limit costs at the most.
type LeaseBound struct {
	// Block is how many units of a key one node holds at the most.
	Block int64
	// Extra is Nodes·Block: how many units of a key more than the limit says
	// can be admitted in any interval. In a window it is none.
	Extra int64
	// Stranded is Nodes·Block: how many units of a key can be unspent, in
	// leases, while a request for it is refused. A call of the inner store that
	// fails can cost the units that it asked for on top.
	Stranded int64
	// Hold is how long that lasts at most: units that nobody uses are then
	// given back.
	Hold time.Duration
}

// Bound returns the bounds for keys of a limit; all are 0 if it is not leased.
func (l *Leased) Bound(limit Limit) LeaseBound {
	if limit.Algorithm != Bucket && limit.Algorithm != FixedWindow {
		return LeaseBound{}
	}
	n := l.nodes.Load()
	k := l.block(limit.Cap(), n)
	if k == 0 {
		return LeaseBound{}
	}
	b := LeaseBound{Block: k, Extra: n * k, Stranded: n * k, Hold: l.hold}
	if limit.Algorithm == FixedWindow { // what a window's leases hold is counted in it, and ends with it
		b.Extra = 0
	}
	return b
}

// block returns the most units of a key that one of n nodes holds.
func (l *Leased) block(most, n int64) int64 {
	if n == 0 {
		return 0
	}
	k := int64(l.share * float64(most) / float64(n))
	if float64(k)*float64(n) > l.share*float64(most) { // rounded up on the way
		k--
	}
	return max(0, k)
}

// leasable reports whether units of a space can be leased under m, and answers
// remembered.
func leasable(sp *Space, m *Meter) bool {
	return (m.limit.Algorithm == Bucket || m.limit.Algorithm == FixedWindow) && sp.options.TTL == 0
}

// now reads the clock of the leases.
func (l *Leased) now() Instant { return l.epoch + Instant(time.Since(l.base)) }

func (l *Leased) instant(at time.Time) Instant {
	if at.IsZero() {
		return l.now()
	}
	if !l.told.Load() {
		l.told.Store(true)
	}
	return instantOf(at)
}

// Take implements [Store]. What the inner store says of a key is as old as its
// last answer, so Remaining and ResetAfter of a decision made here know of
// nothing that other nodes took since. At is on the inner store's clock, as far
// as its last answer tells.
func (l *Leased) Take(ctx context.Context, at time.Time, cs []Charge, out []Decision) error {
	if err := CheckCharges(cs, out); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("spillgate: nothing charged: %w", err)
	}
	if l.closed.Load() {
		return ErrClosed
	}
	now := l.instant(at)
	if len(cs) == 1 && l.takeHere(at, now, &cs[0], &out[0]) {
		return nil
	}
	return l.takeAll(ctx, at, now, cs, out)
}

// Forecast implements [Forecaster], for limits whose units are not leased, and if the
// inner store does.
func (l *Leased) Forecast(ctx context.Context, c *Charge) (Forecast, error) {
	if f, ok := l.inner.(Forecaster); ok && !leasable(c.Space, c.Meter) {
		return f.Forecast(ctx, c)
	}
	return Forecast{}, nil
}

// takeHere decides a single charge without a call, if it can.
func (l *Leased) takeHere(at time.Time, now Instant, c *Charge, d *Decision) bool {
	m := c.Space.inForce(c.Meter)
	if c.Min > 0 || !leasable(c.Space, m) {
		return false
	}
	sh, tag, set := l.find(c.Space, c.Key)
	sh.Lock()
	e := sh.lookup(tag, set, c.Space, c.Key)
	if e == nil || e.meter != m.id {
		sh.Unlock()
		return false
	}
	now = e.advance(now)
	after, says := sh.judge(e, m, now, c.Ask, d, l.hold)
	low := false
	switch says {
	case paid:
		sh.spend(e, after, c.N)
		sh.here++
		if low = c.N > 0 && e.runsLow(now); low {
			e.pins++
		}
	case refused:
		sh.refuse(e, c.Ask)
	}
	sh.Unlock()
	if low {
		l.ahead(at, lowLease{sh, e, c.N, c.Keep})
	}
	return says != unknown
}
