package exact

import (
	"context"
	"flag"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/proof/oracle"
)

var depth = flag.Int("depth", 3, "moves of the longest lists of the exhaustive small scope; in memory at most 4")

func smallScope(algorithm string, depth int) oracle.Scope {
	s := oracle.SmallScope(algorithm, depth)
	if algorithm == oracle.SlidingWindowCounter {
		s.Scale = 1e6 // the least period it has
	}
	return s
}

// TestSmallScope plays every list of the small scope through the pure step.
func TestSmallScope(t *testing.T) {
	for _, algorithm := range Algorithms {
		if algorithm == oracle.SlidingWindowLog {
			continue // in memory alone
		}
		for _, part := range smallScope(algorithm, *depth).Split() {
			t.Run(algorithm, func(t *testing.T) {
				t.Parallel()
				walkPure(t, part)
			})
		}
	}
}

func walkPure(t *testing.T, scope oracle.Scope) {
	type place struct {
		state spillgate.State
		now   int64
	}
	states := make([]place, scope.Depth+1)
	var m *spillgate.Meter
	var l spillgate.Limit
	_, err := scope.Walk(func(n *oracle.Node) bool {
		d := len(n.Path)
		if d == 0 {
			l = Limit(scope.Algorithm, n.Limit, n.Period, n.Burst)
			var err error
			if m, err = l.Meter(); err != nil {
				t.Error(err)
			}
			return err == nil
		}
		move, before, after := n.Path[d-1], &states[d-1], &states[d]
		after.now = max(before.now, move.At)
		var decision spillgate.Decision
		after.state, decision = m.Take(before.state, spillgate.Instant(after.now), move.Cost)
		got, err := Answer(decision, l, move.Cost, spillgate.Instant(after.now))
		if err != nil {
			t.Errorf("%v: %v", n.Path, err)
		} else if got != n.Answer {
			t.Errorf("%s %v:\noracle %+v\nengine %+v", l, n.Path, n.Answer, got)
		}
		return !t.Failed()
	})
	if err != nil {
		t.Error(err)
	}
}

// TestSmallScopeInMemory plays every list of the small scope on one key of a
// table that has room for two, each list so long after the one before that the
// key is as new: what is forgotten, or kept and as new, must not show. Under
// the race detector it plays one list in 13.
func TestSmallScopeInMemory(t *testing.T) {
	for _, algorithm := range Algorithms {
		for _, part := range smallScope(algorithm, min(*depth, 4)).Split() {
			t.Run(algorithm, func(t *testing.T) {
				t.Parallel()
				walkMemory(t, part)
			})
		}
	}
}

func walkMemory(t *testing.T, scope oracle.Scope) {
	l := Limit(scope.Algorithm, scope.Limits[0], scope.Periods[0]*max(scope.Scale, 1), scope.Bursts[0])
	m, err := l.Meter()
	if err != nil {
		t.Fatal(err)
	}
	sp, err := spillgate.NewSpace("small", spillgate.SpaceOptions{MaxKeys: 2})
	if err != nil {
		t.Fatal(err)
	}
	mem := spillgate.NewMemory()
	// Windows repeat after a multiple of all periods.
	apart := 12 * 8 * max(scope.Scale, 1)
	origin := int64(0)
	answers := make([]oracle.Answer, scope.Depth)
	every, leaf := 1, 0
	if Raced {
		every = 13
	}
	charge := []spillgate.Charge{{Space: sp, Meter: m}}
	var d [1]spillgate.Decision
	_, err = scope.Walk(func(n *oracle.Node) bool {
		if len(n.Path) == 0 {
			return true
		}
		answers[len(n.Path)-1] = n.Answer
		if len(n.Path) < scope.Depth {
			return true
		}
		if leaf++; leaf%every != 0 {
			return true
		}
		charge[0].Key = spillgate.Key{uint64(1+origin/apart%3) << 62, 0} // three keys take turns
		latest := int64(0)
		for i, move := range n.Path {
			charge[0].N = move.Cost
			// Before its beginning a list has no clock of its own.
			at := origin + max(move.At, 0)
			latest = max(latest, move.At)
			if err := mem.Take(context.Background(), time.Unix(0, at), charge, d[:]); err != nil {
				t.Error(err)
				return false
			}
			got, err := Answer(d[0], l, move.Cost, spillgate.Instant(origin+latest))
			if err != nil {
				t.Errorf("%v: %v", n.Path, err)
			} else if got != answers[i] {
				t.Errorf("%s %v, move %d, from %d:\noracle %+v\nengine %+v", l, n.Path, i, origin, answers[i], got)
			}
		}
		origin += apart
		return !t.Failed()
	})
	if err != nil {
		t.Error(err)
	}
}

// TestSmallChanges plays small lists with one change of limit in them: from
// every limit to every other, after every list of one or two steps, followed
// by every step. Below depth 5 it takes one pair in 37,
// under the race detector one in 149.
func TestSmallChanges(t *testing.T) {
	pairs := int64(37) // a prime: every limit comes to stand beside every other in time
	switch {
	case *depth >= 5:
		pairs = 1
	case Raced:
		pairs = 149
	}
	for _, algorithm := range Algorithms {
		for _, way := range Ways(algorithm) {
			t.Run(algorithm+"/"+way.Name, func(t *testing.T) {
				t.Parallel()
				var calls atomic.Int64
				scopes := smallScope(algorithm, 1).Split()
				for i, from := range scopes {
					for k, to := range scopes {
						if int64(i*len(scopes)+k)%pairs == 0 {
							calls.Add(changeSmall(t, way, from, to))
						}
					}
				}
				t.Logf("%d calls", calls.Load())
			})
		}
	}
}

func changeSmall(t *testing.T, way Way, from, to oracle.Scope) (calls int64) {
	scale := max(from.Scale, 1)
	for _, gap := range []int64{0, 1, 2} {
		for first := int64(1); first <= 3; first++ {
			for _, wait := range from.Gaps {
				for _, fill := range []oracle.Kind{oracle.Set, oracle.SetFill} {
					list := oracle.List{Algorithm: from.Algorithm, Limit: from.Limits[0], Period: from.Periods[0] * scale, Burst: from.Bursts[0]}
					set := oracle.Op{Kind: fill, At: (1 + gap) * scale, Limit: to.Limits[0], Period: to.Periods[0] * scale, Burst: to.Bursts[0]}
					list.Ops = []oracle.Op{{At: scale, N: first}, {At: scale, N: 1}, set}
					for _, cost := range from.Costs {
						list.Ops = append(list.Ops, oracle.Op{At: set.At + wait*scale, N: cost})
					}
					n, err := Compare(list, way)
					if calls += int64(n); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
	}
	return calls
}
