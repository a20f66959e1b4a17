package spillgate

import (
	"context"
	"fmt"
	"math/bits"
	"time"
)

// A leaseCall is the work of one [Leased.Take] that needs more than a look at
// one lease.
type leaseCall struct {
	parts   [inline]leasePart
	order   [inline]uint8 // of the parts: that of their locks
	n, locs int
	charges [inline]Charge // what the inner store is asked
	answers [inline]Decision
	asks    int
	back    []Correction // what has to go back to it
	low     lowLease     // that runs low, if any does
	sent    Instant      // on the local clock
	keeps   bool         // a lease holds units after it
}

// A leasePart is one charge of a call.
type leasePart struct {
	sh    *leaseShard // nil if the charge is never leased
	tag   uint64
	set   int
	m     *Meter
	e     *lease // nil if the key has none; it stays in its place while it is pinned
	now   Instant
	until Instant // of e when own was taken
	after State

	says    outlook
	asked   int8  // its charge among those the inner store is asked, -1 if none
	own     int64 // units of e that are spent if the request passes
	need    int64 // units to ask for
	more    int64 // units to ask for beyond that
	charged int64 // what e.state was charged ahead of the answer
	backed  int64 // how many units of own could be given back
	pinned  bool
}

// takeAll decides any request: here, if all its charges are known here, or else
// with one call for those that are not.
func (l *Leased) takeAll(ctx context.Context, at time.Time, now Instant, cs []Charge, out []Decision) error {
	for i := range cs {
		if a := cs[i].Meter.limit.Algorithm; !l.mixed && a != Bucket && a != FixedWindow && a != Unlimited {
			return fmt.Errorf("spillgate: %w: charge %d of %q: a %s can't be leased, only buckets and fixed windows; ask the store exactly, or use Mixed",
				ErrCharge, i, cs[i].Space.name, a)
		}
	}
	if len(cs) == 0 || len(cs) > inline || twice(cs) {
		l.asked.Add(1)
		err := l.inner.Take(ctx, at, cs, out)
		if err != nil {
			l.errs.Add(1)
		}
		return err
	}
	c := l.calls.Get().(*leaseCall)
	c.plan(l, now, cs)
	if c.decide(l, cs, out) {
		if c.low.e != nil {
			l.ahead(at, c.low)
		}
		l.put(at, c)
		return nil
	}
	if ctx.Done() != nil && c.fetches() {
		return l.askBeside(ctx, at, c, cs, out)
	}
	l.asked.Add(1)
	defer l.put(at, c)
	return l.ask(ctx, at, c, cs, out)
}

// ask has the inner store asked what a call can't decide here.
func (l *Leased) ask(ctx context.Context, at time.Time, c *leaseCall, cs []Charge, out []Decision) error {
	err := l.inner.Take(ctx, at, c.charges[:c.asks], c.answers[:c.asks])
	if err != nil {
		l.errs.Add(1)
		c.fail()
		return err
	}
	var rtt time.Duration
	if at.IsZero() {
		rtt = time.Duration(l.now() - c.sent)
	}
	c.finish(l, rtt, cs, out)
	return nil
}

// put ends a call: it gives its memory back, without what it points to, and sees
// to what it leaves to be given back.
func (l *Leased) put(at time.Time, c *leaseCall) {
	keeps := c.keeps || len(c.back) > 0
	if len(c.back) > 0 {
		l.owe(c.back)
	}
	clear(c.parts[:c.n])
	clear(c.charges[:c.asks])
	clear(c.back)
	c.n, c.locs, c.asks, c.back, c.low, c.keeps = 0, 0, 0, c.back[:0], lowLease{}, false
	l.calls.Put(c)
	if keeps {
		l.kept(at)
	}
}

// twice reports whether a key is charged more than once.
func twice(cs []Charge) bool {
	for i := range cs {
		for j := range cs[:i] {
			if cs[i].Space == cs[j].Space && cs[i].Key == cs[j].Key {
				return true
			}
		}
	}
	return false
}

