package oracle

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"testing"
)

var vectorsFile = flag.String("vectors", "../../testdata/vectors.json", "test vectors")

type vector struct {
	ID        string `json:"id"`
	Algorithm string `json:"algorithm"`
	Mode      string `json:"mode"`
	Limit     int64  `json:"limit"`
	Period    int64  `json:"period_ns"`
	Burst     int64  `json:"burst"`
	Why       string `json:"why"`
	Steps     []vectorStep
}

// A vectorStep has a nil where the vector has no such field or null.
type vectorStep struct {
	At        int64  `json:"at_ns"`
	Op        string `json:"op"`
	Cost      int64  `json:"cost"`
	Limit     int64  `json:"limit"`
	Period    int64  `json:"period_ns"`
	Burst     int64  `json:"burst"`
	Amount    int64  `json:"amount"`
	Of        int64  `json:"of_at_ns"`
	Allowed   bool   `json:"allowed"`
	Remaining *int64 `json:"remaining"`
	Retry     *int64 `json:"retry_after_ns"`
	Reset     *int64 `json:"reset_after_ns"`
	Delay     *int64 `json:"delay_ns"`
}

func (s *vectorStep) op() (Op, error) {
	switch s.Op {
	case "":
		return Op{Kind: Step, At: s.At, N: s.Cost}, nil
	case "set":
		return Op{Kind: Set, At: s.At, Limit: s.Limit, Period: s.Period, Burst: s.Burst}, nil
	case "refund":
		return Op{Kind: Refund, At: s.At, N: s.Amount, Of: s.Of}, nil
	}
	return Op{}, fmt.Errorf("op %q: unknown", s.Op)
}

func readVectors(t *testing.T) []vector {
	t.Helper()
	text, err := os.ReadFile(*vectorsFile)
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Vectors, Extended []vector }
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	all := append(file.Vectors, file.Extended...)
	if len(all) == 0 {
		t.Fatalf("%s: no vectors", *vectorsFile)
	}
	return all
}

func TestVectors(t *testing.T) {
	for _, v := range readVectors(t) {
		for _, exact := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/exact=%t", v.ID, exact), func(t *testing.T) { v.run(t, exact) })
		}
	}
}

func (v *vector) run(t *testing.T, exact bool) {
	algorithm := v.Algorithm
	if v.Mode == "queue" {
		algorithm = Queue
	} else if v.Mode != "" {
		t.Fatalf("mode %q: unknown", v.Mode)
	}
	l, err := New(algorithm, v.Limit, v.Period, v.Burst)
	if err != nil {
		t.Fatal(err)
	}
	if exact {
		l.makeExact()
	}
	orNever := func(n *int64) int64 {
		if n == nil {
			return Never
		}
		return *n
	}
	for i, s := range v.Steps {
		op, err := s.op()
		if err != nil {
			t.Fatal(err)
		}
		got := l.Do(op)
		if op.Kind != Step {
			continue
		}
		want := Answer{Allowed: s.Allowed}
		if !s.Allowed {
			want.RetryAfter = orNever(s.Retry)
		}
		// The vectors of the queue tell only delay and retry.
		if algorithm == Queue {
			want.Remaining, want.ResetAfter = got.Remaining, got.ResetAfter
			if s.Allowed {
				want.Delay = orNever(s.Delay)
			}
		} else {
			want.Remaining, want.ResetAfter = orNever(s.Remaining), orNever(s.Reset)
		}
		if got != want {
			t.Errorf("step %d, at %d, cost %d:\n got %+v\nwant %+v\n%s", i, s.At, s.Cost, got, want, v.Why)
		}
	}
}
