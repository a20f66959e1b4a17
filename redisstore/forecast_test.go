package redisstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/redisstore/redistest"
)

// What is foreseen of a sliding counter is what a refusal says, and what that says of
// those behind; of other limits nothing is.
func TestForecast(t *testing.T) {
	s := open(t, redistest.Start(t).Client())
	space, err := spillgate.NewSpace("s", spillgate.SpaceOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for text, known := range map[string]bool{"5/10min sliding": true, "5/10min log": false, "5/10min fixed": false, "1/h burst 5": false} {
		l, err := spillgate.ParseLimit(text)
		if err != nil {
			t.Fatal(err)
		}
		m, err := l.Meter()
		if err != nil {
			t.Fatal(err)
		}
		c := spillgate.Charge{Space: space, Key: spillgate.Key{uint64(len(text)), 1}, Meter: m}
		take := func(n int64) spillgate.Decision {
			var out [1]spillgate.Decision
			c.N = n
			if err := s.Take(context.Background(), time.Time{}, []spillgate.Charge{c}, out[:]); err != nil {
				t.Fatal(err)
			}
			return out[0]
		}
		take(5)
		before := time.Now()
		told := take(3).RetryAfter
		f, err := s.Forecast(context.Background(), &c)
		if err != nil || f.Known() != known {
			t.Fatalf("%s: known %t, %v", text, f.Known(), err)
		}
		if !known {
			continue
		}
		if got := f.Wait(spillgate.Ask{N: 3}); got > told || got < told-time.Since(before) {
			t.Errorf("%s: foreseen %s, told %s", text, got, told)
		}
		first := f.Wait(spillgate.Ask{N: 3})
		f.Serve(spillgate.Ask{N: 3})
		if got := f.Wait(spillgate.Ask{N: 3}); got <= first {
			t.Errorf("%s: the next is served after %s, this one after %s", text, got, first)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	sliding, _ := spillgate.ParseLimit("5/10s sliding")
	m, err := sliding.Meter()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Forecast(context.Background(), &spillgate.Charge{Space: space, Meter: m}); err == nil {
		t.Error("a closed store foresees")
	}
}
