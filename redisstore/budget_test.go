package redisstore

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate"
)

// A slowConn is a server whose answers are made by a test, each after so long.
type slowConn struct {
	slots    bool
	answer   func(n int64, c *Call) time.Duration // of the n-th call
	n        atomic.Int64
	punctual bool
}

func (c *slowConn) Lane(context.Context, uint16, string) (string, error) { return "", nil }
func (c *slowConn) Slots() bool                                          { return c.slots }
func (c *slowConn) Punctual() bool                                       { return c.punctual }

func (c *slowConn) Eval(ctx context.Context, calls []Call) {
	for i := range calls {
		end := ctx.Done()
		if !c.punctual {
			end = nil
		}
		select {
		case <-time.After(c.answer(c.n.Add(1), &calls[i])):
		case <-end:
			calls[i].Reply, calls[i].Err = nil, ctx.Err()
		}
	}
}

func budgetStore(t *testing.T, c *slowConn, budget time.Duration) *Store {
	t.Helper()
	s, err := Open(c, Budget(budget), Remember(0))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func budgetCharge(t *testing.T, key uint64) spillgate.Charge {
	t.Helper()
	m, err := mustLimit("1/h burst 5").Meter()
	if err != nil {
		t.Fatal(err)
	}
	sp, err := spillgate.NewSpace("r", spillgate.SpaceOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return spillgate.Charge{Space: sp, Meter: m, Key: spillgate.Key{key, key}, Ask: spillgate.Ask{N: 1}}
}

// TestOneBudget wants one budget for a whole request or correction: for all rounds
// about a state that another limit wrote, and, in several slots, for asking, taking
// and giving back. None of that counts against a server that answered in its time.
func TestOneBudget(t *testing.T) {
	const budget = 20 * time.Millisecond
	took := func(t *testing.T, f func() error) {
		t.Helper()
		began := time.Now()
		err := f()
		if d := time.Since(began); d > budget || !errors.Is(err, spillgate.ErrUnavailable) {
			t.Errorf("after %s: %v; want no answer within %s", d, err, budget)
		}
	}
	for _, punctual := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			other, err := mustLimit("2/h burst 7").Meter()
			if err != nil {
				t.Fatal(err)
			}
			now := spillgate.Instant(time.Now().UnixNano())
			state, _ := other.Grant(spillgate.State{}, now, spillgate.Ask{N: 1})
			raw, _ := appendState(nil, state, other, now, 0)
			sec, nanos := split(int64(now))
			s := budgetStore(t, &slowConn{punctual: punctual, answer: func(_ int64, c *Call) time.Duration {
				c.Reply = []any{sec, nanos, "C", string(raw)}
				return 12 * time.Millisecond
			}}, budget)
			c := budgetCharge(t, 1)
			for range 2 * tries {
				took(t, func() error {
					return s.Take(context.Background(), time.Time{}, []spillgate.Charge{c}, make([]spillgate.Decision, 1))
				})
				<-time.After(2 * budget)
			}
			back := []spillgate.Correction{{Space: c.Space, Key: c.Key, Meter: c.Meter, Delta: 1}}
			took(t, func() error { return s.Settle(context.Background(), time.Time{}, back) })
			if st := s.Stats(); st.Opened != 0 {
				t.Error("a server that answers in its time counts as one that does not")
			}
			<-time.After(2 * budget)
		})
		synctest.Test(t, func(t *testing.T) {
			sec, nanos := split(time.Now().UnixNano())
			s := budgetStore(t, &slowConn{slots: true, punctual: punctual, answer: func(n int64, c *Call) time.Duration {
				switch {
				case n <= 2: // would it pass?
					c.Reply = []any{sec, nanos, "D", nil}
					return 6 * time.Millisecond
				case n == 3: // taken in one slot, and nothing comes any more
					c.Reply = []any{sec, nanos, "A", nil}
					return time.Millisecond
				}
				c.Err = context.DeadlineExceeded
				return 2 * budget
			}}, budget)
			took(t, func() error {
				return s.Take(context.Background(), time.Time{}, []spillgate.Charge{budgetCharge(t, 1), budgetCharge(t, 2)}, make([]spillgate.Decision, 2))
			})
			<-time.After(4 * budget)
		})
	}
}

