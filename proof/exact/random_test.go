package exact

import (
	"flag"
	"math/rand/v2"
	"testing"

	"github.com/spillgate/spillgate/proof/oracle"
)

var (
	lists = flag.Int("lists", 20_000, "random lists for each algorithm, half of them with changes; a sixth of that under the race detector")
	first = flag.Uint64("first", 0, "seed of the first random list")
)

// TestRandomLists plays random lists, of steps alone and with changes,
// refunds and debts in between, by one way or the other. A list that fails is
// told as small as it can be made, with its seed.
func TestRandomLists(t *testing.T) {
	n := uint64(*lists)
	if Raced {
		n /= 6
	}
	for _, algorithm := range Algorithms {
		t.Run(algorithm, func(t *testing.T) {
			t.Parallel()
			ways, calls := Ways(algorithm), 0
			for seed := *first; seed < *first+n; seed++ {
				list, err := oracle.Random(rand.New(rand.NewPCG(seed, 1)), algorithm, 16, seed%2 == 1)
				if err != nil {
					t.Fatal(err)
				}
				way := ways[seed/2%uint64(len(ways))]
				n, err := Compare(list, way)
				calls += n
				if err != nil {
					small := Shrink(list, func(l oracle.List) bool { _, err := Compare(l, way); return err != nil })
					_, err = Compare(small, way)
					t.Fatalf("seed %d, made small: %v", seed, err)
				}
			}
			t.Logf("%d lists, %d calls", n, calls)
		})
	}
}
