package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/bench/internal/report"
	"github.com/spillgate/spillgate/policy"
	"github.com/spillgate/spillgate/redisstore"
)

// What is measured while the server is away: nodes as several processes would
// be, at the budget that a gateway has, all on one limit, for twice of it.
const (
	outageNodes   = 4
	outageCallers = 8 // of one node
	outagePace    = 2 * time.Millisecond
)

var outageLimit = spillgate.Limit{Rate: 8000, Period: time.Second, Burst: 1000}

// A decided is what one decision was.
type decided struct {
	began, took time.Duration // since the round began
	admitted    bool
	local       bool  // the node decided by itself
	at          int64 // of an admission, on the clock that decided it
}

// A station is one node of a round.
type station struct {
	client       *redis.Client
	store        *redisstore.Store
	engine       *policy.Engine
	mu           sync.Mutex
	opened, shut time.Time // when its breaker did last
	all          [outageCallers][]decided
}

// An outage is what one round gave.
type outage struct {
	p999      time.Duration // of all answers
	longest   time.Duration
	p99       time.Duration // once the breaker is open
	calls     uint64        // on the way of decisions then
	decisions int           // then
	back      time.Duration // from the server's return to the last node that decides by it
	over      int64         // units admitted beyond I16, of one time away
}

func newStation(addr string, seed spillgate.Seed) (*station, error) {
	n := &station{client: redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true, MaxRetries: -1})}
	var err error
	n.store, err = redisstore.New(n.client, redisstore.Watch(func(_ string, open bool, _ redisstore.Fault) {
		n.mu.Lock()
		defer n.mu.Unlock()
		if open {
			n.opened = time.Now()
		} else {
			n.shut = time.Now()
		}
	}))
	if err != nil {
		return nil, errors.Join(err, n.client.Close())
	}
	p, err := policy.Compile([]policy.Rule{{Name: "all", Limit: outageLimit, OnFault: policy.Local}})
	if err != nil {
		return nil, errors.Join(err, n.close())
	}
	n.engine = policy.NewEngine(p, n.store, policy.Seeded(seed), policy.Nodes(outageNodes))
	return n, nil
}

func (n *station) close() error { return errors.Join(n.store.Close(), n.client.Close()) }

// ask decides until over, one after the other.
func (n *station) ask(caller int, began time.Time, over <-chan struct{}) {
	tick := time.NewTicker(outagePace)
	defer tick.Stop()
	for {
		select {
		case <-over:
			return
		case <-tick.C:
		}
		from := time.Now()
		v := n.engine.Decide(context.Background(), policy.Attrs{})
		d := decided{began: from.Sub(began), took: time.Since(from), admitted: v.Allowed, local: v.Fault != nil}
		if d.admitted {
			d.at = int64(v.Outcome(0).Decision.At)
		}
		n.all[caller] = append(n.all[caller], d)
	}
}

// each waits until ok is true of all, at the most for so long.
func each(all []*station, what string, ok func(*station) bool) error {
	for late := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		if !slices.ContainsFunc(all, func(n *station) bool { return !ok(n) }) {
			return nil
		}
		if time.Now().After(late) {
			return fmt.Errorf("not after 20s: %s", what)
		}
	}
}

// runOutage plays one round: the server is frozen or killed for a while, and comes
// back.
func runOutage(kill bool, length time.Duration) (o outage, err error) {
	running, err := startRedis()
	if err != nil {
		return o, err
	}
	addr := running.Addr
	defer func() { running.Stop() }()
	var all []*station
	defer func() {
		for _, n := range all {
			err = errors.Join(err, n.close())
		}
	}()
	seed := spillgate.NewSeed()
	for range outageNodes {
		n, err := newStation(addr, seed)
		if err != nil {
			return o, err
		}
		all = append(all, n)
	}
	began, over := time.Now(), make(chan struct{})
	var wg sync.WaitGroup
	end := sync.OnceFunc(func() { close(over); wg.Wait() })
	defer end()
	for _, n := range all {
		for caller := range outageCallers {
			wg.Go(func() { n.ask(caller, began, over) })
		}
	}
	time.Sleep(length)
	gone := time.Now()
	if kill {
		running.Stop()
	} else if err := running.Freeze(); err != nil {
		return o, err
	}
	// One may have been before, where the machine had no time.
	opened := func(n *station) bool { n.mu.Lock(); defer n.mu.Unlock(); return n.opened.After(n.shut) }
	if err := each(all, "all breakers are open", opened); err != nil {
		return o, err
	}
	time.Sleep(5 * redisstore.DefaultBudget) // what was sent before is over
	from, before := time.Since(began), calls(all)
	time.Sleep(length)
	until := time.Since(began)
	o.calls = calls(all) - before
	back := time.Now()
	if kill {
		if running, err = startRedisAt(addr); err != nil {
			return o, err
		}
		back = time.Now()
	} else if err := running.Thaw(); err != nil {
		return o, err
	}
	again := func(n *station) bool { n.mu.Lock(); defer n.mu.Unlock(); return n.shut.After(gone) }
	if err := each(all, "the server is asked again", again); err != nil {
		return o, err
	}
	for _, n := range all {
		o.back = max(o.back, n.shut.Sub(back))
	}
	time.Sleep(length)
	end()
	losses := []int64{}
	if kill {
		losses = append(losses, gone.UnixNano())
	}
	return o.count(all, from, until, losses), nil
}

