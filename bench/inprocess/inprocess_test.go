package main

import (
	"math"
	"strings"
	"testing"
	"time"
)

// TestContestantsLimit proves that each peer and our own is set up as the
// limit it is measured at: it admits a burst and not one more, key by key.
func TestContestantsLimit(t *testing.T) {
	const burst = 5
	s := setup{every: time.Hour, burst: burst, window: time.Hour, keys: 1024, idle: time.Hour, sweep: time.Hour}
	for _, c := range lineup() {
		decides := c.kind != floor || c.stores
		if !decides || c.even {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l, err := c.open(s)
			if err != nil {
				t.Fatal(err)
			}
			defer shut(l)
			for i := range burst + 3 {
				if got, want := l.Allow("0123456789abcdef"), i < burst; got != want {
					t.Errorf("try %d of a burst of %d: allowed %v, want %v", i+1, burst, got, want)
				}
			}
			if c.keyed && !l.Allow("fedcba9876543210") {
				t.Error("another key is refused")
			}
		})
	}
}

func TestLeastTableKeepsEveryKeyApart(t *testing.T) {
	const keys = 10_000
	l := newLeast(setup{every: time.Hour, burst: 1, keys: keys})
	forgotten := 0
	hash := func(i int) uint64 { return uint64(i+1) * 0x9e3779b97f4a7c15 }
	for i := range keys {
		if !l.take(hash(i)) {
			t.Fatalf("key %d is refused although it is new", i)
		}
	}
	for i := range keys {
		if l.take(hash(i)) {
			forgotten++
		}
	}
	if forgotten > keys/50 {
		t.Errorf("%d of %d keys were forgotten, want at most 2 %%", forgotten, keys)
	}
}

// fake returns results in which each contestant cost what is given, all
// rounds quiet but those of 1000 ns and more.
func fake(samples map[cell][]float64) *results {
	r := &results{watch: &watch{}, samples: map[cell][]sample{}}
	for i := range r.watch.quiet {
		r.watch.quiet[i] = 2
	}
	for at, costs := range samples {
		for _, v := range costs {
			s := sample{ns: v, null: 2}
			if v >= 1000 {
				s.null = 3
			}
			r.samples[at] = append(r.samples[at], s)
		}
	}
	return r
}

func TestValueLeavesVoidRoundsOut(t *testing.T) {
	at := cell{"a", hot1}
	got, sure, ok := fake(map[cell][]float64{at: {2000, 10, 20, 5000}}).value(at)
	if got != 15 || !sure || !ok {
		t.Errorf("got %v, sure %v, ok %v; want the median of the quiet rounds", got, sure, ok)
	}
	if _, _, ok := fake(nil).value(at); ok {
		t.Error("a cell without rounds has a value")
	}
}

func TestJudge(t *testing.T) {
	r := fake(map[cell][]float64{{"a", hot1}: {30}, {"b", hot1}: {10}})
	claim := func(over, under string, goal, fail float64) ratio {
		return ratio{"claim", ns(over, hot1), ns(under, hot1), goal, fail, false, false}
	}
	for _, c := range []struct {
		name    string
		ratio   ratio
		partial bool
		fails   bool
		verdict string
	}{
		{"met", claim("a", "b", 3, 6), false, false, "met"},
		{"missed by noise", claim("a", "b", 2, 4), false, false, "missed"},
		{"off by a factor", claim("a", "b", 1, 2), false, true, "OFF BY A FACTOR"},
		{"not measured", claim("a", "c", 1, 2), false, true, "NOT MEASURED"},
		{"not asked for", claim("a", "c", 1, 2), true, false, ""},
	} {
		var out strings.Builder
		if err := r.judge(&out, []ratio{c.ratio}, c.partial, true); (err != nil) != c.fails || !strings.Contains(out.String(), c.verdict) {
			t.Errorf("%s: %v, want %q in:\n%s", c.name, err, c.verdict, out.String())
		}
	}
	if v := claim("a", "b", 0, 0).of(r); math.Abs(v-3) > 1e-9 {
		t.Errorf("30 ns over 10 ns is %v", v)
	}
}

// TestBriefNamesExist catches a renamed contestant that -short would leave
// out in silence.
func TestBriefNamesExist(t *testing.T) {
	known := map[string]bool{}
	for _, c := range lineup() {
		if known[c.name] {
			t.Errorf("two contestants are called %q", c.name)
		}
		known[c.name] = true
	}
	for _, p := range phases {
		for _, name := range p.brief {
			if !known[name] {
				t.Errorf("phase %s: no contestant is called %q", p.name, name)
			}
		}
	}
}

// TestRun takes all contestants through all phases, in small.
func TestRun(t *testing.T) {
	all := lineup()
	tiny := scale{rounds: 1, hot: 100, known: 1000, draws: 100, fresh: 100, tries: 1, looks: 2}
	r, err := measureAll(tiny, all, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	r.report(&out, all)
	_ = r.judge(&out, append(harnessRatios(), ourRatios()...), true, true) // of so few rounds nothing is claimed
	for _, c := range all {
		if !strings.Contains(out.String(), "| "+c.name+" ") {
			t.Errorf("%s is missing in the report", c.name)
		}
		for at := range workloads {
			if got := len(r.samples[cell{c.name, at}]); got == 0 && (c.keyed || at <= hot2) {
				t.Errorf("%s was not measured at %v", c.name, at)
			}
		}
		if _, ok := r.memory[c.name]; ok != c.stores {
			t.Errorf("%s: weighed %v, want %v", c.name, ok, c.stores)
		}
	}
}
