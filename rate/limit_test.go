package rate

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"
)

// isPace reports whether p is one token in num/den nanoseconds, exactly.
func isPace(p pace, num, den uint64) bool {
	return times(p.token, den) == times(num, p.gain)
}

func TestPaceIsTheRateThatWasMeant(t *testing.T) {
	const second = uint64(time.Second)
	for _, c := range []struct {
		name     string
		limit    Limit
		num, den uint64 // ns a token
	}{
		{"1", 1, second, 1},
		{"3", 3, second, 3},
		{"999983", 999983, second, 999983},
		{"2^53-1", 1<<53 - 1, second, 1<<53 - 1},
		{"2^62", 1 << 62, second, 1 << 62},
		{"2^62 and more", 1e40, second, 1 << 62},
		{"0.1", 0.1, 10 * second, 1},
		{"33.3", 33.3, 10 * second, 333},
		{"1/3", 1.0 / 3, 3 * second, 1},
		{"5 a minute", 5.0 / 60, 12 * second, 1},
		{"100 an hour", 100.0 / 3600, 36 * second, 1},
		{"3 every minute", 3 * Every(time.Minute), 20 * second, 1},
		{"10/13", 0.7692307692307693, 13 * second, 10},
		{"1e9/7", 1e9 / 7.0, 7, 1},
		{"every ns", Every(1), 1, 1},
		{"every 7 ms", Every(7 * time.Millisecond), 7_000_000, 1},
		{"every prime", Every(1_000_000_007), 1_000_000_007, 1},
		{"every 13 days and 1 ns", Every(13*24*time.Hour + 1), 13*24*3600*second + 1, 1},
		{"every 30 days", Every(30 * 24 * time.Hour), 30 * 24 * 3600 * second, 1},
		{"every year", Every(365 * 24 * time.Hour), 365 * 24 * 3600 * second, 1},
		{"every 136 years", Every(1 << 32 * time.Second), second << 32, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, ok := paceOf(c.limit)
			if !ok || !isPace(p, c.num, c.den) {
				t.Errorf("%v is %d/%d ns a token, want %d/%d", c.limit, p.token, p.gain, c.num, c.den)
			}
		})
	}
}

func TestEveryIntervalIsItself(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200_000 {
		// All magnitudes up to 2^50 ns, 13 days.
		d := rng.Int64N(1<<(1+rng.IntN(50))) + 1
		if p, ok := paceOf(Every(time.Duration(d))); !ok || !isPace(p, uint64(d), 1) {
			t.Fatalf("Every(%d ns) is %d/%d ns a token", d, p.token, p.gain)
		}
		// Whole seconds up to 2^32.
		s := rng.Int64N(1<<(1+rng.IntN(32))) + 1
		if p, ok := paceOf(Every(time.Duration(s) * time.Second)); !ok || !isPace(p, uint64(s)*uint64(time.Second), 1) {
			t.Fatalf("Every(%d s) is %d/%d ns a token", s, p.token, p.gain)
		}
		// Fractions.
		n, q := rng.Int64N(1<<(1+rng.IntN(20)))+1, rng.Int64N(1<<(1+rng.IntN(20)))+1
		if p, ok := paceOf(Limit(float64(n) / float64(q))); !ok || !isPace(p, uint64(q)*uint64(time.Second), uint64(n)) {
			t.Fatalf("%d/%d is %d/%d ns a token", n, q, p.token, p.gain)
		}
	}
}

// offBy returns how far p is from r, as a part of r.
func offBy(p pace, r Limit) float64 {
	want := new(big.Rat).SetFloat64(float64(r))
	got := new(big.Rat).SetFrac(
		new(big.Int).Mul(new(big.Int).SetUint64(p.gain), big.NewInt(int64(time.Second))),
		new(big.Int).SetUint64(p.token))
	off, _ := got.Sub(got, want).Quo(got, want).Float64()
	return math.Abs(off)
}

func checkPace(r Limit) error {
	p, ok := paceOf(r)
	if !ok {
		if float64(r) > 1e9/slowest {
			return fmt.Errorf("%v earns nothing", r)
		}
		return nil
	}
	if p.token == 0 || p.gain == 0 || p.token > fastest || p.gain > fastest {
		return fmt.Errorf("%v: pace %v is out of range", r, p)
	}
	if r < fastest && offBy(p, r) > 1.0/(1<<50) {
		return fmt.Errorf("%v: pace %v is off by %v", r, p, offBy(p, r))
	}
	return nil
}

func TestPaceIsNearTheRate(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 20_000 {
		// All magnitudes, all mantissas.
		r := Limit(math.Ldexp(rng.Float64()+1, rng.IntN(160)-80))
		if err := checkPace(r); err != nil {
			t.Fatal(err)
		}
	}
}

func FuzzPace(f *testing.F) {
	for _, r := range []float64{0, 1, 0.1, 3, 1.0 / 3, 1e-10, 1e300, math.Pi, math.Inf(1), math.Inf(-1), math.NaN(), math.SmallestNonzeroFloat64, math.MaxFloat64, 1 << 62, 1 << 53} {
		f.Add(r)
	}
	f.Fuzz(func(t *testing.T, r float64) {
		if err := checkPace(Limit(r)); err != nil {
			t.Error(err)
		}
	})
}

func TestEvery(t *testing.T) {
	for _, c := range []struct {
		interval time.Duration
		want     Limit
	}{
		{math.MinInt64, Inf}, {-1, Inf}, {0, Inf}, {1000, 1e6}, {time.Second, 1}, {4 * time.Second, 0.25},
	} {
		if got := Every(c.interval); got != c.want {
			t.Errorf("Every(%v) = %v, want %v", c.interval, got, c.want)
		}
	}
}
