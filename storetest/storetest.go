// Package storetest is the suite that every [spillgate.Store] passes: call
// [Run] in a test of yours.
//
// All times are given, none is waited for, and each case uses spaces of its
// own, so that a store may be shared and may keep what earlier runs left.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillgate/spillgate"
)

// Run runs the suite. open returns a store for the test it is given, and has
// it closed by t.Cleanup if need be; each case opens one.
func Run(t *testing.T, open func(t *testing.T) spillgate.Store, opts ...Option) {
	for _, c := range []struct {
		name string
		test func(*suite)
	}{
		{"a bucket, step by step", (*suite).bucket},
		{"all charges or none, in any order", (*suite).allOrNone},
		{"a trial never refuses", (*suite).trial},
		{"units kept for others", (*suite).keep},
		{"a grant of less", (*suite).less},
		{"a need of more than is taken", (*suite).need},
		{"one key twice is the sum", (*suite).twice},
		{"one key under two limits", (*suite).twoLimits},
		{"no charges", (*suite).none},
		{"a charge that can't be carried out", (*suite).impossible},
		{"a context that is over", (*suite).over},
		{"time never flows back", (*suite).backwards},
		{"no time means now", (*suite).zeroTime},
		{"debt", (*suite).debt},
		{"giving back", (*suite).givingBack},
		{"giving back to a window", (*suite).windowBack},
		{"a limit that changes", (*suite).change},
		{"a ttl", (*suite).ttl},
		{"more keys than the cap", (*suite).cap},
		{"spaces are strangers", (*suite).strangers},
		{"many at once", (*suite).atOnce},
		{"many at once under several limits", (*suite).atOnceSeveral},
		{pureSteps, (*suite).pure},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &suite{T: t, seed: spillgate.NewSeed()}
			for _, opt := range opts {
				opt(s)
			}
			if s.spared == c.name {
				t.Skip("not promised by this store")
			}
			s.store = open(t)
			c.test(s)
		})
	}
}

type suite struct {
	*testing.T
	store  spillgate.Store
	seed   spillgate.Seed
	spaces int
	late   time.Duration
	spared string
}

// An Option says what of the suite a store is spared.
type Option func(*suite)

// Late lets random steps be told to wait up to d longer than need be: for a
// store that learns of its states from rounded answers. What is admitted is the
// same.
func Late(d time.Duration) Option { return func(s *suite) { s.late = d } }

// start is when all cases begin: a whole minute.
var start = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

// Loose spares a store the random steps, in which every answer is held against
// the pure step's: for a store that admits what its bound says beyond that.
func Loose() Option { return func(s *suite) { s.spared = pureSteps } }

const pureSteps = "as the pure step"

func (s *suite) space(o spillgate.SpaceOptions) *spillgate.Space {
	s.Helper()
	s.spaces++
	secret := s.seed.Bytes()
	name := fmt.Sprintf("%s/%x/%d", strings.ReplaceAll(s.Name(), " ", "_"), secret[:4], s.spaces)
	sp, err := spillgate.NewSpace(name, o)
	if err != nil {
		s.Fatal(err)
	}
	return sp
}

func (s *suite) key(text string) spillgate.Key {
	return s.seed.Key(spillgate.AppendPart(nil, "key", text))
}

func (s *suite) meter(text string) *spillgate.Meter {
	s.Helper()
	l, err := spillgate.ParseLimit(text)
	if err != nil {
		s.Fatal(err)
	}
	m, err := l.Meter()
	if err != nil {
		s.Fatal(err)
	}
	return m
}

// charge returns a charge of n units of key in a space of its own, unless one
// is given.
func (s *suite) charge(limit, key string, n int64, sp ...*spillgate.Space) spillgate.Charge {
	s.Helper()
	c := spillgate.Charge{Key: s.key(key), Meter: s.meter(limit), Ask: spillgate.Ask{N: n}}
	if len(sp) > 0 {
		c.Space = sp[0]
	} else {
		c.Space = s.space(spillgate.SpaceOptions{})
	}
	return c
}

func (s *suite) take(at time.Duration, cs ...spillgate.Charge) []spillgate.Decision {
	s.Helper()
	out := make([]spillgate.Decision, len(cs))
	if err := s.store.Take(context.Background(), start.Add(at), cs, out); err != nil {
		s.Fatalf("take at %s: %v", at, err)
	}
	return out
}

func (s *suite) settle(at time.Duration, c spillgate.Charge, d spillgate.Decision, delta int64) {
	s.Helper()
	err := s.store.Settle(context.Background(), start.Add(at), []spillgate.Correction{{
		Space: c.Space, Key: c.Key, Meter: c.Meter, Delta: delta, At: d.At, Slot: d.Slot, Overflow: d.Overflow,
	}})
	if err != nil {
		s.Fatalf("settle at %s: %v", at, err)
	}
}

