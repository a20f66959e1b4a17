package spillgate

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// A life is a memory with its spaces, and the limits in force in each.
type life struct {
	mem    *Memory
	spaces []*Space
	meters [][]*Meter
	past   []Correction
}

func newLife(t testing.TB, names []string, options []SpaceOptions, limits [][]string) *life {
	t.Helper()
	l := &life{mem: NewMemory()}
	for i, name := range names {
		sp, err := NewSpace(name, options[i])
		if err != nil {
			t.Fatal(err)
		}
		l.spaces = append(l.spaces, sp)
		var ms []*Meter
		for _, text := range limits[i] {
			ms = append(ms, meterOfText(t, text))
		}
		l.meters = append(l.meters, ms)
	}
	return l
}

// restarted returns what becomes of l when its process ends and another begins.
// Who makes its spaces says which limits are in force, or does not.
func (l *life) restarted(t testing.TB, resumes bool) *life {
	t.Helper()
	var file bytes.Buffer
	if err := l.mem.Snapshot(&file); err != nil {
		t.Fatal(err)
	}
	next := &life{mem: NewMemory()}
	if err := next.mem.Restore(&file); err != nil {
		t.Fatal(err)
	}
	for i, sp := range l.spaces {
		again, err := NewSpace(sp.name, sp.options)
		if err != nil {
			t.Fatal(err)
		}
		next.spaces = append(next.spaces, again)
		var ms []*Meter
		for _, m := range l.meters[i] {
			m, err := m.limit.Meter()
			if err != nil {
				t.Fatal(err)
			}
			ms = append(ms, m)
		}
		next.meters = append(next.meters, ms)
		if resumes && len(ms) == 1 {
			if err := next.mem.Resume(again, ms[0]); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, c := range l.past {
		for i, sp := range l.spaces {
			if c.Space != sp {
				continue
			}
			c.Space = next.spaces[i]
			for k, m := range l.meters[i] {
				if c.Meter == m {
					c.Meter = next.meters[i][k]
				}
			}
		}
		next.past = append(next.past, c)
	}
	return next
}

// Random charges, settles and changes of limits of every kind, on a memory that
// lives on and on one that is restarted in between: both say the same.
func TestRestartChangesNothing(t *testing.T) {
	texts := []string{"3/10ns burst 4", "2/7ns burst 3", "5/20ns fixed", "4/1ms sliding", "1/5ns queue 3",
		"7/3ns burst 1", "5/50ns burst 9 fill", "3/2ms sliding", "4/9ns log", "3 at once for 15ns", "0/s burst 9",
		"6/30ns log", "4/calendar minute", "3/calendar day in Europe/Berlin", "2 at once for 9ns"}
	for seed := range uint64(300) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			restarts(t, rand.New(rand.NewPCG(seed, 11)), texts)
		})
	}
}

func restarts(t *testing.T, r *rand.Rand, texts []string) {
	var names []string
	var options []SpaceOptions
	var limits [][]string
	for i := range 4 {
		o := SpaceOptions{MaxKeys: 1 + r.IntN(6), TTL: time.Duration(1 + r.IntN(30))}
		all := texts
		if i < 2 { // no TTL, so no rate of 0
			o.TTL = 0
			all = nil
			for _, s := range texts {
				if s != "0/s burst 9" {
					all = append(all, s)
				}
			}
		}
		var of []string
		for range 1 + r.IntN(2) {
			of = append(of, all[r.IntN(len(all))])
		}
		if len(of) == 2 && (meterOfText(t, of[0]).keeps || meterOfText(t, of[1]).keeps) {
			of = of[:1] // when one is as new the other may still look back on it
		}
		names, options, limits = append(names, fmt.Sprint("s", i)), append(options, o), append(limits, of)
	}
	stays, goes := newLife(t, names, options, limits), newLife(t, names, options, limits)
	now := Instant(1e9)
	floor, latest := now, now // the latest change, and the latest instant
	for step := range 400 {
		switch r.IntN(20) {
		case 0:
			now += Instant(r.Int64N(5e6))
		case 1:
			now -= Instant(r.Int64N(20))
		default:
			now += Instant(r.Int64N(4))
		}
		now = max(now, floor)
		latest = max(latest, now)
		at := time.Unix(0, int64(now))
		switch k := r.IntN(40); {
		case k == 0:
			goes = goes.restarted(t, r.IntN(2) == 0)
			now += Instant(r.Int64N(20))
		case k == 1:
			i := r.IntN(len(names))
			to := meterOfText(t, texts[r.IntN(len(texts))])
			if r.IntN(2) == 0 { // of the same kind, so that there is something to carry over
				for to.limit.Algorithm != stays.meters[i][0].limit.Algorithm {
					to = meterOfText(t, texts[r.IntN(len(texts))])
				}
			}
			if len(limits[i]) > 1 || to.limit == stays.meters[i][0].limit || to.lasts() && i < 2 {
				break
			}
			floor = latest
			for _, l := range []*life{stays, goes} {
				if _, err := l.mem.bind(l.spaces[i]); err != nil { // a memory knows nothing of others
					t.Fatal(err)
				}
				m, err := l.spaces[i].Change(l.meters[i][0], to, latest)
				if err != nil {
					t.Fatal(err)
				}
				l.meters[i][0], l.past = m, nil
			}
		case k < 8 && len(stays.past) > 0:
			i, delta := r.IntN(len(stays.past)), r.Int64N(9)-5
			for _, l := range []*life{stays, goes} {
				c := l.past[i]
				c.Delta = delta
				if err := l.mem.Settle(context.Background(), at, []Correction{c}); err != nil {
					t.Fatal(err)
				}
			}
		default:
			chargeBoth(t, r, step, at, stays, goes)
		}
	}
}

func chargeBoth(t *testing.T, r *rand.Rand, step int, at time.Time, lives ...*life) {
	t.Helper()
	cs := make([]Charge, 1+r.IntN(5)*r.IntN(2))
	of := make([][2]int, len(cs))
	for i := range cs {
		s := r.IntN(len(lives[0].spaces))
		of[i] = [2]int{s, r.IntN(len(lives[0].meters[s]))}
		n := r.Int64N(4)
		cs[i] = Charge{Key: Key{2 + r.Uint64N(uint64(2*lives[0].spaces[s].options.MaxKeys))<<40}, Trial: r.IntN(5) == 0, Ask: Ask{N: n}}
		switch r.IntN(4) {
		case 0:
			cs[i].Min = r.Int64N(n + 1)
		case 1:
			cs[i].Keep = r.Int64N(3)
		}
	}
	var said [][]Decision
	for _, l := range lives {
		for i := range cs {
			cs[i].Space, cs[i].Meter = l.spaces[of[i][0]], l.meters[of[i][0]][of[i][1]]
		}
		out := make([]Decision, len(cs))
		if err := l.mem.Take(context.Background(), at, cs, out); err != nil {
			t.Fatal(err)
		}
		for i, d := range out {
			if d.Taken > 0 {
				l.past = append(l.past, Correction{Space: cs[i].Space, Key: cs[i].Key, Meter: cs[i].Meter, At: d.At, Slot: d.Slot, Overflow: d.Overflow})
			}
			out[i].Slot = 0 // a number of no meaning
		}
		said = append(said, out)
	}
	for i := range cs {
		if said[0][i] != said[1][i] {
			t.Fatalf("step %d at %d, charge %d of %d, %s key %x n %d:\n restarted %+v\n    stayed %+v", step, at.UnixNano(), i, len(cs), cs[i].Meter.limit, cs[i].Key[0], cs[i].N, said[1][i], said[0][i])
		}
	}
}