// plan finds out which shards a call needs.
func (c *leaseCall) plan(l *Leased, now Instant, cs []Charge) {
	c.n, c.sent = len(cs), now
	for i := range cs {
		p, g := &c.parts[i], &cs[i]
		*p = leasePart{m: g.Space.inForce(g.Meter), asked: -1, now: now}
		if !leasable(g.Space, p.m) {
			continue
		}
		p.sh, p.tag, p.set = l.find(g.Space, g.Key)
		k := c.locs
		c.locs++
		for ; k > 0 && p.sh.index < c.parts[c.order[k-1]].sh.index; k-- {
			c.order[k] = c.order[k-1]
		}
		c.order[k] = uint8(i)
	}
}

func (c *leaseCall) lock() {
	var last *leaseShard
	for _, i := range c.order[:c.locs] {
		if sh := c.parts[i].sh; sh != last {
			sh.Lock()
			last = sh
		}
	}
}

func (c *leaseCall) unlock() {
	var last *leaseShard
	for _, i := range c.order[:c.locs] {
		if sh := c.parts[i].sh; sh != last {
			sh.Unlock()
			last = sh
		}
	}
}

// decide judges all charges at one moment. If everything is known it decides
// the request; if not it sets aside what the request takes of leases, and says
// what to ask.
func (c *leaseCall) decide(l *Leased, cs []Charge, out []Decision) (done bool) {
	c.lock()
	defer c.unlock()
	known, passes := true, true
	for i := range c.parts[:c.n] {
		p, g := &c.parts[i], &cs[i]
		switch {
		case p.m.limit.Algorithm == Unlimited:
			p.m.decide(State{}, p.now, g.Ask, &out[i])
			p.says = paid
		case p.sh != nil:
			p.e = p.sh.lookup(p.tag, p.set, g.Space, g.Key)
			if p.e == nil {
				break
			}
			p.now = p.e.advance(p.now)
			if p.e.meter != p.m.id {
				c.outgrown(p)
			}
			p.after, p.says = p.sh.judge(p.e, p.m, p.now, g.Ask, &out[i], l.hold)
			if g.Min > 0 {
				p.says = unknown
			}
		}
		known = known && p.says != unknown
		passes = passes && (p.says != refused || g.Trial)
	}
	if !known {
		for i := range c.parts[:c.n] {
			c.prepare(l, i, &cs[i])
		}
		return false
	}
	if !passes {
		c.refuse(cs, out)
		return true
	}
	var first *leaseShard
	for i := range c.parts[:c.n] {
		if p := &c.parts[i]; p.says == paid && p.e != nil {
			p.sh.spend(p.e, p.after, cs[i].N)
			if first == nil {
				first = p.sh
				first.here++
			}
			if c.low.e == nil && cs[i].N > 0 && p.e.runsLow(p.now) {
				p.e.pins++
				c.low = lowLease{p.sh, p.e, cs[i].N, cs[i].Keep}
			}
		}
	}
	return true
}

// refuse makes the decisions those of a request that a charge refuses, all
// known here: a limit that does not refuse says what it says to nothing.
func (c *leaseCall) refuse(cs []Charge, out []Decision) {
	counted := false
	for i := range c.parts[:c.n] {
		p := &c.parts[i]
		switch {
		case p.says == refused && !cs[i].Trial && !counted:
			p.sh.refuse(p.e, cs[i].Ask)
			counted = true
		case p.says == paid && cs[i].N > 0:
			p.nothing(cs[i].Ask, &out[i])
		}
	}
}

// nothing makes d what the limit says to a request for nothing now.
func (p *leasePart) nothing(q Ask, d *Decision) {
	q = Ask{Keep: q.Keep}
	if p.e == nil {
		d.Taken = 0 // of a limit that has no state
		return
	}
	p.e.decide(p.m, p.e.there(p.now), q, d)
}

// outgrown makes a lease that was one of another limit one of p's: what it
// holds is given back.
func (c *leaseCall) outgrown(p *leasePart) {
	e := p.e
	if e.have > 0 {
		c.back = append(c.back, p.sh.giveBack(e, e.there(p.now)))
	}
	*e = lease{space: e.space, key: e.key, pins: e.pins, coming: e.coming, meter: p.m.id, since: never, latest: e.latest}
}

