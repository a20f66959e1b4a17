package spillgate

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"
)

// An edge is one row of the table of edge values in docs/algorithms.md, and
// this test has one entry a cell.
var edges = map[string]map[string]func(*testing.T){
	"rate 0": {
		"bucket": func(t *testing.T) {
			r := start(t, "0/s burst 3")
			expect(t, r, 0, 2, says{allowed: true, remaining: 1, reset: Never})
			expect(t, r, 0, 2, says{remaining: 1, retry: Never, reset: Never})
			expect(t, r, Instant(century), 1, says{allowed: true, reset: Never})
			expect(t, r, Instant(century), 1, says{retry: Never, reset: Never})
			refuses(t, "0/s")
		},
		"queue":           func(t *testing.T) { refuses(t, "0/s queue 3") },
		"fixed window":    func(t *testing.T) { admitsNothing(t, "0/s fixed") },
		"sliding counter": func(t *testing.T) { admitsNothing(t, "0/s sliding") },
		"sliding log":     func(t *testing.T) { admitsNothing(t, "0/s log") },
		"concurrency":     func(t *testing.T) { admitsNothing(t, "0 at once") },
		"unlimited":       func(t *testing.T) { impossible(t, Limit{Algorithm: Unlimited, Period: 1}) },
	},
	"burst 0": {
		"bucket": func(t *testing.T) { admitsNothing(t, "5/s burst 0") },
		"queue": func(t *testing.T) {
			r := start(t, "5/s queue 0")
			expect(t, r, 0, 1, says{allowed: true, reset: time.Second / 5})
			expect(t, r, 0, 1, says{retry: time.Second / 5, reset: time.Second / 5})
			expect(t, r, Instant(time.Second)/5, 2, says{remaining: 1, retry: Never})
		},
		"fixed window":    noBurst(FixedWindow),
		"sliding counter": noBurst(SlidingCounter),
		"sliding log":     noBurst(SlidingLog),
		"concurrency":     noBurst(Concurrency),
		"unlimited":       func(t *testing.T) { impossible(t, Limit{Algorithm: Unlimited, Burst: 1}) },
	},
	"cost 0": each(func(t *testing.T, text string, cap int64) {
		r := start(t, text)
		expect(t, r, 0, 0, says{allowed: true, remaining: cap})
		if cap == math.MaxInt64 {
			return
		}
		must(r.take(0, cap))
		d := must(r.take(0, 0))
		if !d.Allowed || d.Taken != 0 || d.Remaining != 0 || d.RetryAfter != 0 || d.ResetAfter == 0 || d.Delay != 0 {
			t.Errorf("full: %+v", d)
		}
		if again := must(r.take(0, 0)); again != d {
			t.Errorf("looking changed it: %+v, then %+v", d, again)
		}
	}),
	"cost above what fits": each(func(t *testing.T, text string, cap int64) {
		r := start(t, text)
		if cap == math.MaxInt64 {
			expect(t, r, 0, cap, says{allowed: true, remaining: cap})
			return
		}
		for _, n := range []int64{cap + 1, 1 << 42, math.MaxInt64} {
			d := must(r.take(0, n))
			if d.Allowed || d.Reason != NeverFits || d.RetryAfter != Never || d.Remaining != cap || d.ResetAfter != 0 || !errors.Is(d.Err(), ErrNeverFits) {
				t.Errorf("cost %d: %+v, %v", n, d, d.Err())
			}
		}
		if d := must(r.take(0, cap)); !d.Allowed {
			t.Errorf("all that fits, after it: %+v", d)
		}
	}),
	"negative cost": each(func(t *testing.T, text string, cap int64) {
		r := start(t, text)
		for _, n := range []int64{-1, math.MinInt64} {
			if d := must(r.take(0, n)); d.Allowed || d.Reason != BadCost || d.RetryAfter != Never || !errors.Is(d.Err(), ErrCost) {
				t.Errorf("cost %d: %+v", n, d)
			}
		}
		if d := must(r.take(0, 0)); d.Remaining != cap {
			t.Errorf("after it: %+v", d)
		}
	}),
	"shortest and longest period": {
		"bucket":          periods("3/%s burst 3", 1),
		"queue":           periods("3/%s queue 2", 1),
		"fixed window":    periods("3/%s fixed", 1),
		"sliding counter": periods("3/%s sliding", time.Millisecond),
		"sliding log":     periods("3/%s log", 1),
		"concurrency":     periods("3 at once for %s", 1),
		"unlimited":       func(t *testing.T) { impossible(t, Limit{Algorithm: Unlimited, Period: time.Second}) },
	},
	"largest rate": {
		"bucket":          rates("%d/s burst 7", 1<<42-1),
		"queue":           rates("%d/s queue 7", 1<<42-1),
		"fixed window":    rates("%d/s fixed", 1<<42-1),
		"sliding counter": rates("%d/s sliding", 1<<32-1),
		"sliding log":     rates("%d/s log", 65536),
		"concurrency":     rates("%d at once", 1<<20),
		"unlimited":       func(t *testing.T) { impossible(t, Limit{Algorithm: Unlimited, Rate: 1}) },
	},
	"idle for a century": each(func(t *testing.T, text string, cap int64) {
		r := start(t, text)
		must(r.take(0, min(cap, 1<<40)))
		expect(t, r, Instant(century), 0, says{allowed: true, remaining: cap})
		if d := must(r.take(Instant(century), min(cap, 1<<40))); !d.Allowed {
			t.Errorf("all that fits: %+v", d)
		}
		if d := must(r.take(Instant(century), 1)); d.Allowed != (cap == math.MaxInt64) {
			t.Errorf("one more: %+v", d)
		}
	}),
	"clock back": each(func(t *testing.T, text string, cap int64) {
		r, still := start(t, text), start(t, text)
		for _, c := range []struct {
			at Instant
			n  int64
		}{{10, 3}, {0, 1}, {10, 1}, {-1 << 62, 1}, {math.MinInt64, 2}, {10, 1}, {9, 1}} {
			got, want := must(r.take(Instant(time.Second)+c.at, c.n)), must(still.take(Instant(time.Second)+10, c.n))
			got.Slot, want.Slot, got.At, want.At = 0, 0, 0, 0
			if got != want {
				t.Errorf("%d at %d: got %+v, want what it says at 10: %+v", c.n, c.at, got, want)
			}
		}
	}),
	"clock to the end of time": each(func(t *testing.T, text string, cap int64) {
		r := start(t, text)
		must(r.take(0, 1))
		if d := must(r.take(math.MaxInt64, min(cap, 1<<40))); !d.Allowed {
			t.Errorf("all that fits: %+v", d)
		}
		if d := must(r.take(math.MaxInt64, 1)); d.Allowed != (cap == math.MaxInt64) || !d.Allowed && (d.RetryAfter < 1 || d.Remaining != 0) {
			t.Errorf("one more: %+v", d)
		}
	}),
	"settled above what there is": each(func(t *testing.T, text string, cap int64) {
		if text == "7 at once" || cap == math.MaxInt64 {
			return // nobody is inside who could use more
		}
		r := start(t, text)
		if err := r.settle(0, 0, cap+2); err != nil {
			t.Fatal(err)
		}
		if d := must(r.take(0, 1)); d.Allowed || d.Remaining != 0 {
			t.Errorf("in debt: %+v", d)
		}
		if err := r.settle(0, 0, -2); err != nil {
			t.Fatal(err)
		}
		if d := must(r.take(0, 1)); d.Allowed || d.Remaining != 0 {
			t.Errorf("just not in debt: %+v", d)
		}
	}),
	"given back more than was taken": each(func(t *testing.T, text string, cap int64) {
		if cap == math.MaxInt64 {
			return
		}
		r := start(t, text)
		must(r.take(0, 2))
		for range 3 {
			if err := r.settle(0, 0, math.MinInt64); err != nil {
				t.Fatal(err)
			}
		}
		expect(t, r, 0, 0, says{allowed: true, remaining: cap})
	}),
}

