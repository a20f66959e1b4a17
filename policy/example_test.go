package policy_test

import (
	"context"
	"fmt"
	"time"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/policy"
)

func ExampleEngine_Limited() {
	visitor, err := policy.ParsePart("client.ip")
	if err != nil {
		panic(err)
	}
	limit, err := spillgate.ParseLimit("6/min burst 20")
	if err != nil {
		panic(err)
	}
	pol, err := policy.Compile([]policy.Rule{{Name: "visitor", Key: []policy.Part{visitor}, Limit: limit}})
	if err != nil {
		panic(err)
	}
	eng := policy.NewEngine(pol, spillgate.NewMemory(), policy.Track(100))

	noon := time.Date(2025, 6, 1, 12, 0, 0, 0, time.UTC)
	for addr, requests := range map[string]int{"203.0.113.9": 25, "2001:db8::7": 120, "192.0.2.1": 3} {
		from := policy.Attrs{"client.ip": addr}
		for range requests {
			eng.Decide(context.Background(), from, policy.At(noon))
		}
	}

	for _, c := range eng.Limited("visitor", 10) {
		fmt.Printf("%s: %d denied, %d near, free in %s\n", c.Key, c.Denied, c.Near, c.FreeAt.Sub(noon))
	}
	// Output:
	// client.ip=2001:db8::/64: 100 denied, 2 near, free in 10s
	// client.ip=203.0.113.9: 5 denied, 2 near, free in 10s
}
