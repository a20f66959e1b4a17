// Command middleware measures what HTTP middleware adds to a trivial handler,
// in one process and one run: ours beside that of the libraries that others
// publish, all with one limit a client address that no request reaches.
//
//	go run ./bench/middleware [-short] [-rounds N] [-cpuprofile FILE]
//
// What counts is processor time, garbage collection included, with 64 MiB of
// memory in use. Contestants take turns round by round. The bare handler is
// measured before and after each, and a round in which it cost more than 1.3
// times its quiet value is void: a core was stolen. The median of the rounds
// counts. The run fails (exit code 1) when a claim is off by a factor (with -short,
// only one of allocations).
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spillgate/spillgate/bench/internal/report"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// A workload is how many clients take turns.
type workload struct {
	name    string
	clients int
}

var workloads = []workload{{"1 client", 1}, {"100k clients", 100_000}}

func run() error {
	short := flag.Bool("short", false, "measure less, within half a minute")
	rounds := flag.Int("rounds", 9, "measure so many `rounds`")
	profile := flag.String("cpuprofile", "", "write a CPU profile of ours, one rule with fields, to `file` and measure nothing else")
	flag.Parse()
	if flag.NArg() > 0 || *rounds < 1 {
		return fmt.Errorf("bench: want flags only, and 1 round or more; see -help")
	}
	calls := 300_000
	if *short {
		calls, *rounds = 100_000, min(*rounds, 3)
	}
	// A server has more memory in use than the 4 MiB at which Go begins to
	// collect: without this all would be measured under a collector that never
	// rests.
	ballast := make([]byte, 64<<20)
	defer runtime.KeepAlive(ballast)
	all := lineup()
	if *short {
		all = slices.DeleteFunc(all, func(c contestant) bool { return c.long })
	}
	request, err := http.NewRequest("GET", "http://alice.example.com/page?q=1", nil)
	if err != nil {
		return fmt.Errorf("bench: %w", err)
	}
	clients := addresses(workloads[len(workloads)-1].clients)
	if *profile != "" {
		return profiled(*profile, all, visit{request, clients[:1]})
	}
	m := newMeter(calls, visit{request, clients})
	for _, w := range workloads {
		for range *rounds {
			for i := range all {
				if err := m.measure(&all[i], w); err != nil {
					return fmt.Errorf("bench: %w", err)
				}
			}
		}
	}
	m.print(os.Stdout, all)
	return m.judge(os.Stdout, all, !*short)
}

// profiled runs ours for a few seconds under the profiler.
func profiled(name string, all []contestant, v visit) error {
	i := slices.IndexFunc(all, func(c contestant) bool { return c.name == ourRule })
	h, end, err := all[i].open()
	if err != nil {
		return fmt.Errorf("bench: %w", err)
	}
	defer end()
	file, err := os.Create(name)
	if err != nil {
		return fmt.Errorf("bench: %w", err)
	}
	defer file.Close()
	if err := pprof.StartCPUProfile(file); err != nil {
		return fmt.Errorf("bench: %w", err)
	}
	defer pprof.StopCPUProfile()
	for until := time.Now().Add(5 * time.Second); time.Now().Before(until); {
		v.hammer(h, 100_000)
	}
	return nil
}

// addresses returns those of so many clients. They share one text, so that
// they are nothing to a garbage collector.
func addresses(n int) []string {
	var text strings.Builder
	ends := make([]int, n)
	for i := range n {
		fmt.Fprintf(&text, "198.%d.%d.%d:51234", 18+i>>16, i>>8&255, i&255)
		ends[i] = text.Len()
	}
	all, from := make([]string, n), 0
	for i, end := range ends {
		all[i], from = text.String()[from:end], end
	}
	return all
}

// A visit is a request, and the clients that make it in turn.
type visit struct {
	request *http.Request
	clients []string
}

// A sink is a ResponseWriter that costs next to nothing. A server's header is
// new each time; this one is cleared.
type sink struct {
	header http.Header
	status int
}

func (s *sink) Header() http.Header         { return s.header }
func (s *sink) Write(b []byte) (int, error) { return len(b), nil }
func (s *sink) WriteHeader(status int)      { s.status = status }

// hammer serves n requests, and returns how many were refused.
//
//go:noinline
func (v visit) hammer(h http.Handler, n int) (refused int) {
	w := &sink{header: http.Header{}}
	for i, next := 0, 0; i < n; i++ {
		w.status = http.StatusOK
		v.request.RemoteAddr = v.clients[next]
		h.ServeHTTP(w, v.request)
		if w.status == http.StatusTooManyRequests {
			refused++
		}
		clear(w.header)
		if next++; next == len(v.clients) {
			next = 0
		}
	}
	return refused
}

// A sample is one measurement.
type sample struct {
	ns, allocs float64 // a request
	bare       float64 // the dearer bare handler before and after it, ns
}

type cell struct {
	contestant string
	workload   workload
}

// A meter measures handlers, and the bare one beside each.
type meter struct {
	calls   int
	visit   visit
	quiet   float64 // cheapest bare handler seen, ns
	samples map[cell][]sample
	wrong   map[string]int // requests that had the wrong answer
}

