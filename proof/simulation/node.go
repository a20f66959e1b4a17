package simulation

import (
	"context"
	"fmt"
	"time"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/policy"
)

// A node is one process that decides: an engine on a lease, or on the store
// itself, over a link.
type node struct {
	run    *run
	number int
	clock  clock
	link   *link
	leased *spillgate.Leased // nil where the store is asked exactly
	engine *policy.Engine
	busy   int // requests under way
	latest int64
	local  map[string][]*spending // what it admitted by itself, by account
	gone   bool
}

func (r *run) newNode(number int) (*node, error) {
	n := &node{run: r, number: number, local: map[string][]*spending{}}
	n.clock.world = r.world
	n.link = &link{world: r.world, server: r.server, faults: &r.faults, node: number, budget: r.budget, opened: func() { r.report.Opened++ }}
	var store spillgate.Store = n.link
	if r.lease.Nodes > 0 {
		l, err := spillgate.NewLeased(n.link, r.lease)
		if err != nil {
			return nil, err
		}
		n.leased, store = l, l
	}
	n.engine = policy.NewEngine(r.policy, store, policy.Seeded(r.seed), policy.Nodes(r.nodes))
	return n, nil
}

// A request is what one caller wants once.
type request struct {
	run   *run
	user  string
	cost  int64
	calls int                 // of the store, to decide it
	taken map[*entry]spending // what the store took of it, and when
	spent []*spending         // what was noted of it
}

// account returns the name of the request's account under a rule.
func (q *request) account(rule string) string {
	if q.run.keyed[rule] {
		return rule + " " + q.user
	}
	return rule
}

// decide carries a request out, and checks everything that can be checked of it.
func (n *node) decide(q *request) {
	w := n.run.world
	w.current.request = q
	n.busy++
	defer func() { n.busy-- }()
	n.latest = max(n.latest, n.clock.reads())
	began, showed := w.now, n.run.server.clock.reads()
	shut := n.link.shut && w.now < n.link.probe
	v := n.engine.Decide(context.Background(), policy.Attrs{"user": q.user}, policy.At(n.clock.now()), policy.Cost(policy.Requests, q.cost))
	took := w.now - began
	w.note("node %d: %s wants %d: allowed %t, fault %t, in %s", n.number, q.user, q.cost, v.Allowed, v.Fault != nil, took)
	n.run.decided(&v, q.calls)
	switch {
	case took > n.run.budget:
		w.fail("node %d: a decision took %s, its budget is %s", n.number, took, n.run.budget)
	case q.calls > 1:
		w.fail("node %d: %d calls for one decision", n.number, q.calls)
	case shut && (took > 0 || q.calls > 0):
		w.fail("node %d: a call while the breaker is open", n.number)
	}
	n.account(q, &v, showed)
	if v.Allowed && w.chance(n.run.givesBack) {
		w.sleep(w.between(0, 200*time.Millisecond))
		n.giveBack(q, &v)
	}
}

// account enters a verdict in the ledger. When the request came the store's clock
// showed raw: that is when units of leases are spent, also where other charges
// wait for an answer.
func (n *node) account(q *request, v *policy.Verdict, raw int64) {
	w, l := n.run.world, n.run.ledger
	refuses := false
	for i := range v.Len() {
		o := v.Outcome(i)
		refuses = refuses || o.Refuses()
		if !o.Judged() {
			continue
		}
		want := int64(0)
		if v.Allowed {
			want = q.cost
		}
		if o.Decision.Taken != want {
			w.fail("node %d: rule %s took %d of a request of %d that is allowed: %t", n.number, o.Rule.Name, o.Decision.Taken, q.cost, v.Allowed)
		}
		if o.Refuses() && o.Decision.RetryAfter < 1 {
			w.fail("node %d: refused by rule %s, retry after %s", n.number, o.Rule.Name, o.Decision.RetryAfter)
		}
		name := q.account(o.Rule.Name)
		switch {
		case v.Fault != nil:
			if want > 0 {
				s := &spending{at: int64(o.Decision.At), raw: int64(o.Decision.At), units: want}
				n.local[name] = append(n.local[name], s)
				q.spent = append(q.spent, s)
			}
		default:
			e := l.named(name, o.Rule.Limit)
			if want > 0 {
				l.spend(q, e, raw)
			}
			if o.Refuses() && q.calls == 0 {
				n.refusal(q, o, e)
			}
		}
	}
	if v.Allowed == (refuses || v.Err() != nil) {
		w.fail("node %d: allowed %t, error %v", n.number, v.Allowed, v.Err())
	}
	if !v.Allowed && !refuses && v.Fault == nil {
		w.fail("node %d: refused for no reason: %v", n.number, v.Err())
	}
	n.run.covered()
}

// refusal checks the other bound: who is refused without a call while the store
// has units finds no more of them there than leases may hold back.
func (n *node) refusal(q *request, o *policy.Outcome, e *entry) {
	r := n.run
	if !r.calm || r.server.state != well {
		return
	}
	left, ok := r.server.left(e)
	if most := q.cost + r.extra(o.Rule.Limit); ok && left >= most {
		r.world.fail("node %d: rule %s refuses %s without a call, and the store has %d units, %d or more", n.number, o.Rule.Name, q.user, left, most)
	}
}

// giveBack gives a request's units back, as when a login was right.
func (n *node) giveBack(q *request, v *policy.Verdict) {
	w, l := n.run.world, n.run.ledger
	for i := range v.Len() {
		o := v.Outcome(i)
		name := q.account(o.Rule.Name)
		if o.Judged() && v.Fault == nil {
			l.unspend(q, l.named(name, o.Rule.Limit))
		}
	}
	for _, s := range q.spent {
		s.units = 0
	}
	err := v.GiveBack()
	w.note("node %d: %s gives %d back: error %v", n.number, q.user, q.cost, err)
	n.run.covered()
}

// conforms checks what a node admitted by itself: its part of each limit, by its
// own clock, in every interval, and so in each in which the store was away.
func (n *node) conforms() error {
	for name, events := range n.local {
		e := n.run.ledger.names[name]
		var limit spillgate.Limit
		if e != nil {
			limit = e.limit
		} else {
			limit = n.run.limitOf(name)
		}
		var err error
		if limit.Algorithm == spillgate.FixedWindow {
			limit.Rate = max(1, limit.Rate/int64(n.run.nodes))
			err = inWindows(events, limit, 0)
		} else {
			limit.Burst = max(1, limit.Burst/int64(n.run.nodes))
			limit.Period *= time.Duration(n.run.nodes)
			err = inEveryInterval(events, limit, limit.Burst, 0)
		}
		if err != nil {
			return fmt.Errorf("node %d by itself: %s: %w", n.number, name, err)
		}
	}
	return nil
}
