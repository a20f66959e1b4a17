package cases

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate"
)

func at(d time.Duration) time.Time { return time.Unix(1_000_000, 0).Add(d) }

// A limit of so many a minute that names no burst lets a browser's first
// requests through at once: the burst is the rate then.
func TestB072NoBurstGiven(t *testing.T) {
	l, err := spillgate.ParseLimit("6000/min")
	if err != nil {
		t.Fatal(err)
	}
	if l.Burst != 6000 {
		t.Errorf("burst %d", l.Burst)
	}
	synctest.Test(t, func(t *testing.T) {
		lim, err := spillgate.New(l)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 154 {
			if !lim.Allow("browser") {
				t.Fatalf("request %d of 154 at once is refused", i)
			}
		}
	})
}

// A limit on trial tells what it would have refused, each time, and refuses
// nothing.
func TestB109TrialTellsEveryRefusal(t *testing.T) {
	meter := func(text string) *spillgate.Meter {
		l, err := spillgate.ParseLimit(text)
		if err != nil {
			t.Fatal(err)
		}
		m, err := l.Meter()
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	space := func(name string) *spillgate.Space {
		sp, err := spillgate.NewSpace(name, spillgate.SpaceOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return sp
	}
	for name, cs := range map[string][]spillgate.Charge{
		"alone": {{Space: space("trial"), Key: spillgate.Key{7}, Meter: meter("10/min fixed"), Ask: spillgate.Ask{N: 1}, Trial: true}},
		"beside an enforced one": {
			{Space: space("trial"), Key: spillgate.Key{7}, Meter: meter("10/min fixed"), Ask: spillgate.Ask{N: 1}, Trial: true},
			{Space: space("enforced"), Key: spillgate.Key{7}, Meter: meter("1000/min fixed"), Ask: spillgate.Ask{N: 1}},
		},
	} {
		memory := spillgate.NewMemory()
		out := make([]spillgate.Decision, len(cs))
		would := 0
		for i := range 100 {
			if err := memory.Take(context.Background(), at(time.Duration(i)*time.Millisecond), cs, out); err != nil {
				t.Fatal(err)
			}
			if !out[0].Allowed {
				would++
			}
			if len(out) > 1 && (!out[1].Allowed || out[1].Taken != 1) {
				t.Fatalf("%s: refused by a trial: %+v", name, out)
			}
		}
		if would != 90 {
			t.Errorf("%s: would have refused %d, want 90", name, would)
		}
	}
}

// A key that is drained stays so when its limit is set to what it is, and when
// that of others changes.
func TestB163StateOutlivesAReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim, other := spillgate.Must("5/h burst 5"), spillgate.Must("1/s burst 1")
		for range 5 {
			lim.Allow("key")
		}
		for range 3 {
			if err := lim.SetLimit(lim.Limit()); err != nil {
				t.Fatal(err)
			}
			again, err := spillgate.ParseLimit("5/h burst 5")
			if err != nil {
				t.Fatal(err)
			}
			if err := lim.SetLimit(again); err != nil {
				t.Fatal(err)
			}
			if err := other.SetLimit(again); err != nil {
				t.Fatal(err)
			}
			if lim.Allow("key") {
				t.Fatal("a reload gave a new burst")
			}
		}
		time.Sleep(12 * time.Minute)
		if !lim.Allow("key") || lim.Allow("key") {
			t.Error("a reload changed what is earned")
		}
	})
}

// When to call again and when all is as new are two numbers.
func TestB167RetryIsNotReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := spillgate.Must("1/s burst 6")
		for range 6 {
			lim.Allow("key")
		}
		if d := lim.Take("key", 1); d.Allowed || d.RetryAfter != time.Second || d.ResetAfter != 6*time.Second {
			t.Errorf("%+v", d)
		}
	})
}

// The wait is what is missing at the rate, never zero and never the units
// themselves.
func TestB036RetryIsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := spillgate.Must("2/s burst 10")
		lim.Take("key", 10)
		for i, want := range []time.Duration{2 * time.Second, time.Second, 0} {
			if d := lim.Take("key", 4); d.RetryAfter != want || d.Allowed != (want == 0) {
				t.Errorf("after %d s: %+v", i, d)
			}
			time.Sleep(time.Second)
		}
	})
}

// Leaky meters say when they are empty, counting all that is in them.
func TestB035ResetCountsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := spillgate.Must("1/s burst 5")
		if d := lim.Take("key", 5); d.ResetAfter != 5*time.Second {
			t.Errorf("%+v", d)
		}
		time.Sleep(2500 * time.Millisecond)
		if d := lim.Peek("key"); d.ResetAfter != 2500*time.Millisecond {
			t.Errorf("%+v", d)
		}
	})
}
