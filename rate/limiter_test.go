package rate

import (
	"math"
	"math/big"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

var start = time.Now()

// after returns the instant so long after the start of a test's timeline.
func after(d time.Duration) time.Time { return start.Add(d) }

func TestThreeASecondForEver(t *testing.T) {
	lim := NewLimiter(3, 2)                // a burst of 1 would be full before the next whole nanosecond
	third := func(k int64) time.Duration { // the k-th token's instant, rounded up
		return time.Duration((k*int64(time.Second) + 2) / 3)
	}
	lim.AllowN(start, 2)
	for k := int64(1); k <= 100_000; k++ {
		if lim.AllowN(after(third(k)-1), 1) {
			t.Fatalf("token %d came 1ns early", k)
		}
		if !lim.AllowN(after(third(k)), 1) {
			t.Fatalf("token %d was not there in time", k)
		}
	}
	const years = 200 * 365 * 24 * time.Hour
	if got := lim.TokensAt(after(years)); got != 2 {
		t.Errorf("after 200 idle years: %v tokens, want 2", got)
	}
}

func TestEdges(t *testing.T) {
	const far = 100 * 365 * 24 * time.Hour
	for _, c := range []struct {
		name   string
		limit  Limit
		burst  int
		n      int
		first  bool // from a new limiter
		tokens float64
		second bool // at the same instant
		later  bool // after a hundred years
	}{
		{"one a second", 1, 1, 1, true, 0, false, true},
		{"limit 0", 0, 1, 1, true, 0, false, false},
		{"limit below 0", -5, 1, 1, true, 0, false, false},
		{"no number", Limit(math.NaN()), 1, 1, true, 0, false, false},
		{"one in 292 years", 1e-10, 1, 1, true, 0, false, false},
		{"the least float64", math.SmallestNonzeroFloat64, 1, 1, true, 0, false, false},
		{"burst 0", 1, 0, 1, false, 0, false, false},
		{"burst 0, n 0", 1, 0, 0, true, 0, true, true},
		{"burst below 0", 1, -1, 1, false, -1, false, false},
		{"burst below 0, n 0", 1, -1, 0, false, -1, false, false},
		{"above the burst", 1, 5, 6, false, 5, false, false},
		{"n below 0", 1, 5, -1, false, 5, false, false},
		{"n the least int", 1, 5, math.MinInt, false, 5, false, false},
		{"the greatest burst", 1e9, math.MaxInt, math.MaxInt, true, 0, false, false},
		{"the greatest burst, at once", 1 << 61, math.MaxInt, math.MaxInt, true, 0, false, true},
		{"beyond all rates", 1e300, math.MaxInt, math.MaxInt, true, 0, false, true},
		{"Inf", Inf, 0, 7, true, 0, true, true},
		{"+Inf", Limit(math.Inf(1)), 0, 7, true, 0, true, true},
		{"Inf, n below 0", Inf, 5, -1, false, 5, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			lim := NewLimiter(c.limit, c.burst)
			if got := lim.AllowN(start, c.n); got != c.first {
				t.Errorf("first: %v, want %v", got, c.first)
			}
			if got := lim.TokensAt(start); got != c.tokens {
				t.Errorf("tokens: %v, want %v", got, c.tokens)
			}
			if got := lim.AllowN(start, c.n); got != c.second {
				t.Errorf("second: %v, want %v", got, c.second)
			}
			if got := lim.AllowN(after(far), c.n); got != c.later {
				t.Errorf("after a hundred years: %v, want %v", got, c.later)
			}
			if got := lim.Limit(); got != c.limit && !math.IsNaN(float64(c.limit)) {
				t.Errorf("Limit() = %v, want %v", got, c.limit)
			}
			if got := lim.Burst(); got != c.burst {
				t.Errorf("Burst() = %v, want %v", got, c.burst)
			}
		})
	}
}

