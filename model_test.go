package spillgate

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// A plainSpace is a space as a plain map keeps it: what Memory has to equal.
type plainSpace struct {
	sp     *Space
	meters []*Meter
	latest Instant
	keys   map[uint64]plainState
	spills map[*Meter]plainState
	fresh  map[*Meter]State // of keys never seen, when the limit began
}

type plainState struct {
	State
	stamp Instant
}

// at returns the state as it counts at now, under m.
func (p *plainSpace) at(s plainState, m *Meter, now Instant) State {
	if s.B == 0 || p.forgotten(s, now) {
		if f := p.fresh[m]; f.A > int64(now) {
			return f
		}
		return State{}
	}
	return m.Adopt(s.State, now)
}

func (p *plainSpace) forgotten(s plainState, now Instant) bool {
	ttl := Instant(p.sp.options.TTL)
	return ttl > 0 && now >= s.stamp+ttl
}

func (p *plainSpace) prune(now Instant) {
	for k, s := range p.keys {
		if s.meter() == nil || p.forgotten(s, now) || s.meter().isNew(s.State, now) || s.State == p.fresh[s.meter()] {
			delete(p.keys, k)
		}
	}
}

func (p *plainSpace) clip(d Decision, stamp, now Instant) Decision {
	ttl := p.sp.options.TTL
	if ttl == 0 || d.ResetAfter == 0 {
		return d
	}
	if d.Taken > 0 {
		stamp = now
	}
	left := ttl - time.Duration(now-stamp)
	if left <= 0 {
		return d
	}
	d.ResetAfter = min(d.ResetAfter, left)
	if d.Reason == OverLimit {
		d.RetryAfter = min(d.RetryAfter, left)
	}
	return d
}

type plainMemory map[*Space]*plainSpace

// plainPart is one key under one limit.
type plainPart struct {
	p     *plainSpace
	m     *Meter
	key   uint64
	ask   Ask
	trial bool
	of    []int
	spill bool
}

func (ms plainMemory) take(now Instant, cs []Charge) []Decision {
	var parts []*plainPart
	for _, trial := range []bool{false, true} {
	charges:
		for i, c := range cs {
			if c.Trial != trial {
				continue
			}
			for _, p := range parts {
				if p.p.sp == c.Space && p.key == c.Key[0] && p.m == c.Meter && p.trial == trial {
					if p.ask.Min > 0 || c.Min > 0 {
						p.ask.Min = p.ask.least() + c.least()
					}
					p.ask.N += c.N
					p.ask.Keep = max(p.ask.Keep, c.Keep)
					p.of = append(p.of, i)
					continue charges
				}
			}
			parts = append(parts, &plainPart{p: ms[c.Space], m: c.Meter, key: c.Key[0], ask: c.Ask, trial: trial, of: []int{i}})
		}
	}
	for _, p := range parts {
		now = max(now, p.p.latest)
	}
	promised := map[*plainSpace]int{}
	first := map[string]*plainPart{}
	for _, p := range parts {
		p.p.latest = now
		p.p.prune(now)
		id := fmt.Sprint(p.p.sp.name, p.key)
		if f := first[id]; f != nil {
			p.spill = f.spill
			continue
		}
		first[id] = p
		if _, ok := p.p.keys[p.key]; ok {
			continue
		}
		wants := slices.ContainsFunc(parts, func(q *plainPart) bool { return q.p == p.p && q.key == p.key && q.ask.N > 0 })
		if p.spill = len(p.p.keys)+promised[p.p] >= p.p.sp.options.MaxKeys; !p.spill && wants {
			promised[p.p]++
		}
	}
	out := make([]Decision, len(cs))
	run := func(ask func(*plainPart) Ask) (undo func(), passes bool) {
		var undos []func()
		passes = true
		for _, p := range parts {
			m := p.p.keys
			old, had := m[p.key]
			if p.spill {
				old, had = p.p.spills[p.m]
			}
			s, d := p.m.Grant(p.p.at(old, p.m, now), now, ask(p))
			d.Overflow = p.spill
			d = p.p.clip(d, old.stamp, now)
			if d.Taken > 0 {
				if p.spill {
					p.p.spills[p.m] = plainState{s, now}
					undos = append(undos, func() { p.p.spills[p.m] = old })
				} else {
					m[p.key] = plainState{s, now}
					undos = append(undos, func() {
						if delete(m, p.key); had {
							m[p.key] = old
						}
					})
				}
			}
			passes = passes && (d.Allowed || p.trial)
			for _, i := range p.of {
				out[i] = d
			}
			if len(p.of) > 1 && d.Taken > 0 {
				left := d.Taken
				for _, i := range p.of {
					left -= cs[i].least()
				}
				for _, i := range p.of {
					more := min(left, cs[i].N-cs[i].least())
					out[i].Taken = cs[i].least() + more
					left -= more
				}
			}
		}
		return func() {
			for i := len(undos) - 1; i >= 0; i-- {
				undos[i]()
			}
		}, passes
	}
	undo, passes := run(func(p *plainPart) Ask { return p.ask })
	if passes {
		return out
	}
	undo()
	said := append([]Decision(nil), out...)
	took := func(p *plainPart) bool {
		return slices.ContainsFunc(p.of, func(i int) bool { return out[i].Taken > 0 })
	}
	for _, p := range append([]*plainPart(nil), parts...) {
		parts = []*plainPart{p}
		if copy(out, said); p.trial {
			undo, _ = run(func(p *plainPart) Ask { return p.ask })
			undo()
		}
		if took(p) {
			run(func(p *plainPart) Ask { return Ask{Keep: p.ask.Keep} })
		}
		for _, i := range p.of {
			said[i] = out[i]
		}
	}
	return said
}

