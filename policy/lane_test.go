package policy

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate"
)

// laneRule is a rule of two lanes: paid users may use all of the limit, all
// others must leave keep units.
func laneRule(t testing.TB, limit string, keep int64) Rule {
	r := testRule(t, "r", limit)
	r.Lanes = []Lane{{Match: on(t, "user", "paid")}, {Keep: keep}}
	return r
}

func TestLanes(t *testing.T) {
	r := testRule(t, "r", "0/s burst 10")
	r.TTL = time.Hour
	r.Lanes = []Lane{{Match: on(t, "user", "paid")}, {Match: on(t, "path", "/batch/**"), Keep: 8}, {Percent: 25}}
	e := testEngine(t, r)
	ask := func(user, path string) *Outcome {
		v := decide(e, 0, Attrs{"user": user, "path": string(AppendPath(nil, path))})
		return v.Of("r")
	}
	for i, tt := range []struct {
		user, path      string
		allowed         bool
		kept, remaining int64
	}{
		{"x", "/batch/1", true, 8, 1},
		{"x", "/batch/1", true, 8, 0},
		{"x", "/batch/1", false, 8, 0},
		{"x", "/", true, 3, 4}, // 25 % of 10, rounded up
		{"x", "/batch/..;/page", false, 8, 0},
		{"paid", "/batch/1", true, 0, 6},
		{"x", "/", true, 3, 2},
		{"x", "/", true, 3, 1},
		{"x", "/", true, 3, 0},
		{"x", "/", false, 3, 0},
		{"paid", "/", true, 0, 2},
		{"paid", "/", true, 0, 1},
		{"x", "/", false, 3, 0},
		{"paid", "/", true, 0, 0},
		{"paid", "/", false, 0, 0},
	} {
		o := ask(tt.user, tt.path)
		if o.Decision.Allowed != tt.allowed || o.Kept() != tt.kept || o.Decision.Remaining != tt.remaining {
			t.Fatalf("request %d, %s %s: allowed %v, kept %d, remaining %d; want %v, %d, %d", i+1, tt.user, tt.path,
				o.Decision.Allowed, o.Kept(), o.Decision.Remaining, tt.allowed, tt.kept, tt.remaining)
		}
	}
}

// TestBestLaneIsTheLastToBeRefused holds lanes of every algorithm against what
// they promise, over random requests: who must leave some units leaves them, is
// told what is right for that lane, and is never let in where the best lane
// would not be.
func TestBestLaneIsTheLastToBeRefused(t *testing.T) {
	for _, limit := range []string{"7/s burst 10", "10/s queue 9", "10/7s fixed", "10/7s sliding", "10/7s log", "10 at once for 5s", "10/calendar day"} {
		t.Run(limit, func(t *testing.T) {
			const keep = 4
			e := testEngine(t, laneRule(t, limit, keep))
			r := rand.New(rand.NewPCG(1, 1))
			now := time.Duration(0)
			refused, admitted := 0, 0
			look := func(user string, at time.Duration, n int64) Outcome {
				v := decide(e, at, Attrs{"user": user}, Cost(Requests, n))
				return *v.Outcome(0)
			}
			for range 500 {
				now += time.Duration(r.IntN(500)) * time.Millisecond
				user, n := pick(r, []string{"paid", "x", "x"}), int64(1+r.IntN(3))
				paid, other := look("paid", now, 0), look("x", now, 0)
				if want := max(0, paid.Decision.Remaining-keep); other.Decision.Remaining != want {
					t.Fatalf("at %s %d remain for the best lane and %d for the other, want %d", now, paid.Decision.Remaining, other.Decision.Remaining, want)
				}
				o := look(user, now, n)
				left := paid.Decision.Remaining
				if user == "x" {
					left = other.Decision.Remaining
				}
				if o.Decision.Allowed != (n <= left) {
					t.Fatalf("at %s %d of %d units: allowed %v", now, n, left, o.Decision.Allowed)
				}
				if o.Decision.Allowed {
					admitted++
					if after := look("paid", now, 0).Decision.Remaining; user == "x" && after < keep {
						t.Fatalf("at %s the lower lane left %d", now, after)
					}
					continue
				}
				refused++
				if wait := o.Decision.RetryAfter; wait != spillgate.Never {
					if early := look(user, now+wait-1, n); early.Decision.Allowed {
						t.Fatalf("at %s %s passes 1 ns before its retry after %s", now, user, wait)
					}
					now += wait
					if due := look(user, now, n); !due.Decision.Allowed {
						t.Fatalf("at %s %s is refused after its retry after %s", now, user, wait)
					}
				}
			}
			if refused < 20 || admitted < 20 {
				t.Errorf("%d refused, %d admitted", refused, admitted)
			}
		})
	}
}

