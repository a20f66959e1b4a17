package spillgate_test

import (
	"context"
	"fmt"
	"time"

	"github.com/spillgate/spillgate"
)

// A busy key is decided from a lease: of a thousand requests a few are asked of
// the store behind it, here a memory, elsewhere one that several processes share.
func ExampleNewLeased() {
	shared := spillgate.NewMemory()
	store, err := spillgate.NewLeased(shared, spillgate.LeaseOptions{Nodes: 4, Share: 0.2})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()

	limit, _ := spillgate.ParseLimit("1000/s burst 1000")
	meter, _ := limit.Meter()
	bound := store.Bound(limit)
	fmt.Printf("a block is %d units; at most %d more than the limit\n", bound.Block, bound.Extra)

	space, _ := spillgate.NewSpace("api", spillgate.SpaceOptions{})
	seed := spillgate.NewSeed()
	key := seed.Key(spillgate.AppendPart(nil, "user", "ada"))
	charges := []spillgate.Charge{{Space: space, Key: key, Meter: meter, Ask: spillgate.Ask{N: 1}}}
	decisions := make([]spillgate.Decision, 1)
	at := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	for range 1000 {
		at = at.Add(2 * time.Millisecond)
		if err := store.Take(context.Background(), at, charges, decisions); err != nil {
			fmt.Println(err)
			return
		}
	}
	fmt.Println("asked less than 30 times:", store.Stats().Asked < 30)
	// Output:
	// a block is 50 units; at most 200 more than the limit
	// asked less than 30 times: true
}
