package spillgate

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// After a raise a key that waited full has what it held, and earns the rest:
// whether its full state is remembered, was forgotten, or never was.
func TestRaisedBurstIsEarnedByAllAlike(t *testing.T) {
	at := func(d time.Duration) time.Time { return time.Unix(1_000_000, 0).Add(d) }
	for _, tt := range []struct {
		from, to string
		after    time.Duration
		want     int64
	}{
		{"10/s burst 5", "10/s burst 10", 0, 5},
		{"10/s burst 5", "10/s burst 10", 300 * time.Millisecond, 8},
		{"10/s burst 5", "10/s burst 10", time.Second, 10},
		{"10/s burst 5", "100/s burst 10", 30 * time.Millisecond, 8},
		{"10/s burst 5", "10/s burst 10 fill", 0, 10},
		{"10/s burst 10", "10/s burst 5", 0, 5},
	} {
		for _, key := range []string{"remembered", "forgotten", "never seen"} {
			t.Run(fmt.Sprintf("%s to %s after %s, %s", tt.from, tt.to, tt.after, key), func(t *testing.T) {
				m := NewMemory()
				defer m.Close()
				sp, err := NewSpace("s", SpaceOptions{MaxKeys: 2})
				if err != nil {
					t.Fatal(err)
				}
				from, to := meterOfText(t, tt.from), meterOfText(t, tt.to)
				take := func(k Key, meter *Meter, when time.Duration, n int64) Decision {
					out := make([]Decision, 1)
					if err := m.Take(context.Background(), at(when), []Charge{{Space: sp, Key: k, Meter: meter, Ask: Ask{N: n}}}, out); err != nil {
						t.Fatal(err)
					}
					return out[0]
				}
				who := Key{7, 7}
				if key != "never seen" {
					take(who, from, 0, 2)
				}
				if key == "forgotten" { // by others that need its place
					for i := range uint64(4) {
						take(Key{100 + i}, from, time.Second+time.Duration(i)*time.Second, 1)
					}
				}
				change := 10 * time.Second
				to, err = sp.Change(from, to, instantOf(at(change)))
				if err != nil {
					t.Fatal(err)
				}
				if got := take(who, to, change+tt.after, 0).Remaining; got != tt.want {
					t.Errorf("%d left, want %d", got, tt.want)
				}
			})
		}
	}
}
