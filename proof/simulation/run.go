package simulation

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/policy"
)

// A Report says what one seed has seen, so that a test can tell whether its
// seeds have seen enough.
type Report struct {
	Seed                                uint64
	Leased                              bool
	Decisions, Allowed, Denied          int
	Faults, Calls, Losses, Restarts     int
	Here                                uint64 // decided by leases without a call
	Ahead                               uint64 // calls of leases for no request
	Digest                              uint64 // of everything that happened
	Opened, Jumped, Crashed, Partitions int
}

// faults are what goes wrong in one run.
type faults struct {
	loss         int // messages lost, of 1,000
	slow         int // messages that come late, of 1,000
	quick, tardy time.Duration
	upset        bool // servers stop and hang, networks are cut, nodes crash
	forgets      bool // servers lose their state
	clocks       bool // clocks jump
}

func (f *faults) latency(w *world) time.Duration {
	if w.chance(f.slow) {
		return w.between(f.quick, f.tardy)
	}
	return w.between(f.quick/2, f.quick)
}

// A run is one simulation.
type run struct {
	world  *world
	seed   spillgate.Seed
	policy *policy.Policy
	keyed  map[string]bool
	nodes  int
	lease  spillgate.LeaseOptions
	budget time.Duration
	faults faults
	users  int
	load   time.Duration // between two requests of one node, in the mean
	length time.Duration

	givesBack int // of 1,000 requests that were allowed
	calm      bool

	server *server
	ledger *ledger
	all    []*node // those that crashed, too
	live   []*node
	report Report
}

// Run simulates one seed. The error tells the first promise that is broken, and
// what happened before.
func Run(seed uint64) (Report, error) {
	r := &run{world: newWorld(seed), seed: spillgate.SeedFrom([16]byte{byte(seed), byte(seed >> 8), 1}), report: Report{Seed: seed}}
	if err := r.prepare(); err != nil {
		return r.report, err
	}
	r.begin()
	r.world.run()
	r.end()
	r.report.Digest = r.world.digest
	if err := r.world.failure; err != nil {
		return r.report, fmt.Errorf("seed %d: %w\n%s\n%s", seed, err, r.describe(), strings.Join(r.world.trace, "\n"))
	}
	return r.report, nil
}

// prepare draws the run from its seed.
func (r *run) prepare() error {
	w := r.world
	r.nodes = 1 + w.random.IntN(5)
	r.budget = 20 * time.Millisecond
	r.users = 1 + w.random.IntN(4)
	r.length = w.between(500*time.Millisecond, 4*time.Second)
	if w.chance(750) {
		shares := []float64{0.05, 0.2, 0.5, 1}
		r.lease = spillgate.LeaseOptions{Nodes: r.nodes, Share: shares[w.random.IntN(4)],
			Hold: w.between(10*time.Millisecond, 600*time.Millisecond), MaxKeys: 1}
		r.report.Leased = true
	}
	if w.chance(300) {
		r.givesBack = w.random.IntN(300)
	}
	r.faults = faults{quick: w.between(1, 2*time.Millisecond), tardy: w.between(5*time.Millisecond, 60*time.Millisecond)}
	if w.chance(700) {
		r.faults.loss, r.faults.slow = w.random.IntN(50), w.random.IntN(50)
		r.faults.upset, r.faults.forgets, r.faults.clocks = w.chance(700), w.chance(500), w.chance(400)
	}
	r.calm = r.faults == (faults{quick: r.faults.quick, tardy: r.faults.tardy}) && r.givesBack == 0
	rules, err := r.rules()
	if err != nil {
		return err
	}
	if r.policy, err = policy.Compile(rules); err != nil {
		return err
	}
	r.ledger = newLedger(w)
	r.server = &server{world: w, memory: spillgate.NewMemory(), ledger: r.ledger, spaces: map[string]*spillgate.Space{}}
	r.server.clock.world = w
	if r.lease.Nodes == 0 && r.givesBack == 0 {
		r.server.oracle = newOracles(r.ledger)
	}
	for i := range r.nodes {
		n, err := r.newNode(i)
		if err != nil {
			return err
		}
		r.all, r.live = append(r.all, n), append(r.live, n)
	}
	return nil
}

