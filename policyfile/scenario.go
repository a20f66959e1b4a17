package policyfile

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/policy"
	"go.yaml.in/yaml/v4"
)

// A TestResult is what came of a [Test].
type TestResult struct {
	// Steps are the entries of the test's requests, in order.
	Steps []TestStep
	// Failures say what came otherwise than expected, each at the place of
	// the expectation. There are none if the test passed.
	Failures Errors

	misses []miss
}

// A TestStep is one request of a [Test], or several alike.
type TestStep struct {
	// Line is where the step is written, from 1.
	Line int
	// After is when the first of its requests came, since the test's start.
	After time.Duration
	// Times is how many requests there were.
	Times int
	// Request says what was asked: "POST /login client.ip=203.0.113.7".
	Request string
	// Answer says what came, of the last of them if they are several.
	Answer string
	// Expects reports whether the step says what must come.
	Expects bool

	last  policy.Verdict
	alike bool // all were answered alike
	entry *request
}

// testSeed makes the keys of tests, so that a rule that is enforced in part
// picks the same keys each time.
var testSeed = spillgate.SeedFrom([16]byte{1: 1})

// A pendingEnd is a request that was decided and is not over.
type pendingEnd struct {
	at      time.Time
	verdict *policy.Verdict
	g       *given
}

// Run plays the test in virtual time, on a store in memory that is new: nothing
// waits, and nothing is left behind.
func (t *Test) Run() *TestResult {
	r := &TestResult{}
	store := &failing{Store: spillgate.NewMemory()}
	engine := policy.NewEngine(t.file.Policy, store, policy.Seeded(testSeed), policy.Track(0))
	var open []pendingEnd
	now := t.start
	expects := false
	for i := range t.requests {
		a := &t.requests[i]
		g := t.merged(a)
		if a.at.node != nil {
			now = a.at.in(t.start)
		}
		s := TestStep{Line: a.node.Line, After: now.Sub(t.start), Times: int(a.times), Request: requestText(&g), Expects: a.want != nil, entry: a}
		expects = expects || a.want != nil
		opts := []policy.Option{policy.UseBackup()}
		for unit, n := range g.cost {
			opts = append(opts, policy.Cost(unit, n))
		}
		told := make(map[*yaml.Node]bool) // once for all that are alike
		for n := range a.times {
			if n > 0 {
				now = now.Add(a.every)
			}
			open = endAll(open, now, func(err error) { r.fail(t, a.node, nil, "the end of an earlier request: %v", err) })
			store.down = g.down
			v := engine.Decide(context.Background(), g.attrs, append(opts, policy.At(now))...)
			if a.want != nil && !told[a.want.node] {
				for _, m := range a.want.compare(&v, n == a.times-1) {
					if m.step = i; !told[m.node] {
						told[m.node] = true
						r.fail(t, m.node, &m, "%s: want %s; got %s", s.which(n), m.want, m.got)
					}
				}
			}
			s.alike = n == 0 || s.alike && verdictAnswer(&v) == verdictAnswer(&s.last)
			s.last = v
			if v.Allowed || v.Backup() != nil {
				end := pendingEnd{at: now, verdict: &v, g: &g}
				if g.takes != nil {
					end.at = now.Add(*g.takes)
				}
				at := sort.Search(len(open), func(i int) bool { return open[i].at.After(end.at) })
				open = slices.Insert(open, at, end)
			}
			// What takes no time is over before the next request of the same instant.
			open = endAll(open, now, func(err error) { r.fail(t, a.node, nil, "the end of the request: %v", err) })
		}
		s.Answer = describeVerdict(&s.last)
		r.Steps = append(r.Steps, s)
	}
	if !expects {
		r.fail(t, t.node, nil, "the test expects nothing, so it can't fail; add expect to its requests, or let spillgate test --update write what comes")
	}
	r.Failures = sorted(r.Failures)
	return r
}

// which says for people which request of a step is meant.
func (s *TestStep) which(n int64) string {
	text := fmt.Sprintf("at %s", elapsed(s.After))
	if s.Times > 1 {
		text += fmt.Sprintf(", request %d of %d", n+1, s.Times)
	}
	return text
}

func (r *TestResult) fail(t *Test, at *yaml.Node, m *miss, format string, args ...any) {
	if m != nil {
		r.misses = append(r.misses, *m)
	}
	if len(r.Failures) < maxErrors {
		r.Failures = append(r.Failures, t.src.errorAt(at.Line, at.Column, fmt.Sprintf("test %q: ", t.Name)+fmt.Sprintf(format, args...), ""))
	}
}

// endAll ends the requests that are over by now.
func endAll(open []pendingEnd, now time.Time, bad func(error)) []pendingEnd {
	for len(open) > 0 && !open[0].at.After(now) {
		end := open[0]
		open = open[1:]
		v := end.verdict
		v.SettleAt(end.at)
		var err error
		for unit, n := range end.g.spent {
			if e := v.Spent(unit, n); e != nil {
				err = e
			}
		}
		how := end.g.ends
		if how == "" {
			how = "200"
		}
		if e := v.Ended(how); e != nil {
			err = e
		}
		v.Done()
		if err != nil {
			bad(err)
		}
	}
	return open
}

// failing is a store that can be down.
type failing struct {
	spillgate.Store
	down bool
}

func (s *failing) Take(ctx context.Context, at time.Time, cs []spillgate.Charge, out []spillgate.Decision) error {
	if s.down {
		return fmt.Errorf("%w: the test says so", spillgate.ErrUnavailable)
	}
	return s.Store.Take(ctx, at, cs, out)
}

// requestText says for people what is asked.
func requestText(g *given) string {
	var parts []string
	for _, k := range []string{"method", "path"} {
		if v, ok := g.attrs[k]; ok {
			parts = append(parts, v)
		}
	}
	var others []string
	for k, v := range g.attrs {
		if k != "method" && k != "path" {
			others = append(others, k+"="+strings.ReplaceAll(v, "\x00", " or "))
		}
	}
	slices.Sort(others)
	return strings.ReplaceAll(strings.Join(append(parts, others...), " "), "\x00", " or ")
}

// TestAll plays all tests of the file, for the tests of a program:
//
//	f, err := policyfile.LoadFile("limits.yaml")
//	...
//	if err := f.TestAll(); err != nil {
//		t.Error(err)
//	}
//
// The error is [Errors]: what came otherwise than expected, at its place. A file
// without tests is an error too.
func (f *File) TestAll() error {
	if len(f.Tests) == 0 {
		return fmt.Errorf("policyfile: %s: no tests", f.Name)
	}
	var errs Errors
	for _, t := range f.Tests {
		errs = append(errs, t.Run().Failures...)
	}
	if len(errs) == 0 {
		return nil
	}
	return sorted(errs)
}
