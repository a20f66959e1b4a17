package oracle

// A Move is one step of a list: a cost asked for at an instant.
type Move struct{ At, Cost int64 }

// A Scope is a set of step lists small enough to try every one: all lists of
// Depth moves, for every limit, period and burst, in which each move lies one
// of Gaps after the one before (the first: after Origin) and has one of Costs.
type Scope struct {
	Algorithm               string
	Limits, Periods, Bursts []int64
	Gaps, Costs             []int64
	Depth                   int   // moves of the longest lists
	Origin                  int64 // where the lists begin
	// Scale multiplies periods and gaps, for limiters that have a least
	// period. 0 is 1.
	Scale int64
}

// SmallScope returns the lists in which every boundary case of an algorithm
// lies: limit 1 to 3, period 1 to 4 ns, burst 0 to 3, gaps -1 to 3 ns, costs
// 0 to 4. Windows have no burst. At depth 5 that is 488,281,200 moves (a
// quarter for windows), see [Scope.Moves].
func SmallScope(algorithm string, depth int) Scope {
	s := Scope{
		Algorithm: algorithm,
		Limits:    []int64{1, 2, 3},
		Periods:   []int64{1, 2, 3, 4},
		Bursts:    []int64{0, 1, 2, 3},
		Gaps:      []int64{-1, 0, 1, 2, 3},
		Costs:     []int64{0, 1, 2, 3, 4},
		Depth:     depth,
	}
	if windowed(algorithm) {
		s.Bursts = []int64{0}
	}
	return s
}

// Moves returns how many moves Walk makes: lists share their beginnings, so
// with n = gaps*costs it is n + n^2 + ... + n^Depth for each limit.
func (s Scope) Moves() int64 {
	n := int64(len(s.Gaps) * len(s.Costs))
	total, level := int64(0), int64(1)
	for range s.Depth {
		level *= n
		total += level
	}
	return total * int64(len(s.Limits)*len(s.Periods)*len(s.Bursts))
}

// Split returns a scope for each single limit, period and burst, to be walked
// by different goroutines.
func (s Scope) Split() []Scope {
	var parts []Scope
	for _, limit := range s.Limits {
		for _, period := range s.Periods {
			for _, burst := range s.Bursts {
				p := s
				p.Limits, p.Periods, p.Bursts = []int64{limit}, []int64{period}, []int64{burst}
				parts = append(parts, p)
			}
		}
	}
	return parts
}

// A Node is a place in the tree of lists. Walk changes it in place: copy what
// is to be kept.
type Node struct {
	Limit, Period, Burst int64
	// Path are the moves that lead here, none at the root of a limit's tree.
	Path []Move
	// Answer is the oracle's to the last move of Path.
	Answer Answer
}

// Walk visits all lists, depth first: a list before those it begins. A visitor
// that keeps a state for each depth has that of the list's beginning at
// len(Path)-1, and makes one step a visit:
//
//	states[0] = first state        // len(Path) == 0
//	states[d] = step(states[d-1])  // d := len(Path)
//
// Walk ends early, and returns false, if visit does. An unknown algorithm or
// an impossible limit is an error.
func (s Scope) Walk(visit func(*Node) bool) (bool, error) {
	scale := max(s.Scale, 1)
	for _, p := range s.Split() {
		l, err := New(p.Algorithm, p.Limits[0], p.Periods[0]*scale, p.Bursts[0])
		if err != nil {
			return false, err
		}
		w := walk{Scope: p, scale: scale, visit: visit, states: make([]Limiter, s.Depth+1)}
		w.states[0] = *l
		w.node = Node{Limit: l.limit, Period: l.period, Burst: l.burst, Path: make([]Move, 0, s.Depth)}
		if !visit(&w.node) || !w.from(0, s.Origin) {
			return false, nil
		}
	}
	return true, nil
}

type walk struct {
	Scope
	scale  int64
	visit  func(*Node) bool
	states []Limiter // of each depth
	node   Node
}

// from makes all moves that follow the list of this depth, whose last move is
// dated at.
func (w *walk) from(depth int, at int64) bool {
	if depth == w.Depth {
		return true
	}
	here, next := &w.states[depth], &w.states[depth+1]
	w.node.Path = w.node.Path[:depth+1]
	for _, gap := range w.Gaps {
		for _, cost := range w.Costs {
			m := Move{at + gap*w.scale, cost}
			*next = *here
			if here.exact != nil {
				next.exact = here.exact.clone()
			}
			w.node.Answer = next.Step(m.At, m.Cost)
			w.node.Path[depth] = m
			if !w.visit(&w.node) || !w.from(depth+1, m.At) {
				return false
			}
			w.node.Path = w.node.Path[:depth+1]
		}
	}
	w.node.Path = w.node.Path[:depth]
	return true
}