// What a lane must leave never fits into it, however long it waits.
func TestCostAboveALane(t *testing.T) {
	e := testEngine(t, laneRule(t, "10/s", 4))
	for n, want := range map[int64]bool{6: true, 7: false} {
		v := decide(e, time.Hour, Attrs{"user": "x"}, Cost(Requests, n))
		if d := v.Outcome(0).Decision; d.Allowed != want || !want && (d.Reason != spillgate.NeverFits || d.RetryAfter != spillgate.Never) {
			t.Errorf("%d units: %+v", n, d)
		}
	}
}

// TestLanesWithoutAStore: while the store fails, a node's share of the limit
// has the same lanes.
func TestLanesWithoutAStore(t *testing.T) {
	p, err := Compile([]Rule{laneRule(t, "100/h burst 100", 40)})
	if err != nil {
		t.Fatal(err)
	}
	e := NewEngine(p, brokenStore{spillgate.ErrUnavailable}, Nodes(10))
	passed := map[string]int{}
	for _, user := range []string{"x", "paid"} {
		for range 20 {
			if v := decide(e, 0, Attrs{"user": user}); v.Allowed {
				passed[user]++
			}
		}
	}
	if passed["x"] != 6 || passed["paid"] != 4 {
		t.Errorf("passed %v, want 6 and 4 of the 10 that are this node's", passed)
	}
}

func TestPeekOfALane(t *testing.T) {
	e := testEngine(t, laneRule(t, "10/h", 4))
	for user, want := range map[string]int64{"x": 6, "paid": 10} {
		v := decide(e, 0, Attrs{"user": user}, Cost(Requests, 0))
		d, ok := v.Peek(t.Context(), "r")
		if !ok || d.Remaining != want {
			t.Errorf("%s: %+v, want %d to remain", user, d, want)
		}
	}
}

