package nemesis

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/redisstore"
	"github.com/spillgate/spillgate/redisstore/redistest"
)

var (
	length = flag.Duration("length", 4*time.Second, "how long each history is")
	seed   = flag.Uint64("seed", 1, "of the order of the faults")
)

// A child is a process that decides.
type child struct {
	cmd   *exec.Cmd
	input io.WriteCloser
	addr  string // of a server
	back  chan seen
	log   chan log
}

// start starts the processes.
func start(t *testing.T, o order) []*child {
	t.Helper()
	secret := spillgate.NewSeed()
	o.Seed = secret.Bytes()
	if o.Budget == 0 {
		o.Budget = budget
	}
	if o.Generation == 0 {
		o.Generation = 150 * time.Millisecond
	}
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	var all []*child
	for range nodes {
		c := &child{cmd: exec.Command(os.Args[0]), addr: o.Addrs[0], back: make(chan seen, 1), log: make(chan log, 1)}
		c.cmd.Env = append(os.Environ(), program+"="+string(text))
		c.cmd.Stderr = os.Stderr
		if c.input, err = c.cmd.StdinPipe(); err != nil {
			t.Fatal(err)
		}
		out, err := c.cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.cmd.Start(); err != nil {
			t.Fatal(err)
		}
		go func() {
			for messages := json.NewDecoder(out); ; {
				var l log
				if err := messages.Decode(&l); err != nil {
					l.Error = "its log: " + err.Error()
				}
				if !l.Back {
					c.log <- l
					return
				}
				c.back <- l.Seen
			}
		}()
		t.Cleanup(func() {
			c.input.Close()
			if c.cmd.ProcessState == nil {
				_ = c.cmd.Process.Kill()
				_ = c.cmd.Wait()
			}
		})
		all = append(all, c)
	}
	return all
}

// back waits until all stores answer all processes again, by themselves, and there
// was something to prove. A machine with much other work may be too slow for any answer
// in time; then this shows nothing, and all else is held as ever.
func back(t *testing.T, all []*child, leased bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		var sum seen
		for i, c := range all {
			if _, err := c.input.Write([]byte{'?'}); err != nil {
				t.Fatal(err)
			}
			select {
			case s := <-c.back:
				sum.add(s)
			case l := <-c.log:
				t.Fatalf("process %d ended: %s", i, l.Error)
			case <-deadline:
				if s := c.slowest(t); s > budget/4 {
					t.Logf("a plain PING takes up to %s, so nobody knows whether the processes are back", s)
				} else {
					t.Errorf("process %d has no answer of a store, a minute after the last fault; those before: %+v", i, sum)
				}
				return
			}
		}
		if sum.all(leased) {
			return
		}
	}
}

// slowest returns how long a server takes for the slowest of some plain commands, or
// the first that is slow.
func (c *child) slowest(t *testing.T) (most time.Duration) {
	client := redis.NewClient(&redis.Options{Addr: c.addr, MaxRetries: -1})
	defer client.Close()
	for range 50 {
		wait(20 * time.Millisecond)
		began := time.Now()
		_ = client.Ping(t.Context()).Err() // one that fails at once is not slow
		if most = max(most, time.Since(began)); most > budget/4 {
			break
		}
	}
	return most
}

// stop ends the processes and returns what they did.
func stop(t *testing.T, all []*child) []log {
	t.Helper()
	for _, c := range all {
		c.input.Close()
	}
	var logs []log
	for i, c := range all {
		l := <-c.log
		if err := c.cmd.Wait(); err != nil {
			t.Errorf("process %d: %v", i, err)
		}
		if l.Error != "" {
			t.Errorf("process %d: %s", i, l.Error)
		}
		logs = append(logs, l)
	}
	return logs
}

