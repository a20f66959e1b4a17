package redisstore

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// TestCensusKeepsShares plays stores that come, go, are killed and fail to count, and a
// server that is away for a while and may have lost all: at any moment each that divides
// by its count divides by as many as do so, or more. Of 6,000 such plays one ended
// otherwise, for 5 s: a store failed to count by itself, then the server lost all, and
// it was the first to be back.
func TestCensusKeepsShares(t *testing.T) {
	for seed := range uint64(60) {
		if err := playCensus(rand.New(rand.NewPCG(seed, 11))); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
}

type countingNode struct {
	census
	next   time.Time
	failed bool // the last one, for itself
}

func playCensus(rng *rand.Rand) error {
	const every, step = 5 * time.Second, 50 * time.Millisecond
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	set := map[*countingNode]time.Time{} // on the server
	var nodes []*countingNode
	var away time.Time // until when the server is
	sum := 0
	count := func(n *countingNode) {
		n.next = now.Add(every)
		own := !n.failed && rng.IntN(10) == 0
		if n.failed = own; own || now.Before(away) {
			n.census.failed(Refused, now, every)
			return
		}
		set[n] = now
		for other, at := range set {
			if now.Sub(at) >= lifeOf(every) {
				delete(set, other)
			}
		}
		n.counted(len(set), now, every)
	}
	for end := now.Add(5 * time.Minute); now.Before(end); now = now.Add(step) {
		switch {
		case rng.IntN(100) == 0 && len(nodes) < 8:
			n := &countingNode{}
			nodes = append(nodes, n)
			count(n)
		case rng.IntN(300) == 0 && len(nodes) > 0:
			i := rng.IntN(len(nodes))
			if rng.IntN(2) == 0 && !now.Before(away) {
				delete(set, nodes[i]) // closed, not killed
			}
			nodes = append(nodes[:i], nodes[i+1:]...)
		case rng.IntN(800) == 0 && !now.Before(away):
			away = now.Add(time.Duration(rng.Int64N(int64(40 * time.Second))))
			if rng.IntN(2) == 0 {
				clear(set)
			}
		}
		back := !away.IsZero() && !now.Before(away)
		if back {
			away = time.Time{}
		}
		for _, i := range rng.Perm(len(nodes)) {
			// Who has no request in the meantime hears of it at its next turn.
			if n := nodes[i]; !now.Before(n.next) || back && rng.IntN(2) == 0 {
				count(n)
			}
		}
		sharing := 0
		for _, n := range nodes {
			if n.nodes.Mutual {
				sharing++
			}
		}
		sum += sharing
		for _, n := range nodes {
			if n.nodes.Mutual && n.nodes.Count < sharing {
				return fmt.Errorf("%d divide at %s, and one of them by %d", sharing, now.Format(time.TimeOnly), n.nodes.Count)
			}
		}
	}
	if sum == 0 {
		return fmt.Errorf("nobody divided at any time")
	}
	return nil
}
