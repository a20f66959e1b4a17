package redisstore

import (
	"context"
	"testing"
	"time"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/redisstore/redistest"
)

// TestClockSetBack makes a store remember, and keys hold, times that the
// server's clock has yet to show, as after it was set back: time stands still, however
// long that is, so that nobody who was limited gets more than before, and whoever has
// units left has them.
func TestClockSetBack(t *testing.T) {
	client := redistest.Start(t).Client()
	for _, text := range []string{"3600/h burst 2", "3600/h queue 2", "2/1s fixed", "2/1s sliding", "2/1s log", "2 at once for 1s"} {
		for _, ahead := range []time.Duration{30 * time.Second, 2 * time.Hour} {
			s, err := New(client, Budget(10*time.Second), Remember(0))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.Close() })
			m, err := mustLimit(text).Meter()
			if err != nil {
				t.Fatal(err)
			}
			sp, err := spillgate.NewSpace(text+ahead.String(), spillgate.SpaceOptions{})
			if err != nil {
				t.Fatal(err)
			}
			key := spillgate.Key{}
			take := func(at time.Time, n int64) spillgate.Decision {
				t.Helper()
				var out [1]spillgate.Decision
				if err := s.Take(context.Background(), at, []spillgate.Charge{{Space: sp, Key: key, Meter: m, Ask: spillgate.Ask{N: n}}}, out[:]); err != nil {
					t.Fatal(err)
				}
				return out[0]
			}
			was := spillgate.Instant(time.Now().Add(ahead).UnixNano())
			all := m.Limit().Cap()
			if d := take(time.Unix(0, int64(was)), all); !d.Allowed {
				t.Fatalf("%s: %+v", text, d)
			}
			s.lanes[""].latest.Store(int64(was))
			for range 3 {
				d := take(time.Time{}, 1)
				wait := time.Duration(was-d.At) + m.Limit().Period*2
				switch {
				case d.Allowed || d.RetryAfter <= 0 || d.RetryAfter > wait:
					t.Errorf("%s, %s ahead: %+v, want a refusal for at most %s", text, ahead, d, wait)
				case d.At != was:
					t.Errorf("%s, %s ahead: decided at %d, want %d, where time stands still", text, ahead, d.At, was)
				}
			}
			key = spillgate.Key{1}
			take(time.Unix(0, int64(was)), all-1)
			if d := take(time.Time{}, 1); !d.Allowed || d.Remaining != 0 {
				t.Errorf("%s, %s ahead: %+v for who has one left", text, ahead, d)
			}
		}
	}
}
