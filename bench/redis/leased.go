package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/bench/internal/report"
	"github.com/spillgate/spillgate/redisstore"
)

// What leases are measured with: four nodes, each with a client, a store and
// leases of its own, as four processes would have.
const (
	leaseNodes   = 4
	leaseCallers = 64
	floodShare   = 0.05 // of the flooded key: what all nodes may hold
	wideShare    = 0.20 // of the keys that nobody floods

	// Of many keys leases are filled at first all at once, and so run out all at
	// once some seconds later: what counts is the mean of some such waves.
	warmUp = 8 // laps of redis_rate
	waves  = 4
)

// leaseRows are the workloads for leases, and how many times as many decisions a
// second as redis_rate's are the goal.
var leaseRows = []struct {
	name string
	goal float64
}{{"keys evenly", 25}, {"keys by Zipf 1", 10}, {flooded, 90}}

const flooded = "one flooded key"

// A fleet is the nodes, and redis_rate as many times.
type fleet struct {
	clients []*redis.Client
	exact   []*redisstore.Store
	rates   []*redis_rate.Limiter
	picks   [][]int32 // of each caller, by Zipf
	names   []string
	ids     []spillgate.Key
	keys    int
	round   int
}

func newFleet(addr string, keys int) (*fleet, error) {
	f := &fleet{keys: keys}
	for range leaseNodes {
		c := redis.NewClient(&redis.Options{Addr: addr, PoolSize: 16})
		s, err := redisstore.New(c, redisstore.Budget(5*time.Second), redisstore.Prefix("sgl:"))
		if err != nil {
			return nil, errors.Join(err, c.Close(), f.close())
		}
		f.clients, f.exact, f.rates = append(f.clients, c), append(f.exact, s), append(f.rates, redis_rate.NewLimiter(c))
	}
	seed := spillgate.NewSeed()
	for i := range keys {
		f.names = append(f.names, fmt.Sprintf("leases:%016x", i))
		f.ids = append(f.ids, seed.Key(spillgate.AppendPart(nil, "user", fmt.Sprint(i))))
	}
	sums := make([]float64, keys) // of 1/rank
	sum := 0.0
	for i := range sums {
		sum += 1 / float64(i+1)
		sums[i] = sum
	}
	for caller := range uint64(leaseCallers) {
		r := rand.New(rand.NewPCG(caller, 1))
		picks := make([]int32, 1<<14)
		for i := range picks {
			at, _ := slices.BinarySearch(sums, r.Float64()*sum)
			picks[i] = int32(min(at, keys-1))
		}
		f.picks = append(f.picks, picks)
	}
	return f, nil
}

func (f *fleet) close() error {
	var errs []error
	for i := range f.clients {
		errs = append(errs, f.exact[i].Close(), f.clients[i].Close())
	}
	return errors.Join(errs...)
}

// pick returns the key of a caller's n-th call in a row.
func (f *fleet) pick(row string, caller, n int) int {
	switch row {
	case leaseRows[0].name:
		return pick(caller, n) % f.keys
	case leaseRows[1].name:
		return int(f.picks[caller][n&(1<<14-1)])
	}
	return 0
}

func limitOf(row string) spillgate.Limit {
	l := spillgate.Limit{Rate: 1000, Period: time.Second, Burst: 1000}
	if row == flooded {
		l.Rate, l.Burst = 10_000, 10_000
	}
	return l
}

// A lap is what one contestant did in one round.
type lap struct {
	rate   float64
	cold   float64 // the rate of the warm-up
	checks int64
	calls  uint64  // of the store's script
	cost   float64 // µs of processors a decision, of this process and the server
	began  time.Time
	stamps []time.Duration // since then, of those that passed
	denied int64
}

