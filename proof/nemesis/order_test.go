package nemesis

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/spillgate/spillgate"
)

// What may stand in an order, beside the requests that were answered.
type what int

const (
	answered what = iota
	lost          // a request without an answer: charged once at any time after its call, or never
	reset         // the server loses all
	fork          // another server goes on from what it has heard: any earlier state
	join          // the server before that decides nothing any more
)

// An event is one step of an order.
type event struct {
	what what
	*asked
}

// A line is the states of one history's keys on one server: that of the pace, or
// those of the group and its members.
type line [1 + members]spillgate.State

// A world is what a single limiter knows, and what may have happened beside it.
type world struct {
	line [2]line              // the second is that of a new primary, while two is true
	at   [2]spillgate.Instant // of its latest answer: a server's time never flows back
	two  bool
	lost [members]int // requests that may have been charged, and were not seen to be
	past              // up to a failover
}

// A past is where a line has been: what a new primary may go on from.
type past struct {
	over  bool         // the failover was
	found [members]int // lost requests that were seen to be charged
	trail *trail
}

// A trail is the states before, the latest first, and what had been found then.
type trail struct {
	line
	found  [members]int
	before *trail
}

// equal looks at what trails say, not at who wrote them, so that the search knows
// that it has been somewhere by another way.
func (w world) equal(v world) bool {
	a, b := w.trail, v.trail
	if w.trail, v.trail = nil, nil; w != v {
		return false
	}
	for a != nil && b != nil && a != b && a.line == b.line && a.found == b.found {
		a, b = a.before, b.before
	}
	return a == b
}

func (w world) hash() (h uint64) {
	for _, l := range w.line {
		for _, s := range l {
			h = (h^uint64(s.A))*0x9e3779b97f4a7c15 + s.B
		}
	}
	for _, n := range w.lost {
		h = h*31 + uint64(n)
	}
	return h
}

// A limiter is the model: a single exact limiter, and what faults do to it. It is
// nondeterministic where it can't know. A request whose reply was lost is not given
// a place of its own, which would make a search among all places of all of them: it
// is there from its call on, and the first answer that shows its charge says so.
// Answers show all: the server's time and what is left pin down the state.
type limiter struct {
	meters []*spillgate.Meter
	trails bool // a failover is in the history
}

func meterOf(l spillgate.Limit) *spillgate.Meter {
	m, err := l.Meter()
	if err != nil {
		panic(err)
	}
	return m
}

var (
	paceModel = []*spillgate.Meter{meterOf(paceLimit)}
	pairModel = []*spillgate.Meter{meterOf(groupLimit), meterOf(memberLimit)}
)

// take is one request on a line, all or none.
func (m *limiter) take(l line, a *asked, at spillgate.Instant) (line, [2]spillgate.Decision) {
	var out [2]spillgate.Decision
	after, passes := l, true
	for i, meter := range m.meters {
		after[a.key(i)], out[i] = meter.Take(l[a.key(i)], at, a.cost())
		passes = passes && out[i].Allowed
	}
	if passes {
		return after, out
	}
	for i, meter := range m.meters {
		if out[i].Taken > 0 {
			_, out[i] = meter.Take(l[a.key(i)], at, 0)
		}
	}
	return l, out
}

// answer returns the worlds in which a was answered as it was.
func (m *limiter) answer(w world, a *asked) (all []any) {
	for i := range w.line {
		if i == 1 && !w.two {
			break
		}
		if a.Said[0].At < w.at[i] {
			continue
		}
		for _, before := range m.seen(w, i, a) {
			after, said := m.take(before.line[i], a, a.Said[0].At)
			if !slices.Equal(said[:len(a.Said)], a.Said) {
				continue
			}
			before.line[i], before.at[i] = after, a.Said[0].At
			switch {
			case !m.trails || w.over:
				before.past = w.past
			case after != w.line[i]:
				before.trail = &trail{after, before.found, before.trail}
			}
			all = append(all, before)
		}
	}
	return all
}

