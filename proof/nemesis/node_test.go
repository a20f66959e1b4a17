package nemesis

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/policy"
	"github.com/spillgate/spillgate/redisstore"
)

// What all processes have in common.
const (
	nodes   = 3
	askers  = 4 // goroutines of one process
	users   = 2
	budget  = 40 * time.Millisecond // twice the default: this machine may have other work
	share   = 0.15
	pace    = 10 * time.Millisecond // between two requests of one goroutine
	program = "SPILLGATE_NEMESIS"   // in the environment of a process that decides
)

// limit is that of each user: together the processes ask for several times of it. In a cluster
// there is also one for all together.
var (
	limit    = spillgate.Limit{Rate: 300, Period: time.Second, Burst: 90}
	together = spillgate.Limit{Rate: 450, Period: time.Second, Burst: 120}
)

// An order is what a process is told in its environment.
type order struct {
	Addrs  []string // of the server, of a Sentinel, or of the servers of a cluster
	Kind   kind
	Leased bool
	Budget time.Duration
	Places []string // prefixes, each of keys that one server has
	Seed   [16]byte
	// Generation is the time from one key whose history is recorded to the next.
	Generation time.Duration
}

// A kind is what the addresses are of.
type kind int

const (
	alone kind = iota
	sentinel
	cluster
)

// An admission is a request that a process let pass.
type admission struct {
	User  int
	At    int64 // when it was answered; on its own memory's clock if that decided
	Local bool  // the process decided by itself
}

// A seen says whether there was anything to prove: how many requests passed on the
// store's word, and from a lease; and of those whose order is looked for, how many
// passed and were refused.
type seen struct{ Paid, Here, Allowed, Refused int64 }

func (s *seen) add(more seen) {
	s.Paid += more.Paid
	s.Here += more.Here
	s.Allowed += more.Allowed
	s.Refused += more.Refused
}

func (s *seen) all(leased bool) bool {
	return min(s.Paid, s.Allowed, s.Refused) > 0 && (s.Here > 0 || !leased)
}

// A log is what a process has to say in the end.
type log struct {
	Admitted      []admission
	Denied        int
	Faults        int
	Waits         []time.Duration // of all decisions
	Slow          []span          // decisions that took two budgets and more
	Stalls        *stalls
	Unanswered    int // decisions that were neither: a bug
	Opened        uint64
	Here, Refused uint64
	OverDenied    uint64
	Asked         []asked // whose order is looked for
	Back          bool    // nothing but this: all stores have answered since the parent asked
	Seen          seen    // so far, with Back
	Error         string
}

