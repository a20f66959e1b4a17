package spillgate

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A distantStore takes at once and says so later, after 4 ms unless it is told
// otherwise, to nobody if the caller left by then.
type distantStore struct {
	Store
	later    atomic.Int64
	underWay atomic.Int64
	lose     atomic.Bool
}

func (s *distantStore) Take(ctx context.Context, at time.Time, cs []Charge, out []Decision) error {
	s.underWay.Add(1)
	defer s.underWay.Add(-1)
	said := make([]Decision, len(out))
	if err := s.Store.Take(ctx, at, cs, said); err != nil {
		return err
	}
	select {
	case <-time.After(time.Duration(s.later.Load())):
	case <-ctx.Done():
		return ctx.Err()
	}
	if s.lose.Load() {
		return ErrUnavailable
	}
	copy(out, said)
	return nil
}

func distantLeased(t *testing.T, o LeaseOptions) (*Leased, *distantStore) {
	t.Helper()
	far := &distantStore{Store: NewMemory()}
	far.later.Store(int64(4 * time.Millisecond))
	l, err := NewLeased(far, o)
	if err != nil {
		t.Fatal(err)
	}
	return l, far
}

// remains returns what a store has left for a charge.
func remains(t *testing.T, s Store, c Charge) int64 {
	t.Helper()
	c.Ask = Ask{}
	out := make([]Decision, 1)
	if err := s.Take(context.Background(), time.Time{}, []Charge{c}, out); err != nil {
		t.Fatal(err)
	}
	return out[0].Remaining
}

// warmed uses a key until the next request for it fetches a block.
func warmed(t *testing.T, l *Leased, cs []Charge) (used int64) {
	t.Helper()
	out := make([]Decision, len(cs))
	for range 3 {
		if err := l.Take(context.Background(), time.Time{}, cs, out); err != nil || !out[0].Allowed {
			t.Fatal(err, out)
		}
		used += out[0].Taken
	}
	for held := l.Stats().Held; held > 0; held = l.Stats().Held {
		rest := append([]Charge(nil), cs...)
		rest[0].N = held
		if err := l.Take(context.Background(), time.Time{}, rest, out); err != nil || !out[0].Allowed {
			t.Fatal(err, out)
		}
		used += out[0].Taken
		synctest.Wait()
	}
	return used
}

// TestLeasedCallersLeave: callers who leave while a block is fetched are answered at
// once, and cost nothing: the block is held, and what they asked for is given back.
func TestLeasedCallersLeave(t *testing.T) {
	for _, text := range []string{"20000/1h fixed", "1/1h burst 20000"} {
		synctest.Test(t, func(t *testing.T) {
			l, far := distantLeased(t, LeaseOptions{Nodes: 1})
			lt := leaseTest{T: t}
			lt.space = lt.newSpace("s")
			c := lt.charge(lt.meter(text), 1)
			cs := []Charge{c}
			var admitted, left atomic.Int64
			admitted.Store(warmed(t, l, cs))
			var group sync.WaitGroup
			for i := range 20 {
				group.Go(func() {
					out := make([]Decision, 1)
					for range 100 {
						time.Sleep(time.Duration(2+i%7) * time.Millisecond)
						ctx, cancel := context.WithTimeout(context.Background(), time.Duration(500+20*i)*time.Microsecond)
						began := time.Now()
						err := l.Take(ctx, time.Time{}, cs, out)
						switch {
						case errors.Is(err, context.DeadlineExceeded):
							left.Add(1)
						case err != nil || !out[0].Allowed:
							t.Error(err, out)
						default:
							admitted.Add(out[0].Taken)
						}
						if time.Since(began) > time.Millisecond {
							t.Errorf("answered after %s", time.Since(began))
						}
						cancel()
					}
				})
			}
			group.Wait()
			st := l.Stats()
			if left.Load() == 0 || st.Errors > uint64(left.Load()) {
				t.Errorf("%s: %d left: %+v", text, left.Load(), st)
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
			// One that asked for no block costs what the store took for it.
			if st = l.Stats(); st.Held != 0 || st.Forfeited != 0 {
				t.Errorf("%s: closed: %+v", text, st)
			}
			if gone := 20000 - remains(t, far, c) - admitted.Load(); gone < 0 || gone > int64(st.Errors) {
				t.Errorf("%s: %d admitted, %d left, %d units gone, %d calls failed", text, admitted.Load(), left.Load(), gone, st.Errors)
			}
		})
	}
}

// TestLeasedLeaverGivesAllBack: what others than leases took for a caller who left
// comes back, too, at once.
func TestLeasedLeaverGivesAllBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, far := distantLeased(t, LeaseOptions{Nodes: 1, Mixed: true})
		defer l.Close()
		lt := leaseTest{T: t}
		lt.space = lt.newSpace("s")
		a, b, slots := lt.charge(lt.meter("1/1h burst 20000"), 1), lt.charge(lt.meter("1/1h burst 3"), 1), lt.charge(lt.meter("5 at once for 1h"), 1)
		b.Space, slots.Space = lt.newSpace("exact"), lt.newSpace("slots")
		used := warmed(t, l, []Charge{a})
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		out := make([]Decision, 3)
		if err := l.Take(ctx, time.Time{}, []Charge{a, b, slots}, out); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		if remains(t, far.Store, slots) != 4 || remains(t, far.Store, b) != 2 {
			t.Error("nothing was asked for")
		}
		time.Sleep(4 * time.Millisecond)
		if n := l.Stats().Held; n < 100 || remains(t, far, a) != 20000-used-n {
			t.Errorf("%d used, %d held, %d left", used, n, remains(t, far, a))
		}
		if n, m := remains(t, far, slots), remains(t, far, b); n != 5 || m != 3 {
			t.Errorf("%d of 5 slots are free, %d of 3 units are left", n, m)
		}
	})
}