// left returns what is left of a charge's key.
func (s *suite) left(at time.Duration, c spillgate.Charge) int64 {
	s.Helper()
	c.Ask, c.Trial = spillgate.Ask{}, false
	return s.take(at, c)[0].Remaining
}

func (s *suite) wantLeft(at time.Duration, c spillgate.Charge, want int64) {
	s.Helper()
	if got := s.left(at, c); got != want {
		s.Errorf("%d left at %s, want %d", got, at, want)
	}
}

func (s *suite) wantAllowed(at time.Duration, want bool, cs ...spillgate.Charge) {
	s.Helper()
	got := true
	ds := s.take(at, cs...)
	for i, d := range ds {
		got = got && (d.Allowed || cs[i].Trial)
	}
	if got != want {
		s.Errorf("allowed %t at %s, want %t: %+v", got, at, want, ds)
	}
}

func (s *suite) bucket() {
	c := s.charge("1/s burst 3", "a", 1)
	for _, step := range []struct {
		at           time.Duration
		n            int64
		allowed      bool
		reason       spillgate.Reason
		remaining    int64
		retry, reset time.Duration
	}{
		{0, 0, true, spillgate.Granted, 3, 0, 0},
		{0, 2, true, spillgate.Granted, 1, 0, 2 * time.Second},
		{0, 2, false, spillgate.OverLimit, 1, time.Second, 2 * time.Second},
		{0, 4, false, spillgate.NeverFits, 1, spillgate.Never, 2 * time.Second},
		{0, 1, true, spillgate.Granted, 0, 0, 3 * time.Second},
		{999 * time.Millisecond, 1, false, spillgate.OverLimit, 0, time.Millisecond, 2001 * time.Millisecond},
		{time.Second, 1, true, spillgate.Granted, 0, 0, 3 * time.Second},
		{time.Hour, 3, true, spillgate.Granted, 0, 0, 3 * time.Second},
	} {
		c.N = step.n
		d := s.take(step.at, c)[0]
		taken := int64(0)
		if step.allowed {
			taken = step.n
		}
		if d.Allowed != step.allowed || d.Reason != step.reason || d.Remaining != step.remaining ||
			d.RetryAfter != step.retry || d.ResetAfter != step.reset || d.Taken != taken || d.Limit != 3 || d.Overflow {
			s.Errorf("%d at %s: %+v, want %+v", step.n, step.at, d, step)
		}
	}
}

func (s *suite) allOrNone() {
	order := []int{0, 1, 2}
	for range 6 {
		cs := make([]spillgate.Charge, 3)
		cs[order[0]] = s.charge("1/h burst 9", "a", 1)
		cs[order[1]] = s.charge("1/h burst 2", "b", 1)
		cs[order[2]] = s.charge("1/h burst 9", "c", 1)
		for range 5 {
			ds := s.take(0, cs...)
			for i, d := range ds {
				if !d.Allowed && i != order[1] {
					s.Errorf("charge %d refuses: %+v", i, d)
				}
				if taken := int64(0); !ds[order[1]].Allowed && (d.Taken != taken || i != order[1] && d.Remaining != 7) {
					s.Errorf("charge %d of a refused request: %+v, want taken 0 and remaining 7", i, d)
				}
			}
		}
		s.wantLeft(0, cs[order[0]], 7)
		s.wantLeft(0, cs[order[1]], 0)
		s.wantLeft(0, cs[order[2]], 7)
		order[0], order[1], order[2] = order[1], order[2], order[0]
		if order[0] == 0 {
			order[1], order[2] = order[2], order[1]
		}
	}
}

func (s *suite) trial() {
	strict, shadow := s.charge("1/h burst 3", "a", 1), s.charge("1/h burst 1", "a", 1)
	shadow.Trial = true
	for i, want := range []bool{true, true, true, false} {
		ds := s.take(0, shadow, strict)
		if ds[1].Allowed != want || ds[0].Allowed != (i == 0) {
			s.Errorf("request %d: trial %t, limit %t; want %t, %t", i, ds[0].Allowed, ds[1].Allowed, i == 0, want)
		}
	}
	other := s.charge("1/h burst 1", "a", 1)
	other.Trial = true
	ds := s.take(0, strict, other)
	if !ds[1].Allowed || ds[1].Taken != 0 || ds[1].Remaining != 1 {
		s.Errorf("trial of a refused request: %+v, want it allowed, nothing taken, 1 left", ds[1])
	}
	s.wantLeft(0, other, 1)
}

