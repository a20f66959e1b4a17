package nemesis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/policy"
	"github.com/spillgate/spillgate/redisstore"
)

// What is asked of keys whose histories are held against one order. A key is asked
// for a short time, so that its history is short and meets one fault at most; and
// nothing is refused from memory, so that every answer has the server's numbers.
const (
	alive    = 3                     // keys at a time
	members  = 3                     // of a group
	interval = 10 * time.Millisecond // in which the pace earns a unit
	// longer is the budget of these stores: on a machine with other work few calls are
	// lost to that, and so the most of what is lost is lost to faults.
	longer = 5 * budget
)

var (
	paceLimit   = spillgate.Limit{Rate: int64(time.Second / interval), Period: time.Second, Burst: 6}
	groupLimit  = spillgate.Limit{Algorithm: spillgate.FixedWindow, Rate: 50, Period: 30 * 24 * time.Hour}
	memberLimit = spillgate.Limit{Algorithm: spillgate.FixedWindow, Rate: 20, Period: 30 * 24 * time.Hour}
)

// An asked is one request to the store: a unit or two of a pace, or a member's units
// of itself and of its group.
type asked struct {
	Place, Gen   int
	Pair         bool
	Member       int
	Call, Return int64 // on the clock that all processes have in common
	Lost         bool  // no answer: it may have been charged
	Said         []spillgate.Decision
}

// cost is the same for all requests of a member, and of a pace.
func (a *asked) cost() int64 {
	if a.Pair {
		return int64(a.Member + 1)
	}
	return int64(a.Gen%2 + 1)
}

// key returns which of the states of a line part i of a is charged to.
func (a *asked) key(i int) int { return i * (1 + a.Member) }

// lane returns as whose request a is counted if it is lost.
func (a *asked) lane() int { return a.Member }

// clock returns the time since the machine started: CLOCK_MONOTONIC is one clock for
// all of its processes, and is never set.
func clock() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err)
	}
	return ts.Nano()
}

// askInOrder has goroutines ask the stores, one at each place, until over is closed,
// and note what may have been charged.
func askInOrder(stores []*redisstore.Store, o *order, over chan struct{}, note func(*asked)) error {
	rule := func(name string, limit spillgate.Limit, kinds ...policy.Kind) policy.Rule {
		r := policy.Rule{Name: name, Limit: limit}
		for _, k := range kinds {
			r.Key = append(r.Key, policy.Part{Attributes: []policy.Attribute{{Kind: k}}})
		}
		return r
	}
	engines := map[bool][]*policy.Engine{}
	for pair, rules := range map[bool][]policy.Rule{
		false: {rule("pace", paceLimit, policy.Tenant)},
		true:  {rule("group", groupLimit, policy.Tenant), rule("member", memberLimit, policy.Tenant, policy.User)},
	} {
		p, err := policy.Compile(rules)
		if err != nil {
			return err
		}
		for _, s := range stores {
			engines[pair] = append(engines[pair], policy.NewEngine(p, s, policy.Seeded(spillgate.SeedFrom(o.Seed)), policy.Nodes(nodes)))
		}
	}
	var mu sync.Mutex
	var failed error
	var group sync.WaitGroup
	for asker := range 4 {
		group.Go(func() {
			tick := time.NewTicker(pace)
			defer tick.Stop()
			for {
				select {
				case <-over:
					return
				case <-tick.C:
				}
				a := asked{Place: rand.IntN(len(stores)), Pair: asker%2 > 0}
				a.Gen = int(clock()/int64(o.Generation)) - rand.IntN(alive)
				if a.Pair {
					a.Member = rand.IntN(members)
				}
				charged, err := a.ask(engines[a.Pair][a.Place])
				if charged {
					note(&a)
				}
				if err != nil {
					mu.Lock()
					failed = errors.Join(failed, err)
					mu.Unlock()
					return
				}
			}
		})
	}
	group.Wait()
	return failed
}

// ask decides a and reports whether it may have been charged. That it was not, where
// the error says so, is a part of what is proved: such a request has no place in any
// order, and if it was charged none is found.
func (a *asked) ask(e *policy.Engine) (charged bool, err error) {
	attrs := policy.Attrs{"tenant": fmt.Sprint(a.Gen), "user": fmt.Sprint(a.Member)}
	a.Call = clock()
	v := e.Decide(context.Background(), attrs, policy.Cost(policy.Requests, a.cost()))
	a.Return = clock()
	switch {
	case v.Fault != nil && strings.Contains(v.Fault.Error(), "nothing charged"),
		v.Fault != nil && strings.Contains(v.Fault.Error(), "the last calls failed"):
		return false, nil
	case v.Fault != nil:
		a.Lost = true
		return true, nil
	}
	for i := range v.Len() {
		a.Said = append(a.Said, v.Outcome(i).Decision)
	}
	if n := len(a.Said); n == 0 || (n == 2) != a.Pair {
		return false, fmt.Errorf("%d decisions of a request: %w", n, v.Err())
	}
	return true, nil
}
