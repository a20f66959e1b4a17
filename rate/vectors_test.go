package rate

import (
	"encoding/json"
	"flag"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/spillgate/spillgate"
)

var vectorsFile = flag.String("vectors", "../testdata/vectors.json", "run the vectors of this file")

// otherwise lists the vectors that this package can't follow, each with its
// reason. The rest of a vector is run up to the first such step.
var otherwise = map[string]string{
	"time":   "a time that a caller names may go back, as in golang.org/x/time/rate",
	"refund": "only a reservation is given back, and only before its holder may act",
}

type vectorStep struct {
	Op        string
	At        int64 `json:"at_ns"`
	Cost      int64
	Allowed   bool
	Remaining *int64
	Retry     json.RawMessage `json:"retry_after_ns"`
	Limit     int64
	Period    int64 `json:"period_ns"`
	Burst     *int64
}

func TestVectors(t *testing.T) {
	data, err := os.ReadFile(*vectorsFile)
	if err != nil {
		t.Fatal(err)
	}
	type vector struct {
		ID, Algorithm string
		Limit         int64
		Period        int64 `json:"period_ns"`
		Burst         int64
		Fill          bool
		Steps         []vectorStep
	}
	var file struct{ Vectors, Extended []vector }
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, v := range append(file.Vectors, file.Extended...) {
		if !slices.Contains([]string{"token_bucket", "gcra"}, v.Algorithm) || v.Fill {
			continue
		}
		ran++
		t.Run(v.ID, func(t *testing.T) {
			limit := func(events, period int64) Limit { return Limit(float64(events) / time.Duration(period).Seconds()) }
			lim := NewLimiter(limit(v.Limit, v.Period), int(v.Burst))
			seen := int64(0)
			for i, s := range v.Steps {
				if s.At < seen {
					t.Skipf("from step %d: %s", i, otherwise["time"])
				}
				seen = s.At
				at := base.Add(time.Duration(s.At))
				switch s.Op {
				case "":
					s.check(t, i, lim, at)
				case "set":
					if s.Limit != 0 {
						lim.SetLimitAt(at, limit(s.Limit, s.Period))
					}
					if s.Burst != nil {
						lim.SetBurstAt(at, int(*s.Burst))
					}
				case "refund":
					t.Skipf("from step %d: %s", i, otherwise["refund"])
				default:
					t.Fatalf("step %d: op %q: unknown", i, s.Op)
				}
			}
		})
	}
	if ran == 0 {
		t.Errorf("%s: no vectors of buckets in it", *vectorsFile)
	}
}

func (s *vectorStep) check(t *testing.T, i int, lim *Limiter, at time.Time) {
	t.Helper()
	if got := lim.AllowN(at, int(s.Cost)); got != s.Allowed {
		t.Errorf("step %d at %d: cost %d: allowed %v, want %v", i, s.At, s.Cost, got, s.Allowed)
	}
	if s.Remaining != nil {
		used, _ := lim.at(instantOf(at))
		left, _, _ := lim.cap.minus(used).over(lim.pace.token)
		if int64(left) != *s.Remaining {
			t.Errorf("step %d at %d: %d left, want %d", i, s.At, left, *s.Remaining)
		}
	}
	if s.Retry == nil {
		return
	}
	want := int64(math.MaxInt64) // null is never
	if err := json.Unmarshal(s.Retry, &want); err != nil {
		t.Fatalf("step %d: retry after: %v", i, err)
	}
	r := lim.ReserveN(at, int(s.Cost))
	if got := int64(r.DelayFrom(at)); got != want {
		t.Errorf("step %d at %d: cost %d: a delay of %d, want %d", i, s.At, s.Cost, got, want)
	}
	r.CancelAt(at)
}

// While time does not go back, the bucket is that of the root package.
func TestAgainstTheEngine(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		l := spillgate.Limit{Rate: 1 + rng.Int64N(1<<(1+rng.IntN(20))), Period: time.Duration(1+rng.Int64N(60)) * time.Second, Burst: rng.Int64N(50)}
		m, err := l.Meter()
		if err != nil {
			t.Fatal(err)
		}
		lim := NewLimiter(Limit(float64(l.Rate)/l.Period.Seconds()), int(l.Burst))
		var state spillgate.State
		now := int64(0)
		for range 300 {
			n := rng.Int64N(l.Burst + 2)
			next, d := m.Take(state, spillgate.Instant(now), n)
			if got := lim.AllowN(base.Add(time.Duration(now)), int(n)); got != d.Allowed {
				t.Fatalf("%v at %d: AllowN(%d) is %v, the engine says %+v", l, now, n, got, d)
			}
			state = next
			if !d.Allowed && d.RetryAfter != spillgate.Never && rng.IntN(2) == 0 {
				now += int64(d.RetryAfter) - rng.Int64N(2) // to the instant, or just before
			} else {
				now += rng.Int64N(2 * int64(l.Period) / l.Rate * (l.Burst + 1))
			}
		}
	}
}
