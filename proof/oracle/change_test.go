package oracle

import (
	"math"
	"testing"
)

// peek is what a script expects to find: a Step of cost 0.
type peek struct {
	at, remaining, reset int64
}

// TestChanges plays calls and looks at what remains after them. The expected
// numbers were worked out by hand from the rules in the package comment.
func TestChanges(t *testing.T) {
	const far = math.MaxInt64
	step := func(at, n int64) Op { return Op{Kind: Step, At: at, N: n} }
	spend := func(at, n int64) Op { return Op{Kind: Spend, At: at, N: n} }
	refund := func(at, n, of int64) Op { return Op{Kind: Refund, At: at, N: n, Of: of} }
	set := func(at, limit, period, burst int64) Op {
		return Op{Kind: Set, At: at, Limit: limit, Period: period, Burst: burst}
	}
	fill := func(at, limit, period, burst int64) Op {
		return Op{Kind: SetFill, At: at, Limit: limit, Period: period, Burst: burst}
	}
	for _, c := range []struct {
		name, algorithm      string
		limit, period, burst int64
		calls                []any // Op or peek
	}{
		{"a larger burst grants nothing", TokenBucket, 1, 10, 5, []any{
			step(0, 5), set(0, 1, 10, 8), peek{0, 0, 80}, peek{30, 3, 50}, peek{80, 8, 0}}},
		{"a larger burst leaves a full bucket as it is", TokenBucket, 1, 10, 5, []any{
			set(0, 1, 10, 8), peek{0, 5, 30}}},
		{"fill makes a raised burst full", TokenBucket, 1, 10, 5, []any{
			step(0, 4), fill(0, 1, 10, 8), peek{0, 8, 0}}},
		{"fill leaves an equal burst as it is", TokenBucket, 1, 10, 5, []any{
			step(0, 4), fill(0, 2, 10, 5), peek{0, 1, 20}}},
		{"fill with a smaller burst clamps", TokenBucket, 1, 10, 5, []any{
			fill(0, 1, 10, 3), peek{0, 3, 0}}},
		{"fill forgives debt", TokenBucket, 1, 10, 5, []any{
			spend(0, 10), fill(0, 1, 10, 8), peek{0, 8, 0}}},
		{"settled at the old rate up to the change", TokenBucket, 1, 10, 5, []any{
			step(0, 5), set(15, 1, 2, 5), peek{15, 1, 7}, peek{16, 2, 6}, peek{22, 5, 0}}},
		{"the fraction survives a change", TokenBucket, 1, 3, 2, []any{
			step(0, 2), set(1, 1, 7, 2), peek{1, 0, 12}, peek{5, 0, 8}, peek{6, 1, 7}}}, // 1/3 + 5/7 > 1 > 1/3 + 4/7
		{"a rate of 0 keeps what was earned", TokenBucket, 1, 10, 5, []any{
			step(0, 5), set(25, 0, 10, 5), peek{1000, 2, Never}, set(1000, 1, 10, 5), peek{1005, 3, 20}}},
		{"burst 0 and back", TokenBucket, 1, 10, 5, []any{
			set(0, 1, 10, 0), peek{0, 0, 0}, set(7, 1, 10, 5), peek{7, 0, 50}}},
		{"a change dated in the past is made now", TokenBucket, 1, 10, 5, []any{
			step(100, 5), set(0, 1, 10, 3), peek{0, 0, 30}, peek{110, 1, 20}}},
		{"a change moves the clock", TokenBucket, 1, 10, 5, []any{
			step(0, 5), set(30, 1, 10, 5), peek{0, 3, 20}}},
		{"debt is paid back first", TokenBucket, 1, 10, 5, []any{
			step(0, 4), spend(0, 3), peek{0, 0, 70}, peek{20, 0, 50}, peek{30, 1, 40}}},
		{"debt outlives a clamp", TokenBucket, 1, 10, 5, []any{
			spend(0, 7), set(0, 1, 10, 1), peek{0, 0, 30}, peek{29, 0, 1}, peek{30, 1, 0}}},
		{"a refund pays debt", TokenBucket, 1, 10, 5, []any{
			spend(0, 7), refund(0, 4, 0), peek{0, 2, 30}}},
		{"a refund is capped at the burst", TokenBucket, 1, 10, 5, []any{
			step(0, 2), refund(0, far, 0), peek{0, 5, 0}, step(0, 5), peek{0, 0, 50}}},
		{"a refund settles before it is capped", TokenBucket, 1, 10, 5, []any{
			step(0, 5), refund(10, 4, 0), peek{10, 5, 0}}},
		{"negative amounts are ignored", TokenBucket, 1, 10, 5, []any{
			step(0, 2), refund(0, -1, 0), spend(0, -1), set(0, -1, 10, 9), peek{0, 3, 20}}},
		{"the largest debt", TokenBucket, 1, 1, 5, []any{
			spend(0, far), spend(0, far), peek{0, 0, Never}}},

		{"a queue's backlog stays and leaves at the new rate", Queue, 1, 10, 4, []any{
			step(0, 3), set(5, 1, 2, 4), peek{5, 2, 5}, peek{6, 3, 4}, peek{10, 5, 0}}},
		{"fewer places than wait", Queue, 1, 10, 4, []any{
			step(0, 5), set(0, 1, 10, 1), peek{0, 0, 50}, peek{39, 0, 11}, peek{40, 1, 10}}},
		{"more places are there at once", Queue, 1, 10, 0, []any{
			step(0, 1), set(0, 1, 10, 2), peek{0, 2, 10}}},
		{"a cancelled place is free", Queue, 1, 10, 4, []any{
			step(0, 5), refund(3, 2, 0), peek{3, 2, 27}, refund(3, 9, 0), peek{3, 5, 0}}},
		{"a queue takes what is spent", Queue, 1, 10, 1, []any{
			spend(0, 4), peek{0, 0, 40}, peek{30, 1, 10}}},

		{"a fixed window's count meets the new limit", FixedWindow, 4, 10, 0, []any{
			step(12, 3), set(12, 2, 10, 0), peek{12, 0, 8}, set(13, 9, 10, 0), peek{13, 6, 7}, peek{20, 9, 0}}},
		{"a fixed window's count moves whole", FixedWindow, 4, 10, 0, []any{
			step(12, 3), set(17, 4, 4, 0), peek{17, 1, 3}, peek{20, 4, 0}}},
		{"settled in the old window before the period changes", FixedWindow, 4, 10, 0, []any{
			step(12, 3), set(21, 4, 100, 0), peek{21, 4, 0}}},
		{"a refund in the window", FixedWindow, 4, 10, 0, []any{
			step(12, 3), refund(19, 2, 12), peek{19, 3, 1}, refund(19, 2, 12), peek{19, 4, 0}}},
		{"a refund of an earlier window is void", FixedWindow, 4, 10, 0, []any{
			step(12, 3), step(20, 1), refund(20, 2, 12), peek{20, 3, 10}}},
		{"a window's debt leaves with it", FixedWindow, 4, 10, 0, []any{
			spend(12, 30), peek{12, 0, 8}, peek{20, 4, 0}}},

		{"a sliding counter's counts meet the new limit", SlidingWindowCounter, 4, 10, 0, []any{
			step(8, 4), set(15, 8, 10, 0), peek{15, 6, 5}, set(15, 1, 10, 0), peek{15, 0, 5}}},
		{"a sliding counter's estimate becomes its count", SlidingWindowCounter, 4, 10, 0, []any{
			step(8, 3), set(15, 4, 4, 0), peek{15, 2, 5}, peek{16, 2, 4}, peek{18, 3, 2}, peek{20, 4, 0}}},
		{"a refund goes to its window, previous", SlidingWindowCounter, 4, 10, 0, []any{
			step(8, 4), step(15, 2), refund(15, 2, 8), peek{15, 1, 15}, refund(15, 9, 8), peek{15, 2, 15}}},
		{"a refund goes to its window, current", SlidingWindowCounter, 4, 10, 0, []any{
			step(8, 4), step(15, 2), refund(15, 1, 11), peek{15, 1, 15}, refund(15, 9, 15), peek{15, 2, 5}}},
		{"a refund of the window before those is void", SlidingWindowCounter, 4, 10, 0, []any{
			step(8, 4), step(25, 2), refund(25, 2, 8), peek{25, 2, 15}}},
		{"a sliding counter's debt fades", SlidingWindowCounter, 4, 10, 0, []any{
			spend(5, 8), peek{5, 0, 15}, peek{15, 0, 5}, peek{16, 0, 4}, peek{17, 1, 3}, peek{20, 4, 0}}},

		{"a log's entries meet the new limit", SlidingWindowLog, 4, 10, 0, []any{
			step(1, 2), step(3, 2), set(4, 3, 10, 0), peek{4, 0, 9}, peek{11, 1, 2}, peek{13, 3, 0}}},
		{"a shorter period lets entries out", SlidingWindowLog, 4, 10, 0, []any{
			step(1, 2), step(3, 1), set(6, 4, 5, 0), peek{6, 3, 2}}},
		{"a longer period doesn't bring them back", SlidingWindowLog, 4, 10, 0, []any{
			step(1, 2), step(3, 1), set(11, 4, 100, 0), peek{11, 3, 92}}},
		{"a refund goes to its entry", SlidingWindowLog, 4, 10, 0, []any{
			step(1, 1), step(1, 1), step(3, 1), refund(5, 9, 1), peek{5, 3, 8}, step(6, 2), refund(7, 1, 6), peek{7, 2, 9}}},
		{"a refund of another instant is void", SlidingWindowLog, 4, 10, 0, []any{
			step(1, 2), refund(5, 1, 2), peek{5, 2, 6}, peek{11, 4, 0}, refund(11, 1, 1), peek{11, 4, 0}}},
		{"a log's debt leaves with its entry", SlidingWindowLog, 4, 10, 0, []any{
			step(1, 2), spend(3, 9), peek{3, 0, 10}, peek{12, 0, 1}, peek{13, 4, 0}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := mustNew(t, c.algorithm, c.limit, c.period, c.burst)
			for i, call := range c.calls {
				switch call := call.(type) {
				case Op:
					if a := l.Do(call); call.Kind == Step && !a.Allowed {
						t.Fatalf("call %d: denied: %+v", i, a)
					}
				case peek:
					want := Answer{Allowed: true, Remaining: call.remaining, ResetAfter: call.reset}
					if got := l.Step(call.at, 0); got != want {
						t.Errorf("call %d:\n got %+v\nwant %+v", i, got, want)
					}
				}
			}
		})
	}
}