// lap has callers decide for so long. decide reports whether a request passed;
// who passed is stamped if there is an auditor.
func runLap(length time.Duration, callers int, audited bool, pace time.Duration, decide func(caller, n int) (bool, error)) (lap, error) {
	var wg sync.WaitGroup
	var checks, denied atomic.Int64
	var failed atomic.Pointer[error]
	stamps := make([][]time.Duration, callers)
	began := time.Now()
	for caller := range callers {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(caller), 7))
			next := time.Duration(0)
			n, no := 0, int64(0)
			for ; failed.Load() == nil; n++ {
				if pace > 0 {
					if next += time.Duration(r.ExpFloat64() * float64(pace)); next > length {
						break
					}
					if wait := next - time.Since(began); wait > 0 {
						time.Sleep(wait)
					}
				} else if n%16 == 0 && time.Since(began) > length {
					break
				}
				ok, err := decide(caller, n)
				if err != nil {
					failed.Store(&err)
					break
				}
				if !ok {
					no++
				} else if audited {
					stamps[caller] = append(stamps[caller], time.Since(began))
				}
			}
			checks.Add(int64(n))
			denied.Add(no)
		})
	}
	wg.Wait()
	took := time.Since(began)
	if err := failed.Load(); err != nil {
		return lap{}, *err
	}
	return lap{rate: float64(checks.Load()) / took.Seconds(), checks: checks.Load(), denied: denied.Load(), began: began, stamps: slices.Concat(stamps...)}, nil
}

// leased runs a lap on leases that begin anew.
func (f *fleet) leased(row string, limit spillgate.Limit, length time.Duration, audited bool, pace time.Duration) (l lap, err error) {
	o := spillgate.LeaseOptions{Nodes: leaseNodes, Share: wideShare, Hold: time.Second}
	if row == flooded {
		o.Share, o.Hold = floodShare, spillgate.DefaultLeaseHold
	}
	var leases []*spillgate.Leased
	var stores []spillgate.Store
	for _, exact := range f.exact {
		s, err := spillgate.NewLeased(exact, o)
		if err != nil {
			return l, err
		}
		leases, stores = append(leases, s), append(stores, s)
	}
	decide, err := f.decider(row, limit, stores)
	if err != nil {
		return l, err
	}
	var cold lap
	if !audited {
		if cold, err = runLap(warmUp*length, leaseCallers, false, pace, decide); err != nil {
			return l, err
		}
		length *= waves
	}
	before := f.calls()
	l, err = f.metered(func() (lap, error) { return runLap(length, leaseCallers, audited, pace, decide) })
	l.calls, l.cold = f.calls()-before, cold.rate
	for _, s := range leases {
		err = errors.Join(err, s.Close())
	}
	return l, err
}

// decider returns what has the callers decide by the nodes' stores, on keys that are new.
func (f *fleet) decider(row string, limit spillgate.Limit, stores []spillgate.Store) (func(caller, n int) (bool, error), error) {
	f.round++
	meter, err := limit.Meter()
	if err != nil {
		return nil, err
	}
	var spaces []*spillgate.Space
	for range stores {
		sp, err := spillgate.NewSpace(fmt.Sprint("leases", f.round), spillgate.SpaceOptions{})
		if err != nil {
			return nil, err
		}
		spaces = append(spaces, sp)
	}
	type desk struct {
		charge [1]spillgate.Charge
		out    [1]spillgate.Decision
		_      [64]byte
	}
	desks := make([]desk, leaseCallers)
	return func(caller, n int) (bool, error) {
		d, node := &desks[caller], caller%leaseNodes
		d.charge[0] = spillgate.Charge{Space: spaces[node], Key: f.ids[f.pick(row, caller, n)], Meter: meter, Ask: spillgate.Ask{N: 1}}
		err := stores[node].Take(context.Background(), time.Time{}, d.charge[:], d.out[:])
		return d.out[0].Allowed, err
	}, nil
}

func (f *fleet) calls() (n uint64) {
	for _, s := range f.exact {
		n += s.Stats().Calls
	}
	return n
}

// metered runs a lap and says what it cost.
func (f *fleet) metered(run func() (lap, error)) (lap, error) {
	spent := func() (time.Duration, error) {
		own, err := ownTime()
		server, err2 := processorTime(f.clients[0])
		return own + server, errors.Join(err, err2)
	}
	before, err := spent()
	if err != nil {
		return lap{}, err
	}
	l, err := run()
	if err != nil {
		return l, err
	}
	after, err := spent()
	l.cost = float64((after - before).Nanoseconds()) / 1e3 / float64(max(1, l.checks))
	return l, err
}