func TestLaneErrors(t *testing.T) {
	paid := on(t, "user", "paid")
	for name, tt := range map[string]struct {
		limit string
		cost  int64
		lanes []Lane
		want  string
	}{
		"two lanes":         {"10/s", 0, []Lane{{Match: paid}, {Keep: 9}}, ""},
		"percent":           {"10/s", 0, []Lane{{Match: paid}, {Percent: 90}}, ""},
		"all of it":         {"10/s", 0, []Lane{{Match: paid}, {Keep: 10}}, "lanes, entry 2: keep: 10 of 10 leave less than the 1 that a request costs"},
		"more than all":     {"10/s", 0, []Lane{{Match: paid}, {Keep: 11}}, "lanes, entry 2: keep: 11 of 10"},
		"rounded to all":    {"10/s", 0, []Lane{{Match: paid}, {Percent: 91}}, "lanes, entry 2: keep: 10 of 10"},
		"with the cost":     {"10/s", 5, []Lane{{Match: paid}, {Keep: 6}}, "lanes, entry 2: keep: 6 of 10 leave less than the 5"},
		"below 0":           {"10/s", 0, []Lane{{Match: paid}, {Keep: -1}}, "lanes, entry 2: keep: -1: must not be negative"},
		"hundred percent":   {"10/s", 0, []Lane{{Match: paid}, {Percent: 100}}, "lanes, entry 2: keep: want units, or a percentage"},
		"both":              {"10/s", 0, []Lane{{Match: paid}, {Percent: 10, Keep: 1}}, "lanes, entry 2: keep: want units, or a percentage"},
		"no last":           {"10/s", 0, []Lane{{Match: paid}}, "lanes, entry 1: requests that match no lane"},
		"never reached":     {"10/s", 0, []Lane{{Keep: 1}, {Match: paid}, {}}, "lanes, entry 1: this lane has no match"},
		"nothing kept":      {"10/s", 0, []Lane{{Match: paid}, {}}, "lanes: no lane keeps anything"},
		"for nobody":        {"10/s", 0, []Lane{{Match: paid, Keep: 2}, {Keep: 5}}, "lanes: every lane keeps at least 2"},
		"of an endless one": {"unlimited", 0, []Lane{{Match: paid}, {Keep: 5}}, "lanes: nothing of unlimited is ever used up"},
		"a bad match":       {"10/s", 0, []Lane{{Match: on(t, "method", "post")}, {Keep: 5}}, "lanes, entry 1: match: method: "},
	} {
		r := testRule(t, "r", tt.limit)
		r.Cost, r.Lanes = tt.cost, tt.lanes
		_, err := Compile([]Rule{r})
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
	shut := Rule{Name: "r", Deny: true, Lanes: []Lane{{Match: paid}, {Keep: 1}}}
	if _, err := Compile([]Rule{shut}); err == nil || !strings.Contains(err.Error(), "a rule that denies has no limit") {
		t.Errorf("lanes of a rule that denies: %v", err)
	}
}

func TestLaneOnWord(t *testing.T) {
	for _, tt := range []struct {
		match Match
		want  string
	}{
		{on(t, "header.x-plan", "paid"), "lane 1: header.x-plan"},
		{append(on(t, "header.x-plan", "paid"), on(t, "client.ip", "10.0.0.0/8")...), ""},
		{on(t, "user", "paid"), ""},
		{on(t, "path", "/batch"), ""},
	} {
		r := Rule{Lanes: []Lane{{Match: tt.match}, {Keep: 1}}}
		got := ""
		if lane, a, ok := r.LaneOnWord(); ok {
			got = fmt.Sprintf("lane %d: %s", lane, a)
		}
		if got != tt.want {
			t.Errorf("%v: %q, want %q", tt.match, got, tt.want)
		}
	}
}

// TestHeldRequestsOfLanes: who may take what is kept does not stand in line
// behind those who may not.
func TestHeldRequestsOfLanes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := delayed(t, "1/s burst 2", 10*time.Second, 0)
		r.Lanes = []Lane{{Match: on(t, "user", "paid")}, {Keep: 1}}
		c := newCrowd(t, r)
		c.come("a", "x")
		c.come("b", "x")
		c.come("c", "x")
		c.come("best", "paid")
		c.come("next", "paid")
		c.want("a passes at 0s", "best passes at 0s", "next passes at 1s", "b passes at 3s", "c passes at 4s")
	})
}

// A slot that comes back wakes those of every lane.
func TestSlotsWakeAllLanes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := delayed(t, "2 at once", 10*time.Second, 0)
		r.Lanes = []Lane{{Match: on(t, "user", "paid")}, {Keep: 1}}
		c := newCrowd(t, r)
		_, first := c.come("a", "x")
		_, second := c.come("b", "paid")
		c.come("low", "x")
		c.come("best", "paid")
		after(40 * time.Millisecond)
		second.Done()
		synctest.Wait()
		after(time.Millisecond)
		first.Done()
		synctest.Wait()
		c.mu.Lock()
		log := strings.Join(c.log, ", ")
		c.mu.Unlock()
		if log != "a passes at 0s, b passes at 0s, best passes at 40ms" {
			t.Error(log)
		}
		after(20 * time.Second)
		c.wg.Wait()
	})
}