// rules draws a policy: a bucket for each user, one that all share, and windows.
func (r *run) rules() ([]policy.Rule, error) {
	w := r.world
	user, err := policy.ParseAttribute("user")
	if err != nil {
		return nil, err
	}
	key := []policy.Part{{Attributes: []policy.Attribute{user}}}
	fault := func() policy.OnFault { return policy.OnFault(w.random.IntN(3)) }
	bucket := func(most int64) spillgate.Limit {
		return spillgate.Limit{Rate: 1 + w.random.Int64N(most), Period: w.between(time.Millisecond, time.Second), Burst: 1 + w.random.Int64N(most)}
	}
	rules := []policy.Rule{{Name: "each", Key: key, Limit: bucket(300), OnFault: fault()}}
	if w.chance(600) {
		rules = append(rules, policy.Rule{Name: "all", Limit: bucket(1000), OnFault: fault()})
	}
	if w.chance(500) {
		window := spillgate.Limit{Algorithm: spillgate.FixedWindow, Rate: 1 + w.random.Int64N(500), Period: w.between(50*time.Millisecond, time.Second)}
		rules = append(rules, policy.Rule{Name: "window", Key: key, Limit: window, OnFault: fault()})
	}
	r.keyed = map[string]bool{"each": true, "window": true}
	// A load about what the first limit earns, or a multiple of it.
	l := rules[0].Limit
	each := l.Period / time.Duration(l.Rate) * time.Duration(r.nodes) / time.Duration(r.users)
	each = time.Duration(float64(each) / []float64{0.3, 0.9, 1.2, 5, 30}[w.random.IntN(5)])
	r.load = max(each, r.length*time.Duration(r.nodes)/300, time.Microsecond)
	return rules, nil
}

func (r *run) limitOf(name string) spillgate.Limit {
	rule, _, _ := strings.Cut(name, " ")
	for _, p := range r.policy.Rules() {
		if p.Name == rule {
			return p.Limit
		}
	}
	return spillgate.Limit{}
}

// extra is how much more than a limit leases may admit: the configured share.
func (r *run) extra(l spillgate.Limit) int64 {
	if r.lease.Nodes == 0 {
		return 0
	}
	return int64(r.lease.Share * float64(l.Cap()))
}

// begin starts everything that will happen by itself.
func (r *run) begin() {
	w := r.world
	for slot := range r.nodes {
		w.spawn(0, func() {
			for w.now < r.length {
				w.sleep(max(1, time.Duration(w.random.ExpFloat64()*float64(r.load))))
				n := r.live[slot]
				q := &request{run: r, user: fmt.Sprint("user ", min(w.random.IntN(r.users), w.random.IntN(r.users))), cost: 1, taken: map[*entry]spending{}}
				if w.chance(100) {
					q.cost = 1 + w.random.Int64N(5)
				}
				w.spawn(0, func() { n.decide(q) })
			}
		})
		if r.lease.Nodes > 0 {
			w.spawn(0, func() {
				for w.now < r.length {
					w.sleep(r.lease.Hold / 2)
					n := r.live[slot]
					n.busy++ // it does not crash in the middle
					_ = n.leased.Return(context.Background(), n.clock.now())
					n.busy--
					r.covered()
				}
			})
		}
	}
	if r.faults.upset || r.faults.clocks {
		w.spawn(0, r.upset)
	}
}

// upset makes things go wrong, one after the other, each for a while.
func (r *run) upset() {
	w := r.world
	for w.now < r.length {
		w.sleep(w.between(0, r.length/5))
		if r.faults.clocks && w.chance(500) {
			r.jump()
			continue
		}
		if !r.faults.upset {
			continue
		}
		while := w.between(time.Millisecond, 300*time.Millisecond)
		switch w.random.IntN(4) {
		case 0:
			r.server.state = condition(1 + w.random.IntN(int(conditions)-1))
			w.note("server: condition %d for %s", r.server.state, while)
			w.sleep(while)
			if r.server.state = well; r.faults.forgets && w.chance(500) {
				r.restart()
			}
		case 1:
			if r.faults.forgets {
				r.restart()
			}
		case 2:
			n := r.live[w.random.IntN(r.nodes)]
			n.link.cut = true
			r.report.Partitions++
			w.note("node %d: cut off for %s", n.number, while)
			w.sleep(while)
			n.link.cut = false
		case 3:
			r.crash(w.random.IntN(r.nodes))
		}
	}
	r.server.state = well
}

