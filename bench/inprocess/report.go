package main

import (
	"fmt"
	"io"
	"math"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/spillgate/spillgate/bench/internal/report"
)

// report writes the tables of a run as Markdown.
func (r *results) report(w io.Writer, all []contestant) {
	all = slices.DeleteFunc(slices.Clone(all), func(c contestant) bool { return !r.met(c) })
	fmt.Fprintf(w, "%s, %d of %d cores, %s keys of %d bytes, %d rounds\n", runtime.Version(), cores, runtime.NumCPU(), count(r.known), keySize, r.rounds)
	fmt.Fprintf(w, "null row when quiet: %.2f ns one goroutine, %.2f ns two (wall time over all decisions)\n", r.watch.quiet[1], r.watch.quiet[cores])
	fmt.Fprintf(w, "peers: %s\n", strings.Join(versions(all), ", "))

	fmt.Fprint(w, "\n## A decision, ns\n\n"+
		"Median of the rounds in which the null row stayed within 1.3 times its quiet value. ~ marks the fastest round where fewer than half were quiet.\n\n")
	r.decisions(w, all, func(c contestant, at workload) string {
		v, sure, ok := r.value(cell{c.name, at})
		return number3(v, sure, ok)
	})
	fmt.Fprint(w, "\n## The same, in times the least table with SipHash-1-3\n\n")
	r.decisions(w, all, func(c contestant, at workload) string {
		v, sure, ok := r.value(cell{c.name, at})
		base, sure2, ok2 := r.value(cell{leastSip, at})
		return number3(v/base, sure && sure2, ok && ok2)
	})
	r.best(w, all)
	r.refusals(w, all)
	r.weights(w, all)
	r.slowness(w, all)
	r.states(w, all)
	r.voids(w, all)
}

func (r *results) decisions(w io.Writer, all []contestant, show func(contestant, workload) string) {
	rows := [][]string{{""}}
	for at := range workloads {
		rows[0] = append(rows[0], at.String())
	}
	for _, c := range all {
		row := []string{c.name}
		any := false
		for at := range workloads {
			s := show(c, at)
			any = any || s != ""
			row = append(row, s)
		}
		if any {
			rows = append(rows, row)
		}
	}
	report.Table(w, rows)
}

// met reports whether anything of c was measured.
func (r *results) met(c contestant) bool {
	for at := range workloads {
		if len(r.samples[cell{c.name, at}]) > 0 {
			return true
		}
	}
	_, weighed := r.memory[c.name]
	_, kept := r.state[c.name]
	return weighed || kept || len(r.slowest[c.name]) > 0
}

// best names the peer to beat at each workload.
func (r *results) best(w io.Writer, all []contestant) {
	var parts []string
	for at := range workloads {
		best, ok := bestPeer(at)(r)
		if !ok {
			continue
		}
		for _, c := range all {
			if v, _, ok := r.value(cell{c.name, at}); ok && c.exact && c.kind == peer && v == best {
				parts = append(parts, fmt.Sprintf("%v: %s (%.0f)", at, c.name, v))
			}
		}
	}
	if parts != nil {
		fmt.Fprintf(w, "\nBest peer that keeps a state of its own for every key: %s.\n", strings.Join(parts, "; "))
	}
	fmt.Fprint(w, "\nNotes:\n\n")
	for _, c := range all {
		if c.note != "" {
			fmt.Fprintf(w, "- %s: %s.\n", c.name, c.note)
		}
	}
}

// refusals tells who refused requests although no limit was reached.
func (r *results) refusals(w io.Writer, all []contestant) {
	for _, c := range all {
		for at := range workloads {
			var worst float64
			for _, s := range r.samples[cell{c.name, at}] {
				worst = max(worst, s.refused)
			}
			if worst > 0 {
				fmt.Fprintf(w, "- %s refused %.2g %% of requests within their limit (%v).\n", c.name, 100*worst, at)
			}
		}
	}
}

func (r *results) weights(w io.Writer, all []contestant) {
	rows := [][]string{{"", "bytes a key", "worst while growing", "for each that comes after", "one garbage collection, ms"}}
	for _, c := range all {
		if f, ok := r.memory[c.name]; ok {
			growing := "fixed"
			if c.kind != floor {
				growing = fmt.Sprintf("%.1f", f.growing)
			}
			rows = append(rows, []string{c.name, fmt.Sprintf("%.1f", f.full), growing, fmt.Sprintf("%.2f", f.more), ms(f.collect)})
		}
	}
	if len(rows) > 1 {
		fmt.Fprintf(w, "\n## Memory at %s keys\n\nLive heap and stacks after a garbage collection, everything counted.\n\n", count(r.known))
		report.Table(w, rows)
	}
}

func (r *results) slowness(w io.Writer, all []contestant) {
	rows := [][]string{{"", "while growing", "while all expire"}}
	for _, c := range all {
		growing, ok := r.slow(c.name, inGrowth)
		expiring, _ := r.slow(c.name, inExpiry)
		if ok {
			rows = append(rows, []string{c.name, ms(growing), ms(expiring)})
		}
	}
	if len(rows) > 1 {
		fmt.Fprintf(w, "\n## The slowest single decision, ms\n\nThe best of %d rounds: what a limiter does by design shows in each. The null row is the machine's own noise.\n\n", r.restless)
		report.Table(w, rows)
	}
}

// voids tells how disturbed the machine was.
func (r *results) voids(w io.Writer, all []contestant) {
	var void, total int
	for at, samples := range r.samples {
		for _, s := range samples {
			total++
			if r.watch.void(at.workload.goroutines(), s) {
				void++
			}
		}
	}
	if total > 0 {
		fmt.Fprintf(w, "\n%d of %d measurements were void: a core was stolen.\n", void, total)
	}
}

// judge holds the ratios against the numbers. Where the run is partial, those
// that were not measured are left out; strict as for [report.Judge].
func (r *results) judge(w io.Writer, ratios []ratio, partial, strict bool) error {
	var claims []report.Claim
	for _, q := range ratios {
		if v := q.of(r); !partial || !math.IsNaN(v) {
			claims = append(claims, report.Claim{What: q.what, Got: v, Goal: q.goal, Fail: q.fail, Counted: q.counted})
		}
	}
	return report.Judge(w, claims, strict)
}

// versions lists the peers' modules with the versions that were built in.
func versions(all []contestant) (list []string) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return nil
	}
	for _, dep := range info.Deps {
		for _, c := range all {
			if c.module == dep.Path {
				list = append(list, dep.Path+" "+dep.Version)
				break
			}
		}
	}
	return list
}

// number3 shows three digits of what is known.
func number3(v float64, sure, ok bool) string {
	if !ok || math.IsNaN(v) {
		return ""
	}
	digits := max(0, 2-int(math.Floor(math.Log10(max(v, 0.01)))))
	s := fmt.Sprintf("%.*f", digits, v)
	if !sure {
		s = "~" + s
	}
	return s
}

func ms(d time.Duration) string { return fmt.Sprintf("%.2f", d.Seconds()*1e3) }

// count shows a round number of keys.
func count(n int) string {
	switch {
	case n >= 1e6 && n%1e5 == 0:
		return fmt.Sprintf("%gM", float64(n)/1e6)
	case n >= 1e3 && n%1e3 == 0:
		return fmt.Sprintf("%gk", float64(n)/1e3)
	}
	return fmt.Sprint(n)
}