func (s *suite) keep() {
	c := s.charge("1/h burst 5", "a", 1)
	low := c
	low.Keep = 3
	s.wantAllowed(0, true, low)
	s.wantAllowed(0, true, low)
	s.wantAllowed(0, false, low)
	if d := s.take(0, low)[0]; d.Remaining != 0 || d.RetryAfter != time.Hour {
		s.Errorf("%+v, want remaining 0 and retry after 1h", d)
	}
	for range 3 {
		s.wantAllowed(0, true, c)
	}
	s.wantAllowed(0, false, c)
}

func (s *suite) less() {
	c := s.charge("1/h burst 5", "a", 4)
	c.Min = 2
	for _, want := range []int64{4, 0} {
		if d := s.take(0, c)[0]; d.Taken != want || d.Allowed != (want > 0) {
			s.Errorf("%+v, want %d taken", d, want)
		}
	}
	if d := s.take(time.Hour, c)[0]; d.Taken != 2 || !d.Allowed {
		s.Errorf("%+v, want 2 taken", d)
	}
}

func (s *suite) twice() {
	c := s.charge("1/h burst 5", "a", 2)
	ds := s.take(0, c, c)
	if ds[0].Taken != 2 || ds[1].Taken != 2 || ds[0].Remaining != 1 || ds[1].Remaining != 1 {
		s.Errorf("%+v, want 2 taken each and 1 left", ds)
	}
	ds = s.take(0, c, c)
	for _, d := range ds {
		if d.Allowed || d.RetryAfter != 3*time.Hour || d.Taken != 0 {
			s.Errorf("%+v, want retry after 3h", d)
		}
	}
	s.wantAllowed(3*time.Hour, true, c, c)
	c.N = 3
	for _, d := range s.take(100*time.Hour, c, c) {
		if d.Reason != spillgate.NeverFits || d.RetryAfter != spillgate.Never {
			s.Errorf("%+v, want it never to fit", d)
		}
	}
	s.wantLeft(100*time.Hour, c, 5)
	few := c
	few.Min = 1
	ds = s.take(100*time.Hour, few, c)
	if ds[0].Taken != 2 || ds[1].Taken != 3 {
		s.Errorf("%+v, want 2 and 3 taken", ds)
	}
}

// Under the second limit what the first took is carried over: 4 of 5 used are
// 2 of 3.
func (s *suite) twoLimits() {
	a := s.charge("1/h burst 5", "a", 4)
	b := s.charge("1/h burst 3", "a", 2, a.Space)
	s.wantAllowed(0, false, a, b)
	s.wantLeft(0, a, 5)
	b.N = 1
	s.wantAllowed(0, true, a, b)
	s.wantLeft(0, b, 0)
}

func (s *suite) none() {
	if ds := s.take(0); len(ds) != 0 {
		s.Errorf("%+v", ds)
	}
}

func (s *suite) impossible() {
	good := s.charge("1/h burst 5", "a", 1)
	out := make([]spillgate.Decision, 2)
	for name, c := range map[string]struct {
		change func(*spillgate.Charge)
		want   error
	}{
		"negative n":    {func(c *spillgate.Charge) { c.N = -1 }, spillgate.ErrCost},
		"negative min":  {func(c *spillgate.Charge) { c.Min = -1 }, spillgate.ErrCost},
		"min above n":   {func(c *spillgate.Charge) { c.Min = 2 }, spillgate.ErrCost},
		"negative keep": {func(c *spillgate.Charge) { c.Keep = -1 }, spillgate.ErrCost},
		"no space":      {func(c *spillgate.Charge) { c.Space = nil }, spillgate.ErrCharge},
		"no meter":      {func(c *spillgate.Charge) { c.Meter = nil }, spillgate.ErrCharge},
		"never new":     {func(c *spillgate.Charge) { c.Meter = s.meter("0/s burst 5") }, spillgate.ErrCharge},
	} {
		bad := s.charge("1/h burst 5", "a", 1)
		c.change(&bad)
		for _, cs := range [][]spillgate.Charge{{good, bad}, {bad, good}} {
			if err := s.store.Take(context.Background(), start, cs, out); !errors.Is(err, c.want) {
				s.Errorf("%s: error %v, want %v", name, err, c.want)
			}
		}
	}
	if err := s.store.Take(context.Background(), start, []spillgate.Charge{good}, out); !errors.Is(err, spillgate.ErrCharge) {
		s.Errorf("room for two decisions: error %v, want %v", err, spillgate.ErrCharge)
	}
	s.wantLeft(0, good, 5)
	huge := good
	huge.N = 1<<63 - 1
	for _, d := range s.take(0, huge, huge) {
		if d.Reason != spillgate.NeverFits {
			s.Errorf("twice 2^63-1: %+v, want it never to fit", d)
		}
	}
	err := s.store.Settle(context.Background(), start, []spillgate.Correction{{Delta: 1}})
	if !errors.Is(err, spillgate.ErrCharge) {
		s.Errorf("settle without a space: error %v, want %v", err, spillgate.ErrCharge)
	}
}

