package policy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate"
)

// guarded returns a rule of one request an hour that blocks for an hour after
// three refusals within a minute.
func guarded(t testing.TB, more ...func(*Penalty)) Rule {
	r := testRule(t, "login", "1/min burst 1", "client.ip")
	r.Penalty = Penalty{After: 3, Within: time.Minute, Block: time.Hour}
	for _, f := range more {
		f(&r.Penalty)
	}
	return r
}

// ask asks now, as the client of that address.
func ask(e *Engine, ip string) Verdict {
	return e.Decide(context.Background(), Attrs{"client.ip": ip})
}

// refuse has ip refused n times.
func refuse(t *testing.T, e *Engine, ip string, n int) (last Verdict) {
	t.Helper()
	for i := range n {
		if last = ask(e, ip); last.Allowed {
			t.Fatalf("request %d of %s passed", i+1, ip)
		}
	}
	return last
}

// Who is blocked is free when the block ends, whether the last request began it, came in
// it while the limit was used up as well, or came when only the block refused it.
func TestFreeAtIsNotBeforeTheEndOfABlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := testEngine(t, guarded(t))
		const ip = "203.0.113.7"
		ask(e, ip)
		refuse(t, e, ip, 2)
		if got := e.Limited("login", 1); len(got) != 1 || !got[0].FreeAt.Equal(time.Now().Add(time.Minute)) {
			t.Errorf("before the block: %+v", got)
		}
		refuse(t, e, ip, 1)
		end := time.Now().Add(time.Hour)
		for range 3 {
			if got := e.Limited("login", 1); len(got) != 1 || !got[0].FreeAt.Equal(end) || !e.Blocked("login", 1)[0].Until.Equal(end) {
				t.Errorf("free at %+v, blocked until %s", got, end)
			}
			time.Sleep(40 * time.Second) // of the minute after which the limit lets pass
			refuse(t, e, ip, 1)
		}
		time.Sleep(time.Until(end))
		if !ask(e, ip).Allowed {
			t.Error("it is not free then")
		}
	})
}

func TestPenaltyBlocksAfterSoManyRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := testEngine(t, guarded(t))
		const ip = "203.0.113.7"
		if v := ask(e, ip); !v.Allowed || v.Len() != 1 {
			t.Fatalf("the first request: %+v", v)
		}
		if v := refuse(t, e, ip, 2); v.RetryAfter() != time.Minute || v.Refusing().Decision.Reason != spillgate.OverLimit {
			t.Errorf("before the block: %+v", v.Refusing())
		}
		v := refuse(t, e, ip, 1)
		d := v.Refusing().Decision
		if v.RetryAfter() != time.Hour || d.Reason != spillgate.Blocked || d.Remaining != 0 || d.ResetAfter != time.Hour {
			t.Errorf("the refusal that blocks: %+v", d)
		}
		if err := v.Err(); !errors.Is(err, spillgate.ErrBlocked) || !errors.Is(err, spillgate.ErrDenied) {
			t.Errorf("error %v", err)
		}
		if v := ask(e, "203.0.113.8"); !v.Allowed {
			t.Error("another address is blocked too")
		}
		// Asking on does not prolong it.
		time.Sleep(10 * time.Minute)
		for range 50 {
			if v := refuse(t, e, ip, 1); v.RetryAfter() != 50*time.Minute {
				t.Fatalf("after 10 minutes: retry after %s", v.RetryAfter())
			}
		}
		time.Sleep(50*time.Minute - 1)
		if v := refuse(t, e, ip, 1); v.RetryAfter() != 1 {
			t.Errorf("at the last nanosecond: retry after %s", v.RetryAfter())
		}
		time.Sleep(time.Nanosecond)
		if v := ask(e, ip); !v.Allowed {
			t.Errorf("the wait was not enough: %+v", v.Refusing())
		}
		// And it takes as many refusals again.
		if v := refuse(t, e, ip, 2); v.Refusing().Decision.Reason != spillgate.OverLimit {
			t.Error("blocked by refusals of before")
		}
	})
}

