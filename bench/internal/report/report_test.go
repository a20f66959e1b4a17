package report

import (
	"math"
	"strings"
	"testing"
)

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		of   []float64
		want float64
	}{
		{[]float64{3}, 3},
		{[]float64{30, 10, 20}, 20},
		{[]float64{40, 10, 30, 20}, 25},
	} {
		if got := Median(c.of); got != c.want {
			t.Errorf("the median of %v is %v, want %v", c.of, got, c.want)
		}
	}
	if got := Median(nil); !math.IsNaN(got) {
		t.Errorf("the median of nothing is %v", got)
	}
}

func TestValueLeavesVoidRoundsOut(t *testing.T) {
	for _, c := range []struct {
		name   string
		rounds []Round
		want   float64
		sure   bool
	}{
		{"median of quiet rounds", []Round{{30, false}, {10, false}, {20, false}}, 20, true},
		{"void rounds don't count", []Round{{2000, true}, {10, false}, {20, false}, {5000, true}}, 15, true},
		{"mostly void: the cheapest", []Round{{2000, true}, {1500, true}, {20, false}}, 20, false},
		{"all void: the cheapest", []Round{{2000, true}, {1500, true}}, 1500, false},
	} {
		if got, sure := Value(c.rounds); got != c.want || sure != c.sure {
			t.Errorf("%s: got %v, sure %v; want %v, %v", c.name, got, sure, c.want, c.sure)
		}
	}
	if got, _ := Value(nil); !math.IsNaN(got) {
		t.Errorf("no rounds have the value %v", got)
	}
}

func TestJudge(t *testing.T) {
	inf := math.Inf(1)
	for _, c := range []struct {
		claim   Claim
		verdict string
		fails   bool // where strict
		always  bool // also where not
	}{
		{Claim{Got: 3, Goal: 3, Fail: 6}, "met", false, false},
		{Claim{Got: 3, Goal: 2, Fail: 3}, "missed", false, false},
		{Claim{Got: 3, Goal: 1, Fail: 2}, "OFF BY A FACTOR", true, false},
		{Claim{Got: 3, Goal: 1, Fail: 2, Counted: true}, "OFF BY A FACTOR", true, true},
		{Claim{Got: 2, Goal: 1, Fail: 2, Counted: true}, "missed", false, false},
		{Claim{Got: 3, Goal: 1, Fail: inf}, "missed", false, false},
		{Claim{Got: math.NaN(), Goal: 1, Fail: 2}, "NOT MEASURED", true, true},
		{Claim{Got: 3, Goal: 3, Fail: 1, AtLeast: true}, "met", false, false},
		{Claim{Got: 2, Goal: 3, Fail: 1, AtLeast: true}, "missed", false, false},
		{Claim{Got: 0.5, Goal: 3, Fail: 1, AtLeast: true}, "OFF BY A FACTOR", true, false},
		{Claim{Got: 0.5, Goal: 3, Fail: -inf, AtLeast: true}, "missed", false, false},
		{Claim{Got: math.NaN(), Goal: 3, Fail: 1, AtLeast: true}, "NOT MEASURED", true, true},
	} {
		for strict, fails := range map[bool]bool{true: c.fails, false: c.always} {
			var out strings.Builder
			if err := Judge(&out, []Claim{c.claim}, strict); (err != nil) != fails || !strings.Contains(out.String(), c.verdict) {
				t.Errorf("%+v, strict %v: %v, want %q in:\n%s", c.claim, strict, err, c.verdict, out.String())
			}
		}
	}
}