func (s *suite) over() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	c := s.charge("1/h burst 5", "a", 1)
	err := s.store.Take(ctx, start, []spillgate.Charge{c}, make([]spillgate.Decision, 1))
	if !errors.Is(err, context.Canceled) {
		s.Errorf("error %v, want %v", err, context.Canceled)
	}
	s.wantLeft(0, c, 5)
}

func (s *suite) backwards() {
	c := s.charge("1/s burst 2", "a", 2)
	s.wantAllowed(time.Minute, true, c)
	if d := s.take(0, c)[0]; d.Allowed || d.RetryAfter != 2*time.Second {
		s.Errorf("a minute earlier: %+v, want retry after 2s", d)
	}
	s.wantLeft(time.Minute+time.Second, c, 1)
}

func (s *suite) zeroTime() {
	c := s.charge("1/1d burst 2", "a", 1)
	out := make([]spillgate.Decision, 1)
	for i := range 3 {
		if err := s.store.Take(context.Background(), time.Time{}, []spillgate.Charge{c}, out); err != nil {
			s.Fatal(err)
		}
		if out[0].Allowed != (i < 2) {
			s.Errorf("charge %d: %+v", i, out[0])
		}
	}
	back := []spillgate.Correction{{Space: c.Space, Key: c.Key, Meter: c.Meter, Delta: -1, At: out[0].At}}
	if err := s.store.Settle(context.Background(), time.Time{}, back); err != nil {
		s.Fatal(err)
	}
	if err := s.store.Take(context.Background(), time.Time{}, []spillgate.Charge{c}, out); err != nil || !out[0].Allowed {
		s.Errorf("after one was given back: %+v, %v", out[0], err)
	}
}

func (s *suite) debt() {
	c := s.charge("1/s burst 3", "a", 1)
	d := s.take(0, c)[0]
	s.settle(0, c, d, 7) // 8 used of 3
	if d := s.take(0, c)[0]; d.Allowed || d.Remaining != 0 || d.RetryAfter != 6*time.Second {
		s.Errorf("%+v, want retry after 6s", d)
	}
	s.wantAllowed(6*time.Second, true, c)
	fresh := s.charge("1/s burst 3", "b", 1, c.Space)
	s.settle(10*time.Second, fresh, spillgate.Decision{At: d.At}, 5)
	s.wantLeft(12*time.Second, fresh, 0)
	s.wantLeft(13*time.Second, fresh, 1)
}

func (s *suite) givingBack() {
	c := s.charge("1/h burst 3", "a", 2)
	d := s.take(0, c)[0]
	s.settle(0, c, d, -1)
	s.wantLeft(0, c, 2)
	s.settle(0, c, d, -9)
	s.wantLeft(0, c, 3)
	s.settle(0, c, d, -1)
	s.wantLeft(0, c, 3)
	s.settle(0, s.charge("1/h burst 3", "never seen", 1, c.Space), d, -1)
	s.settle(0, c, d, -1<<63)
	s.wantLeft(0, c, 3)
	s.settle(0, c, d, 0)
	s.wantLeft(0, c, 3)
}

func (s *suite) windowBack() {
	c := s.charge("3/1m fixed", "a", 2)
	d := s.take(10*time.Second, c)[0]
	s.settle(20*time.Second, c, d, -1)
	s.wantLeft(20*time.Second, c, 2)
	s.wantAllowed(61*time.Second, true, c)
	s.settle(62*time.Second, c, d, -1) // of the window before
	s.wantLeft(62*time.Second, c, 1)
}

func (s *suite) change() {
	c := s.charge("1/s burst 10", "a", 10)
	old := c.Meter
	s.wantAllowed(0, true, c)
	at := s.take(2*time.Second, spillgate.Charge{Space: c.Space, Key: s.key("other"), Meter: old})[0].At
	m, err := c.Space.Change(old, s.meter("1/1m burst 10"), at)
	if err != nil {
		s.Fatal(err)
	}
	c.Meter = m
	s.wantLeft(2*time.Second, c, 2)
	s.wantLeft(61*time.Second, c, 2)
	s.wantLeft(62*time.Second, c, 3)
}