// A fault is done to the server, for a while.
type fault struct {
	name  string
	loses bool          // what was counted
	place int           // whose keys those are, -1 for all
	while time.Duration // how long; 0 for some time below a third of a second
	do    func()
	undo  func()
	// failover is done instead of do, and fills in when there was another primary, and
	// when the one before ceased.
	failover func(*loss)
}

// A loss of what was counted happened within some time, on the wall's clock and on
// the one that processes have in common.
type loss struct {
	begin, end int64
	from, to   int64
	// Of failovers: within which time the primary before ceased to decide.
	joining, joined int64
	place           int // whose keys are lost, -1 for all
}

// play does faults until the time is over and each was done, one at a time with a
// rest in between, and returns when what was counted was lost.
func play(t *testing.T, all []*child, leased bool, faults []fault) (losses []loss) {
	t.Helper()
	random := rand.New(rand.NewPCG(*seed, 1))
	end := time.Now().Add(*length)
	for i := 0; i < len(faults) || time.Now().Before(end); i++ {
		wait(300 * time.Millisecond)
		f := faults[i%len(faults)]
		while := cmp.Or(f.while, time.Duration(50+random.IntN(250))*time.Millisecond)
		t.Logf("%s for %s", f.name, while)
		l := loss{begin: time.Now().UnixNano(), from: clock(), place: f.place}
		if f.failover != nil {
			f.failover(&l)
		} else {
			f.do()
			l.to = clock()
		}
		if l.end = time.Now().UnixNano(); f.loses {
			losses = append(losses, l)
		}
		wait(while)
		if f.undo != nil {
			f.undo()
		}
	}
	back(t, all, leased)
	return losses
}

// wait waits in real time: those who are waited for are other processes.
func wait(d time.Duration) { <-time.After(d) }

// every does something again and again until stop is called.
func every(d time.Duration, do func()) (stop func()) {
	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-over:
				return
			case <-time.After(d):
				do()
			}
		}
	}()
	return func() { close(over); <-ended }
}

// TestNemesis: one server behind a proxy, with everything that can happen to it.
func TestNemesis(t *testing.T) {
	for _, leased := range []bool{false, true} {
		t.Run(fmt.Sprintf("leased %t", leased), func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			proxy := redistest.NewProxy(t, server.Addr)
			all := start(t, order{Addrs: []string{proxy.Addr}, Leased: leased, Places: []string{redisstore.DefaultPrefix}})
			var cuts func()
			losses := play(t, all, leased, []fault{
				{name: "stop", while: still, do: server.Pause, undo: server.Continue},
				{name: "flush", loses: true, place: -1, do: func() { server.Do("flushall") }},
				{name: "cut", do: func() { proxy.Swallow.Store(true); proxy.Cut() }, undo: func() { proxy.Swallow.Store(false); proxy.Cut() }},
				{name: "kill", loses: true, place: -1, do: server.Kill, undo: server.Run},
				{name: "slow", do: func() { proxy.Delay.Store(int64(30 * time.Millisecond)) }, undo: func() { proxy.Delay.Store(0) }},
				{name: "pause", do: func() { server.Do("client", "pause", "200", "all") }},
				{name: "cut in turns", do: func() { proxy.Delay.Store(int64(5 * time.Millisecond)); cuts = every(7*time.Millisecond, proxy.Cut) }, undo: func() { cuts(); proxy.Delay.Store(0) }},
				{name: "replies cut", do: func() { proxy.CutAfter.Store(100) }, undo: func() { proxy.CutAfter.Store(0) }},
			})
			logs := stop(t, all)
			check(t, logs, losses, leased, budget)
			ordered(t, logs, losses)
		})
	}
}