// TestNobodyWaitsForTheLibrary wants what carries no requests to end in its time, too,
// where the library does not: counts, the seed, and what a stop sends.
func TestNobodyWaitsForTheLibrary(t *testing.T) {
	for _, punctual := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			conn := &slowConn{punctual: punctual, answer: func(n int64, c *Call) time.Duration {
				c.Reply = []any{int64(1)}
				if n == 1 {
					return time.Millisecond
				}
				return time.Minute
			}}
			const budget = 20 * time.Millisecond
			s := budgetStore(t, conn, budget)
			told := Nodes{}
			within := func(what string, most time.Duration, f func()) {
				t.Helper()
				began := time.Now()
				if f(); time.Since(began) > most {
					t.Errorf("%s took %s, want %s at most", what, time.Since(began), most)
				}
			}
			count := func() { s.CountNodes(func(n Nodes) { told = n }) }
			if count(); told.Count != 1 || told.Fault != NoFault {
				t.Errorf("%+v of a server that answers", told)
			}
			within("a stop", 10*budget, func() { s.Close() })

			s = budgetStore(t, conn, budget)
			for range 2 * maxProbes { // of which not all may be under way
				within("a count", 10*budget, count)
				if told.Count != 0 || told.Fault != TimedOut {
					t.Errorf("%+v of a server that does not answer", told)
				}
			}
			within("the seed", budget, func() {
				ctx, cancel := context.WithTimeout(context.Background(), budget)
				defer cancel()
				if _, err := s.Seed(ctx); !errors.Is(err, spillgate.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("the seed: %v", err)
				}
			})
			s.Close()
			if n := conn.n.Load(); !punctual && n > 2+maxProbes {
				t.Errorf("%d calls were made, the first of which are under way", n)
			}
			<-time.After(2 * time.Minute)
			if n := len(s.beside); n != 0 {
				t.Errorf("%d calls are under way after all were answered", n)
			}
		})
	}
}

// TestContext wants a caller to be let go at the end of its own time, which is short
// of the budget, whoever made the call; that says nothing about the server, and the
// next in line has the answer it came for.
func TestContext(t *testing.T) {
	for _, punctual := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			sec, nanos := split(time.Now().UnixNano())
			s := budgetStore(t, &slowConn{punctual: punctual, answer: func(_ int64, c *Call) time.Duration {
				c.Reply = []any{sec, nanos, "A", nil}
				return time.Second
			}}, 5*time.Second)
			c := budgetCharge(t, 1)
			for range 2 * tries {
				ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
				began := time.Now()
				err := s.Take(ctx, time.Time{}, []spillgate.Charge{c}, make([]spillgate.Decision, 1))
				if took := time.Since(began); took > 50*time.Millisecond || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("after %s: %v", took, err)
				}
				began = time.Now()
				err = s.Settle(ctx, time.Time{}, []spillgate.Correction{{Space: c.Space, Key: c.Key, Meter: c.Meter, Delta: 1}})
				if took := time.Since(began); took > 50*time.Millisecond {
					t.Errorf("a correction after %s: %v", took, err)
				}
				cancel()
				<-time.After(10 * time.Second)
			}
			if st := s.Stats(); st.Opened != 0 || st.Faults != [faults]uint64{} {
				t.Errorf("callers who had no time count as faults: %+v", st)
			}
			if err := s.Take(context.Background(), time.Time{}, []spillgate.Charge{c}, make([]spillgate.Decision, 1)); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestNoCallWhileOpen wants nothing to be sent on the way of a request, nor any time to
// pass on it, from the failure that opens the breaker until a probe is answered: not for
// a charge, not for several at once, not for a correction.
func TestNoCallWhileOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const budget = 20 * time.Millisecond
		var sent, probes atomic.Int64
		var up atomic.Bool
		s := budgetStore(t, &slowConn{answer: func(_ int64, c *Call) time.Duration {
			if c.SHA == probing.sha {
				probes.Add(1)
			} else {
				sent.Add(1)
			}
			if !up.Load() {
				c.Err = context.DeadlineExceeded
				return time.Second
			}
			sec, nanos := split(time.Now().UnixNano())
			c.Reply = []any{sec, nanos, "A", nil}
			return time.Millisecond
		}}, budget)
		c := budgetCharge(t, 1)
		take := func() error {
			return s.Take(context.Background(), time.Time{}, []spillgate.Charge{c}, make([]spillgate.Decision, 1))
		}
		for s.Stats().Open == 0 {
			if err := take(); !errors.Is(err, spillgate.ErrUnavailable) {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		before := sent.Load()
		for range 20 {
			began := time.Now()
			for range 50 {
				if err := take(); !errors.Is(err, spillgate.ErrUnavailable) {
					t.Fatal(err)
				}
				three := []spillgate.Charge{c, budgetCharge(t, 2), budgetCharge(t, 3)}
				if err := s.Take(context.Background(), time.Time{}, three, make([]spillgate.Decision, 3)); !errors.Is(err, spillgate.ErrUnavailable) {
					t.Fatal(err)
				}
				_ = s.Settle(context.Background(), time.Time{}, []spillgate.Correction{{Space: c.Space, Key: c.Key, Meter: c.Meter, Delta: 1}})
			}
			if took := time.Since(began); took > 0 {
				t.Errorf("decisions took %s while the breaker is open", took)
			}
			<-time.After(100 * time.Millisecond)
		}
		if n := sent.Load() - before; n != 0 || probes.Load() == 0 {
			t.Errorf("%d calls and %d probes while the breaker is open, want probes only", n, probes.Load())
		}
		up.Store(true)
		<-time.After(3 * time.Second) // and the first probes time out
		if err := take(); err != nil || sent.Load() == before {
			t.Errorf("once the server answers: %v, %d calls", err, sent.Load()-before)
		}
	})
}