// The window is any of its length: three refusals in it block, three that are
// spread over a nanosecond more do not.
func TestPenaltyWindowIsExact(t *testing.T) {
	for _, tt := range []struct {
		last time.Duration
		want spillgate.Reason
	}{{time.Minute - 1, spillgate.Blocked}, {time.Minute, spillgate.OverLimit}} {
		r := guarded(t)
		r.Limit = testRule(t, "x", "1/d burst 1").Limit
		e := testEngine(t, r)
		who := Attrs{"client.ip": "203.0.113.7"}
		decide(e, 0, who)
		for _, at := range []time.Duration{0, 30 * time.Second} {
			decide(e, at, who)
		}
		if v := decide(e, tt.last, who); v.Refusing().Decision.Reason != tt.want {
			t.Errorf("the third refusal after %s: %s, want %s", tt.last, v.Refusing().Decision.Reason, tt.want)
		}
	}
}

// The wait is that of whatever refuses longest, the limit or the block.
func TestBlockedWaitHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := guarded(t)
		r.Limit = testRule(t, "x", "1/d burst 1").Limit
		e := testEngine(t, r, testRule(t, "slow", "1/w burst 1", "client.ip"))
		ask(e, "192.0.2.1")
		v := refuse(t, e, "192.0.2.1", 5)
		if got := v.RetryAfter(); got != 7*24*time.Hour {
			t.Errorf("retry after %s, want a week: the other rule's", got)
		}
		if d := v.Of("login").Decision; d.Reason != spillgate.Blocked || d.RetryAfter != 24*time.Hour {
			t.Errorf("%+v, want the wait of the limit, which is longer than the block", d)
		}
		time.Sleep(v.RetryAfter())
		if v := ask(e, "192.0.2.1"); !v.Allowed {
			t.Errorf("the wait was not enough: %+v", v.Refusing())
		}
	})
}

func TestBlocksGrowAndAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := testEngine(t, guarded(t, func(p *Penalty) {
			p.Grow, p.Most, p.Forget = 3, 12*time.Hour, 48*time.Hour
		}))
		const ip = "203.0.113.7"
		block := func() time.Duration {
			ask(e, ip)
			v := refuse(t, e, ip, 3)
			time.Sleep(v.RetryAfter())
			return v.RetryAfter()
		}
		for i, want := range []time.Duration{time.Hour, 3 * time.Hour, 9 * time.Hour, 12 * time.Hour, 12 * time.Hour} {
			if got := block(); got != want {
				t.Errorf("block %d lasts %s, want %s", i+1, got, want)
			}
		}
		time.Sleep(36*time.Hour - 1) // with the last block's 12, short of 48
		if got := block(); got != 12*time.Hour {
			t.Errorf("a block before the last is forgotten lasts %s", got)
		}
		time.Sleep(36 * time.Hour)
		if got := block(); got != time.Hour {
			t.Errorf("a block after all are forgotten lasts %s", got)
		}
	})
}

func TestPenaltyLengths(t *testing.T) {
	for _, tt := range []struct {
		p    Penalty
		n    int64
		want time.Duration
	}{
		{Penalty{Block: time.Hour}, 1, time.Hour},
		{Penalty{Block: time.Hour}, 1 << 40, time.Hour},
		{Penalty{Block: time.Hour, Grow: 2}, 5, 16 * time.Hour},
		{Penalty{Block: time.Hour, Grow: 2}, 6, 24 * time.Hour},
		{Penalty{Block: 48 * time.Hour, Grow: 2}, 2, 48 * time.Hour},
		{Penalty{Block: time.Millisecond, Grow: 100, Most: longest}, 1 << 40, longest},
		{Penalty{Block: longest, Grow: 100, Most: longest}, 9, longest},
	} {
		p := tt.p.Filled()
		if got := p.lasts(tt.n); got != tt.want {
			t.Errorf("block %d of %+v lasts %s, want %s", tt.n, tt.p, got, tt.want)
		}
	}
}

