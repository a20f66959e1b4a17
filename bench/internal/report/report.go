// Package report turns the rounds of a run into numbers, tables and verdicts.
package report

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
)

// Median returns the middle of v, or the mean of the two that are in the middle;
// NaN if there is nothing.
func Median(v []float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	v = slices.Sorted(slices.Values(v))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// Stolen is how many times its quiet value a row that does nothing may cost
// beside a round, before that counts as disturbed: a core was stolen.
const Stolen = 1.3

// A Round is what one round cost, and whether the machine was disturbed.
type Round struct {
	Cost float64
	Void bool
}

// Value returns the median of the quiet rounds. Where fewer than half were quiet
// it is the cheapest round of all, and sure is false: a disturbance only ever
// adds. It is NaN if there are none.
func Value(rounds []Round) (cost float64, sure bool) {
	var quiet, all []float64
	for _, r := range rounds {
		all = append(all, r.Cost)
		if !r.Void {
			quiet = append(quiet, r.Cost)
		}
	}
	switch {
	case len(all) == 0:
		return math.NaN(), false
	case 2*len(quiet) < len(all):
		return slices.Min(all), false
	}
	return Median(quiet), true
}

// A Claim is what a number of a run is held against.
type Claim struct {
	What      string
	Got, Goal float64
	// Fail is what Got may not exceed: beyond it is a factor. It is infinite where
	// nothing fails.
	Fail float64
	// Counted says that Got is a number of things (bytes, allocations, calls) and
	// not of time: however busy the machine is, it is the same.
	Counted bool
	// AtLeast reverses the claim: Got is to be Goal or more, and fails below Fail.
	AtLeast bool
}

// verdict returns what became of c, and whether it fails; strict as for [Judge].
func (c *Claim) verdict(strict bool) (string, bool) {
	beyond := func(bound float64) bool {
		if c.AtLeast {
			return c.Got < bound
		}
		return c.Got > bound
	}
	switch {
	case math.IsNaN(c.Got):
		return "NOT MEASURED", true
	case beyond(c.Fail):
		return "OFF BY A FACTOR", strict || c.Counted
	case beyond(c.Goal):
		return "missed", false
	}
	return "met", false
}

// Judge writes a table of claims, and returns an error if one is off by a factor
// or was not measured. A claim about time fails only where strict is true: in a
// run of seconds a core that is stolen for one of them makes a factor.
func Judge(w io.Writer, claims []Claim, strict bool) error {
	if len(claims) == 0 {
		return nil
	}
	rows := [][]string{{"claim", "is", "goal", "fails beyond", ""}}
	off := 0
	for i := range claims {
		c := &claims[i]
		verdict, fails := c.verdict(strict)
		if fails {
			off++
		}
		sign := "≤ "
		if c.AtLeast {
			sign = "≥ "
		}
		rows = append(rows, []string{c.What, number(c.Got), sign + number(c.Goal), number(c.Fail), verdict})
	}
	fmt.Fprintln(w)
	Table(w, rows)
	if off > 0 {
		return fmt.Errorf("bench: %d claims are off by a factor or not measured", off)
	}
	return nil
}

// number shows three digits, or all of a large whole.
func number(v float64) string {
	switch {
	case math.IsInf(v, 0):
		return "–"
	case math.Abs(v) >= 1000:
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}

// Table writes rows as a Markdown table, the first row as its head, columns
// aligned for the terminal.
func Table(w io.Writer, rows [][]string) {
	width := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, s := range row {
			width[i] = max(width[i], len([]rune(s)), 3)
		}
	}
	for n, row := range rows {
		for i, s := range row {
			pad := strings.Repeat(" ", width[i]-len([]rune(s)))
			if i == 0 {
				fmt.Fprint(w, "| ", s, pad)
			} else {
				fmt.Fprint(w, " | ", pad, s)
			}
		}
		fmt.Fprintln(w, " |")
		if n == 0 {
			for i, n := range width {
				right := ":"
				if i == 0 {
					right = "-"
				}
				fmt.Fprint(w, "|-", strings.Repeat("-", n), right)
			}
			fmt.Fprintln(w, "|")
		}
	}
}