const century = 100 * 365 * 24 * time.Hour

// each tries an edge on one limit of every algorithm.
func each(f func(t *testing.T, text string, cap int64)) map[string]func(*testing.T) {
	all := map[string]func(*testing.T){}
	for _, c := range []struct {
		name, text string
		cap        int64
	}{
		{"bucket", "7/s burst 7", 7},
		{"queue", "7/s queue 6", 7},
		{"fixed window", "7/s fixed", 7},
		{"sliding counter", "7/s sliding", 7},
		{"sliding log", "7/s log", 7},
		{"concurrency", "7 at once", 7},
		{"unlimited", "unlimited", math.MaxInt64},
	} {
		all[c.name] = func(t *testing.T) { f(t, c.text, c.cap) }
	}
	return all
}

// start returns the pure way to carry a limit out.
func start(t *testing.T, text string) run {
	t.Helper()
	for name, r := range runs(t, mustMeter(t, text).Limit()) {
		if name != "memory" {
			return r
		}
	}
	t.Fatal("no way to carry out", text)
	return nil
}

func must(d Decision, err error) Decision {
	if err != nil {
		panic(err)
	}
	return d
}

type says struct {
	allowed      bool
	remaining    int64
	retry, reset time.Duration
}

func expect(t *testing.T, r run, at Instant, n int64, want says) {
	t.Helper()
	d := must(r.take(at, n))
	if got := (says{d.Allowed, d.Remaining, d.RetryAfter, d.ResetAfter}); got != want {
		t.Errorf("cost %d at %d: got %+v, want %+v", n, at, got, want)
	}
}