// TestForget is the one thing that Forget changes.
func TestForget(t *testing.T) {
	for _, c := range []struct {
		forget          bool
		taken, at       int64
		remaining, full int64
	}{
		{false, 2, 20, 5, 30}, // full again, and keeps what it has
		{true, 2, 20, 8, 0},   // full again, and so as new
		{true, 2, 19, 4, 31},  // not yet full: 4.9 units
		{true, 0, 0, 8, 0},
	} {
		l := mustNew(t, TokenBucket, 1, 10, 5)
		l.Forget = c.forget
		l.Step(0, c.taken)
		l.Set(c.at, 1, 10, 8)
		if a := l.Step(c.at, 0); a.Remaining != c.remaining || a.ResetAfter != c.full {
			t.Errorf("%+v: %+v", c, a)
		}
	}
}

// TestQueueDelay is the part of the queue that the vectors leave open.
func TestQueueDelay(t *testing.T) {
	for _, c := range []struct {
		name                  string
		limit, period, places int64
		calls                 []Move
		want                  Answer // to the last call
	}{
		{"a request goes with its last unit", 1, 10, 4, []Move{{0, 3}}, Answer{Allowed: true, Remaining: 2, ResetAfter: 30, Delay: 20}},
		{"behind others", 1, 10, 4, []Move{{0, 2}, {5, 2}}, Answer{Allowed: true, Remaining: 1, ResetAfter: 35, Delay: 25}},
		{"rounded up", 3, 10, 4, []Move{{0, 1}, {0, 1}}, Answer{Allowed: true, Remaining: 3, ResetAfter: 7, Delay: 4}},
		{"cost 0 has no delay", 1, 10, 4, []Move{{0, 2}, {0, 0}}, Answer{Allowed: true, Remaining: 3, ResetAfter: 20}},
		{"one goes, the others wait", 1, 10, 2, []Move{{0, 3}}, Answer{Allowed: true, Remaining: 0, ResetAfter: 30, Delay: 20}},
		{"more than ever fit", 1, 10, 2, []Move{{0, 4}}, Answer{RetryAfter: Never, Remaining: 3}},
		{"the boundary instant", 1, 10, 2, []Move{{0, 3}, {10, 1}}, Answer{Allowed: true, Remaining: 0, ResetAfter: 30, Delay: 20}},
		{"a nanosecond before", 1, 10, 2, []Move{{0, 3}, {9, 1}}, Answer{RetryAfter: 1, Remaining: 0, ResetAfter: 21}},
		{"limit 0 lets one through", 0, 10, 2, []Move{{0, 1}}, Answer{Allowed: true, ResetAfter: Never}},
		{"limit 0 never lets a second", 0, 10, 2, []Move{{0, 1}, {99, 1}}, Answer{RetryAfter: Never, ResetAfter: Never}},
		{"limit 0 keeps nothing waiting", 0, 10, 2, []Move{{0, 2}}, Answer{RetryAfter: Never, Remaining: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, exact := range []bool{false, true} {
				l := mustNew(t, Queue, c.limit, c.period, c.places)
				if exact {
					l.makeExact()
				}
				var got Answer
				for _, m := range c.calls {
					got = l.Step(m.At, m.Cost)
				}
				if got != c.want {
					t.Errorf("exact %t:\n got %+v\nwant %+v", exact, got, c.want)
				}
			}
		})
	}
}

