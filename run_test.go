package spillgate

import (
	"context"
	"math"
	"testing"
	"time"
)

// A run carries a script out for one key, by one of the ways there are.
// Times may step back: a run keeps the latest time seen, as a store does.
type run interface {
	take(at Instant, n int64) (Decision, error)
	settle(at, taken Instant, delta int64) error
	change(at Instant, l Limit) error
}

// runs starts a new key under l, by every way that knows its algorithm.
func runs(t *testing.T, l Limit) map[string]run {
	t.Helper()
	m, err := l.Meter()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]run{}
	switch l.Algorithm {
	case SlidingLog:
		all["log"] = &logRun{m: m}
	case Concurrency:
		all["slots"] = &slotRun{m: m}
	default:
		all["meter"] = &meterRun{m: m}
	}
	if m.lasts() {
		return all // a space of such a limit forgets by its TTL, so its numbers are others
	}
	sp, err := NewSpace("run", SpaceOptions{MaxKeys: 3})
	if err != nil {
		t.Fatal(err)
	}
	all["memory"] = &memoryRun{memory: NewMemory(), space: sp, m: m}
	return all
}

// seen is what the pure ways share: the latest time seen.
type seen struct {
	latest Instant
	any    bool
}

func (s *seen) now(at Instant) Instant {
	if !s.any {
		s.latest, s.any = math.MinInt64, true
	}
	s.latest = max(s.latest, at)
	return s.latest
}

// A meterRun is the pure step.
type meterRun struct {
	seen
	m *Meter
	s State
}

func (r *meterRun) take(at Instant, n int64) (d Decision, err error) {
	r.s, d = r.m.Take(r.s, r.now(at), n)
	return d, nil
}

func (r *meterRun) settle(at, taken Instant, delta int64) error {
	r.s = r.m.Settle(r.s, r.now(at), taken, delta)
	return nil
}

func (r *meterRun) change(at Instant, l Limit) error {
	m, err := l.Meter()
	if err == nil {
		r.s = m.Adopt(r.s, r.now(at))
		r.m = m
	}
	return err
}

// A logRun is the log alone.
type logRun struct {
	seen
	m *Meter
	l logState
}

func (r *logRun) take(at Instant, n int64) (Decision, error) {
	d := r.l.ask(r.m, r.now(at), Ask{N: n})
	r.l.commit(r.m, d)
	return d, nil
}

func (r *logRun) settle(at, taken Instant, delta int64) error {
	r.l.settle(r.m, r.now(at), taken, delta)
	return nil
}

func (r *logRun) change(at Instant, l Limit) (err error) {
	if r.m, err = l.Meter(); err == nil {
		r.l.settleTo(r.m, r.now(at))
	}
	return err
}

// A slotRun is the slots alone. Its settle frees the slot taken at an instant.
type slotRun struct {
	seen
	m      *Meter
	l      slotState
	number uint64
	byTime map[Instant]uint64
}

func (r *slotRun) take(at Instant, n int64) (Decision, error) {
	d := r.l.ask(r.m, r.now(at), Ask{N: n})
	r.number++
	if d.Slot = r.l.commit(r.m, d, r.number); d.Slot != 0 {
		if r.byTime == nil {
			r.byTime = map[Instant]uint64{}
		}
		r.byTime[d.At] = d.Slot
	}
	return d, nil
}

func (r *slotRun) settle(at, taken Instant, delta int64) error {
	r.l.settle(r.m, r.now(at), r.byTime[taken], delta)
	return nil
}

func (r *slotRun) change(at Instant, l Limit) (err error) {
	if r.m, err = l.Meter(); err == nil {
		r.l.settleTo(r.m, r.now(at))
	}
	return err
}

// A memoryRun is a store, given the time.
type memoryRun struct {
	memory *Memory
	space  *Space
	m      *Meter
	slots  map[Instant]uint64
}

func (r *memoryRun) take(at Instant, n int64) (Decision, error) {
	var out [1]Decision
	err := r.memory.Take(context.Background(), at.time(), []Charge{{Space: r.space, Key: Key{9, 9}, Meter: r.m, Ask: Ask{N: n}}}, out[:])
	if out[0].Slot != 0 {
		if r.slots == nil {
			r.slots = map[Instant]uint64{}
		}
		r.slots[out[0].At] = out[0].Slot
	}
	return out[0], err
}

func (r *memoryRun) settle(at, taken Instant, delta int64) error {
	return r.memory.Settle(context.Background(), at.time(), []Correction{{
		Space: r.space, Key: Key{9, 9}, Meter: r.m, Delta: delta, At: taken, Slot: r.slots[taken],
	}})
}

func (r *memoryRun) change(at Instant, l Limit) error {
	m, err := l.Meter()
	if err == nil {
		r.m, err = r.space.Change(r.m, m, at)
	}
	return err
}

func (i Instant) time() time.Time { return time.Unix(0, int64(i)) }
