package spillgate_test

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate"
)

func TestLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := spillgate.Must("1/10s burst 2")
		defer l.Close()
		if d := l.Peek("a"); d.Remaining != 2 || !d.Allowed || l.Stats().Live != 0 {
			t.Errorf("peek of a new key: %+v, %+v", d, l.Stats())
		}
		for i, want := range []bool{true, true, false} {
			if got := l.Allow("a"); got != want {
				t.Errorf("unit %d: %t, want %t", i, got, want)
			}
		}
		if !l.Allow("b") {
			t.Error("another key: refused")
		}
		d := l.Take("a", 1)
		if d.Allowed || d.RetryAfter != 10*time.Second || d.ResetAfter != 20*time.Second {
			t.Errorf("%+v, want retry after 10s and reset after 20s", d)
		}
		time.Sleep(d.RetryAfter - 1)
		if l.Allow("a") {
			t.Error("1 ns early: allowed")
		}
		time.Sleep(time.Nanosecond)
		if !l.Allow("a") {
			t.Error("at retry after: refused")
		}
	})
}

func TestLimiterOfEveryAlgorithm(t *testing.T) {
	for _, text := range []string{"2/1m burst 2", "2/1m fixed", "2/1m sliding", "2/1m queue 1", "2/calendar day"} {
		synctest.Test(t, func(t *testing.T) {
			l := spillgate.Must(text)
			defer l.Close()
			for i, want := range []bool{true, true, false} {
				if got := l.Allow("a"); got != want {
					t.Errorf("%s: unit %d: %t, want %t", text, i, got, want)
				}
			}
			d := l.Take("a", 1)
			if d.Allowed || d.RetryAfter < 1 {
				t.Errorf("%s: %+v", text, d)
			}
			time.Sleep(d.RetryAfter)
			if !l.Allow("a") {
				t.Errorf("%s: at retry after: refused", text)
			}
		})
	}
	l := spillgate.Must("unlimited")
	defer l.Close()
	if d := l.Take("a", math.MaxInt64); !d.Allowed || !l.Allow("a") || l.Stats().Live != 0 {
		t.Errorf("unlimited: %+v, %+v", d, l.Stats())
	}
}

func TestLimiterSettles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := spillgate.Must("1/1h burst 10")
		defer l.Close()
		left := func(want int64) {
			t.Helper()
			if got := l.Peek("a").Remaining; got != want {
				t.Errorf("%d left, want %d", got, want)
			}
		}
		d := l.Take("a", 4)
		l.Spent("a", d, 1)
		left(9)
		d = l.Take("a", 4)
		l.Spent("a", d, 4)
		left(5)
		l.GiveBack("a", d)
		left(9)
		l.Spent("a", l.Take("a", 1), 12) // three more than there were
		left(0)
		if d := l.Take("a", 1); d.RetryAfter != 4*time.Hour {
			t.Errorf("in debt: %+v, want retry after 4h", d)
		}
		denied := l.Take("a", 1)
		l.GiveBack("a", denied)
		l.Spent("a", denied, -5)
		if d := l.Take("a", 1); d.RetryAfter != 4*time.Hour {
			t.Errorf("a denied charge was given back: %+v", d)
		}
	})
}

func TestLimiterSetLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := spillgate.Must("1/1s burst 10")
		defer l.Close()
		l.Take("a", 10)
		l.Take("idle", 10)
		time.Sleep(2 * time.Second)
		to := spillgate.Limit{Rate: 1, Period: time.Minute, Burst: 10}
		if err := l.SetLimit(to); err != nil {
			t.Fatal(err)
		}
		if l.Limit() != to {
			t.Errorf("limit %v, want %v", l.Limit(), to)
		}
		time.Sleep(time.Minute)
		for _, k := range []string{"a", "idle"} {
			if d := l.Peek(k); d.Remaining != 3 {
				t.Errorf("%s: %+v, want 2 of the old limit and 1 of the new", k, d)
			}
		}
		back := spillgate.Limit{Rate: 1, Period: time.Second, Burst: 10}
		for range 3 { // to and fro
			if err := errors.Join(l.SetLimit(back), l.SetLimit(back), l.SetLimit(to)); err != nil {
				t.Fatal(err)
			}
		}
		if d := l.Peek("a"); d.Remaining != 3 {
			t.Errorf("to and fro: %+v, want 3 left", d)
		}
		if err := l.SetLimit(spillgate.Limit{}); !errors.Is(err, spillgate.ErrLimit) || l.Limit() != to {
			t.Errorf("an impossible limit: %v, and now it is %v", err, l.Limit())
		}
		if err := l.SetLimit(spillgate.Limit{Period: 1, Burst: 1}); !errors.Is(err, spillgate.ErrCharge) {
			t.Errorf("a limit that needs a ttl: %v", err)
		}
	})
}

