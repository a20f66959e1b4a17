package rate_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spillgate/spillgate/rate"
)

func ExampleLimiter_Allow() {
	lim := rate.NewLimiter(rate.Every(time.Hour), 2)
	for range 3 {
		fmt.Println(lim.Allow())
	}
	// Output:
	// true
	// true
	// false
}

func ExampleLimiter_AllowN() {
	start := time.Now()
	lim := rate.NewLimiter(3, 3) // three a second
	fmt.Println(lim.AllowN(start, 3))
	fmt.Println(lim.AllowN(start.Add(333_333_333*time.Nanosecond), 1))
	fmt.Println(lim.AllowN(start.Add(333_333_334*time.Nanosecond), 1))
	// Output:
	// true
	// false
	// true
}

func ExampleLimiter_ReserveN() {
	now := time.Now()
	lim := rate.NewLimiter(10, 5)
	for range 3 {
		r := lim.ReserveN(now, 3)
		fmt.Println(r.OK(), r.DelayFrom(now))
	}
	fmt.Println(lim.ReserveN(now, 6).OK()) // above the burst
	// Output:
	// true 0s
	// true 100ms
	// true 400ms
	// false
}

func ExampleLimiter_WaitN() {
	lim := rate.NewLimiter(1, 10)
	lim.AllowN(time.Now(), 10)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err := lim.WaitN(ctx, 5) // at once, as it would take about 5 s
	fmt.Println(errors.Is(err, context.DeadlineExceeded))
	// Output:
	// true
}

func ExampleSometimes() {
	notice := rate.Sometimes{First: 2, Every: 4}
	for i := range 9 {
		notice.Do(func() { fmt.Println(i) })
	}
	// Output:
	// 0
	// 1
	// 4
	// 8
}
