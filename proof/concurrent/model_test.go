package concurrent

import (
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/anishathalye/porcupine"

	"github.com/spillgate/spillgate"
)

const (
	spaces = 3
	keys   = 4
)

// An input is one call: charges, all or none; or a correction of an earlier
// charge; or a change of a space's limit. All are made at the instant now.
type input struct {
	now     spillgate.Instant
	charges []charge
	settle  *correction
	change  *change
	short   bool // only whether it is allowed is known
}

type charge struct {
	space, key int
	n          int64
}

type correction struct {
	charge
	delta    int64
	taken    spillgate.Instant
	overflow bool
}

type change struct{ space, to int }

// A world is what the model knows: comparable, so that the checker can tell
// that it has been here.
type world [spaces]struct {
	limit int // index into the limits of the space
	keys  [keys]spillgate.State
	spill spillgate.State
}

// A setup is what the spaces of a test are made of.
type setup struct {
	limits [spaces][]spillgate.Limit
	caps   [spaces]int
	meters [spaces][]*spillgate.Meter
}

func (s *setup) init(t testing.TB) {
	for i := range s.limits {
		s.meters[i] = nil
		for _, l := range s.limits[i] {
			m, err := l.Meter()
			if err != nil {
				t.Fatal(err)
			}
			s.meters[i] = append(s.meters[i], m)
		}
	}
}

// place returns where in w a charge finds its state.
func (s *setup) place(w *world, c charge, now spillgate.Instant) (state *spillgate.State, overflow bool) {
	sp := &w[c.space]
	m := s.meters[c.space][sp.limit]
	live := 0
	for i := range sp.keys {
		if s.isNew(m, sp.keys[i], now) {
			sp.keys[i] = spillgate.State{}
		} else {
			live++
		}
	}
	state = &sp.keys[c.key]
	if *state == (spillgate.State{}) && live >= s.caps[c.space] {
		return &sp.spill, true
	}
	return state, false
}

func (s *setup) isNew(m *spillgate.Meter, st spillgate.State, now spillgate.Instant) bool {
	_, d := m.Take(st, now, 0)
	return d.ResetAfter == 0
}

// step carries an input out, one after another.
func (s *setup) step(w world, in input) (world, []spillgate.Decision) {
	before := w
	switch {
	case in.change != nil:
		sp := &w[in.change.space]
		to := s.meters[in.change.space][in.change.to]
		for i := range sp.keys {
			sp.keys[i] = to.Adopt(sp.keys[i], in.now)
		}
		sp.spill, sp.limit = to.Adopt(sp.spill, in.now), in.change.to
		return w, nil
	case in.settle != nil:
		c := in.settle
		sp := &w[c.space]
		s.place(&w, c.charge, in.now) // forgets what is as new
		state := &sp.keys[c.key]
		if c.overflow {
			state = &sp.spill
		}
		*state = s.meters[c.space][sp.limit].Settle(*state, in.now, c.taken, c.delta)
		return w, nil
	}
	out := make([]spillgate.Decision, len(in.charges))
	passes := true
	for i, c := range in.charges {
		state, overflow := s.place(&w, c, in.now)
		*state, out[i] = s.meters[c.space][w[c.space].limit].Take(*state, in.now, c.n)
		out[i].Overflow = overflow
		passes = passes && out[i].Allowed
	}
	if passes {
		return w, out
	}
	for i, c := range in.charges {
		if out[i].Taken > 0 {
			state, overflow := s.place(&before, c, in.now)
			_, out[i] = s.meters[c.space][before[c.space].limit].Take(*state, in.now, 0)
			out[i].Overflow = overflow
		}
	}
	return before, out
}

func (s *setup) model() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return world{} },
		Step: func(state, in, out any) (bool, any) {
			want := out.([]spillgate.Decision)
			w, got := s.step(state.(world), in.(input))
			if in.(input).short {
				return got[0].Allowed == want[0].Allowed, w
			}
			return slices.Equal(got, want), w
		},
		DescribeOperation: func(in, out any) string { return fmt.Sprintf("%+v: %+v", in, out) },
	}
}

// A history collects what goroutines saw. Call and return are ticks of one
// counter, so that no two are equal.
type history struct {
	tick    atomic.Int64
	arrived atomic.Int64
	ops     [][]porcupine.Operation // of each client
}

func newHistory(clients int) *history { return &history{ops: make([][]porcupine.Operation, clients)} }

// record makes a call, at the same time as all other clients make one, and
// notes it.
func (h *history) record(client int, in input, call func() []spillgate.Decision) []spillgate.Decision {
	clients := int64(len(h.ops))
	all := (h.arrived.Add(1) + clients - 1) / clients * clients
	for spin := 1; h.arrived.Load() < all; spin++ {
		if spin%256 == 0 {
			runtime.Gosched()
		}
	}
	from := h.tick.Add(1)
	out := call()
	h.ops[client] = append(h.ops[client], porcupine.Operation{ClientId: client, Input: in, Call: from, Output: out, Return: h.tick.Add(1)})
	return out
}

// overlaps returns how many calls ran while another did.
func (h *history) overlaps() (n, of int) {
	ops := slices.Concat(h.ops...)
	slices.SortFunc(ops, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	for i := range ops {
		if i > 0 && ops[i].Call < ops[i-1].Return {
			n++
		}
	}
	return n, len(ops)
}

func (h *history) check(t *testing.T, s *setup) {
	t.Helper()
	ops := slices.Concat(h.ops...)
	if porcupine.CheckOperations(s.model(), ops) {
		return
	}
	slices.SortFunc(ops, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	// The shortest beginning that fails, cut where nobody was in a call.
	n, last := 0, int64(0)
	for i, op := range ops {
		if last < op.Call {
			if n = i; !porcupine.CheckOperations(s.model(), ops[:i]) {
				break
			}
			n = len(ops)
		}
		last = max(last, op.Return)
	}
	for _, op := range ops[max(0, n-12):n] {
		in := op.Input.(input)
		what := fmt.Sprint(in.charges)
		if in.settle != nil {
			what = fmt.Sprintf("settle %+v", *in.settle)
		}
		if in.change != nil {
			what = fmt.Sprintf("change %+v", *in.change)
		}
		t.Logf("client %d, ticks %d to %d, at %d: %s: %+v", op.ClientId, op.Call, op.Return, in.now, what, op.Output)
	}
	t.Fatal("no order of these calls, and those before, gives these answers")
}