// A full table frees places by the limit in force, not by the one under which
// its states were written.
func TestLimiterFreesByTheLimitInForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := spillgate.Must("1/1h burst 1", spillgate.MaxKeys(2))
		defer l.Close()
		l.Allow("a")
		l.Allow("b")
		if d := l.Take("c", 1); !d.Overflow {
			t.Fatalf("%+v, want overflow", d)
		}
		if err := l.SetLimit(spillgate.Limit{Rate: 1, Period: time.Second, Burst: 1}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if d := l.Take("d", 1); d.Overflow || !d.Allowed {
			t.Errorf("%+v, want an entry of its own", d)
		}
		if err := l.SetLimit(spillgate.Limit{Rate: 1, Period: time.Hour, Burst: 1}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // d was as new by the old limit
		if l.Allow("d") || l.Take("e", 1).Overflow || !l.Take("f", 1).Overflow || l.Allow("d") {
			t.Error("d's state was dropped")
		}
	})
}

func TestLimiterWith(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := spillgate.Must("1/1m burst 2")
		defer l.Close()
		gold, err := l.With(spillgate.Limit{Rate: 10, Period: time.Minute, Burst: 20})
		if err != nil {
			t.Fatal(err)
		}
		for range 20 {
			if !gold.Allow("a") {
				t.Fatal("gold refused")
			}
		}
		if gold.Allow("a") || l.Allow("a") || !l.Allow("b") {
			t.Error("a is used up, b is not")
		}
		if l.Stats() != gold.Stats() {
			t.Errorf("%+v, %+v", l.Stats(), gold.Stats())
		}
		if _, err := l.With(spillgate.Limit{Period: 1, Burst: 1}); !errors.Is(err, spillgate.ErrCharge) {
			t.Errorf("a limit that needs a ttl: %v", err)
		}
		gold.Close()
		if d := l.Take("a", 1); d.Reason != spillgate.Closed {
			t.Errorf("%+v", d)
		}
	})
}

func TestLimiterTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := spillgate.Must("0/1s burst 2", spillgate.TTL(time.Minute))
		defer l.Close()
		for i, want := range []bool{true, true, false} {
			if got := l.Allow("a"); got != want {
				t.Errorf("unit %d: %t, want %t", i, got, want)
			}
		}
		if d := l.Take("a", 1); d.RetryAfter != time.Minute || d.ResetAfter != time.Minute {
			t.Errorf("%+v, want both 1m", d)
		}
		if d := l.Take("a", 3); d.RetryAfter != spillgate.Never {
			t.Errorf("more than fits: %+v", d)
		}
		time.Sleep(time.Minute - 1)
		if l.Allow("a") {
			t.Error("1 ns early: allowed")
		}
		time.Sleep(time.Nanosecond)
		if !l.Allow("a") {
			t.Error("after the ttl: refused")
		}
	})
}