// peer is that lap for redis_rate.
func (f *fleet) peer(row string, length time.Duration) (lap, error) {
	limit := limitOf(row)
	of := redis_rate.Limit{Rate: int(limit.Rate), Burst: int(limit.Burst), Period: time.Second}
	ctx := context.Background()
	return f.metered(func() (lap, error) {
		return runLap(length, leaseCallers, false, 0, func(caller, n int) (bool, error) {
			r, err := f.rates[caller%leaseNodes].Allow(ctx, f.names[f.pick(row, caller, n)], of)
			return err == nil && r.Allowed > 0, err
		})
	})
}

// leases measures leases. Where there is little time there are fewer keys, and
// only the auditors can fail them: a lease needs some requests of its key.
func leases(addr string, rounds int, length time.Duration) (claims []report.Claim, err error) {
	few, of := length < time.Second, keys
	if few {
		of = 300
	}
	f, err := newFleet(addr, of)
	if err != nil {
		return nil, err
	}
	defer f.close()
	ours, peers := map[string][]lap{}, map[string][]lap{}
	var audited []lap
	for range min(rounds, 3) {
		for _, row := range leaseRows {
			p, err := f.peer(row.name, length)
			if err != nil {
				return nil, err
			}
			o, err := f.leased(row.name, limitOf(row.name), length, row.name == flooded, 0)
			if err != nil {
				return nil, err
			}
			peers[row.name], ours[row.name] = append(peers[row.name], p), append(ours[row.name], o)
			if row.name == flooded {
				audited = append(audited, o)
			}
		}
	}
	// 90 % of the flooded key's limit, asked for by all callers together.
	paced, err := f.leased(flooded, limitOf(flooded), max(time.Second, 2*length), true, leaseCallers*time.Second/9000)
	if err != nil {
		return nil, err
	}
	audits, err := f.audits(append(audited, paced), length)
	if err != nil {
		return nil, err
	}
	rows := [][]string{{fmt.Sprintf("leases, %d nodes, %d keys, 64 callers", leaseNodes, of), "leased/s", fmt.Sprintf("in the first %s", warmUp*length), "redis_rate/s", "µs of processors", "redis_rate µs"}}
	median := func(laps []lap, number func(lap) float64) float64 {
		var xs []float64
		for _, l := range laps {
			xs = append(xs, number(l))
		}
		return report.Median(xs)
	}
	perSecond, cost := func(l lap) float64 { return l.rate }, func(l lap) float64 { return l.cost }
	for _, row := range leaseRows {
		mine, theirs := ours[row.name], peers[row.name]
		a, b := median(mine, perSecond), median(theirs, perSecond)
		cold := "–" // the flooded key is audited from the start
		if c := median(mine, func(l lap) float64 { return l.cold }); c > 0 {
			cold = fmt.Sprintf("%.0f", c)
		}
		rows = append(rows, []string{row.name, fmt.Sprintf("%.0f", a), cold, fmt.Sprintf("%.0f", b), fmt.Sprintf("%.2f", median(mine, cost)), fmt.Sprintf("%.2f", median(theirs, cost))})
		c := report.Claim{What: "leases, " + row.name + ": decisions/s by those of redis_rate", Got: a / b, Goal: row.goal, Fail: row.goal / 2, AtLeast: true}
		if few {
			c.Fail = math.Inf(-1)
		}
		claims = append(claims, c)
	}
	report.Table(os.Stdout, rows)
	checks := float64(max(1, paced.checks))
	return append(append(claims, audits...),
		report.Claim{What: "leases, at 90 % load: calls of the server a decision", Got: float64(paced.calls) / checks, Goal: 0.02, Fail: 0.1},
		report.Claim{What: "leases, at 90 % load: % refused", Got: float64(paced.denied) / checks * 100, Goal: 0.1, Fail: 2}), nil
}