// TestNemesisFailover: the primary is asked to step down, and its replica takes
// its place. What it had not heard of is lost, and so is what the old primary
// still decides for those who have not heard of the new one: Redis lets it.
func TestNemesisFailover(t *testing.T) {
	t.Parallel()
	group := redistest.Replicated(t)
	// Only when it is told to: not since this machine stood still for a while.
	group.Sentinel.Do("sentinel", "set", "main", "down-after-milliseconds", 3_600_000)
	group.Sentinel.Do("sentinel", "set", "main", "failover-timeout", 20_000)
	all := start(t, order{Addrs: []string{group.Sentinel.Addr}, Kind: sentinel, Leased: true, Places: []string{redisstore.DefaultPrefix}})
	losses := play(t, all, true, []fault{{name: "failover", loses: true, place: -1, failover: func(l *loss) {
		old, next := group.Primary, group.Replica
		sentinel := group.Sentinel.Client()
		eventually(t, "Sentinel begins", func() bool { // it may not have heard yet who is whose replica
			return sentinel.Do(t.Context(), "sentinel", "failover", "main").Err() == nil
		})
		client := next.Client() // whose connection may end when the role changes
		eventually(t, "the replica is the primary", func() bool {
			at := clock()
			role, err := client.Info(t.Context(), "replication").Result()
			if l.to = clock(); strings.Contains(role, "role:master") { // since the last look
				return true
			}
			if err == nil {
				l.from = at
			}
			return false
		})
		group.Promoted()
		for calls := ""; ; { // until nobody asks it any more
			_, now, _ := strings.Cut(fmt.Sprint(old.Do("info", "commandstats")), "cmdstat_evalsha")
			now, _, _ = strings.Cut(now, ",")
			if now == calls {
				break
			}
			calls = now
			wait(100 * time.Millisecond)
		}
		// Sentinel would tell it so only later, and somebody may have stood still until now.
		l.joining = clock()
		old.Do("replicaof", "127.0.0.1", next.Port())
		l.joined = clock()
	}}})
	logs := stop(t, all)
	check(t, logs, losses, true, budget)
	ordered(t, logs, losses)
}

// check holds what was admitted against I16: on the store's word, in every
// interval, the burst and what is earned, the burst again for every loss and what
// is earned while it lasts, for then two may count, and what leases allow; by
// itself, each process its part. Since that holds in every interval, it does in each of k
// times that the store is away, D together: so each admits no more than k·b′ + r′·D.
func check(t *testing.T, logs []log, losses []loss, leased bool, budget time.Duration) {
	t.Helper()
	extra := int64(0)
	if leased {
		extra = int64(share * float64(limit.Burst))
	}
	for user := range users {
		within(t, fmt.Sprint("user ", user), limit, extra, losses, logs, func(a *admission) bool { return a.User == user })
	}
	var paid, local, denied, faults int
	var waits []time.Duration
	for _, l := range logs {
		for _, a := range l.Admitted {
			if a.Local {
				local++
			} else {
				paid++
			}
		}
	}
	opened, here := uint64(0), uint64(0)
	for _, l := range logs {
		denied += l.Denied
		faults += l.Faults
		waits = append(waits, l.Waits...)
		opened += l.Opened
		here += l.Here
	}
	// What a process waited for a processor is no part of how long its decisions took.
	longest, late, known := time.Duration(0), 0, true
	for _, l := range logs {
		for _, d := range l.Slow {
			stalled, ok := l.Stalls.within(d)
			took := time.Duration(d.To-d.From) - stalled
			if known, longest = known && ok, max(longest, took); took > 5*budget {
				late++
			}
		}
	}
	slices.Sort(waits)
	at := func(part float64) time.Duration { return waits[int(part*float64(len(waits)-1))] }
	t.Logf("%d decisions: %d admitted on the store's word (%d without a call), %d by a process itself, %d denied, %d faults; %d breakers opened, %d losses; a decision took %s, p99 %s, at most %s, or %s without its waits for a processor",
		len(waits), paid, here, local, denied, faults, opened, len(losses), at(.5), at(.99), at(1), longest)
	if known && late > len(waits)/100 {
		t.Errorf("%d of %d decisions took more than five budgets, %s each", late, len(waits), budget)
	}
	if most := budget + slack; known && longest > most {
		t.Errorf("a decision took %s, less what its process waited for processors: more than %s", longest, most)
	}
}

