package nemesis

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/spillgate/spillgate"
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
	log   chan log
}

// start starts the processes.
func start(t *testing.T, o order) []*child {
	t.Helper()
	secret := spillgate.NewSeed()
	o.Seed = secret.Bytes()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	var all []*child
	for range nodes {
		c := &child{cmd: exec.Command(os.Args[0]), log: make(chan log, 1)}
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
			var l log
			if err := json.NewDecoder(out).Decode(&l); err != nil {
				l.Error = "its log: " + err.Error()
			}
			c.log <- l
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
	loses bool // what was counted
	do    func()
	undo  func()
}

// play does faults until the time is over, one at a time with a rest in between,
// and returns when what was counted was lost.
func play(t *testing.T, faults []fault) (losses []int64) {
	t.Helper()
	random := rand.New(rand.NewPCG(*seed, 1))
	end := time.Now().Add(*length)
	for i := 0; time.Now().Before(end); i++ {
		wait(500 * time.Millisecond)
		f := faults[i%len(faults)]
		while := time.Duration(50+random.IntN(250)) * time.Millisecond
		t.Logf("%s for %s", f.name, while)
		if f.loses {
			losses = append(losses, time.Now().UnixNano())
		}
		f.do()
		wait(while)
		if f.undo != nil {
			f.undo()
		}
	}
	wait(time.Second)
	return losses
}

// wait waits in real time: those who are waited for are other processes.
func wait(d time.Duration) { <-time.After(d) }

// TestNemesis: one server behind a proxy, with everything that can happen to it.
func TestNemesis(t *testing.T) {
	for _, leased := range []bool{false, true} {
		t.Run(fmt.Sprintf("leased %t", leased), func(t *testing.T) {
			server := redistest.Start(t)
			proxy := redistest.NewProxy(t, server.Addr)
			all := start(t, order{Addr: proxy.Addr, Leased: leased})
			losses := play(t, []fault{
				{name: "stop", do: server.Pause, undo: server.Continue},
				{name: "flush", loses: true, do: func() { server.Do("flushall") }},
				{name: "cut", do: func() { proxy.Swallow.Store(true); proxy.Cut() }, undo: func() { proxy.Swallow.Store(false); proxy.Cut() }},
				{name: "kill", loses: true, do: server.Kill, undo: server.Run},
				{name: "slow", do: func() { proxy.Delay.Store(int64(30 * time.Millisecond)) }, undo: func() { proxy.Delay.Store(0) }},
				{name: "pause", do: func() { server.Do("client", "pause", "200", "all") }},
				{name: "replies cut", do: func() { proxy.CutAfter.Store(100) }, undo: func() { proxy.CutAfter.Store(0) }},
			})
			check(t, stop(t, all), losses, leased)
		})
	}
}

// TestNemesisFailover: the primary is stopped or asked to step down, and its
// replica takes its place. What it had not heard of is lost.
func TestNemesisFailover(t *testing.T) {
	group := redistest.Replicated(t)
	all := start(t, order{Addr: group.Sentinel.Addr, Sentry: true, Leased: true})
	losses := play(t, []fault{{name: "failover", loses: true, do: group.Failover}})
	check(t, stop(t, all), losses, true)
}

// check holds what was admitted against I16: on the store's word, in every
// interval, the burst and what is earned, the burst again for every loss, and
// what leases allow; by itself, each process its part.
func check(t *testing.T, logs []log, losses []int64, leased bool) {
	t.Helper()
	extra := int64(0)
	if leased {
		extra = int64(share * float64(limit.Burst))
	}
	// When a call was decided is known to its budget, and what was under way at
	// a loss may count on either side of it.
	noise := limit.Rate*int64(2*budget)/int64(limit.Period) + nodes*askers
	var paid, local, denied, faults int
	var waits []time.Duration
	last := int64(0)
	for user := range users {
		var events []event
		for _, at := range losses {
			events = append(events, event{at: at - int64(2*budget), loss: true})
		}
		for i, l := range logs {
			var own []event
			for _, a := range l.Admitted {
				switch {
				case a.User != user:
				case a.Local:
					own = append(own, event{at: a.At})
					local++
				default:
					events = append(events, event{at: a.At})
					last = max(last, a.At)
					paid++
				}
			}
			part := limit
			part.Period *= nodes
			if n := over(own, part, limit.Burst/nodes, 0); n > 0 {
				t.Errorf("process %d by itself admitted %d more to user %d than its part", i, n, user)
			}
		}
		if n := over(events, limit, limit.Burst+extra+noise, limit.Burst); n > 0 {
			t.Errorf("user %d: %d more than %d at once and %d a second, %d losses", user, n, limit.Burst+extra+noise, limit.Rate, len(losses))
		}
	}
	recent, opened, here := false, uint64(0), uint64(0)
	for _, l := range logs {
		denied += l.Denied
		faults += l.Faults
		waits = append(waits, l.Waits...)
		opened += l.Opened
		here += l.Here
	}
	slices.Sort(waits)
	for _, l := range logs {
		for _, a := range l.Admitted {
			recent = recent || !a.Local && a.At > last-int64(500*time.Millisecond)
		}
	}
	at := func(part float64) time.Duration { return waits[int(part*float64(len(waits)-1))] }
	t.Logf("%d decisions: %d admitted on the store's word (%d without a call), %d by a process itself, %d denied, %d faults; %d breakers opened, %d losses; a decision took %s, p99 %s, at most %s",
		len(waits), paid, here, local, denied, faults, opened, len(losses), at(.5), at(.99), at(1))
	switch {
	case paid == 0 || denied == 0:
		t.Error("nothing was admitted, or nothing denied")
	case !recent:
		t.Error("the store was not asked again when it was back")
	case leased && here == 0:
		t.Error("no lease was used")
	}
	// A process that has no processor answers late through no fault of its own.
	if p99 := at(.99); p99 > 5*budget {
		t.Errorf("a decision in a hundred takes %s or more, the budget is %s", p99, budget)
	}
}

// An event is an admission, or a loss of what was counted.
type event struct {
	at   int64
	loss bool
}

// over returns how many more were admitted, in the worst interval, than burst and
// what is earned in it, and again for each loss in it.
func over(events []event, limit spillgate.Limit, burst, again int64) int64 {
	slices.SortFunc(events, func(a, b event) int { return int(a.at - b.at) })
	worst, sum, least := int64(0), int64(0), int64(0)
	for i, e := range events {
		earned := limit.Rate * (e.at - events[0].at)
		if e.loss {
			sum -= again * int64(limit.Period)
			continue
		}
		if before := sum - earned; i == 0 || before < least {
			least = before
		}
		sum += int64(limit.Period)
		worst = max(worst, sum-earned-least-burst*int64(limit.Period))
	}
	return (worst + int64(limit.Period) - 1) / int64(limit.Period)
}

// TestOver: the check finds what it is to find.
func TestOver(t *testing.T) {
	var events []event
	for i := range 12 {
		events = append(events, event{at: int64(i) * int64(time.Millisecond)})
	}
	l := spillgate.Limit{Rate: 100, Period: time.Second}
	if n := over(events, l, 10, 0); n != 1 { // 12 in 11 ms, in which 1.1 are earned
		t.Errorf("%d over, want 1", n)
	}
	events = append(events, event{at: int64(5 * time.Millisecond), loss: true})
	if n := over(events, l, 10, 5); n != 0 {
		t.Errorf("%d over, though there was a loss", n)
	}
}
