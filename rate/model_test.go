package rate

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"
)

// A model is a Limiter as its documentation has it, in rational numbers: it
// shares no arithmetic with the Limiter.
type model struct {
	rate   meant // 0 earns nothing
	burst  int64
	tokens *big.Rat
	last   int64 // ns
	latest *big.Rat
	of     meant // the rate at which latest was told
}

// A meant rate is events in so many nanoseconds.
type meant struct{ events, ns int64 }

func (m meant) limit() Limit { return Limit(float64(m.events) / (float64(m.ns) / 1e9)) }

// after returns how long n tokens take, in ns; nil if for ever.
func (m meant) after(n *big.Rat) *big.Rat {
	if m.events == 0 {
		return nil
	}
	return new(big.Rat).Mul(n, big.NewRat(m.ns, m.events))
}

func (m meant) earned(ns *big.Rat) *big.Rat {
	return new(big.Rat).Mul(ns, big.NewRat(m.events, m.ns))
}

// gainOf returns into how many parts a Limiter of rate m divides a nanosecond.
func gainOf(m meant) uint64 {
	p, _ := paceOf(m.limit())
	return p.gain
}

func number(n int64) *big.Rat { return new(big.Rat).SetInt64(n) }

func ceil(r *big.Rat) *big.Rat {
	q, m := new(big.Int).DivMod(r.Num(), r.Denom(), new(big.Int))
	if m.Sign() > 0 {
		q.Add(q, big.NewInt(1))
	}
	return new(big.Rat).SetInt(q)
}

func least(a, b *big.Rat) *big.Rat {
	if a.Cmp(b) < 0 {
		return a
	}
	return b
}

func newModel(rate meant, burst int64) *model {
	return &model{rate: rate, burst: burst, tokens: number(burst), latest: number(-1 << 62)}
}

func (m *model) at(now int64) *big.Rat {
	t := m.tokens
	if now > m.last {
		t = new(big.Rat).Add(t, m.rate.earned(number(now-m.last)))
	}
	return least(t, number(m.burst))
}

func (m *model) settle(now int64) { m.tokens, m.last = m.at(now), now }

type modelReservation struct {
	n    int64
	rate meant
	act  *big.Rat
}

// reserve takes n tokens if the wait is at most longest, and returns the wait.
func (m *model) reserve(now, n int64, longest time.Duration) (r *modelReservation, wait int64) {
	left := new(big.Rat).Sub(m.at(now), number(n))
	act := number(now)
	if left.Sign() < 0 {
		w := m.rate.after(new(big.Rat).Neg(left))
		if w == nil {
			return nil, 0
		}
		act.Add(act, w)
	}
	told := new(big.Rat).Sub(ceil(act), number(now))
	if n < 0 || n > m.burst || told.Cmp(number(int64(longest))) > 0 {
		return nil, 0
	}
	m.tokens, m.last, m.latest, m.of = left, now, act, m.rate
	return &modelReservation{n, m.rate, act}, told.Num().Int64()
}

// cancel gives back what no later reservation builds on.
func (m *model) cancel(r *modelReservation, now int64) {
	if ceil(r.act).Cmp(number(now)) < 0 || r.n == 0 {
		return
	}
	latest := m.latest
	if gainOf(m.of) != gainOf(r.rate) { // then the fraction of latest does not count
		latest = ceil(latest)
	}
	back := number(r.n)
	if between := new(big.Rat).Sub(latest, r.act); between.Sign() > 0 {
		back.Sub(back, r.rate.earned(between))
	}
	n := r.n
	r.n = 0
	if back.Sign() <= 0 {
		return
	}
	if m.latest.Cmp(r.act) == 0 && gainOf(m.of) == gainOf(r.rate) && r.rate.events > 0 {
		before := new(big.Rat).Sub(r.act, r.rate.after(number(n)))
		if before.Cmp(number(now-1)) > 0 {
			m.latest = before
		}
	}
	m.settle(now)
	m.tokens = least(new(big.Rat).Add(m.tokens, back), number(m.burst))
}

func (m *model) setBurst(now, burst int64) {
	m.settle(now)
	m.burst = burst
	m.tokens = least(m.tokens, number(burst))
}