// seen returns the worlds in which the state that the answer tells of can have come
// about: that there is, or with some of the lost requests charged.
func (m *limiter) seen(w world, i int, a *asked) []world {
	at := a.Said[0].At
	// missing is how much less was left before the request than there should have been.
	missing := func(part int) int64 {
		_, d := m.meters[part].Take(w.line[i][a.key(part)], at, 0)
		return d.Remaining - (a.Said[part].Remaining + a.Said[part].Taken)
	}
	if !a.Pair {
		all := []world{w}
		before := w.line[i][0]
		full := int64(at) + int64(a.Said[0].ResetAfter) - a.Said[0].Taken*int64(interval)
		for j := 1; j <= w.lost[0]; j++ {
			// Charged one after another from what there was; or the bucket had been full
			// again, and the charges came in some instant since.
			from := full - int64(j)*a.cost()*int64(interval)
			if from == before.A || before.A <= from && from <= int64(at) {
				w.line[i][0] = m.meters[0].State(full, 0)
				w.lost[0] -= j
				w.found[0] += j
				return append(all, w)
			}
		}
		return all
	}
	group, own := missing(0), missing(1)
	switch {
	case group == 0 && own == 0:
		return []world{w}
	case group <= 0 || own < 0 || own%a.cost() != 0 || group < own:
		return nil
	}
	// The member's own lost requests are known now; those of others are any that make
	// up the rest of what the group has lost.
	var all []world
	var others func(w world, member int, rest int64)
	others = func(w world, member int, rest int64) {
		switch {
		case member == members:
			if rest == 0 {
				all = append(all, w)
			}
			return
		case member == a.Member:
			others(w, member+1, rest)
			return
		}
		for {
			others(w, member+1, rest)
			next, ok := m.charged(w, i, member, at)
			if rest -= int64(member + 1); !ok || rest < 0 {
				return
			}
			w = next
		}
	}
	for ok := true; own > 0; own -= a.cost() {
		if w, ok = m.charged(w, i, a.Member, at); !ok {
			return nil
		}
		group -= a.cost()
	}
	others(w, 0, group)
	return all
}

// charged returns the world after a lost request of a member was.
func (m *limiter) charged(w world, i, member int, at spillgate.Instant) (world, bool) {
	if w.lost[member] == 0 {
		return w, false
	}
	after, said := m.take(w.line[i], &asked{Pair: true, Member: member}, at)
	w.line[i] = after
	w.lost[member]--
	w.found[member]++
	return w, said[0].Taken > 0 && said[1].Taken > 0
}

func (m *limiter) step(state, in, _ any) []any {
	w, e := state.(world), in.(event)
	switch e.what {
	case lost:
		w.lost[e.lane()]++
	case reset:
		w = world{at: w.at, lost: w.lost}
	case fork:
		// Of lost requests that were found since some are in the new primary's state, and
		// some not: it may show them again.
		var all []any
		for t := w.trail; ; t = t.before {
			if t == nil {
				t = &trail{}
			}
			next := world{line: [2]line{w.line[0], t.line}, at: [2]spillgate.Instant{w.at[0]}, two: true, lost: w.lost, past: past{over: true}}
			for i := range next.lost {
				next.lost[i] += w.found[i] - t.found[i]
			}
			if all = append(all, next); t.before == nil && t.line == (line{}) {
				return all
			}
		}
	case join:
		if !w.two {
			return nil
		}
		w.line, w.at, w.two = [2]line{w.line[1]}, [2]spillgate.Instant{w.at[1]}, false
	default:
		return m.answer(w, e.asked)
	}
	return []any{w}
}

// model returns the model of histories of pairs, or of paces.
func model(pair bool, forks int) porcupine.Model {
	m := &limiter{meters: paceModel, trails: forks > 0}
	if pair {
		m.meters = pairModel
	}
	n := porcupine.NondeterministicModel{
		Init: func() []any { return []any{world{}} }, Step: m.step,
		Equal: func(a, b any) bool { return a.(world).equal(b.(world)) },
		Hash:  func(w any) uint64 { return w.(world).hash() },
	}
	return n.ToModel()
}

// A history is what was asked of the keys of one group, or one pace.
type history struct {
	place, gen int
	pair       bool
}

// histories takes what processes recorded apart.
func histories(logs []log) map[history][]*asked {
	all := map[history][]*asked{}
	for i := range logs {
		for j := range logs[i].Asked {
			a := &logs[i].Asked[j]
			h := history{a.Place, a.Gen, a.Pair}
			all[h] = append(all[h], a)
		}
	}
	return all
}