// Neither who is only told, nor who is spared, nor who lacks the key, nor who
// was refused by another rule is blocked.
func TestWhatDoesNotCount(t *testing.T) {
	get := Match{{Attribute{Kind: Method}, []string{"GET"}}}
	other := testRule(t, "other", "1/d burst 1", "host")
	for name, tt := range map[string]struct {
		rule  func(*Rule)
		attrs Attrs
	}{
		"peeks":                {func(r *Rule) { r.Peek = get }, Attrs{"client.ip": "192.0.2.1", "method": "GET"}},
		"a shadow rule":        {func(r *Rule) { r.Spare = 100 }, Attrs{"client.ip": "192.0.2.1"}},
		"no key":               {func(*Rule) {}, Attrs{}},
		"no key, denied":       {func(r *Rule) { r.Missing = Refuse }, Attrs{}},
		"another rule refuses": {func(r *Rule) { r.Limit.Rate, r.Limit.Burst = 1000, 1000 }, Attrs{"client.ip": "192.0.2.1", "host": "a"}},
	} {
		r := guarded(t)
		tt.rule(&r)
		e := testEngine(t, r, other)
		for range 20 {
			v := decide(e, 0, tt.attrs)
			for i := range v.Len() {
				if d := v.Outcome(i).Decision; d.Reason == spillgate.Blocked {
					t.Fatalf("%s: blocked: %+v", name, d)
				}
			}
		}
	}
}

// A table that is full has all newcomers share a bucket: what that refuses is
// not the doing of who asks, and blocks nobody.
func TestFullTableBlocksNobody(t *testing.T) {
	r := guarded(t)
	r.MaxKeys = 2
	e := testEngine(t, r)
	for i := range 5 {
		decide(e, 0, Attrs{"client.ip": fmt.Sprintf("192.0.2.%d", i)})
	}
	for range 10 {
		if v := decide(e, 0, Attrs{"client.ip": "192.0.2.4"}); v.Allowed || v.Refusing().Decision.Reason != spillgate.OverLimit {
			t.Fatalf("%+v", v.Outcome(0))
		}
	}
	// Who has a place of its own is blocked by its own refusals.
	for range 3 {
		decide(e, 0, Attrs{"client.ip": "192.0.2.0"})
	}
	if v := decide(e, 0, Attrs{"client.ip": "192.0.2.0"}); v.Refusing().Decision.Reason != spillgate.Blocked {
		t.Errorf("%+v", v.Outcome(0))
	}
}

// A blocked request charges nothing, of no rule.
func TestBlockedChargesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := testEngine(t, guarded(t), testRule(t, "all", "100/d burst 100"))
		const ip = "192.0.2.1"
		ask(e, ip)
		refuse(t, e, ip, 3)
		time.Sleep(30 * time.Minute) // the limit is full again, the block goes on
		for range 20 {
			refuse(t, e, ip, 1)
		}
		if v := ask(e, "192.0.2.2"); v.Of("all").Decision.Remaining != 99 {
			t.Errorf("%d left of what all share", v.Of("all").Decision.Remaining)
		}
		if v := refuse(t, e, ip, 1); v.Of("all").Decision.Taken != 0 || v.Of("all").Refuses() {
			t.Errorf("%+v", v.Of("all"))
		}
	})
}

func TestBlockedIsListedAndFreed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := testEngine(t, guarded(t, func(p *Penalty) { p.Grow = 2 }))
		ctx := context.Background()
		const ip = "203.0.113.7"
		if got := e.Blocked("login", 10); got != nil {
			t.Errorf("%+v before anybody is", got)
		}
		ask(e, ip)
		refuse(t, e, ip, 3)
		since := time.Now()
		time.Sleep(time.Minute)
		refuse(t, e, ip, 4)
		id, err := e.KeyOf("login", Attrs{"client.ip": ip})
		if err != nil {
			t.Fatal(err)
		}
		want := []Block{{ID: id, Key: "client.ip=203.0.113.7", Since: since, Until: since.Add(time.Hour), Times: 1, Refused: 4}}
		if got := e.Blocked("login", 10); !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, want %+v", got, want)
		}
		if c := e.Limited("login", 1); len(c) != 1 || c[0].Denied != 7 {
			t.Errorf("who is limited: %+v", c)
		}
		if blocked, err := e.Free(ctx, "login", id); !blocked || err != nil {
			t.Errorf("freed: %t, %v", blocked, err)
		}
		if got := e.Blocked("login", 10); got != nil {
			t.Errorf("%+v after it was freed", got)
		}
		if v := ask(e, ip); !v.Allowed {
			t.Errorf("freed, and %+v", v.Refusing())
		}
		if blocked, err := e.Free(ctx, "login", id); blocked || err != nil {
			t.Errorf("freed again: %t, %v", blocked, err)
		}
		// The next block is the first again.
		time.Sleep(time.Hour)
		ask(e, ip)
		if v := refuse(t, e, ip, 3); v.RetryAfter() != time.Hour {
			t.Errorf("the block after: %s", v.RetryAfter())
		}
		time.Sleep(time.Hour)
		if got := e.Blocked("login", 10); got != nil {
			t.Errorf("%+v after its end", got)
		}
	})
}