// prepare sets aside what charge i spends of its lease, or puts it on the list
// of what to ask for.
func (c *leaseCall) prepare(l *Leased, i int, g *Charge) {
	p := &c.parts[i]
	e, ask := p.e, *g
	switch {
	case p.says == refused && g.Trial:
		return
	case p.says == paid:
		if e != nil {
			p.own, p.charged, p.until, p.backed = g.N, g.N, e.until, e.back
			p.sh.spend(e, p.after, g.N)
			p.backed -= e.back
			p.pin()
		}
		return
	case e != nil && g.N > 0:
		p.need = g.N
		if p.says == unknown && g.Min == 0 && g.Need <= g.N && g.N > e.have && e.since != never {
			if p.m.limit.Algorithm == Bucket && g.N <= p.m.most-g.Keep { // a window could end before the answer
				p.own = e.have
			}
			p.need = g.N - p.own
			p.more = l.more(e, p.m, e.there(p.now), g.N)
			ask.N, ask.Min, ask.Need = p.need+p.more, 0, 0
			if p.more > 0 {
				ask.Min = p.need
			}
			p.ahead()
		}
		p.pin()
	default:
		p.need = g.N
	}
	p.asked = int8(c.asks)
	c.charges[c.asks], c.answers[c.asks] = ask, Decision{}
	c.asks++
}

// ahead charges the state with what is asked for, as if it was granted already:
// others, who come before the answer, are to know that it is not there.
func (p *leasePart) ahead() {
	e, there := p.e, p.e.there(p.now)
	var d Decision
	e.decide(p.m, there, Ask{}, &d)
	p.charged = min(p.own+p.need+p.more, max(p.own+p.need, d.Remaining))
	e.state = p.m.Settle(e.state, there, there, p.charged)
	p.until, p.backed = e.until, e.back
	p.sh.setHave(e, e.have-p.own)
	p.backed -= e.back
	e.used = later(e.used, p.own+p.need)
}

// growth is how many times larger than the last a block can be.
const growth = 8

// more returns how many units to ask for beyond what a request of n needs: what
// the key will use while a lease lasts, at the rate at which it was used since
// the last answer, growing no faster than eightfold each time.
func (l *Leased) more(e *lease, m *Meter, there Instant, n int64) int64 {
	most := l.block(m.most, l.nodes.Load())
	want := most
	if age := int64(there - e.since); age > 0 {
		hi, lo := bits.Mul64(uint64(later(e.used, n)), uint64(l.hold))
		if hi < uint64(age) {
			q, _ := bits.Div64(hi, lo, uint64(age))
			want = int64(min(q, uint64(most)+uint64(n)))
		}
	}
	want = min(want, later(growth*min(e.want, most), growth*min(n, most)))
	e.want = want
	if m.limit.Algorithm == Bucket {
		// What comes back by itself while it is held costs nobody anything, as
		// long as there is plenty.
		var d Decision
		m.decide(e.state, there, Ask{}, &d)
		if d.Remaining > m.most/2 {
			want = max(want, min(most, m.units(span{ns: int64(l.hold / 2)})))
		}
	}
	if want/2 < n {
		return 0 // for this request alone a lease does not pay
	}
	more := min(want-n, most-e.have-e.coming)
	if more < n {
		return 0
	}
	return more
}

// pin keeps the lease in its place until the part is done with, and room in its
// block for what may come to it.
func (p *leasePart) pin() {
	p.pinned = true
	p.e.pins++
	p.e.coming += p.own + p.more
}

func (p *leasePart) unpin() {
	p.pinned = false
	p.e.pins--
	p.e.coming -= p.own + p.more
}

// unspend puts own units back, those of a window only while it lasts.
func (p *leasePart) unspend() {
	e := p.e
	if e.meter != p.m.id || p.m.limit.Algorithm == FixedWindow && e.until != p.until {
		p.sh.forfeited += uint64(p.own)
		return
	}
	there := e.there(p.now)
	e.state = p.m.Settle(e.state, there, there, -p.charged)
	p.sh.setHave(e, e.have+p.own)
	if e.until == p.until {
		e.back += p.backed
	}
}