func TestZeroLimiter(t *testing.T) {
	var lim Limiter
	if lim.AllowN(start, 1) || lim.ReserveN(start, 1).OK() || lim.TokensAt(start) != 0 {
		t.Error("the zero Limiter gives tokens")
	}
	lim.SetBurstAt(start, 5)
	if got := lim.TokensAt(after(time.Hour)); got != 0 {
		t.Errorf("with a burst and no limit: %v tokens, want 0", got)
	}
	lim.SetLimitAt(after(time.Hour), 2)
	for i, want := range []float64{0, 2, 4, 5, 5} {
		if got := lim.TokensAt(after(time.Hour + time.Duration(i)*time.Second)); got != want {
			t.Errorf("%d s after it got a limit: %v tokens, want %v", i, got, want)
		}
	}
}

func TestChanges(t *testing.T) {
	lim := NewLimiter(10, 10)
	lim.AllowN(start, 10)
	step := func(at time.Duration, want float64) {
		t.Helper()
		if got := lim.TokensAt(after(at)); got != want {
			t.Errorf("at %v: %v tokens, want %v", at, got, want)
		}
	}
	step(500*time.Millisecond, 5)
	lim.SetLimitAt(after(500*time.Millisecond), 2) // earned 5 at the old rate
	step(time.Second, 6)
	lim.SetBurstAt(after(time.Second), 4) // clamps
	step(time.Second, 4)
	lim.SetBurstAt(after(time.Second), 100) // adds nothing
	step(time.Second, 4)
	step(2*time.Second, 6)
	lim.SetLimitAt(after(2*time.Second), 0)
	step(time.Hour, 6)
	lim.SetLimitAt(after(time.Hour), Inf)
	step(time.Hour, 6)
	step(time.Hour+1, 100)
	lim.SetLimitAt(after(time.Hour), 2) // before Inf was in force for any time
	step(time.Hour+time.Second, 8)
}

// A pause and many changes lose nothing that a nanosecond shows.
func TestChangesKeepFractions(t *testing.T) {
	lim := NewLimiter(3, 1)
	lim.AllowN(start, 1)
	due := time.Second/3 + 1
	at := time.Duration(0)
	for i, r := range []Limit{0, 3, 3, 0, 0, 3} {
		at = time.Duration(i) * 10 * time.Millisecond
		lim.SetLimitAt(after(at), r)
	}
	due += 40 * time.Millisecond // from 0 to 10 ms and from 30 to 50 ms nothing was earned; 30 in all
	due -= 10 * time.Millisecond
	if lim.AllowN(after(due-1), 1) {
		t.Error("a pause made the token come early")
	}
	if !lim.AllowN(after(due), 1) {
		t.Error("a pause made the token come late")
	}
}

func TestTimeGoesBackOnlyWhereACallerSaysSo(t *testing.T) {
	lim := NewLimiter(10, 3)
	lim.AllowN(after(time.Second), 3)
	if got := lim.TokensAt(start); got != 0 {
		t.Errorf("a second earlier: %v tokens, want 0", got)
	}
	lim.AllowN(start, 0) // goes back
	if got := lim.TokensAt(after(100 * time.Millisecond)); got != 1 {
		t.Errorf("100 ms after going back: %v tokens, want 1", got)
	}
}

// A caller that has named a time to come does not stop the clock.
func TestClockAfterATimeToCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := NewLimiter(10, 1)
		lim.AllowN(time.Now().Add(time.Hour), 1)
		if lim.Allow() {
			t.Error("there is a token")
		}
		lim.SetBurst(1)
		time.Sleep(100 * time.Millisecond)
		if !lim.Allow() {
			t.Error("there is no token 100 ms later")
		}
	})
}