// TestLeasedCloseWaitsForLeavers: what is fetched for nobody when a store closes is
// given back, too, before Close returns.
func TestLeasedCloseWaitsForLeavers(t *testing.T) {
	for _, lose := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			l, far := distantLeased(t, LeaseOptions{Nodes: 1})
			lt := leaseTest{T: t}
			lt.space = lt.newSpace("s")
			c := lt.charge(lt.meter("1/1h burst 20000"), 1)
			used := warmed(t, l, []Charge{c})
			ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
			defer cancel()
			if err := l.Take(ctx, time.Time{}, []Charge{c}, make([]Decision, 1)); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
			far.lose.Store(lose)
			if err := l.Close(); err != nil || far.underWay.Load() != 0 {
				t.Errorf("closed with %d calls under way, error %v", far.underWay.Load(), err)
			}
			far.lose.Store(false)
			if left := remains(t, far.Store, c); !lose && left != 20000-used || l.Stats().Held != 0 {
				t.Errorf("%d left, %d used of 20000: %+v", left, used, l.Stats())
			}
			if err := l.Take(context.Background(), time.Time{}, []Charge{c}, make([]Decision, 1)); !errors.Is(err, ErrClosed) {
				t.Error(err)
			}
		})
	}
}

// TestLeasedOvertaken: of answers that overtake each other, also those of one
// instant, all units go back at the end.
func TestLeasedOvertaken(t *testing.T) {
	for _, between := range []time.Duration{0, time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			l, far := distantLeased(t, LeaseOptions{Nodes: 1})
			lt := leaseTest{T: t}
			lt.space = lt.newSpace("s")
			c := lt.charge(lt.meter("1/1h burst 20000"), 1)
			used := warmed(t, l, []Charge{c})
			var group sync.WaitGroup
			outs := make([][1]Decision, 2)
			for i := range outs {
				far.later.Store(int64(10-5*i) * int64(time.Millisecond))
				group.Go(func() {
					if err := l.Take(context.Background(), time.Time{}, []Charge{c}, outs[i][:]); err != nil || !outs[i][0].Allowed {
						t.Error(err, outs[i])
					}
				})
				synctest.Wait() // it has taken
				time.Sleep(between)
			}
			group.Wait()
			used += 2
			for _, out := range outs {
				if least := c.Meter.limit.Earn(1); out[0].ResetAfter < least {
					t.Errorf("%s between: all is as new after %s, one unit takes %s", between, out[0].ResetAfter, least)
				}
			}
			if held := l.Stats().Held; held < 300 || remains(t, far.Store, c) != 20000-used-held {
				t.Fatalf("%s between: %d held, %d left", between, held, remains(t, far.Store, c))
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
			if left := remains(t, far.Store, c); left != 20000-used {
				t.Errorf("%s between: %d left, %d used of 20000: %+v", between, left, used, l.Stats())
			}
		})
	}
}
