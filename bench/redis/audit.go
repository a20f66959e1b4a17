package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/bench/internal/report"
)

// noise is what an auditor may see too much, as a share: it stamps an admission when
// the caller hears of it, so later than the decision by what the way back takes.
const noise = 0.015

// audits holds what was admitted of one flooded key against its limit: of the laps on
// leases, which were on a bucket, and of laps of their own on an exact bucket and on
// fixed windows. An auditor counts; it does not matter how fast the machine is.
func (f *fleet) audits(leased []lap, length time.Duration) ([]report.Claim, error) {
	length = max(length, time.Second)
	bucket := limitOf(flooded)
	window := spillgate.Limit{Algorithm: spillgate.FixedWindow, Rate: bucket.Rate, Period: bucket.Period}
	var worst, exact, edge float64
	for _, l := range leased {
		worst = max(worst, atOnce(l.stamps, bucket))
	}
	stores := make([]spillgate.Store, len(f.exact))
	for i, s := range f.exact {
		stores[i] = s
	}
	lapOf := func(limit spillgate.Limit) (lap, error) {
		decide, err := f.decider(flooded, limit, stores)
		if err != nil {
			return lap{}, err
		}
		return runLap(length, leaseCallers, true, 0, decide)
	}
	l, err := lapOf(bucket)
	if err != nil {
		return nil, err
	}
	exact = atOnce(l.stamps, bucket)
	// Two windows and more, so that there are edges.
	length *= 3
	if l, err = lapOf(window); err != nil {
		return nil, err
	}
	edge = inWindow(l, window)
	if l, err = f.leased(flooded, window, length, true, 0); err != nil {
		return nil, err
	}
	edge = max(edge, inWindow(l, window))

	claim := func(what string, got, share float64) report.Claim {
		most := float64(bucket.Rate) * (1 + share + noise)
		return report.Claim{What: fmt.Sprintf("%s, of %d, %.1f %% for noise", what, bucket.Rate, noise*100), Got: got, Goal: most, Fail: most, Counted: true}
	}
	return []report.Claim{
		claim("the auditor: exact, most at once", exact, 0),
		claim(fmt.Sprintf("the auditor: leases of %.0f %%, most at once", floodShare*100), worst, floodShare),
		claim("the auditor: exact and leases, most in a fixed window", edge, 0),
	}, nil
}

// atOnce returns the most that was admitted at once, beyond what was earned.
func atOnce(stamps []time.Duration, limit spillgate.Limit) float64 {
	slices.Sort(stamps)
	worst, least := 0.0, 0.0
	for i, at := range stamps {
		before := float64(i) - float64(limit.Rate)*at.Seconds()
		least = min(least, before)
		worst = max(worst, before+1-least)
	}
	return worst
}

// inWindow returns the most that was admitted in one window.
func inWindow(l lap, limit spillgate.Limit) (most float64) {
	m, err := limit.Meter()
	if err != nil {
		return most
	}
	counts := map[spillgate.Instant]float64{}
	for _, at := range l.stamps {
		start, _ := m.Window(spillgate.Instant(l.began.Add(at).UnixNano()))
		counts[start]++
		most = max(most, counts[start])
	}
	return most
}