// within holds what was admitted to one key against its limit.
func within(t *testing.T, key string, limit spillgate.Limit, extra int64, losses []loss, logs []log, is func(*admission) bool) {
	t.Helper()
	// What was decided before an interval or a loss may be told, and so counted, after
	// that began: that many calls can be under way.
	const noise = nodes * askers
	var events []counted
	for _, l := range losses {
		again := limit.Burst + limit.Rate*(l.end-l.begin)/int64(limit.Period)
		events = append(events, counted{at: l.begin - int64(2*budget), begins: again}, counted{at: l.end + int64(2*budget), ends: again})
	}
	for i, l := range logs {
		var own []counted
		for j := range l.Admitted {
			switch a := &l.Admitted[j]; {
			case !is(a):
			case a.Local:
				own = append(own, counted{at: a.At})
			default:
				events = append(events, counted{at: a.At})
			}
		}
		part := limit
		part.Period *= nodes
		if n := over(own, part, limit.Burst/nodes); n > 0 {
			t.Errorf("process %d by itself admitted %d more to %s than its part", i, n, key)
		}
	}
	if n := over(events, limit, limit.Burst+extra+noise); n > 0 {
		t.Errorf("%s: %d more than %d at once and %d a second, %d losses", key, n, limit.Burst+extra+noise, limit.Rate, len(losses))
	}
}

// A counted is an admission, or the begin or the end of a loss that allows so many
// more in every interval in which a part of it lies.
type counted struct {
	at           int64
	begins, ends int64
}

// over returns how many more were admitted, in the worst interval, than burst,
// what is earned in it, and what losses allow.
func over(events []counted, limit spillgate.Limit, burst int64) int64 {
	slices.SortFunc(events, func(a, b counted) int { return cmp.Compare(a.at, b.at) })
	worst, sum, least := int64(0), int64(0), int64(math.MaxInt64)
	begun, ended := int64(0), int64(0) // what is allowed by the losses that have
	for _, e := range events {
		begun += e.begins
		ended += e.ends
		if e.begins > 0 || e.ends > 0 {
			continue
		}
		earned := limit.Rate * (e.at - events[0].at)
		least = min(least, sum-earned-ended*int64(limit.Period))
		sum += int64(limit.Period)
		worst = max(worst, sum-earned-least-(burst+begun)*int64(limit.Period))
	}
	return (worst + int64(limit.Period) - 1) / int64(limit.Period)
}

// TestOver: the check finds what it is to find.
func TestOver(t *testing.T) {
	var admitted []counted
	for i := range 12 {
		admitted = append(admitted, counted{at: int64(i) * int64(time.Millisecond)})
	}
	l := spillgate.Limit{Rate: 100, Period: time.Second}
	ms := func(n float64) int64 { return int64(n * float64(time.Millisecond)) }
	for _, c := range []struct {
		name       string
		begin, end float64
		again      int64
		over       int64
	}{
		{"no loss", -2, -1, 5, 1}, // 12 in 11 ms, in which 1.1 are earned
		{"a loss", 5, 5, 5, 0},
		{"one that is too small", 5, 5, 0, 1},
		{"one over all of it", -1, 20, 1, 0},
		{"one that began before", -1, 0.5, 1, 0},
		{"one that ends after", 10.5, 20, 1, 0},
		{"one that is yet to come", 11.5, 20, 5, 1},
	} {
		events := append([]counted{{at: ms(c.begin), begins: c.again}, {at: ms(c.end), ends: c.again}}, admitted...)
		if c.again == 0 {
			events = admitted
		}
		if n := over(slices.Clone(events), l, 10); n != c.over {
			t.Errorf("%s: %d over, want %d", c.name, n, c.over)
		}
	}
}