func (r *run) restart() {
	r.report.Restarts++
	r.server.restart()
}

// crash replaces a node by a new one, unless it is in the middle of something.
func (r *run) crash(slot int) {
	old := r.live[slot]
	if old.busy > 0 {
		return
	}
	n, err := r.newNode(slot)
	if err != nil {
		r.world.fail("%v", err)
		return
	}
	old.gone = true
	r.report.Crashed++
	r.world.note("node %d: crashes and starts again", slot)
	n.clock.ahead = old.clock.ahead
	r.live[slot] = n
	r.all = append(r.all, n)
}

// jump sets somebody's clock.
func (r *run) jump() {
	w := r.world
	r.report.Jumped++
	by := w.between(-2*time.Second, 2*time.Second)
	if w.chance(300) {
		by = w.between(-time.Hour, time.Hour)
	}
	c, who := &r.server.clock, "server"
	if w.chance(500) {
		n := r.live[w.random.IntN(r.nodes)]
		c, who = &n.clock, fmt.Sprint("node ", n.number)
	}
	c.ahead += by
	w.note("%s: its clock jumps by %s", who, by)
}

// decided counts a verdict.
func (r *run) decided(v *policy.Verdict, calls int) {
	r.report.Decisions++
	r.report.Calls += calls
	switch {
	case v.Fault != nil:
		r.report.Faults++
	case v.Allowed:
		r.report.Allowed++
	default:
		r.report.Denied++
	}
}

// covered checks that all that is spent, and all that is held, was paid.
func (r *run) covered() {
	held := int64(0)
	for _, n := range r.live {
		if n.leased != nil {
			st := n.leased.Stats()
			held += st.Held
		}
	}
	r.ledger.covered(held)
}

// end gives everything back and checks what can be checked of the whole.
func (r *run) end() {
	w := r.world
	r.faults.loss, r.faults.slow = 0, 0
	var forfeited int64
	for _, n := range r.live {
		n.link.cut, n.link.shut = false, false
		if n.leased == nil {
			continue
		}
		w.spawn(0, func() {
			if err := n.leased.Close(); err != nil {
				w.fail("node %d: close: %v", n.number, err)
			}
			st := n.leased.Stats()
			if st.Held != 0 {
				w.fail("node %d holds %d units when it is closed", n.number, st.Held)
			}
			forfeited += int64(st.Forfeited + st.Lapsed)
			r.report.Here += st.Here + st.Refused
			r.report.Ahead += st.Ahead
		})
		w.run()
	}
	r.covered()
	r.ledger.conforms(r.extra, r.report.Jumped)
	for _, n := range r.all {
		if err := n.conforms(); err != nil {
			w.fail("%v", err)
		}
	}
	if r.calm {
		var paid, spent int64
		for _, e := range r.ledger.order {
			paid += e.paid
			spent += e.spent
		}
		if paid != spent+forfeited {
			w.fail("%d paid, %d spent, %d forfeited or lapsed: some were lost though nothing went wrong", paid, spent, forfeited)
		}
	}
	r.report.Losses = r.ledger.losses
}

// describe says what the seed has drawn.
func (r *run) describe() string {
	var rules []string
	for _, p := range r.policy.Rules() {
		rules = append(rules, fmt.Sprintf("%s: %s", p.Name, p.Limit))
	}
	return fmt.Sprintf("%d nodes, %d users, leases %+v, %+v, gives back %d‰; %s", r.nodes, r.users, r.lease, r.faults, r.givesBack, strings.Join(rules, "; "))
}