func (ms plainMemory) settle(now Instant, c *Correction) {
	p := ms[c.Space]
	now = max(now, p.latest)
	p.latest = now
	p.prune(now)
	old, ok := p.keys[c.Key[0]]
	switch {
	case ok && !c.Overflow:
		p.keys[c.Key[0]] = plainState{c.Meter.Settle(p.at(old, c.Meter, now), now, c.At, c.Delta), now}
	case c.Overflow || c.Delta > 0 && len(p.keys) >= p.sp.options.MaxKeys:
		old = p.spills[c.Meter]
		p.spills[c.Meter] = plainState{c.Meter.Settle(p.at(old, c.Meter, now), now, c.At, c.Delta), now}
	case c.Delta > 0:
		p.keys[c.Key[0]] = plainState{c.Meter.Settle(p.at(old, c.Meter, now), now, c.At, c.Delta), now}
	}
}

// change settles all states at once, where Memory does so one by one as their
// keys come back.
func (ms plainMemory) change(sp *Space, from, to *Meter, at Instant) {
	p := ms[sp]
	p.fresh[to] = to.succeed(p.at(plainState{}, from, at), from, at)
	for k, s := range p.keys {
		if s.meter() == from {
			p.keys[k] = plainState{to.succeed(s.State, from, at), s.stamp}
		}
	}
	for m, s := range p.spills {
		if m == from {
			delete(p.spills, m)
			p.spills[to] = plainState{to.succeed(s.State, from, at), s.stamp}
		}
	}
	for i, m := range p.meters {
		if m == from {
			p.meters[i] = to
		}
	}
}

func meterOfText(t testing.TB, text string) *Meter {
	t.Helper()
	l, err := ParseLimit(text)
	if err != nil {
		t.Fatal(err)
	}
	m, err := l.Meter()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Random charges of one to four rules on tiny tables, settles, changes of
// limits and a clock that jumps, against plain maps.
func TestMemoryModel(t *testing.T) {
	texts := []string{"3/10ns burst 4", "2/7ns burst 3", "5/20ns fixed", "4/1ms sliding", "1/5ns queue 3", "7/3ns burst 1", "5/50ns burst 9 fill", "3/2ms sliding"}
	for seed := range uint64(200) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			runModel(t, rand.New(rand.NewPCG(seed, 7)), texts)
		})
	}
}

