package simulation

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/spillgate/spillgate"
)

// An account is one key under one rule, as the store knows it.
type account struct {
	space string
	key   spillgate.Key
}

// A ledger holds what was paid at the store, what was spent by the nodes, and
// when, and checks one against the other and both against the limits.
type ledger struct {
	world    *world
	accounts map[account]*entry
	names    map[string]*entry // by rule, and caller if the rule tells them apart
	order    []*entry
	losses   int
	nth      int
	forgone  int64 // units of calls whose outcome no node knows
}

// An entry is what is known of an account.
type entry struct {
	name        string
	limit       spillgate.Limit
	paid, spent int64
	asked       int64 // by calls that are under way
	clock       int64 // of the store, as far as the account has seen: time it has earned in
	raw         int64 // the reading at that
	lost        int64 // what it showed when the store last lost its state
	forgot      bool  // nobody has asked since
	events      []*spending
}

// A spending is units that were admitted, or a loss of the store's state, on the
// clock of the account.
type spending struct {
	at    int64
	raw   int64 // what the clock showed
	nth   int   // of one instant, the order in which it happened
	units int64
	loss  bool
}

func newLedger(w *world) *ledger {
	return &ledger{world: w, accounts: map[account]*entry{}, names: map[string]*entry{}}
}

// named returns the entry of a name.
func (l *ledger) named(name string, limit spillgate.Limit) *entry {
	e := l.names[name]
	if e == nil {
		e = &entry{name: name, limit: limit, raw: math.MinInt64, lost: math.MinInt64}
		l.names[name] = e
		l.order = append(l.order, e)
	}
	return e
}

// introduce says by what name the account of a charge goes.
func (l *ledger) introduce(c *spillgate.Charge, name string) {
	a := account{c.Space.Name(), c.Key}
	e := l.named(name, c.Meter.Limit())
	if was := l.accounts[a]; was != nil && was != e {
		l.world.fail("%s and %s are one key", was.name, name)
	}
	l.accounts[a] = e
}

func (l *ledger) of(sp *spillgate.Space, key spillgate.Key) *entry {
	return l.accounts[account{sp.Name(), key}]
}

// advance moves the clock of an account to what the store's shows: not back, as
// long as the store has not lost what that was.
func (e *entry) advance(raw int64) int64 {
	switch {
	case e.forgot:
		e.forgot = false
		e.raw = raw
	case e.raw == math.MinInt64:
		e.clock = raw
	default:
		e.clock += max(0, raw-e.raw)
	}
	e.raw = max(e.raw, raw)
	return e.clock
}

// next returns the number of one more thing that happens.
func (l *ledger) next() int {
	l.nth++
	return l.nth
}

// took notes what the store took for a charge, and for whom: nobody where a lease
// is filled ahead of need.
func (l *ledger) took(q *request, c *spillgate.Charge, d *spillgate.Decision) {
	e := l.of(c.Space, c.Key)
	e.paid += d.Taken
	when := spending{at: e.advance(int64(d.At)), raw: int64(d.At), nth: l.next()}
	if q != nil {
		q.taken[e] = when
	}
}

// settled notes what was settled at the store. What is given back of a charge that
// it has lost can be spent again: that is a part of the loss which comes late.
func (l *ledger) settled(cs []spillgate.Correction) {
	for i := range cs {
		c := &cs[i]
		e := l.of(c.Space, c.Key)
		e.paid += c.Delta
		if c.Delta < 0 && int64(c.At) <= e.lost {
			e.events = append(e.events, &spending{at: e.clock, raw: e.raw, nth: l.next(), units: c.Delta})
		}
	}
}

// unsure notes a call whose outcome its node does not know.
func (l *ledger) unsure(m *message) {
	for i := range m.charges {
		l.forgone += m.charges[i].N
	}
	for i := range m.corrections {
		l.forgone += max(m.corrections[i].Delta, -m.corrections[i].Delta)
	}
}

