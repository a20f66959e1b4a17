package rate

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestSometimes(t *testing.T) {
	for _, c := range []struct {
		name string
		s    *Sometimes
		want string // the calls that run, one each second
	}{
		{"zero", &Sometimes{}, "[0]"},
		{"first", &Sometimes{First: 3}, "[0 1 2]"},
		{"every", &Sometimes{Every: 4}, "[0 4 8]"},
		{"every one", &Sometimes{Every: 1}, "[0 1 2 3 4 5 6 7 8 9]"},
		{"interval", &Sometimes{Interval: 3 * time.Second}, "[0 3 6 9]"},
		{"between seconds", &Sometimes{Interval: 2*time.Second + 1}, "[0 3 6 9]"},
		{"all", &Sometimes{First: 2, Every: 5, Interval: 3 * time.Second}, "[0 1 4 5 8]"},
		{"below 0", &Sometimes{First: -1, Every: -1, Interval: -1}, "[0]"},
		{"longest interval", &Sometimes{Interval: InfDuration}, "[0]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var ran []int
				for i := range 10 {
					c.s.Do(func() { ran = append(ran, i) })
					time.Sleep(time.Second)
				}
				if got := fmt.Sprint(ran); got != c.want {
					t.Errorf("calls that ran: %s, want %s", got, c.want)
				}
			})
		})
	}
}

// The interval counts from the end of the last run.
func TestSometimesOfASlowFunction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := Sometimes{Interval: time.Second}
		s.Do(func() { time.Sleep(time.Minute) })
		time.Sleep(time.Second - 1)
		s.Do(func() { t.Error("it ran too soon") })
		time.Sleep(time.Nanosecond)
		ran := false
		s.Do(func() { ran = true })
		if !ran {
			t.Error("it did not run after the interval")
		}
	})
}

func TestSometimesFromManyGoroutines(t *testing.T) {
	s := Sometimes{Every: 10}
	ran := 0 // Do serializes
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				s.Do(func() { ran++ })
			}
		})
	}
	wg.Wait()
	if ran != 80 {
		t.Errorf("%d of 800 calls ran, want 80", ran)
	}
}

func TestSometimesAfterAPanic(t *testing.T) {
	var s Sometimes
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic is lost")
			}
		}()
		s.Do(func() { panic("oops") })
	}()
	ran := false
	s.Do(func() { ran = true })
	if !ran {
		t.Error("a call that panicked counts, or the next one hangs")
	}
}
