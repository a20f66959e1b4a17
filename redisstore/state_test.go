package redisstore

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate"
)

// FuzzState reads what may stand at a key: an error, or a state that is written
// as it was.
func FuzzState(f *testing.F) {
	m, err := mustLimit("10/s burst 20").Meter()
	if err != nil {
		f.Fatal(err)
	}
	for _, text := range []string{"10/s burst 20", "7/3s queue 5", "3/m fixed", "3/calendar day in Europe/Berlin", "4/10s sliding", "1/h burst 2 fill"} {
		l, err := mustLimit(text).Meter()
		if err != nil {
			f.Fatal(err)
		}
		now := instantOf(at(2030))
		s, _ := l.Take(zeroState, instant(now), 1)
		for _, ttl := range []int64{0, 1e9} {
			b, _ := appendState(nil, s, l, instant(now), ttl)
			f.Add(string(b))
		}
	}
	f.Add("")
	f.Add("text of somebody else")
	f.Fuzz(func(t *testing.T, raw string) {
		s, stamp, err := readState(raw, m)
		if err != nil {
			return
		}
		if l, _, _, err := readLabel([]byte(raw)); err != nil || l.Validate() != nil {
			t.Fatalf("%q is read as %v, %d of %v, %v", raw, s, stamp, l, err)
		}
	})
}

var zeroState spillgate.State

func at(year int) time.Time { return time.Date(year, 1, 1, 0, 0, 0, 1, time.UTC) }

func instant(ns int64) spillgate.Instant { return spillgate.Instant(ns) }

func mustLimit(text string) spillgate.Limit {
	l, _ := spillgate.ParseLimit(text) // the zero Limit makes no meter
	return l
}
