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
			for name, run := range runs(t, l) {
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

func (v *vector) run(t *testing.T, name string, r run, l Limit) {
	t.Helper()
	for i, s := range v.Steps {
		where := fmt.Sprintf("%s: step %d at %d", name, i, s.At)
		var err error
		switch s.Op {
		case "":
			var d Decision
			if d, err = r.take(Instant(s.At), s.Cost); err == nil {
				s.check(t, where, d)
			}
		case "set":
			nu := s.numbers
			if nu.Burst == nil && (l.Algorithm == Bucket || l.Algorithm == Queue) {
				nu.Burst = &l.Burst
			}
			if l, err = v.limit(nu); err == nil {
				err = r.change(Instant(s.At), l)
			}
		case "refund":
			of := s.At
			if s.OfAt != nil {
				of = *s.OfAt
			}
			err = r.settle(Instant(s.At), Instant(of), -s.Amount)
		case "spend":
			err = r.settle(Instant(s.At), Instant(s.At), s.Amount)
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
