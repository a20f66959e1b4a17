package nemesis

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
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
	budget  = 20 * time.Millisecond
	share   = 0.15
	pace    = 3 * time.Millisecond // between two requests of one goroutine
	program = "SPILLGATE_NEMESIS"  // in the environment of a process that decides
)

// limit is that of each user: together the processes ask for twice of it.
var limit = spillgate.Limit{Rate: 1000, Period: time.Second, Burst: 200}

// An order is what a process is told in its environment.
type order struct {
	Addrs  []string // of the server, of a Sentinel, or of the servers of a cluster
	Kind   kind
	Leased bool
	Places []string // prefixes, each of keys that one server has
	Seed   [16]byte
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

// A log is what a process has to say in the end.
type log struct {
	Admitted      []admission
	Denied        int
	Faults        int
	Waits         []time.Duration // of all decisions
	Unanswered    int             // decisions that were neither: a bug
	Opened        uint64
	Here, Refused uint64
	OverDenied    uint64
	Asked         []asked // whose order is looked for
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
		if err := json.NewEncoder(os.Stdout).Encode(&l); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
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
	exact, err := redisstore.New(client, redisstore.Budget(budget))
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
	p, err := policy.Compile([]policy.Rule{{Name: "each", Key: []policy.Part{{Attributes: []policy.Attribute{user}}}, Limit: limit}})
	if err != nil {
		return err
	}
	engine := policy.NewEngine(p, store, policy.Seeded(spillgate.SeedFrom(o.Seed)), policy.Nodes(nodes))
	over := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(over)
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
	var mu sync.Mutex
	var group sync.WaitGroup
	group.Go(func() {
		asked, err := askInOrder(ordered, spillgate.SeedFrom(o.Seed), over)
		mu.Lock()
		defer mu.Unlock()
		if l.Asked = asked; err != nil {
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
					began := time.Now()
					v := engine.Decide(context.Background(), attrs)
					ended := time.Now()
					mu.Lock()
					l.note(asker%users, &v, ended.Sub(began), ended)
					mu.Unlock()
				}
			}
		})
	}
	group.Wait()
	l.Opened, l.OverDenied = exact.Stats().Opened, exact.Stats().OverDenied
	if leased != nil {
		if err := leased.Close(); err != nil {
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
	case v.Allowed && v.Len() == 1:
		a := admission{User: user, At: ended.UnixNano(), Local: v.Fault != nil}
		if a.Local {
			a.At = int64(v.Outcome(0).Decision.At)
		}
		l.Admitted = append(l.Admitted, a)
	case v.Refusing() != nil:
		l.Denied++
	default:
		l.Unanswered++
		if l.Error == "" {
			l.Error = strings.TrimSpace(fmt.Sprint("not decided: ", v.Err()))
		}
	}
}