func TestLimiterOptions(t *testing.T) {
	l := spillgate.Must("1/1h burst 1", spillgate.MaxKeys(2), spillgate.WhenFull(spillgate.MakeRoom))
	defer l.Close()
	for i := range 10 {
		if d := l.Take(fmt.Sprint(i), 1); !d.Allowed || d.Overflow {
			t.Errorf("key %d: %+v", i, d)
		}
	}
	if st := l.Stats(); st.Live != 2 || st.Cap != 2 || st.Evicted != 8 {
		t.Errorf("%+v", st)
	}
	ten := spillgate.Limit{Rate: 10, Period: time.Second, Burst: 10}
	for name, c := range map[string]struct {
		limit spillgate.Limit
		opts  []spillgate.Option
		want  error
	}{
		"zero limit":        {spillgate.Limit{}, nil, spillgate.ErrLimit},
		"negative max keys": {ten, []spillgate.Option{spillgate.MaxKeys(-1)}, spillgate.ErrLimit},
		"negative ttl":      {ten, []spillgate.Option{spillgate.TTL(-1)}, spillgate.ErrLimit},
		"unknown at cap":    {ten, []spillgate.Option{spillgate.WhenFull(9)}, spillgate.ErrLimit},
		"rate 0, no ttl":    {spillgate.Limit{Period: 1, Burst: 1}, nil, spillgate.ErrCharge},
	} {
		if _, err := spillgate.New(c.limit, c.opts...); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

func TestMustPanics(t *testing.T) {
	for _, text := range []string{"ten a second", "0/1s burst 1"} {
		func() {
			defer func() {
				if err, ok := recover().(error); !ok {
					t.Errorf("%s: panic of %v, want an error", text, err)
				}
			}()
			spillgate.Must(text)
		}()
	}
}

// Costs at the ends of what an int64 holds are refused, not wrapped.
func TestLimiterCosts(t *testing.T) {
	l := spillgate.Must("1/1s burst 10")
	defer l.Close()
	for n, want := range map[int64]spillgate.Reason{
		-1: spillgate.BadCost, math.MinInt64: spillgate.BadCost, math.MaxInt64: spillgate.NeverFits, 11: spillgate.NeverFits,
	} {
		if d := l.Take("a", n); d.Allowed || d.Reason != want {
			t.Errorf("%d: %+v, want reason %d", n, d, want)
		}
	}
	if d := l.Take("a", 10); !d.Allowed {
		t.Errorf("what was refused was charged: %+v", d)
	}
}

// A limiter closes once, whoever closes it and whatever is asked meanwhile.
func TestB141Close(t *testing.T) {
	l := spillgate.Must("1/1s burst 1000000")
	var wg sync.WaitGroup
	for w := range 10 {
		wg.Go(func() {
			for i := range 1000 {
				l.Allow(fmt.Sprint(i))
				if i == 500 {
					if err := l.Close(); err != nil {
						t.Error(err)
					}
				}
			}
			if w%2 == 0 {
				l.Close()
			}
		})
	}
	wg.Wait()
	l.Close()
	if l.Allow("a") {
		t.Error("allowed after Close")
	}
	d := l.Take("a", 1)
	if d.Allowed || d.Reason != spillgate.Closed || !errors.Is(d.Err(), spillgate.ErrClosed) {
		t.Errorf("after Close: %+v, %v", d, d.Err())
	}
	l.GiveBack("a", d)
	if d := l.Peek("a"); d.Reason != spillgate.Closed {
		t.Errorf("peek after Close: %+v", d)
	}
	if st := l.Stats(); st.Live != 0 || st.Bytes != 0 {
		t.Errorf("after Close: %+v", st)
	}
	mem := spillgate.NewMemory()
	if err := errors.Join(mem.Close(), mem.Close()); err != nil {
		t.Error(err)
	}
	r := newRig(t, "1/1s burst 1", spillgate.SpaceOptions{})
	cs := []spillgate.Charge{{Space: r.space, Meter: r.meter}, {Space: r.space, Meter: r.meter}}
	for n := range 3 {
		if err := mem.Take(t.Context(), epoch, cs[:n], make([]spillgate.Decision, n)); !errors.Is(err, spillgate.ErrClosed) {
			t.Errorf("%d charges after Close: %v", n, err)
		}
	}
	if err := mem.Settle(t.Context(), epoch, []spillgate.Correction{{Space: r.space, Meter: r.meter}}); !errors.Is(err, spillgate.ErrClosed) {
		t.Errorf("settle after Close: %v", err)
	}
}

// Many ask while the limit goes to and fro: what is admitted stays within the
// larger limit, and nothing races.
func TestLimiterAtOnce(t *testing.T) {
	l := spillgate.Must("1/1h burst 100")
	defer l.Close()
	var mu sync.Mutex
	allowed := 0
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			mine := 0
			for i := range 500 {
				switch {
				case w == 0 && i%10 == 0:
					if err := l.SetLimit(spillgate.Limit{Rate: 1, Period: time.Hour, Burst: 100 + int64(i/10%2)}); err != nil {
						t.Error(err)
					}
				case i%3 == 0:
					mine += int(l.Take("a", 1).Taken)
				case l.Allow("a"):
					mine++
				}
				l.Peek("a")
			}
			mu.Lock()
			allowed += mine
			mu.Unlock()
		})
	}
	wg.Wait()
	if allowed < 100 || allowed > 101 {
		t.Errorf("%d allowed, want 100 or 101", allowed)
	}
}

func TestLimiterAllocatesNothing(t *testing.T) {
	l := spillgate.Must("1000/1s burst 1000")
	defer l.Close()
	key := string([]byte("203.0.113.9"))
	l.Allow(key)
	d := l.Take(key, 1)
	for name, f := range map[string]func(){
		"Allow":    func() { l.Allow(key) },
		"Take":     func() { l.Take(key, 2) },
		"Peek":     func() { l.Peek(key) },
		"Peek new": func() { l.Peek("nobody") },
		"Spent":    func() { l.Spent(key, d, 2) },
		"GiveBack": func() { l.GiveBack(key, d) },
	} {
		if n := testing.AllocsPerRun(1000, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func ExampleLimiter() {
	logins := spillgate.Must("1/10s burst 2")
	defer logins.Close()
	for range 3 {
		d := logins.Take("203.0.113.9", 1)
		fmt.Println(d.Allowed, d.Remaining, d.RetryAfter.Round(time.Second))
	}
	// Output:
	// true 1 0s
	// true 0 0s
	// false 0 10s
}

func ExampleLimiter_GiveBack() {
	passwords := spillgate.Must("1/10s burst 10")
	defer passwords.Close()
	d := passwords.Take("203.0.113.9", 1)
	if right := true; right {
		passwords.GiveBack("203.0.113.9", d)
	}
	fmt.Println(passwords.Peek("203.0.113.9").Remaining)
	// Output: 10
}

func ExampleLimiter_With() {
	visitors := spillgate.Must("1/1s burst 2")
	defer visitors.Close()
	members, _ := visitors.With(spillgate.Limit{Rate: 5, Period: time.Second, Burst: 100})
	fmt.Println(visitors.Take("anna", 50).Allowed, members.Take("anna", 50).Allowed)
	// Output: false true
}