var modelRates = []meant{
	{1, 1e9}, {3, 1e9}, {7, 1e9}, {10, 1e9}, {999_983, 1e9}, {1, 13}, {1, 3_600_000_000_000}, {1000, 1e9}, {2, 3e9}, {0, 1}, {1, 1_000_003},
}

// A script runs a Limiter and its model side by side. It draws from next,
// which returns a number below n.
func script(next func(n int) int, steps int) error {
	rate := modelRates[next(len(modelRates))]
	burst := int64(next(6))
	lim, m := NewLimiter(rate.limit(), int(burst)), newModel(rate, burst)
	var ours []*Reservation
	var theirs []*modelReservation
	now, changes := int64(0), 0
	for i := range steps {
		// Jumps of about a token, to and around whole ones.
		unit := max(m.rate.ns/max(m.rate.events, 1), 1)
		switch next(8) {
		case 0:
		case 1:
			now++
		case 2:
			now += unit * int64(next(4))
		case 3:
			now -= unit / 2
		default:
			now += int64(next(int(unit) + 2))
		}
		at := base.Add(time.Duration(now))
		n := int64(next(8) - 1)
		where := func(what string) string {
			return fmt.Sprintf("step %d at %d: %s n=%d, %d events in %d ns, burst %d", i, now, what, n, m.rate.events, m.rate.ns, m.burst)
		}
		switch op := next(12); {
		case op < 5:
			r, _ := m.reserve(now, n, 0)
			if got := lim.AllowN(at, int(n)); got != (r != nil) {
				return rounded(changes, !got, fmt.Errorf("%s: AllowN is %v, want %v", where("AllowN"), got, r != nil))
			}
		case op < 8:
			r, wait := m.reserve(now, n, InfDuration-1)
			o := lim.ReserveN(at, int(n))
			if o.OK() != (r != nil) {
				return fmt.Errorf("%s: OK is %v, want %v", where("ReserveN"), o.OK(), r != nil)
			}
			if r == nil {
				break
			}
			if got := int64(o.DelayFrom(at)); got != wait {
				return rounded(changes, got == wait+1, fmt.Errorf("%s: the delay is %d, want %d", where("ReserveN"), got, wait))
			}
			ours, theirs = append(ours, o), append(theirs, r)
		case op < 10 && len(ours) > 0:
			k := max(len(ours)-1-next(3), 0)
			if ours[k].pace != lim.pace {
				changes++ // what is given back is rounded, too
			}
			ours[k].CancelAt(at)
			m.cancel(theirs[k], now)
		case op == 10:
			m.settle(now)
			m.rate = modelRates[next(len(modelRates))]
			lim.SetLimitAt(at, m.rate.limit())
			changes++
		case op == 11:
			burst := int64(next(6))
			m.setBurst(now, burst)
			lim.SetBurstAt(at, int(burst))
		}
		want, _ := m.at(now).Float64()
		if got := lim.TokensAt(at); got-want > 1e-12 || want-got > 1e-9 || changes == 0 && got != want && got-want > 1e-15*max(want, -want) {
			return fmt.Errorf("%s: then %v tokens, want %v", where("state"), got, want)
		}
	}
	return nil
}

// rounded returns nil for an error on the strict side, after so many
// roundings that they may have added up.
func rounded(changes int, strict bool, err error) error {
	if changes > 1 && strict {
		return nil
	}
	return err
}

func TestAgainstTheModel(t *testing.T) {
	for seed := range uint64(2000) {
		rng := rand.New(rand.NewPCG(seed, 0))
		if err := script(rng.IntN, 40); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

func FuzzAgainstTheModel(f *testing.F) {
	f.Add([]byte("one a second, some reservations, a cancel or two"))
	f.Add([]byte{0, 5, 4, 200, 6, 7, 3, 1, 9, 2, 250, 11, 10, 4, 4, 8, 8, 8, 9, 9})
	f.Fuzz(func(t *testing.T, data []byte) {
		next := func(n int) int {
			x := uint64(0)
			for size := uint64(n); size > 0 && len(data) > 0; size >>= 8 {
				x, data = x<<8|uint64(data[0]), data[1:]
			}
			return int(x % uint64(n))
		}
		if err := script(next, min(len(data), 200)); err != nil {
			t.Error(err)
		}
	})
}
