package usage

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func account(t *testing.T, format *Format, input, output string) *Account {
	t.Helper()
	a := &Account{Spec: Spec{Format: format, Request: request, Weights: Weights{100, 100, 100, 100, 100}}}
	var err error
	if a.Input, err = ParseInput(input); err != nil {
		t.Fatal(err)
	}
	if a.Output, err = ParseOutput(output); err != nil {
		t.Fatal(err)
	}
	return a
}

func TestEstimates(t *testing.T) {
	for _, c := range []struct {
		input, output string
		asked         Asked
		want          Estimate
	}{
		{"bytes/4", "1000", Asked{400, -1}, Estimate{100, 1000, 1100}},
		{"bytes/4", "1000", Asked{401, 5}, Estimate{101, 1000, 1101}},
		{"bytes/1", "max_tokens else 7", Asked{3, 5}, Estimate{3, 5, 8}},
		{"bytes/100", "max_tokens else 7", Asked{3, -1}, Estimate{1, 7, 8}},
		{"500", "max_tokens else p95 else 9", Asked{1 << 40, 0}, Estimate{500, 0, 500}},
		{"0", "p95 else max_tokens else 9", Asked{3, 4}, Estimate{0, 4, 4}},
		{"bytes/1", "0", Asked{1 << 60, -1}, Estimate{maxCount, 0, maxCount}},
	} {
		if got := account(t, OpenAI, c.input, c.output).Estimate(c.asked); got != c.want {
			t.Errorf("%s, %s, %+v: %+v, want %+v", c.input, c.output, c.asked, got, c.want)
		}
	}
}

func TestEstimatesThatAreRefused(t *testing.T) {
	for _, s := range []string{"", "bytes", "bytes/", "bytes/0", "bytes/101", "bytes/+4", "byte/4", "-1", "1.5", "max_tokens", "10000000000"} {
		if _, err := ParseInput(s); err == nil || !strings.Contains(err.Error(), "want bytes/N") {
			t.Errorf("input %q: %v", s, err)
		}
	}
	for s, want := range map[string]string{
		"":                             "want max_tokens, p95 or a number",
		"max_token else 5":             "want max_tokens, p95 or a number",
		"max_tokens, 5":                "want max_tokens, p95 or a number",
		"max_tokens else -5":           "want max_tokens, p95 or a number",
		"max_tokens":                   "end with a number",
		"p95 else max_tokens":          "end with a number",
		"5 else p95 else 6":            "never used",
		"p95 else p95 else 6":          "twice",
		"max_tokens else 5 else p95":   "never used",
		"max_tokens else 10_000":       "want max_tokens",
		"max_tokens else 100000000000": "want max_tokens",
	} {
		if _, err := ParseOutput(s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("output %q: %v, want %q", s, err, want)
		}
	}
}

func TestRequestsAreRead(t *testing.T) {
	for body, want := range map[string]int64{
		`{"model":"m","messages":[{"role":"user","content":"\"max_tokens\": 9"}],"max_tokens":128}`: 128,
		`{"max_completion_tokens":256,"messages":[]}`:                                               256,
		`{"max_output_tokens":512,"input":"hi"}`:                                                    512,
		`{"max_tokens":1,"max_tokens":4096}`:                                                        4096, // servers take the last; the greatest is safe
		`{"max_tokens":100,"n":3}`:                                                                  300,
		`{"n":1000000000,"max_tokens":1000000000}`:                                                  maxCount,
		`{"n":0,"max_tokens":7}`:                                                                    7,
		`{"tools":[{"max_tokens":9}],"options":{"max_tokens":9}}`:                                   -1,
		`{"max_tokens":-5}`:                                                                         -1,
		`{"max_tokens":1e30}`:                                                                       -1,
		`{"max_tokens":"5"}`:                                                                        -1,
		`{"max_tokens":null}`:                                                                       -1,
		`{"max_tokens":0}`:                                                                          0,
		``:                                                                                          -1,
		`[{"max_tokens":5}]`:                                                                        5,
		`max_tokens=5`:                                                                              -1,
		`{"messages":["half of`:                                                                     -1,
	} {
		for _, size := range []int{1, 5, 1 << 20} {
			var a Asker
			a.Begin(request)
			for rest := []byte(body); len(rest) > 0; rest = rest[min(size, len(rest)):] {
				a.Write(rest[:min(size, len(rest))])
			}
			if got := a.Most(); got != want {
				t.Errorf("%s: %d, want %d", body, got, want)
			}
		}
	}
}

// TestP95 holds the order that is kept against sorting.
func TestP95(t *testing.T) {
	var r recent
	var all []int64
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 1000 {
		if p, ok := r.p95(); ok != (i >= enough) {
			t.Fatalf("%d outputs: p95 %d is known: %v", i, p, ok)
		} else if ok {
			last := slices.Sorted(slices.Values(all[max(0, i-remembered):]))
			if want := last[(len(last)*95+99)/100-1]; p != want {
				t.Fatalf("%d outputs: %d, want %d", i, p, want)
			}
		}
		v := random.Int64N(50)
		all = append(all, v)
		r.add(v)
	}
}