func TestFreeAndKeyOfSayWhatIsWrong(t *testing.T) {
	e := testEngine(t, guarded(t), testRule(t, "plain", "1/s", "user"))
	for _, rule := range []string{"plain", "unknown"} {
		if _, err := e.Free(context.Background(), rule, spillgate.Key{}); !errors.Is(err, ErrRule) || !strings.Contains(err.Error(), rule) {
			t.Errorf("%s: error %v", rule, err)
		}
		if got := e.Blocked(rule, 10); got != nil {
			t.Errorf("%s: %+v", rule, got)
		}
	}
	for rule, who := range map[string]Attrs{"unknown": {}, "plain": {"client.ip": "192.0.2.1"}} {
		if _, err := e.KeyOf(rule, who); !errors.Is(err, ErrRule) {
			t.Errorf("%s: error %v", rule, err)
		}
	}
}

// The list has a bound; the blocks that end last stay in it, and who is not in
// it is blocked all the same.
func TestListOfBlocksIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, err := Compile([]Rule{guarded(t)})
		if err != nil {
			t.Fatal(err)
		}
		m := spillgate.NewMemory()
		defer m.Close()
		e := NewEngine(p, m, Track(3))
		for i := range 9 {
			ip := fmt.Sprintf("192.0.2.%d", i)
			ask(e, ip)
			refuse(t, e, ip, 3)
			time.Sleep(time.Second)
		}
		got := e.Blocked("login", 10)
		if len(got) != 3 || got[0].Key != "client.ip=192.0.2.8" || got[2].Key != "client.ip=192.0.2.6" {
			t.Errorf("%+v", got)
		}
		refuse(t, e, "192.0.2.0", 1)
		if got := e.Blocked("login", 1); len(got) != 1 || got[0].Key != "client.ip=192.0.2.8" {
			t.Errorf("%+v", got)
		}
	})
}

// A snapshot holds blocks and what was counted towards one.
func TestBlocksOutliveARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, err := Compile([]Rule{guarded(t, func(p *Penalty) { p.Grow = 2 })})
		if err != nil {
			t.Fatal(err)
		}
		mem := spillgate.NewMemory()
		defer mem.Close()
		before := NewEngine(p, mem)
		for _, ip := range []string{"192.0.2.1", "192.0.2.2"} {
			ask(before, ip)
		}
		refuse(t, before, "192.0.2.1", 3)
		refuse(t, before, "192.0.2.2", 2)
		var file bytes.Buffer
		if err := mem.Snapshot(&file); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		again := spillgate.NewMemory()
		defer again.Close()
		if err := again.Restore(&file); err != nil {
			t.Fatal(err)
		}
		after := NewEngine(p, again)
		if v := refuse(t, after, "192.0.2.1", 1); v.RetryAfter() != time.Hour-20*time.Second {
			t.Errorf("a block after a restart: %s", v.RetryAfter())
		}
		if got := after.Blocked("login", 1); len(got) != 1 || got[0].Times != 0 || !got[0].Until.Equal(time.Now().Add(time.Hour-20*time.Second)) {
			t.Errorf("listed after a restart: %+v", got)
		}
		if v := refuse(t, after, "192.0.2.2", 1); v.RetryAfter() != time.Hour {
			t.Errorf("the third refusal, after a restart: %s", v.RetryAfter())
		}
		time.Sleep(time.Hour)
		ask(after, "192.0.2.1")
		if v := refuse(t, after, "192.0.2.1", 3); v.RetryAfter() != 2*time.Hour {
			t.Errorf("the second block in a row: %s", v.RetryAfter())
		}
	})
}