func TestFarTimes(t *testing.T) {
	lim := NewLimiter(1, 1)
	var zero time.Time // where fake clocks begin
	for i := range 3 {
		at := zero.Add(time.Duration(i) * time.Second)
		if !lim.AllowN(at, 1) || lim.AllowN(at.Add(time.Second-1), 1) {
			t.Errorf("%v: the limiter does not follow a clock that begins at the zero time", at)
		}
	}
	if !lim.AllowN(start, 1) {
		t.Error("the program's time is not after the zero time")
	}
	lim = NewLimiter(1, 5)
	first, second := lim.ReserveN(zero, 2), lim.ReserveN(zero, 2)
	second.CancelAt(zero)
	first.CancelAt(zero)
	if got := lim.TokensAt(zero); got != 5 {
		t.Errorf("%v tokens after cancels at the zero time, want 5", got)
	}
	for _, at := range []time.Time{zero.AddDate(-300, 0, 0), zero.AddDate(1000, 0, 0), start.AddDate(1000, 0, 0)} {
		lim := NewLimiter(1, 1)
		if !lim.AllowN(at, 1) || lim.AllowN(at, 1) {
			t.Errorf("%v: want one token, and no second", at)
		}
		r := lim.ReserveN(at, 1)
		if !r.OK() || r.DelayFrom(at) > time.Second {
			t.Errorf("%v: a delay of %v", at, r.DelayFrom(at))
		}
		if r.CancelAt(at); lim.TokensAt(at) != 0 {
			t.Errorf("%v: %v tokens after a cancel, want 0", at, lim.TokensAt(at))
		}
	}
}

// Whoever read the clock and was overtaken does not turn time back.
func TestClockOfTheOvertaken(t *testing.T) {
	lim := NewLimiter(1e9, 10)
	lim.mu.Lock()
	done := make(chan bool)
	go func() { done <- lim.Allow() }()
	for soon := clock() + instant(5*time.Millisecond); clock() < soon; { // it reads the clock, and waits for the lock
		runtime.Gosched()
	}
	seen := clock()
	lim.last = seen
	lim.mu.Unlock()
	if !<-done || lim.last < seen {
		t.Errorf("the limiter's time went back by %d ns", seen-lim.last)
	}
}

// Goroutines that overtake each other between reading the clock and taking
// earn nothing twice, and no token is lost.
func TestManyGoroutinesTakeWhatIsEarned(t *testing.T) {
	const burst, each, goroutines = 1000, 20_000, 8
	began := time.Now()
	lim := NewLimiter(1e6, burst)
	var granted atomic.Int64
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			for range each {
				if lim.Allow() {
					granted.Add(1)
				}
			}
		})
	}
	wg.Wait()
	got, there := granted.Load(), burst+time.Since(began).Microseconds()
	if got > there {
		t.Errorf("%d granted, %d were there", got, there)
	}
	// What was earned and not taken is still there, but for what did not fit.
	if left := int64(lim.Tokens()); got+left < burst {
		t.Errorf("%d granted and %d left, less than the burst of %d", got, left, burst)
	}
}

func TestAllocations(t *testing.T) {
	lim := NewLimiter(1e9, 1e6)
	now := time.Now()
	for name, f := range map[string]func(){
		"Allow":    func() { lim.Allow() },
		"AllowN":   func() { lim.AllowN(now, 1) },
		"Tokens":   func() { lim.Tokens() },
		"WaitN":    func() { lim.WaitN(t.Context(), 1) },
		"SetLimit": func() { lim.SetLimit(1e9 / 7.0) },
		"SetBurst": func() { lim.SetBurst(1e6) },
	} {
		if got := testing.AllocsPerRun(100, f); got != 0 {
			t.Errorf("%s: %v allocations, want 0", name, got)
		}
	}
	if got := testing.AllocsPerRun(100, func() { lim.Reserve().Cancel() }); got > 1 {
		t.Errorf("Reserve: %v allocations, want at most 1", got)
	}
}

func TestCancelByTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := NewLimiter(10, 2)
		lim.AllowN(time.Now(), 2)
		r := lim.Reserve()
		if got := r.Delay(); got != 100*time.Millisecond {
			t.Errorf("a delay of %v, want 100ms", got)
		}
		time.Sleep(60 * time.Millisecond)
		if got := r.Delay(); got != 40*time.Millisecond {
			t.Errorf("60 ms later: a delay of %v, want 40ms", got)
		}
		r.Cancel()
		r.Cancel() // once
		if got := lim.Tokens(); got != 0.6 {
			t.Errorf("%v tokens after the cancel, want 0.6", got)
		}
		late := lim.Reserve()
		time.Sleep(40*time.Millisecond + 1)
		if got := late.Delay(); got != 0 {
			t.Errorf("a delay of %v after it, want 0", got)
		}
		late.Cancel() // too late
		if got := lim.Tokens(); got > 0.001 {
			t.Errorf("%v tokens after a cancel that came too late, want none", got)
		}
		none := lim.ReserveN(time.Now(), 3)
		none.Cancel()
		if none.OK() || none.Delay() != InfDuration {
			t.Errorf("above the burst: OK is %v, a delay of %v", none.OK(), none.Delay())
		}
	})
}

// A canceled reservation leaves room for the one before, up to the instant of
// that one.
func TestCancelOneAfterTheOther(t *testing.T) {
	lim := NewLimiter(10, 5)
	lim.AllowN(start, 5)
	first, second := lim.ReserveN(start, 2), lim.ReserveN(start, 2)
	at := after(200 * time.Millisecond)
	second.CancelAt(at)
	first.CancelAt(at)
	if got := lim.TokensAt(at); got != 2 {
		t.Errorf("%v tokens, want the 2 that were earned", got)
	}
}

// What is used is never less after a change of limit, and more by less than a
// part.
func TestChangesRoundUp(t *testing.T) {
	tokens := func(p parts, per uint64) *big.Rat {
		n := new(big.Int).Lsh(new(big.Int).SetUint64(p.hi), 64)
		return new(big.Rat).SetFrac(n.Or(n, new(big.Int).SetUint64(p.lo)), new(big.Int).SetUint64(per))
	}
	rates := []Limit{3, 7, 10, 1.0 / 7, 999_983, 1e9 / 7.0, 3e9, 1e12, Every(time.Hour), Limit(math.Pi)}
	cut := 0
	for i, from := range rates {
		for j, to := range rates {
			lim := NewLimiter(from, 5)
			lim.AllowN(start, 5)
			at := after(time.Duration(i*j+1) * time.Nanosecond)
			lim.SetLimitAt(at, from)
			before := tokens(lim.used, lim.pace.token)
			lim.SetLimitAt(at, to)
			off := new(big.Rat).Sub(tokens(lim.used, lim.pace.token), before)
			if off.Sign() < 0 || off.Cmp(tokens(parts{lo: 1}, lim.pace.token)) >= 0 {
				t.Errorf("from %v to %v: %v tokens more are used", from, to, off)
			}
			cut += off.Sign()
		}
	}
	if cut == 0 {
		t.Error("no change had to round: this tests nothing")
	}
}

// Numbers at the ends saturate instead of wrapping.
func TestDebtBeyondAllNumbers(t *testing.T) {
	lim := NewLimiter(Every(time.Nanosecond), math.MaxInt)
	lim.ReserveN(start, math.MaxInt)
	if !lim.ReserveN(start, math.MaxInt/2).OK() {
		t.Error("146 years are too long a wait")
	}
	lim.SetLimitAt(start, Every(100*365*24*time.Hour))
	if lim.AllowN(after(100*365*24*time.Hour), 1) || lim.ReserveN(start, 1).OK() {
		t.Error("a debt of 2^63 centuries is paid off")
	}
	if got := lim.TokensAt(start); got > -1e18 {
		t.Errorf("%v tokens, want a debt", got)
	}
	lim.SetBurstAt(start, 0)
	lim.SetBurstAt(start, math.MaxInt)
	lim.SetLimitAt(start, 1<<61)
	if lim.AllowN(start, 1) {
		t.Error("changes have paid off a debt")
	}
}