// fail puts back what was set aside for a request that was not decided.
func (c *leaseCall) fail() {
	for i := range c.parts[:c.n] {
		if p := &c.parts[i]; p.pinned {
			p.sh.Lock()
			p.unpin()
			p.unspend()
			p.sh.Unlock()
		}
	}
}

// finish turns the answers of the inner store into decisions and notes what
// they say.
func (c *leaseCall) finish(l *Leased, rtt time.Duration, cs []Charge, out []Decision) {
	passes := true
	for k := range c.charges[:c.asks] {
		passes = passes && (c.answers[k].Allowed || c.charges[k].Trial)
	}
	for i := range c.parts[:c.n] {
		p := &c.parts[i]
		if p.sh == nil { // never leased
			if p.asked >= 0 {
				out[i] = c.answers[p.asked]
			} else if !passes {
				out[i].Taken = 0
			}
			continue
		}
		p.sh.Lock()
		if p.asked >= 0 {
			c.answered(l, p, rtt, &cs[i], &out[i], passes)
		} else {
			if p.pinned {
				p.unpin()
			}
			if p.says == paid && !passes && cs[i].N > 0 {
				p.unspend()
				p.nothing(cs[i].Ask, &out[i])
			}
		}
		c.keeps = c.keeps || p.e != nil && p.e.have > 0
		p.sh.Unlock()
	}
}

// answered notes the answer to a part, and makes the decision of it.
func (c *leaseCall) answered(l *Leased, p *leasePart, rtt time.Duration, g *Charge, out *Decision, passes bool) {
	a := answer{Decision: &c.answers[p.asked], ask: c.charges[p.asked].Ask, sent: p.now, rtt: rtt}
	*out = *a.Decision
	taken := passes && a.Allowed
	if p.pinned {
		if p.unpin(); !taken {
			p.unspend()
		}
	}
	if taken {
		a.granted = a.Taken - p.need
		if g.Min > 0 {
			a.granted = 0
		}
		out.Taken = p.own + a.Taken - a.granted
	}
	if a.Overflow || p.e != nil && p.e.meter != p.m.id {
		c.returns(g, a, a.granted)
		return
	}
	if p.e == nil {
		if p.e = p.sh.lookup(p.tag, p.set, g.Space, g.Key); p.e == nil {
			p.e = p.sh.make(p.tag, p.set, g.Space, g.Key, p.now)
		}
		if p.e == nil {
			return
		}
		if p.e.meter != p.m.id {
			c.outgrown(p)
		}
		p.e.advance(p.now)
	}
	over := p.sh.learn(l, p.e, p.m, a)
	c.returns(g, a, over)
	if p.e.have == 0 && p.e.chunk == 0 && p.own == 0 && a.granted == 0 {
		return // it is what the store says
	}
	q := Ask{Keep: g.Keep}
	if !a.Allowed {
		if q.N, q.Need = g.least(), g.Need; g.Min == 0 { // who takes a part is never refused here
			q.N = p.e.portion(g.Ask)
		}
	}
	var d Decision
	p.e.decide(p.m, max(a.At, p.e.since), q, &d)
	out.Remaining, out.ResetAfter = d.Remaining, d.ResetAfter
	if out.Taken > 0 && p.m.limit.Algorithm == Bucket {
		// What it took is missing, also where this answer overtook another one
		// of the same instant.
		out.ResetAfter = max(out.ResetAfter, p.m.lasting(out.Taken))
	}
	if !a.Allowed {
		out.Remaining = min(out.Remaining, max(g.least(), g.Need)-1)
		if a.Reason == OverLimit {
			out.RetryAfter = max(out.RetryAfter, d.RetryAfter)
		}
	}
}

// returns puts n units of an answer on the list of what has to go back.
func (c *leaseCall) returns(g *Charge, a answer, n int64) {
	if n > 0 {
		c.back = append(c.back, Correction{Space: g.Space, Key: g.Key, Meter: g.Meter, Delta: -n, At: a.At, Until: a.until(), Overflow: a.Overflow})
	}
}
