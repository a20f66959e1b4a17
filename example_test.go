package spillgate_test

import (
	"fmt"
	"time"

	"github.com/spillgate/spillgate"
)

func ExampleParseLimit() {
	for _, text := range []string{"10/s", "1/10s burst 10", "1000/calendar day in Europe/Berlin", "20 at once for 30s", "10/fortnight"} {
		l, err := spillgate.ParseLimit(text)
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Printf("%s: a %s, at most %d at once\n", l, l.Algorithm, l.Cap())
	}
	// Output:
	// 10/s burst 10: a bucket, at most 10 at once
	// 1/10s burst 10: a bucket, at most 10 at once
	// 1000/calendar day in Europe/Berlin: a fixed window, at most 1000 at once
	// 20 at once for 30s: a concurrency, at most 20 at once
	// spillgate: limit not understood: "10/fortnight" at byte 3: period "fortnight": a period is a whole number and a unit (ns, us, ms, s, m or min, h, d, w), such as "s", "10s" or "30d"
}

// The step is pure: state and time go in, state and decision come out.
func ExampleMeter_Take() {
	m, err := spillgate.Limit{Rate: 3, Period: time.Second, Burst: 2}.Meter()
	if err != nil {
		fmt.Println(err)
		return
	}
	var s spillgate.State // of a key never seen
	var d spillgate.Decision
	for _, at := range []spillgate.Instant{0, 0, 0, 333_333_333, 333_333_334} {
		s, d = m.Take(s, at, 1)
		fmt.Println(at, d.Allowed, d.Remaining, d.RetryAfter, d.ResetAfter)
	}
	// Output:
	// 0 true 1 0s 333.333334ms
	// 0 true 0 0s 666.666667ms
	// 0 false 0 333.333334ms 666.666667ms
	// 333333333 false 0 1ns 333.333334ms
	// 333333334 true 0 0s 666.666666ms
}

// A request of uncertain size takes what fits, and leaves some for others.
func ExampleMeter_Grant() {
	m, _ := spillgate.Limit{Rate: 10, Period: time.Minute, Burst: 10}.Meter()
	_, d := m.Grant(spillgate.State{}, 0, spillgate.Ask{N: 50, Min: 1, Keep: 3})
	fmt.Println(d.Allowed, d.Taken, d.Remaining)
	// Output: true 7 0
}

// An estimate is charged first and corrected when the truth is known.
func ExampleMeter_Settle() {
	m, _ := spillgate.Limit{Rate: 100, Period: time.Second, Burst: 1000}.Meter()
	s, d := m.Take(spillgate.State{}, 0, 800)
	fmt.Println(d.Remaining)
	s = m.Settle(s, 0, d.At, 300-d.Taken) // it was 300
	_, d = m.Take(s, 0, 0)
	fmt.Println(d.Remaining)
	// Output:
	// 200
	// 700
}

// What was earned under the old limit stays earned.
func ExampleMeter_Adopt() {
	slow, _ := spillgate.Limit{Rate: 10, Period: time.Second, Burst: 10}.Meter()
	fast, _ := spillgate.Limit{Rate: 100, Period: time.Second, Burst: 10}.Meter()
	s, _ := slow.Take(spillgate.State{}, 0, 10)
	at := spillgate.Instant(300 * time.Millisecond)
	_, d := fast.Take(fast.Adopt(s, at), at, 0)
	fmt.Println(d.Remaining, d.ResetAfter)
	// Output: 3 70ms
}
