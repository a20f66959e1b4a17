package spillgate_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spillgate/spillgate"
)

// A program that calls somebody else's service waits for its turn. A wait that
// would be too long is told at once, and costs nothing.
func ExampleLimiter_Wait() {
	calls := spillgate.Must("1/h burst 1")
	defer calls.Close()

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for range 2 {
		_, err := calls.Wait(ctx, "api.example", 1)
		fmt.Println(err == nil, errors.Is(err, context.DeadlineExceeded))
	}
	// Output:
	// true false
	// false true
}

func ExampleLimiter_Reserve() {
	jobs := spillgate.Must("1/h burst 1")
	defer jobs.Close()

	now, _ := jobs.Reserve("reports", 1)
	next, _ := jobs.Reserve("reports", 1)
	fmt.Println(now.Delay(), next.Delay().Round(time.Minute))
	next.Cancel()
	// Output: 0s 1h0m0s
}