func TestSettling(t *testing.T) {
	e := Estimate{Input: 10, Output: 100, Units: 110}
	whole := Counts{Input: 12, Output: 30, InputTold: true, OutputTold: true, Final: true}
	begun := Counts{Input: 12, Output: 1, InputTold: true, OutputTold: true}
	kept := Counts{Input: 12, Output: 30, InputTold: true, OutputTold: true, Kept: true}
	for _, c := range []struct {
		name   string
		answer Answer
		keep   bool
		units  int64
		want   Totals
	}{
		{"told", Answer{200, true, whole}, false, 42, Totals{Told: 1, Back: 68}},
		{"told, then left", Answer{200, false, whole}, false, 42, Totals{Told: 1, Back: 68}},
		{"told to the end", Answer{200, true, kept}, false, 42, Totals{Told: 1, Back: 68}},
		{"told so far, then broken off", Answer{200, false, kept}, false, 112, Totals{Cut: 1, Over: 2}},
		{"begun, then broken off", Answer{200, false, begun}, false, 112, Totals{Cut: 1, Over: 2}},
		{"begun, then ended", Answer{200, true, begun}, false, 112, Totals{Untold: 1, Over: 2}},
		{"more than the estimate, then broken off", Answer{200, false, Counts{Output: 5000, OutputTold: true, Kept: true}}, false, 5010, Totals{Cut: 1, Over: 4900}},
		{"nothing told", Answer{200, true, Counts{}}, false, 110, Totals{Untold: 1}},
		{"nothing told, broken off", Answer{200, false, Counts{}}, false, 110, Totals{Cut: 1}},
		{"nothing began", Answer{0, false, Counts{}}, false, 110, Totals{Cut: 1}},
		{"nothing to read", Answer{200, true, Counts{Opaque: true}}, false, 110, Totals{Opaque: 1}},
		{"absurd", Answer{200, true, Counts{Output: 5, OutputTold: true, Final: true, Absurd: true}}, false, 110, Totals{Absurd: 1}},
		{"absurd, and more was seen", Answer{200, true, Counts{Input: 500, InputTold: true, Absurd: true}}, false, 500, Totals{Absurd: 1, Over: 390}},
		{"an error", Answer{429, true, Counts{}}, false, 0, Totals{Free: 1, Back: 110}},
		{"an error that can't be read", Answer{502, true, Counts{Opaque: true}}, false, 0, Totals{Free: 1, Back: 110}},
		{"an error that tells", Answer{500, true, whole}, false, 42, Totals{Told: 1, Back: 68}},
		{"an error, kept", Answer{500, true, Counts{}}, true, 110, Totals{Untold: 1}},
		{"the upstream took too long", Answer{504, true, Counts{}}, false, 110, Totals{Untold: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := account(t, OpenAI, "bytes/4", "100")
			a.Keep = c.keep
			if got := a.Settle(e, c.answer); got != c.units {
				t.Errorf("%d units, want %d", got, c.units)
			}
			c.want.Reserved = e.Units
			if got := a.Totals(); got != c.want {
				t.Errorf("%+v, want %+v", got, c.want)
			}
			if c.units-e.Units != c.want.Over-c.want.Back {
				t.Errorf("the totals don't add up")
			}
		})
	}
}

func TestWeights(t *testing.T) {
	c := Counts{Input: 1000, Cached: 600, Written: 100, Output: 50, Reasoning: 40}
	for _, x := range []struct {
		w    Weights
		want int64
	}{
		{Weights{100, 100, 100, 100, 100}, 1050},
		{Weights{100, 10, 125, 400, 500}, 300 + 60 + 125 + 40 + 200},
		{Weights{0, 0, 0, 1, 0}, 1}, // rounded up
		{Weights{}, 0},
		{Weights{Output: 100}, 10},
	} {
		if got := x.w.of(&c); got != x.want {
			t.Errorf("%+v: %d, want %d", x.w, got, x.want)
		}
	}
	// Parts that are more than the whole are no more than the whole.
	c = Counts{Input: 10, Cached: 50, Output: 5, Reasoning: 9}
	if got := (&Weights{100, 10, 100, 100, 100}).of(&c); got != 1+5 {
		t.Errorf("%d", got)
	}
}

// TestP95BecomesTheEstimate settles 20 answers, and estimates by them.
func TestP95BecomesTheEstimate(t *testing.T) {
	a := account(t, OpenAI, "0", "p95 else 1000")
	for i := range 20 {
		if got := a.Estimate(Asked{Most: -1}); got.Output != 1000 {
			t.Fatalf("after %d answers: %+v", i, got)
		}
		a.Settle(Estimate{Output: 1000, Units: 1000}, Answer{200, true, Counts{Output: int64(i), OutputTold: true, Final: true}})
		a.Settle(Estimate{}, Answer{200, true, Counts{}}) // tells nothing, and counts for nothing
	}
	if got := a.Estimate(Asked{Most: -1}); got.Output != 18 {
		t.Errorf("%+v", got)
	}
}

func TestPathsThatAreRefused(t *testing.T) {
	for _, c := range []struct {
		quantity int
		path     string
	}{
		{Input, ""}, {Input, "a..b"}, {Input, "a."}, {Output, "a b"}, {Output, `a"`}, {Most, "a."},
		{Output, "a.b.c.d.e.f.g.h.i"}, {Output, strings.Repeat("a", 65)},
	} {
		list := make([][]string, len(Quantities))
		list[Output] = []string{"usage.out"}
		list[c.quantity] = append(list[c.quantity], c.path)
		if _, _, err := NewFormat(list); err == nil {
			t.Errorf("%q is taken", c.path)
		}
	}
	if _, _, err := NewFormat([][]string{Cached: {"a.b"}, Most: {"c"}}); err == nil {
		t.Error("a format without input and output is taken")
	}
	many := make([][]string, len(Quantities))
	for i := range 33 {
		many[Output] = append(many[Output], strings.Repeat("x", i+1))
	}
	if _, _, err := NewFormat(many); err == nil {
		t.Error("33 paths are taken")
	}
}
