package spillgate

import "testing"

// outcome keeps what a loop computes from being left out. (A loop of B.Loop costs
// three times the step here.)
var outcome struct {
	state  State
	bounds bounds
}

// What the pure step of each algorithm costs, allowed and denied by turns:
// no clock, no hash, no table.
func BenchmarkStep(b *testing.B) {
	for _, text := range []string{
		"1000/s burst 10", "3/s burst 10", "1000/s queue 9", "1000/s fixed", "1000/calendar day in Europe/Berlin",
		"1000/s sliding", "unlimited",
	} {
		b.Run(mustMeter(b, text).Limit().Algorithm.String()+"/"+text, func(b *testing.B) {
			m := mustMeter(b, text)
			var s State
			now := instant(b, "2026-01-01T00:00:00Z")
			b.ReportAllocs()
			for range b.N {
				now += 500_000
				s, _ = m.Take(s, now, 1)
			}
			outcome.state = s
		})
	}
	for _, text := range []string{"1000/s log", "65536/s log"} {
		b.Run("sliding log/"+text, func(b *testing.B) {
			r := logRun{m: mustMeter(b, text)}
			now := Instant(0)
			step := Instant(1e9 / r.m.Limit().Rate / 2)
			for range 4 * r.m.Limit().Rate {
				now += step
				r.take(now, 1)
			}
			b.ReportAllocs()
			for range b.N {
				now += step
				r.take(now, 1)
			}
		})
	}
	b.Run("sliding log/65536/s log, a large cost denied", func(b *testing.B) {
		r := logRun{m: mustMeter(b, "65536/s log")}
		for i := range Instant(65536) {
			r.take(i, 1)
		}
		b.ReportAllocs()
		for range b.N {
			r.take(65536, 60000)
		}
	})
	b.Run("concurrency/1000 at once, in and out", func(b *testing.B) {
		m := mustMeter(b, "1000 at once")
		var l slotState
		now, number := Instant(0), uint64(0)
		b.ReportAllocs()
		for range b.N {
			now++
			number++
			l.settle(m, now, l.commit(m, l.ask(m, now, Ask{N: 1}), number), -1)
		}
	})
}

func BenchmarkAdopt(b *testing.B) {
	m, o := mustMeter(b, "10/s burst 10"), mustMeter(b, "7/s burst 20")
	s, _ := o.Take(State{}, 0, 15)
	b.ReportAllocs()
	for range b.N {
		outcome.state = m.Adopt(s, 1)
	}
}

func BenchmarkCalendarWindow(b *testing.B) {
	z := zone(b, "Europe/Berlin")
	now := instant(b, "2026-01-01T00:00:00Z")
	for c := Minute; c < calendars; c++ {
		b.Run(c.String(), func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				outcome.bounds = c.window(now, z)
			}
		})
	}
}