// However many are refused at once, a key is blocked once.
func TestRefusalsAtOnceBlockOnce(t *testing.T) {
	r := guarded(t, func(p *Penalty) { p.Grow, p.After = 2, 10 })
	r.Limit = testRule(t, "x", "1/d burst 1").Limit
	e := testEngine(t, r)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				decide(e, 0, Attrs{"client.ip": "192.0.2.1"})
			}
		})
	}
	wg.Wait()
	v := decide(e, 23*time.Hour, Attrs{"client.ip": "192.0.2.1"})
	if d := v.Refusing().Decision; d.Reason != spillgate.OverLimit {
		t.Errorf("blocked more than once: %+v", d)
	}
}

// Where the store fails who is blocked is not known, and refusals count for
// nothing.
func TestPenaltyWhileTheStoreFails(t *testing.T) {
	p, err := Compile([]Rule{guarded(t)})
	if err != nil {
		t.Fatal(err)
	}
	e := NewEngine(p, brokenStore{spillgate.ErrUnavailable})
	for i := range 9 {
		v := decide(e, 0, Attrs{"client.ip": "192.0.2.1"})
		if v.Fault == nil || v.Allowed != (i == 0) || v.Len() != 1 || v.Outcome(0).Decision.Reason == spillgate.Blocked {
			t.Fatalf("request %d: %+v", i, v)
		}
	}
	if _, err := e.Free(context.Background(), "login", spillgate.Key{}); !errors.Is(err, spillgate.ErrUnavailable) {
		t.Errorf("error %v", err)
	}
}

func TestPenaltiesThatSayNothing(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*Rule)
		want   string
	}{
		"deny":            {func(r *Rule) { r.Deny, r.Limit = true, spillgate.Limit{} }, "refuses everybody already"},
		"unlimited":       {func(r *Rule) { r.Limit = spillgate.Limit{Algorithm: spillgate.Unlimited} }, "refuses nobody"},
		"no key":          {func(r *Rule) { r.Key = nil }, "no key"},
		"no after":        {func(r *Rule) { r.Penalty.After = 0 }, "from 1 to 1000"},
		"after too many":  {func(r *Rule) { r.Penalty.After = 1001 }, "from 1 to 1000"},
		"no window":       {func(r *Rule) { r.Penalty.Within = 0 }, "within 0s"},
		"no block":        {func(r *Rule) { r.Penalty.Block = 0 }, "shorter than within"},
		"block too short": {func(r *Rule) { r.Penalty.Block = 59 * time.Second }, "shorter than within"},
		"block too long":  {func(r *Rule) { r.Penalty.Block = longest + time.Second }, "block"},
		"a fraction":      {func(r *Rule) { r.Penalty.Block += time.Microsecond }, "whole milliseconds"},
		"shrinks":         {func(r *Rule) { r.Penalty.Grow = -1 }, "grow -1"},
		"explodes":        {func(r *Rule) { r.Penalty.Grow = 101 }, "grow 101"},
		"most alone":      {func(r *Rule) { r.Penalty.Most = 2 * time.Hour }, "without grow"},
		"forget alone":    {func(r *Rule) { r.Penalty.Forget = 2 * time.Hour }, "without grow"},
		"most too short":  {func(r *Rule) { r.Penalty.Grow, r.Penalty.Most = 2, time.Minute }, "most 1m: want whole milliseconds, from 1h to 366d; write 1h"},
		"forget too soon": {func(r *Rule) { r.Penalty.Grow, r.Penalty.Forget = 2, time.Hour }, "forget 1h: want"},
	} {
		r := guarded(t)
		tt.change(&r)
		_, err := Compile([]Rule{r})
		var wrong *RuleError
		if !errors.As(err, &wrong) || wrong.Field != "penalty" || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want one about %q", name, err, tt.want)
		}
	}
}

func TestRulesWithPenaltiesMakeTwoCharges(t *testing.T) {
	var rules []Rule
	for i := range spillgate.MaxCharges/2 + 1 {
		r := guarded(t)
		r.Name = fmt.Sprintf("rule-%d", i)
		rules = append(rules, r)
	}
	if _, err := Compile(rules); !errors.Is(err, ErrRule) {
		t.Errorf("error %v", err)
	}
	e := testEngine(t, rules[1:]...)
	if v := decide(e, 0, Attrs{"client.ip": "192.0.2.1"}); !v.Allowed || v.Len() != 128 || v.Err() != nil {
		t.Errorf("%d rules, %v", v.Len(), v.Err())
	}
}