// lost notes that the store has lost its state, when its clock shows raw.
func (l *ledger) lost(raw int64) {
	l.losses++
	for _, e := range l.order {
		if e.raw == math.MinInt64 {
			continue // nothing was known of it
		}
		e.events = append(e.events, &spending{at: e.clock, raw: raw, nth: l.next(), loss: true})
		e.forgot, e.lost = true, raw
	}
}

// spend notes units that a node admitted on the store's word: when the store
// said so, or else, of a lease, when the store last heard of the account. They
// were paid by then. When the request came the store's clock showed raw.
func (l *ledger) spend(q *request, e *entry, raw int64) {
	when, ok := q.taken[e]
	if !ok {
		when = spending{at: e.clock, raw: raw, nth: l.next()}
	}
	when.units = q.cost
	e.spent += q.cost
	e.events = append(e.events, &when)
	q.spent = append(q.spent, &when)
}

// unspend notes that a request gives all its units back.
func (l *ledger) unspend(q *request, e *entry) {
	e.spent -= q.cost
	l.forgone += q.cost // whether a call that fails was carried out is not known
}

// covered checks that all that is spent or held was paid.
func (l *ledger) covered(held int64) {
	var paid, spent int64
	for _, e := range l.order {
		if e.spent > e.paid {
			l.world.fail("%s: %d spent, %d paid", e.name, e.spent, e.paid)
		}
		paid += e.paid
		spent += e.spent
	}
	if spent+held > paid {
		l.world.fail("%d spent and %d held, %d paid", spent, held, paid)
	}
}

// conforms checks I1 and I16 for what was admitted on the store's word: in every
// interval no more than the limit, once more for every loss, and what leases
// allow. A window has nothing of that but where clocks jumped: then a lease may
// outlive it, once for every jump.
func (l *ledger) conforms(extra func(spillgate.Limit) int64, jumps int) {
	for _, e := range l.order {
		var err error
		switch {
		case e.limit.Algorithm != spillgate.FixedWindow:
			err = inEveryInterval(e.events, e.limit, e.limit.Burst+extra(e.limit), e.limit.Burst)
		case jumps == 0:
			err = inWindows(e.events, e.limit, 0)
		default:
			err = inWindows(e.events, e.limit, int64(1+jumps)*extra(e.limit)+int64(l.losses)*e.limit.Rate)
		}
		if err != nil {
			l.world.fail("%s, %s: %v", e.name, e.limit, err)
		}
	}
}

// inEveryInterval reports an interval in which more was admitted than burst +
// rate·time, and again for every loss in it.
func inEveryInterval(events []*spending, limit spillgate.Limit, burst, again int64) error {
	events = sorted(events)
	period := int64(limit.Period)
	sum, least := int64(0), int64(0) // in units of 1/period
	for i, s := range events {
		at := s.at - events[0].at
		before := sum - limit.Rate*at
		if s.loss {
			sum -= again * period
			continue
		}
		if i == 0 || before < least {
			least = before
		}
		sum += s.units * period
		if over := sum - limit.Rate*at - least - burst*period; over > 0 {
			return fmt.Errorf("%d units more than %d and what is earned, up to %d", (over+period-1)/period, burst, s.at)
		}
	}
	return nil
}

// inWindows is that for a limit of fixed windows.
func inWindows(events []*spending, limit spillgate.Limit, more int64) error {
	sums, losses := map[int64]int64{}, map[int64]int64{}
	for _, s := range events {
		window := s.raw / int64(limit.Period)
		if s.loss {
			losses[window]++
		} else {
			sums[window] += s.units
		}
	}
	for window, sum := range sums {
		if most := limit.Rate*(1+losses[window]) + more; sum > most {
			return fmt.Errorf("%d admitted in window %d, at most %d may be", sum, window, most)
		}
	}
	return nil
}

// sorted returns events by time.
func sorted(events []*spending) []*spending {
	events = slices.Clone(events)
	slices.SortStableFunc(events, func(a, b *spending) int {
		if a.at != b.at {
			return cmp.Compare(a.at, b.at)
		}
		return cmp.Compare(a.nth, b.nth)
	})
	return events
}