func TestMain(m *testing.M) {
	if text := os.Getenv(program); text != "" {
		var o order
		l := log{}
		if err := json.Unmarshal([]byte(text), &o); err != nil {
			l.Error = err.Error()
		} else if err := decide(&o, &l); err != nil {
			l.Error = err.Error()
		}
		say(l)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

var saying sync.Mutex

// say tells the parent.
func say(l log) {
	saying.Lock()
	defer saying.Unlock()
	if err := json.NewEncoder(os.Stdout).Encode(l); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// decide asks until the standard input ends.
func decide(o *order, l *log) error {
	var client redis.UniversalClient
	switch o.Kind {
	case sentinel:
		client = redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "main", SentinelAddrs: o.Addrs})
	case cluster:
		client = redis.NewClusterClient(&redis.ClusterOptions{Addrs: o.Addrs, ContextTimeoutEnabled: true})
	default:
		client = redis.NewClient(&redis.Options{Addr: o.Addrs[0]})
	}
	defer client.Close()
	exact, err := redisstore.New(client, redisstore.Budget(o.Budget))
	if err != nil {
		return err
	}
	defer exact.Close()
	var store spillgate.Store = exact
	var leased *spillgate.Leased
	if o.Leased {
		if leased, err = spillgate.NewLeased(exact, spillgate.LeaseOptions{Nodes: nodes, Share: share, Hold: 200 * time.Millisecond}); err != nil {
			return err
		}
		store = leased
	}
	user, err := policy.ParseAttribute("user")
	if err != nil {
		return err
	}
	rules := []policy.Rule{{Name: "each", Key: []policy.Part{{Attributes: []policy.Attribute{user}}}, Limit: limit}}
	if o.Kind == cluster { // so that requests have keys on several servers
		rules = append(rules, policy.Rule{Name: "all", Limit: together})
	}
	p, err := policy.Compile(rules)
	if err != nil {
		return err
	}
	engine := policy.NewEngine(p, store, policy.Seeded(spillgate.SeedFrom(o.Seed)), policy.Nodes(nodes))
	over := make(chan struct{})
	var mu sync.Mutex                              // of l
	var calm atomic.Bool                           // no flood any more: whoever asks for answers is to have them soon
	heard := make([]atomic.Int64, 1+len(o.Places)) // answers of the store, and of each whose order is looked for
	go func() {
		defer close(over)
		for { // each byte asks whether all are back
			if n, err := os.Stdin.Read(make([]byte, 1)); n == 0 || err != nil {
				return
			}
			calm.Store(true)
			go func() {
				for i := range heard {
					for before := heard[i].Load(); heard[i].Load() == before; wait(time.Millisecond) {
						select {
						case <-over:
							return
						default:
						}
					}
				}
				mu.Lock()
				now := log{Back: true, Seen: l.Seen}
				mu.Unlock()
				if leased != nil {
					now.Seen.Here = int64(leased.Stats().Here)
				}
				say(now)
			}()
		}
	}()
	var ordered []*redisstore.Store
	for _, prefix := range o.Places {
		s, err := redisstore.New(client, redisstore.Budget(longer), redisstore.Prefix(prefix), redisstore.Remember(0))
		if err != nil {
			return err
		}
		defer s.Close()
		ordered = append(ordered, s)
	}
	stalls, watched := watch(over)
	defer func() { watched(); l.Stalls = stalls }()
	var group sync.WaitGroup
	group.Go(func() {
		err := askInOrder(ordered, o, over, func(a *asked) {
			mu.Lock()
			defer mu.Unlock()
			if l.Asked = append(l.Asked, *a); a.Lost {
				return
			}
			heard[1+a.Place].Add(1)
			if a.Said[0].Taken > 0 {
				l.Seen.Allowed++
			} else {
				l.Seen.Refused++
			}
		})
		if err != nil {
			mu.Lock()
			defer mu.Unlock()
			l.Error = err.Error()
		}
	})
	for asker := range askers {
		group.Go(func() {
			tick := time.NewTicker(pace)
			defer tick.Stop()
			attrs := policy.Attrs{"user": fmt.Sprint(asker % users)}
			for {
				select {
				case <-over:
					return
				case <-tick.C:
				}
				// A flood at times, so that there is something to refuse.
				for range 5 {
					if calm.Load() && rand.IntN(10) > 0 {
						break
					}
					call, began := clock(), time.Now()
					v := engine.Decide(context.Background(), attrs)
					ended := time.Now()
					if v.Fault == nil {
						heard[0].Add(1)
					}
					mu.Lock()
					if ended.Sub(began) > 2*o.Budget {
						l.Slow = append(l.Slow, span{call, clock()})
					}
					l.note(asker%users, &v, ended.Sub(began), ended)
					mu.Unlock()
				}
			}
		})
	}
	group.Wait()
	l.Opened, l.OverDenied = exact.Stats().Opened, exact.Stats().OverDenied
	if leased != nil {
		if err := leased.Close(); err != nil && !errors.Is(err, spillgate.ErrUnavailable) {
			return err
		}
		st := leased.Stats()
		l.Here, l.Refused = st.Here, st.Refused
	}
	return nil
}

func (l *log) note(user int, v *policy.Verdict, wait time.Duration, ended time.Time) {
	l.Waits = append(l.Waits, wait)
	if v.Fault != nil {
		l.Faults++
	}
	switch {
	case v.Allowed && v.Len() > 0:
		a := admission{User: user, At: ended.UnixNano(), Local: v.Fault != nil}
		if a.Local {
			a.At = int64(v.Outcome(0).Decision.At)
		}
		if l.Admitted = append(l.Admitted, a); !a.Local {
			l.Seen.Paid++
		}
	case v.Refusing() != nil:
		l.Denied++
	default:
		l.Unanswered++
		if l.Error == "" {
			l.Error = strings.TrimSpace(fmt.Sprint("not decided: ", v.Err()))
		}
	}
}
