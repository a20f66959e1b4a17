package waiting

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/policy"
)

// A scene is who comes to a rule with a delay, all for one key.
type scene struct {
	limit string
	delay policy.Delay
	plain bool // the store says no more than a store has to
	comes []visit
}

// exact reports whether who is refused can be told to the nanosecond when to come. Of
// slots nobody knows.
func (s scene) exact() bool {
	return !strings.Contains(s.limit, "at once") && !(s.plain && (strings.Contains(s.limit, "log") || strings.Contains(s.limit, "sliding")))
}

// A visit is one who comes after the one before, and what became of it.
type visit struct {
	after time.Duration
	n     int64
	hurry bool  // takes or leaves: it may overtake, as long as nobody waits
	truth int64 // if above 0, what it says at once that it used

	passed   bool
	held     time.Duration
	told     time.Duration
	waited   int // how many waited when it came
	finished bool
}

// play lets the first n come, and then, if probe is not 0, one more so long after the
// last of them. It returns what became of all, and of the one more.
func (s scene) play(t *testing.T, n int, probe time.Duration, cost int64) (all []visit, last visit) {
	synctest.Test(t, func(t *testing.T) {
		l, err := spillgate.ParseLimit(s.limit)
		if err != nil {
			t.Fatal(err)
		}
		p, err := policy.Compile([]policy.Rule{{Name: "r", Limit: l, Delay: s.delay}})
		if err != nil {
			t.Fatal(err)
		}
		var store spillgate.Store = spillgate.NewMemory()
		if s.plain {
			store = struct{ spillgate.Store }{store}
		}
		e := policy.NewEngine(p, store)
		all = append([]visit(nil), s.comes[:n]...)
		if probe > 0 {
			all = append(all, visit{after: probe, n: cost})
		}
		done := make(chan struct{}, len(all))
		waiting := 0
		for i := range all {
			o := &all[i]
			<-time.After(o.after)
			synctest.Wait()
			waiting = 0
			for j := range i {
				if !all[j].finished {
					waiting++
				}
			}
			o.waited = waiting
			go func() {
				defer func() { done <- struct{}{} }()
				v := new(policy.Verdict)
				if o.hurry && o.waited == 0 {
					e.DecideInto(context.Background(), v, policy.Attrs{}, policy.Cost(policy.Requests, o.n))
				} else {
					e.Await(context.Background(), v, policy.Attrs{}, policy.Cost(policy.Requests, o.n))
				}
				o.passed, o.held, o.told, o.finished = v.Allowed, v.Held, v.RetryAfter(), true
				if o.passed && o.held == 0 && o.truth > 0 { // later ones nobody foresees
					_ = v.Spent(policy.Requests, o.truth)
				}
			}()
			synctest.Wait()
		}
		for range all {
			<-done
		}
		e.Close()
	})
	if probe > 0 {
		return all[:n], all[n]
	}
	return all, last
}

// Whoever is refused, by a limit or because a line is full or too long, and comes
// again when it was told, passes at once if nobody else came, and not a nanosecond
// earlier; and who can be served in time is held, and served.
func TestWhoIsRefusedIsToldWhenAllBeforeItAreServed(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := scene{limit: rapid.SampledFrom([]string{
			"3/10s burst 4", "7/3s burst 5", "5/10s fixed", "4/calendar minute", "5/10s sliding", "5/10s log", "4 at once for 5s", "3/2s queue 4",
		}).Draw(rt, "limit"), plain: rapid.Bool().Draw(rt, "plain")}
		s.delay = policy.Delay{Most: time.Duration(rapid.IntRange(1, 40).Draw(rt, "most")) * time.Second, Queue: rapid.SampledFrom([]int{1, 3, 100}).Draw(rt, "queue")}
		if strings.Contains(s.limit, "queue") { // which holds by itself
			s.delay = policy.Delay{}
		}
		for range rapid.IntRange(2, 20).Draw(rt, "callers") {
			v := visit{n: rapid.Int64Range(1, 4).Draw(rt, "n"), hurry: rapid.IntRange(0, 3).Draw(rt, "hurry") == 0}
			if rapid.Bool().Draw(rt, "pause") {
				v.after = time.Duration(rapid.Int64Range(1, 15e9).Draw(rt, "after"))
			}
			if rapid.IntRange(0, 9).Draw(rt, "corrects") == 0 {
				v.truth = rapid.Int64Range(1, 7).Draw(rt, "truth")
			}
			s.comes = append(s.comes, v)
		}
		all, _ := s.play(t, len(s.comes), 0, 0)
		probes := 0
		for i, v := range all {
			switch {
			case v.passed && v.held > s.delay.Most:
				rt.Fatalf("%d was held for %s", i, v.held)
			case v.passed || v.hurry && v.waited == 0:
			case v.held > 0 && s.exact() && !corrected(all[:i+1]):
				rt.Fatalf("%d was held for %s in vain", i, v.held)
			case v.held == 0 && v.told <= s.delay.Most && v.waited < s.delay.Queue && s.delay.Most > 0:
				rt.Fatalf("%d was refused, though %s is not too long", i, v.told)
			}
			if v.passed || v.held > 0 || probes == 3 {
				continue
			}
			probes++
			if _, again := s.play(t, i+1, v.told, v.n); !again.passed || again.held > 0 {
				rt.Fatalf("%d came again when told, after %s: %+v", i, v.told, again)
			}
			less := v.told - 1
			if s.plain {
				less-- // what it says is rounded up
			}
			if !s.exact() || less < 1 {
				continue
			}
			if _, early := s.play(t, i+1, less, v.n); early.passed && early.held == 0 {
				rt.Fatalf("%d was told %s, but passes before", i, v.told)
			}
		}
	})
}

// corrected reports whether one of them used something else than was charged: then
// who is held may not be served in time.
func corrected(all []visit) bool {
	for _, v := range all {
		if v.truth > v.n {
			return true
		}
	}
	return false
}