func calls(all []*station) (n uint64) {
	for _, s := range all {
		n += s.store.Stats().Calls
	}
	return n
}

// count works out what the decisions were, of which those begun from an instant
// until another were made while all breakers were open.
func (o outage) count(nodes []*station, from, until time.Duration, losses []int64) outage {
	var open, all []time.Duration
	var paid []int64
	for _, n := range nodes {
		var own []int64
		for _, d := range slices.Concat(n.all[:]...) {
			all = append(all, d.took)
			if d.began > from && d.began < until {
				open = append(open, d.took)
			}
			switch {
			case d.admitted && d.local:
				own = append(own, d.at)
			case d.admitted:
				paid = append(paid, d.at)
			}
		}
		part := outageLimit
		part.Rate, part.Burst = part.Rate/outageNodes, part.Burst/outageNodes
		o.over = max(o.over, beyond(own, nil, part))
	}
	o.over = max(o.over, beyond(paid, losses, outageLimit))
	slices.Sort(all)
	o.p999, o.longest = all[len(all)*999/1000], all[len(all)-1]
	slices.Sort(open)
	if o.decisions = len(open); o.decisions > 0 {
		o.p99 = open[len(open)*99/100]
	}
	return o
}

// beyond returns how many units more were admitted, in the worst interval, than
// limit allows, with its burst again for every loss in it.
func beyond(admitted, losses []int64, limit spillgate.Limit) int64 {
	type event struct {
		at    int64
		units int64
	}
	var all []event
	for _, at := range admitted {
		all = append(all, event{at, 1})
	}
	for _, at := range losses {
		all = append(all, event{at, -limit.Burst})
	}
	slices.SortStableFunc(all, func(a, b event) int { return cmp.Compare(a.at, b.at) })
	worst, sum, least := int64(0), int64(0), int64(0) // in units of 1/period
	for i, e := range all {
		earned := limit.Rate * (e.at - all[0].at)
		if i == 0 || sum-earned < least {
			least = sum - earned
		}
		if sum += e.units * int64(limit.Period); e.units > 0 {
			worst = max(worst, sum-earned-least-limit.Burst*int64(limit.Period))
		}
	}
	return (worst + int64(limit.Period) - 1) / int64(limit.Period)
}

// outages measures what happens while the server is away. That nobody is on the way
// of decisions then, and what is admitted, can fail a short run, too: the rest is time.
func outages(rounds int, length time.Duration) (claims []report.Claim, err error) {
	rows := [][]string{{fmt.Sprintf("%d nodes, the server is", outageNodes), "p99.9 of all ms", "longest ms", "p99 µs, breaker open", "decisions then", "back after ms"}}
	for _, kind := range []string{"frozen", "killed"} {
		var p999, longest, p99, back []float64
		decisions, sent, over := 0, uint64(0), int64(0)
		for range rounds {
			o, err := runOutage(kind == "killed", max(length, 300*time.Millisecond))
			if err != nil {
				return nil, fmt.Errorf("%s: %w", kind, err)
			}
			ms := func(d time.Duration) float64 { return float64(d) / 1e6 }
			p999, longest, p99, back = append(p999, ms(o.p999)), append(longest, ms(o.longest)), append(p99, ms(o.p99)), append(back, ms(o.back))
			decisions, sent, over = decisions+o.decisions, sent+o.calls, max(over, o.over)
		}
		rows = append(rows, []string{kind, fmt.Sprintf("%.1f", report.Median(p999)), fmt.Sprintf("%.1f", report.Median(longest)), fmt.Sprintf("%.0f", report.Median(p99)*1e3), fmt.Sprint(decisions), fmt.Sprintf("%.0f", report.Median(back))})
		what := "the server is " + kind + ": "
		claims = append(claims,
			report.Claim{What: what + "p99.9 of all answers, ms", Got: report.Median(p999), Goal: 20, Fail: 100},
			report.Claim{What: what + "the longest answer, ms", Got: report.Median(longest), Goal: 20, Fail: 200},
			report.Claim{What: what + "p99 while the breaker is open, ms", Got: report.Median(p99), Goal: 5, Fail: 25},
			report.Claim{What: what + "calls on the way of decisions then", Got: float64(sent), Goal: 0, Fail: 0, Counted: true},
			report.Claim{What: what + "decides again after, ms", Got: report.Median(back), Goal: 100, Fail: 500},
			report.Claim{What: what + "units admitted beyond the bound", Got: float64(over), Goal: 0, Fail: 0, Counted: true})
	}
	report.Table(os.Stdout, rows)
	return claims, nil
}