// admitsNothing: whatever costs anything is refused for ever.
func admitsNothing(t *testing.T, text string) {
	t.Helper()
	r := start(t, text)
	expect(t, r, 0, 0, says{allowed: true})
	expect(t, r, 0, 1, says{retry: Never})
	expect(t, r, Instant(century), 1, says{retry: Never})
	if d := must(r.take(Instant(century), 1)); !errors.Is(d.Err(), ErrNeverFits) {
		t.Errorf("%v", d.Err())
	}
}

// refuses: the text is an error that says why.
func refuses(t *testing.T, text string) {
	t.Helper()
	if l, err := ParseLimit(text); err == nil {
		t.Errorf("%q gave %v", text, l)
	}
}

func impossible(t *testing.T, l Limit) {
	t.Helper()
	if err := l.Validate(); !errors.Is(err, ErrLimit) {
		t.Errorf("%+v: %v, want ErrLimit", l, err)
	}
}

func noBurst(a Algorithm) func(*testing.T) {
	return func(t *testing.T) {
		l := Limit{Algorithm: a, Rate: 1, Period: time.Second}
		if err := l.Validate(); err != nil {
			t.Error(err)
		}
		l.Burst = 1
		impossible(t, l)
	}
}

// periods tries a limit of three at the ends of what its period can be, and
// beyond them.
func periods(form string, shortest time.Duration) func(*testing.T) {
	return func(t *testing.T) {
		for _, p := range []time.Duration{shortest, maxPeriod} {
			r := start(t, strings.Replace(form, "%s", formatPeriod(p), 1))
			for i := range int64(3) {
				if d := must(r.take(0, 1)); !d.Allowed || d.Remaining != 2-i || d.ResetAfter < 1 || d.ResetAfter > 2*p {
					t.Errorf("period %v, %d of 3: %+v", p, i+1, d)
				}
			}
			d := must(r.take(0, 1))
			if d.Allowed || d.RetryAfter < 1 || d.RetryAfter > 2*p {
				t.Fatalf("period %v, fourth of 3: %+v", p, d)
			}
			if e := must(r.take(Instant(d.RetryAfter)-1, 1)); e.Allowed {
				t.Errorf("period %v, before %v: %+v", p, d.RetryAfter, e)
			}
			if e := must(r.take(Instant(d.RetryAfter), 1)); !e.Allowed {
				t.Errorf("period %v, after %v: %+v", p, d.RetryAfter, e)
			}
		}
		for _, p := range []time.Duration{0, -1, shortest - 1, maxPeriod + 1} {
			l := mustMeter(t, strings.Replace(form, "%s", "s", 1)).Limit()
			l.Period = p
			impossible(t, l)
		}
	}
}

// rates tries the largest rate, and one more.
func rates(form string, most int64) func(*testing.T) {
	return func(t *testing.T) {
		r := start(t, fmt.Sprintf(form, most))
		cap := mustMeter(t, fmt.Sprintf(form, most)).Limit().Cap()
		for range 2 {
			if d := must(r.take(0, cap)); !d.Allowed || d.Remaining != 0 || d.ResetAfter < 1 {
				t.Errorf("all that fits: %+v", d)
			}
			if d := must(r.take(0, 1)); d.Allowed || d.RetryAfter < 1 {
				t.Errorf("one more: %+v", d)
			}
			if err := r.settle(0, 0, -cap); err != nil {
				t.Fatal(err)
			}
		}
		refuses(t, fmt.Sprintf(form, most+1))
	}
}

func TestEdges(t *testing.T) {
	doc, err := os.ReadFile("docs/algorithms.md")
	if err != nil {
		t.Fatal(err)
	}
	for edge, cells := range edges {
		if !strings.Contains(string(doc), "\n| "+edge+" |") {
			t.Errorf("docs/algorithms.md has no row %q", edge)
		}
		for a := range algorithms {
			cell := cells[a.String()]
			if cell == nil {
				t.Errorf("%s: nothing for a %s", edge, a)
				continue
			}
			t.Run(edge+"/"+a.String(), cell)
		}
	}
}

// A charge under no limit has no state, whoever charges the same key beside it.
func TestUnlimitedBesideOthers(t *testing.T) {
	mem, sp := NewMemory(), mustSpace(t, SpaceOptions{MaxKeys: 1, TTL: time.Minute})
	some, all := mustMeter(t, "2/h"), mustMeter(t, "unlimited")
	for i, k := range []Key{{7, 7}, {8, 8}} { // an entry, then the shared bucket
		for n := range 3 {
			d := takeAll(t, mem, 1e9, Charge{Space: sp, Key: k, Meter: some, Ask: Ask{N: 1}}, Charge{Space: sp, Key: k, Meter: all, Ask: Ask{N: 5}})
			if d[0].Allowed != (n < 2) || d[0].Overflow != (i == 1) || !d[1].Allowed || d[1].Overflow {
				t.Errorf("key %d, request %d: %+v", i, n, d)
			}
		}
	}
}