func newMeter(calls int, v visit) *meter {
	m := &meter{calls: calls, visit: v, quiet: math.Inf(1), samples: map[cell][]sample{}, wrong: map[string]int{}}
	for range 20 {
		m.null()
	}
	return m
}

// cpu returns the processor time that the process has used: what others on the
// machine do disturbs it less than the wall's, and garbage that is collected on
// another core is in it.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// null returns what the bare handler costs now, in ns.
func (m *meter) null() float64 {
	n := m.calls
	began := cpu()
	m.visit.hammer(trivial, n)
	ns := float64(cpu()-began) / float64(n)
	m.quiet = min(m.quiet, ns)
	return ns
}

// measure opens a contestant, so that no other's memory is there to collect,
// and serves everybody once before it counts.
func (m *meter) measure(c *contestant, w workload) error {
	h, end, err := c.open()
	if err != nil {
		return err
	}
	defer end()
	v := visit{m.visit.request, m.visit.clients[:w.clients]}
	v.hammer(h, max(w.clients, m.calls)) // also so that memory is used again, and not new
	runtime.GC()
	before := m.null()
	var first, last runtime.MemStats
	runtime.ReadMemStats(&first)
	began := cpu()
	refused := v.hammer(h, m.calls)
	took := cpu() - began
	runtime.ReadMemStats(&last)
	s := sample{float64(took) / float64(m.calls), float64(last.Mallocs-first.Mallocs) / float64(m.calls), max(before, m.null())}
	at := cell{c.name, w}
	m.samples[at] = append(m.samples[at], s)
	if c.refuses {
		refused = m.calls - refused
	}
	m.wrong[c.name] += refused
	return nil
}

// value returns what a request costs a contestant, and how much it allocates.
func (m *meter) value(name string, w workload) (ns, allocs float64, sure bool) {
	var rounds []report.Round
	var count []float64
	for _, s := range m.samples[cell{name, w}] {
		rounds = append(rounds, report.Round{Cost: s.ns, Void: s.bare > report.Stolen*m.quiet})
		count = append(count, s.allocs)
	}
	ns, sure = report.Value(rounds)
	return ns, report.Median(count), sure
}

// over returns what a contestant costs over the bare handler.
func (m *meter) over(name string, w workload) (ns float64, sure bool) {
	ns, _, sure = m.value(name, w)
	bare, _, _ := m.value(bareName, w)
	return ns - bare, sure
}

func (m *meter) print(out io.Writer, all []contestant) {
	fmt.Fprintf(out, "%s, ns over the bare handler (%.1f ns when quiet); ~ marks the fastest round where fewer than half were quiet\n\n", runtime.Version(), m.quiet)
	rows := [][]string{{""}}
	for _, w := range workloads {
		rows[0] = append(rows[0], w.name)
	}
	rows[0] = append(rows[0], "allocations", "fields")
	for _, c := range all {
		row := []string{c.name}
		for _, w := range workloads {
			ns, sure := m.over(c.name, w)
			mark := ""
			if !sure {
				mark = "~"
			}
			row = append(row, fmt.Sprintf("%s%.0f", mark, ns))
		}
		_, allocs, _ := m.value(c.name, workloads[0])
		rows = append(rows, append(row, fmt.Sprintf("%.1f", allocs), c.fields))
	}
	report.Table(out, rows)
	for _, c := range all {
		if n := m.wrong[c.name]; n > 0 {
			fmt.Fprintf(out, "- %s: %d requests had the wrong answer\n", c.name, n)
		}
	}
}

// judge holds the claims against the numbers.
func (m *meter) judge(out io.Writer, all []contestant, strict bool) error {
	var claims []report.Claim
	for _, w := range workloads {
		ours, _ := m.over(ourRule, w)
		best, name := math.Inf(1), ""
		for _, c := range all {
			if ns, _ := m.over(c.name, w); c.peer && ns < best {
				best, name = ns, c.name
			}
		}
		if w.clients == 1 {
			claims = append(claims, report.Claim{What: "one rule and full fields, ns over the bare handler", Got: ours, Goal: 400, Fail: 4000})
		}
		what := fmt.Sprintf("one rule and full fields / best peer with fields, %s (%s)", w.name, name)
		claims = append(claims, report.Claim{What: what, Got: ours / best, Goal: 1, Fail: 2.5})
	}
	for _, c := range []struct {
		name       string
		goal, fail float64
	}{{ourRule, 2, 3}, {ourBare, 0, 1}, {ourBareLimiter, 0, 1}} {
		_, allocs, _ := m.value(c.name, workloads[0])
		claims = append(claims, report.Claim{What: "allocations, " + c.name, Got: math.Round(10*allocs) / 10, Goal: c.goal, Fail: c.fail, Counted: true})
	}
	err := report.Judge(out, claims, strict)
	for _, c := range all {
		if n := m.wrong[c.name]; n > 0 && !c.peer {
			err = errors.Join(err, fmt.Errorf("bench: %s: %d requests had the wrong answer", c.name, n))
		}
	}
	return err
}
