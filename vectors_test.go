package spillgate

import (
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"
)

var vectorsFile = flag.String("vectors", "testdata/vectors.json", "run the vectors of this file")

// A vectorFile is the form of testdata/vectors.json: what a limiter must
// answer, worked out in rational arithmetic. Every number is a whole number of
// units or nanoseconds that fits an int64.
type vectorFile struct {
	Vectors, Extended []vector
}

type vector struct {
	ID, Algorithm, Mode, Why string
	numbers
	Steps []vectorStep
}

// numbers are those of a limit.
type numbers struct {
	Limit  int64  `json:"limit"`
	Period int64  `json:"period_ns"`
	Burst  *int64 `json:"burst"`
	Fill   bool   `json:"fill"`
}

type vectorStep struct {
	Op      string
	At      int64 `json:"at_ns"`
	Cost    int64
	Allowed bool
	// Absent numbers are not checked; null is Never.
	Remaining json.RawMessage
	Retry     json.RawMessage `json:"retry_after_ns"`
	Reset     json.RawMessage `json:"reset_after_ns"`
	Delay     json.RawMessage `json:"delay_ns"`

	numbers        // of op set
	Amount  int64  // of op refund and op spend
	OfAt    *int64 `json:"of_at_ns"`
}

// A vectorRun is one way to carry out a vector: what it says after each ask.
type vectorRun interface {
	take(at Instant, n int64) (Decision, error)
	settle(at, taken Instant, delta int64) error
	change(at Instant, l Limit) error
}

func TestVectors(t *testing.T) {
	data, err := os.ReadFile(*vectorsFile)
	if err != nil {
		t.Fatal(err)
	}
	var file vectorFile
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Vectors)+len(file.Extended) == 0 {
		t.Fatalf("%s: no vectors in it", *vectorsFile)
	}
	for _, v := range append(file.Vectors, file.Extended...) {
		t.Run(v.ID, func(t *testing.T) {
			l, err := v.limit(v.numbers)
			if err != nil {
				t.Fatal(err)
			}
			for name, start := range vectorRuns {
				run, err := start(l)
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				if run == nil {
					continue
				}
				v.run(t, name, run, l)
			}
		})
	}
}

// limit reads the vector's algorithm with the numbers nu.
func (v *vector) limit(nu numbers) (Limit, error) {
	l := Limit{Rate: nu.Limit, Period: time.Duration(nu.Period)}
	switch v.Algorithm {
	case "token_bucket", "gcra":
	case "leaky_bucket":
		switch v.Mode {
		case "":
		case "queue":
			l.Algorithm = Queue
		default:
			return l, fmt.Errorf("mode %q: unknown", v.Mode)
		}
	case "leaky_bucket_queue":
		l.Algorithm = Queue
	case "fixed_window":
		l.Algorithm = FixedWindow
	case "sliding_window_counter":
		l.Algorithm = SlidingCounter
	case "sliding_window_log":
		l.Algorithm = SlidingLog
	default:
		return l, fmt.Errorf("algorithm %q: unknown", v.Algorithm)
	}
	if l.Algorithm == Bucket || l.Algorithm == Queue {
		if nu.Burst == nil {
			return l, fmt.Errorf("a %s needs a burst", v.Algorithm)
		}
		l.Burst = *nu.Burst
		if nu.Fill {
			l.OnRaise = Fill
		}
	}
	return l, nil
}

func (v *vector) run(t *testing.T, name string, run vectorRun, l Limit) {
	t.Helper()
	for i, s := range v.Steps {
		where := fmt.Sprintf("%s: step %d at %d", name, i, s.At)
		var err error
		switch s.Op {
		case "":
			var d Decision
			if d, err = run.take(Instant(s.At), s.Cost); err == nil {
				s.check(t, where, d)
			}
		case "set":
			nu := s.numbers
			if nu.Burst == nil && (l.Algorithm == Bucket || l.Algorithm == Queue) {
				nu.Burst = &l.Burst
			}
			if l, err = v.limit(nu); err == nil {
				err = run.change(Instant(s.At), l)
			}
		case "refund":
			of := s.At
			if s.OfAt != nil {
				of = *s.OfAt
			}
			err = run.settle(Instant(s.At), Instant(of), -s.Amount)
		case "spend":
			err = run.settle(Instant(s.At), Instant(s.At), s.Amount)
		default:
			t.Fatalf("%s: op %q: unknown", where, s.Op)
		}
		if err != nil {
			t.Fatalf("%s: %v", where, err)
		}
	}
}

func (s *vectorStep) check(t *testing.T, where string, d Decision) {
	t.Helper()
	if d.Allowed != s.Allowed {
		t.Errorf("%s: cost %d: allowed %v, want %v", where, s.Cost, d.Allowed, s.Allowed)
	}
	for _, c := range []struct {
		name string
		got  int64
		want json.RawMessage
	}{
		{"remaining", d.Remaining, s.Remaining},
		{"retry after", int64(d.RetryAfter), s.Retry},
		{"reset after", int64(d.ResetAfter), s.Reset},
		{"delay", int64(d.Delay), s.Delay},
	} {
		if c.want == nil {
			continue
		}
		want := int64(math.MaxInt64)
		if strings.TrimSpace(string(c.want)) != "null" {
			if err := json.Unmarshal(c.want, &want); err != nil {
				t.Fatalf("%s: %s: %v", where, c.name, err)
			}
		}
		if c.got != want {
			t.Errorf("%s: cost %d: %s %d, want %d", where, s.Cost, c.name, c.got, want)
		}
	}
	if want := s.Cost; s.Allowed && d.Taken != want || !s.Allowed && d.Taken != 0 {
		t.Errorf("%s: cost %d: taken %d", where, s.Cost, d.Taken)
	}
}

// vectorRuns starts a new key under l; nil where l is not for that way.
var vectorRuns = map[string]func(Limit) (vectorRun, error){
	"meter": func(l Limit) (vectorRun, error) {
		switch l.Algorithm {
		case SlidingLog, Concurrency:
			return nil, nil
		}
		m, err := l.Meter()
		return &meterRun{m: m, seen: math.MinInt64}, err
	},
}

// A meterRun carries a vector out with the pure step.
type meterRun struct {
	m    *Meter
	s    State
	seen Instant
}

func (r *meterRun) now(at Instant) Instant {
	r.seen = max(r.seen, at)
	return r.seen
}

func (r *meterRun) take(at Instant, n int64) (d Decision, err error) {
	r.s, d = r.m.Take(r.s, r.now(at), n)
	return d, nil
}

func (r *meterRun) settle(at, taken Instant, delta int64) error {
	r.s = r.m.Settle(r.s, r.now(at), taken, delta)
	return nil
}

func (r *meterRun) change(at Instant, l Limit) error {
	m, err := l.Meter()
	if err == nil {
		r.s = m.Adopt(r.s, r.now(at))
		r.m = m
	}
	return err
}