func (s *suite) ttl() {
	c := s.charge("0/s burst 2", "a", 2, s.space(spillgate.SpaceOptions{TTL: time.Minute}))
	if d := s.take(0, c)[0]; !d.Allowed || d.ResetAfter != time.Minute {
		s.Errorf("%+v, want reset after 1m", d)
	}
	if d := s.take(10*time.Second, c)[0]; d.Allowed || d.RetryAfter != 50*time.Second {
		s.Errorf("%+v, want retry after 50s", d)
	}
	s.wantLeft(time.Minute-time.Millisecond, c, 0)
	s.wantAllowed(time.Minute, true, c)
}

// A store without a cap has no overflow; one with a cap flags what newcomers
// share. Neither forgets who is limited.
func (s *suite) cap() {
	sp := s.space(spillgate.SpaceOptions{MaxKeys: 3})
	key := func(k string) spillgate.Charge { return s.charge("1/10s burst 2", k, 1, sp) }
	for _, k := range []string{"a", "b", "c"} {
		s.wantAllowed(0, true, key(k))
		s.wantAllowed(0, true, key(k))
		s.wantAllowed(0, false, key(k))
	}
	shares := s.take(0, spillgate.Charge{Space: sp, Key: s.key("0"), Meter: key("0").Meter})[0].Overflow
	passed := 0
	for i := range 100 {
		d := s.take(0, key(fmt.Sprint(i)))[0]
		if d.Overflow != shares {
			s.Errorf("newcomer %d: overflow %t, the first one's was %t", i, d.Overflow, shares)
		}
		if d.Allowed {
			passed++
		}
	}
	if want := map[bool]int{true: 2, false: 100}[shares]; passed != want {
		s.Errorf("%d newcomers passed, want %d", passed, want)
	}
	for _, k := range []string{"a", "b", "c"} {
		s.wantAllowed(9999*time.Millisecond, false, key(k))
	}
	if d := s.take(20*time.Second, key("new"))[0]; !d.Allowed || d.Overflow {
		s.Errorf("newcomer when all are as new: %+v, want an entry of its own", d)
	}
}

func (s *suite) strangers() {
	a, b := s.charge("1/h burst 1", "k", 1), s.charge("1/h burst 1", "k", 1)
	s.wantAllowed(0, true, a)
	s.wantAllowed(0, true, b)
	s.wantAllowed(0, false, a)
	s.wantAllowed(0, false, b)
}

// workers runs f in eight goroutines.
func workers(f func(w int)) {
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() { f(w) })
	}
	wg.Wait()
}

func (s *suite) atOnce() {
	const keys, burst = 20, 10
	sp := s.space(spillgate.SpaceOptions{})
	var mu sync.Mutex
	taken := make([]int64, keys)
	workers(func(int) {
		for range 3 {
			for k := range keys {
				out := make([]spillgate.Decision, 1)
				c := s.charge("10/1h burst 10", fmt.Sprint(k), 1, sp)
				if err := s.store.Take(context.Background(), start, []spillgate.Charge{c}, out); err != nil {
					s.Error(err)
					return
				}
				mu.Lock()
				taken[k] += out[0].Taken
				mu.Unlock()
			}
		}
	})
	for k, n := range taken {
		if n != burst {
			s.Errorf("key %d: %d taken of %d", k, n, burst)
		}
	}
}

// Greedy visitors share one limit in requests whose charges stand in either
// order: it is used up exactly, and nobody is charged for a refusal.
func (s *suite) atOnceSeveral() {
	own, all := s.space(spillgate.SpaceOptions{}), s.space(spillgate.SpaceOptions{})
	shared := s.charge("1/h burst 50", "all", 1, all)
	var mu sync.Mutex
	passed := make([]int64, 8)
	workers(func(w int) {
		mine := s.charge("1/h burst 9", fmt.Sprint(w), 1, own)
		cs := []spillgate.Charge{mine, shared}
		if w%2 == 1 {
			slices.Reverse(cs)
		}
		out := make([]spillgate.Decision, 2)
		for range 30 {
			if err := s.store.Take(context.Background(), start, cs, out); err != nil {
				s.Error(err)
				return
			}
			if out[0].Allowed && out[1].Allowed {
				mu.Lock()
				passed[w]++
				mu.Unlock()
			}
		}
	})
	total := int64(0)
	for w, n := range passed {
		total += n
		s.wantLeft(0, s.charge("1/h burst 9", fmt.Sprint(w), 1, own), 9-n)
	}
	if total != 50 {
		s.Errorf("%d passed, want 50", total)
	}
	s.wantLeft(0, shared, 0)
}