func runModel(t *testing.T, r *rand.Rand, texts []string) {
	mem := NewMemory()
	plain := plainMemory{}
	var spaces []*plainSpace
	for i := range 3 {
		o := SpaceOptions{MaxKeys: 1 + r.IntN(6)}
		if r.IntN(4) == 0 {
			o.TTL = time.Duration(1 + r.IntN(30))
		}
		sp, err := NewSpace(fmt.Sprint("s", i), o)
		if err != nil {
			t.Fatal(err)
		}
		p := &plainSpace{sp: sp, keys: map[uint64]plainState{}, spills: map[*Meter]plainState{}, fresh: map[*Meter]State{}, latest: -1 << 63}
		for range 1 + r.IntN(2) {
			p.meters = append(p.meters, meterOfText(t, texts[r.IntN(len(texts))]))
		}
		plain[sp] = p
		spaces = append(spaces, p)
	}
	now := Instant(1e9)
	var past []Correction
	floor := now // the latest change
	for step := range 600 {
		switch r.IntN(20) {
		case 0:
			now += Instant(r.Int64N(5e6))
		case 1:
			now -= Instant(r.Int64N(20))
		default:
			now += Instant(r.Int64N(4))
		}
		now = max(now, floor)
		at := time.Unix(0, int64(now))
		switch k := r.IntN(30); {
		case k == 0:
			p := spaces[r.IntN(len(spaces))]
			to := meterOfText(t, texts[r.IntN(len(texts))])
			old := p.meters[0]
			if len(p.meters) == 1 && to != old {
				until := max(now, p.latest)
				to, err := p.sp.Change(old, to, until)
				if err != nil {
					t.Fatal(err)
				}
				plain.change(p.sp, old, to, until)
				past, floor = nil, until
			}
		case k < 5 && len(past) > 0:
			c := past[r.IntN(len(past))]
			c.Delta = r.Int64N(9) - 5
			plain.settle(now, &c)
			if err := mem.Settle(context.Background(), at, []Correction{c}); err != nil {
				t.Fatal(err)
			}
		default:
			cs := make([]Charge, 1+r.IntN(5)*r.IntN(2))
			for i := range cs {
				p := spaces[r.IntN(len(spaces))]
				cs[i] = Charge{Space: p.sp, Key: Key{2 + r.Uint64N(uint64(2*p.sp.options.MaxKeys))<<40}, Meter: p.meters[r.IntN(len(p.meters))], Trial: r.IntN(5) == 0}
				cs[i].N = r.Int64N(4)
				switch r.IntN(4) {
				case 0:
					cs[i].Min = r.Int64N(cs[i].N + 1)
				case 1:
					cs[i].Keep = r.Int64N(3)
				}
			}
			out := make([]Decision, len(cs))
			if err := mem.Take(context.Background(), at, cs, out); err != nil {
				t.Fatal(err)
			}
			want := plain.take(now, cs)
			for i, d := range out {
				if d != want[i] {
					for j := range cs {
						t.Logf("charge %d: %s %x n %d min %d keep %d trial %t, %s: %+v", j, cs[j].Space.name, cs[j].Key[0], cs[j].N, cs[j].Min, cs[j].Keep, cs[j].Trial, cs[j].Meter.limit, out[j])
					}
					t.Fatalf("step %d at %d, charge %d:\n got %+v\nwant %+v", step, now, i, d, want[i])
				}
				if d.Taken > 0 {
					past = append(past, Correction{Space: cs[i].Space, Key: cs[i].Key, Meter: cs[i].Meter, At: d.At, Overflow: d.Overflow})
				}
			}
		}
	}
}