// TestEdges are the ends of the ranges, for every algorithm alike.
func TestEdges(t *testing.T) {
	for _, algorithm := range Algorithms {
		t.Run(algorithm, func(t *testing.T) {
			l := mustNew(t, algorithm, math.MaxInt64, math.MaxInt64, math.MaxInt64)
			if a := l.Step(math.MinInt64, 0); a.Remaining != math.MaxInt64 || a.ResetAfter != 0 || l.Now() != 0 {
				t.Errorf("new: %+v at %d", a, l.Now())
			}
			if a := l.Step(math.MaxInt64, math.MaxInt64); !a.Allowed {
				t.Errorf("the largest cost at the latest instant: %+v", a)
			}
			if a := l.Step(0, -1); a.Allowed || a.RetryAfter != Never {
				t.Errorf("negative cost: %+v", a)
			}
			// A wait of exactly the largest int64, or above, is never.
			l = mustNew(t, algorithm, 1, math.MaxInt64, 1)
			l.Step(0, l.Cap())
			if a := l.Step(0, 1); a.Allowed || a.RetryAfter != Never || a.ResetAfter != Never {
				t.Errorf("292 years: %+v", a)
			}
			if algorithm == Queue || algorithm == SlidingWindowCounter {
				return // these need two periods
			}
			if a := l.Step(2, 1); a.Allowed || a.RetryAfter < math.MaxInt64-2 {
				t.Errorf("a little less: %+v", a)
			}
		})
	}
	for _, bad := range []struct {
		algorithm            string
		limit, period, burst int64
	}{{"", 1, 1, 1}, {"bucket", 1, 1, 1}, {TokenBucket, -1, 1, 1}, {TokenBucket, 1, 0, 1}, {TokenBucket, 1, 1, -1}} {
		if l, err := New(bad.algorithm, bad.limit, bad.period, bad.burst); err == nil || l != nil {
			t.Errorf("New(%v): no error", bad)
		}
	}
}

// TestCloneSharesNothing steps a copy and looks at the original.
func TestCloneSharesNothing(t *testing.T) {
	for _, algorithm := range Algorithms {
		for _, exact := range []bool{false, true} {
			l := mustNew(t, algorithm, 5, 10, 5)
			if exact {
				l.makeExact()
			}
			l.Step(1, 1)
			l.Step(2, 1)
			want := l.Step(3, 0)
			c := l.Clone()
			c.Refund(3, 1, 1)
			c.Step(3, 1)
			c.Set(4, 1, 3, 1)
			c.Step(25, 1)
			if got := l.Step(3, 0); got != want {
				t.Errorf("%s, exact %t: %+v after the copy's steps, was %+v", algorithm, exact, got, want)
			}
		}
	}
}