// operations makes a history of what was asked and of the faults meanwhile.
func operations(of []*asked, place int, losses []loss) (ops []porcupine.Operation, forks int) {
	first, last := of[0].Call, of[0].Return
	for _, a := range of {
		first, last = min(first, a.Call), max(last, a.Return)
		op := porcupine.Operation{Input: event{answered, a}, Call: a.Call, Return: a.Return}
		if a.Lost {
			op.Input, op.Return = event{lost, a}, a.Call
		}
		ops = append(ops, op)
	}
	for _, l := range losses {
		if l.place >= 0 && l.place != place || max(l.to, l.joined) < first || l.from > last {
			continue
		}
		add := func(what what, from, to int64) {
			ops = append(ops, porcupine.Operation{Input: event{what: what}, Call: from, Return: to})
		}
		if l.joined == 0 {
			add(reset, l.from, l.to)
			continue
		}
		forks++
		add(fork, l.from, l.to)
		add(join, l.joining, l.joined)
	}
	return ops, forks
}

// patience is when the search for an order is given up: it takes milliseconds.
const patience = 2 * time.Minute

// ordered holds histories against I11: what several processes saw of each key, or of
// a group's keys, has one order that respects real time and in which one exact limiter
// gives the same answers with the same numbers, all or none. Requests that were not
// answered may have been charged, once, and those that were told to be charged nothing
// were not; what the server lost is lost in one step.
func ordered(t *testing.T, logs []log, losses []loss) {
	t.Helper()
	type count struct{ histories, left, answers, allowed, lost, faults, overlaps int }
	var n count
	slowest := time.Duration(0)
	for h, of := range histories(logs) {
		ops, forks := operations(of, h.place, losses)
		if forks > 1 { // each would have to remember all that was before
			n.left++
			continue
		}
		n.histories++
		n.faults += len(ops) - len(of)
		slices.SortFunc(of, func(a, b *asked) int { return cmp.Compare(a.Call, b.Call) })
		last := int64(0)
		for _, a := range of {
			switch {
			case a.Lost:
				n.lost++
				continue
			case a.Said[0].Taken > 0:
				n.allowed++
			}
			n.answers++
			if a.Call < last {
				n.overlaps++
			}
			last = max(last, a.Return)
		}
		began := time.Now()
		if r := porcupine.CheckOperationsTimeout(model(h.pair, forks), ops, patience); r != porcupine.Ok {
			t.Errorf("%+v: no order of these calls gives these answers (%s):\n%s", h, r, stuck(h, ops, forks))
		}
		slowest = max(slowest, time.Since(began))
	}
	t.Logf("%d histories: %d answers, %d allowed, %d while another call was under way; %d requests lost, %d faults within; %d histories have two failovers; the longest search took %s",
		n.histories, n.answers, n.allowed, n.overlaps, n.lost, n.faults, n.left, slowest)
}

// stuck describes where the longest beginning of an order ends.
func stuck(h history, ops []porcupine.Operation, forks int) (text string) {
	_, info := porcupine.CheckOperationsVerbose(model(h.pair, forks), ops, patience)
	var longest []porcupine.Operation
	for _, part := range info.PartialLinearizationsOperations()[0] {
		if len(part) > len(longest) {
			longest = part
		}
	}
	placed := map[event]bool{}
	for _, op := range longest {
		placed[op.Input.(event)] = true
	}
	rest := slices.DeleteFunc(slices.Clone(ops), func(op porcupine.Operation) bool { return placed[op.Input.(event)] })
	slices.SortFunc(rest, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	tell := func(op porcupine.Operation) {
		e := op.Input.(event)
		text += fmt.Sprintf("\t%d to %d: ", op.Call-ops[0].Call, op.Return-ops[0].Call)
		switch {
		case e.asked == nil:
			text += fmt.Sprintln(map[what]string{reset: "all is lost", fork: "another primary", join: "that alone"}[e.what])
		case e.Lost:
			text += fmt.Sprintf("member %d asks for %d: no answer\n", e.Member, e.cost())
		default:
			text += fmt.Sprintf("member %d asks for %d: %+v\n", e.Member, e.cost(), e.Said)
		}
	}
	for _, op := range longest[max(0, len(longest)-10):] {
		tell(op)
	}
	text += fmt.Sprintf("\tand then none of these, and %d more:\n", max(0, len(rest)-10))
	for _, op := range rest[:min(10, len(rest))] {
		tell(op)
	}
	return text
}
