package policy

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/spillgate/spillgate"
)

func tokensRule(t testing.TB, name, limit string) Rule {
	r := testRule(t, name, limit)
	r.Unit = Tokens
	return r
}

// usageEngine makes an engine of rules and usages.
func usageEngine(t testing.TB, usages []Usage, rules ...Rule) *Engine {
	t.Helper()
	p, err := Compile(rules)
	if err != nil {
		t.Fatal(err)
	}
	if p, err = p.WithUsage(usages); err != nil {
		t.Fatal(err)
	}
	m := spillgate.NewMemory()
	t.Cleanup(func() { m.Close() })
	return NewEngine(p, m)
}

// remains returns what a rule has left.
func remains(e *Engine, rule string, attrs Attrs) int64 {
	v := e.Decide(context.Background(), attrs, At(start), Cost(Requests, 0), Cost(Tokens, 0), Cost("output", 0))
	return v.Of(rule).Decision.Remaining
}

// reserve decides a call for a body.
func reserve(e *Engine, attrs Attrs, body string) (*Call, Verdict) {
	c := e.Call(attrs)
	return c, e.Decide(context.Background(), attrs, c.Reserve([]Option{At(start)}, int64(len(body)), []byte(body))...)
}

func TestUsageThatIsRefused(t *testing.T) {
	p, err := Compile([]Rule{tokensRule(t, "a", "10/s"), testRule(t, "b", "10/s")})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		usage       Usage
		field, want string
	}{
		{Usage{}, "format", "missing"},
		{Usage{Paths: map[string][]string{"cached": {"a"}}}, "format", "neither input nor output"},
		{Usage{Format: "OpenAI"}, "format", "want openai or anthropic"},
		{Usage{Format: "openai", Paths: map[string][]string{"input": {"a"}}}, "format", "has its own paths"},
		{Usage{Paths: map[string][]string{"in": {"a"}}}, "format", "want paths under input"},
		{Usage{Paths: map[string][]string{"input": {}}}, "format", "want paths under input"},
		{Usage{Paths: map[string][]string{"input": {"a..b"}}}, "format", "a..b"},
		{Usage{Format: "openai", Unit: "token"}, "unit", "no rule counts token"},
		{Usage{Format: "openai", Unit: "To kens"}, "unit", "lower-case"},
		{Usage{Format: "openai", Unit: Requests}, "unit", "counted by themselves"},
		{Usage{Format: "openai", Unit: Bytes}, "unit", "counted by themselves"},
		{Usage{Format: "openai", Input: "bytes"}, "input", "want bytes/N"},
		{Usage{Format: "openai", Output: "p95"}, "output", "end with a number"},
		{Usage{Paths: map[string][]string{"input": {"a"}}, Output: "max_tokens else 5"}, "output", `under "most"`},
		{Usage{Format: "openai", Weights: map[string]int{"most": 5}}, "weights", "want input"},
		{Usage{Format: "openai", Weights: map[string]int{"cached": -1}}, "weights", "0 to 10000"},
		{Usage{Format: "openai", Weights: map[string]int{"cached": 10_001}}, "weights", "0 to 10000"},
		{Usage{Format: "openai", Read: -1}, "read", "from 1 to"},
		{Usage{Format: "openai", Read: MaxRead + 1}, "read", "from 1 to"},
		{Usage{Format: "openai", Match: Match{{Attribute: Attribute{Kind: Path}, Values: []string{"v1"}}}}, "match", "begins with /"},
	} {
		_, err := p.WithUsage([]Usage{{Format: "openai"}, c.usage})
		var wrong *UsageError
		if !errors.As(err, &wrong) || !errors.Is(err, ErrRule) {
			t.Errorf("%+v: %v", c.usage, err)
			continue
		}
		if wrong.Index != 1 || wrong.Field != c.field || !strings.Contains(wrong.Error(), c.want) {
			t.Errorf("%+v: %v, want %s: %s", c.usage, wrong, c.field, c.want)
		}
	}
	if p.Usage() != nil {
		t.Error("the policy itself was changed")
	}
	if _, err := p.WithUsage(make([]Usage, MaxUsage+1)); err == nil {
		t.Error("too many are taken")
	}
}

func TestCallsReserveAndSettle(t *testing.T) {
	e := usageEngine(t, []Usage{
		{Match: Match{{Attribute: Attribute{Kind: Path}, Values: []string{"/v1/**"}}}, Format: "openai", Output: "max_tokens else 500"},
		{Format: "openai", Unit: "output", Input: "0", Output: "100", Weights: map[string]int{"input": 0}},
		{Format: "anthropic", Output: "9000"},
	}, tokensRule(t, "minute", "1/h burst 10_000"), tokensRule(t, "day", "1/h burst 100_000"), testRule(t, "requests", "1/h burst 10"),
		func() Rule { r := testRule(t, "output", "1/h burst 1_000"); r.Unit = "output"; return r }())
	chat := Attrs{"path": "/v1/chat/completions"}
	c, v := reserve(e, chat, `{"max_tokens":1000,"messages":[]}`) // 33 bytes
	if !v.Allowed {
		t.Fatal(v.Err())
	}
	for rule, want := range map[string]int64{"minute": 10_000 - 1009, "day": 100_000 - 1009, "output": 900, "requests": 9} {
		if got := remains(e, rule, chat); got != want {
			t.Errorf("reserved: %s has %d left, want %d", rule, got, want)
		}
	}
	c.Answer("application/json", "")
	c.Write([]byte(`{"usage":{"prompt_tokens":8,"comp`))
	c.Write([]byte(`letion_tokens":300}}`))
	if err := c.Settle(&v, 200, true); err != nil {
		t.Error(err)
	}
	for rule, want := range map[string]int64{"minute": 10_000 - 308, "day": 100_000 - 308, "output": 700, "requests": 9} {
		if got := remains(e, rule, chat); got != want {
			t.Errorf("settled: %s has %d left, want %d", rule, got, want)
		}
	}
	if got, want := e.UsageTotals(), []UsageTotals{{Told: 1, Reserved: 1009, Back: 701}, {Told: 1, Reserved: 100, Over: 200}, {}}; fmt.Sprint(got) != fmt.Sprint(want) || got[0].Settled() != 308 || got[1].Settled() != 300 {
		t.Errorf("totals %+v, want %+v", got, want)
	}

	// Elsewhere the third applies, not the first.
	c, v = reserve(e, Attrs{"path": "/elsewhere"}, "")
	if got := remains(e, "minute", chat); got != 10_000-308-9000 {
		t.Errorf("elsewhere: %d left", got)
	}
	if err := c.Settle(&v, 0, false); err != nil { // no answer: the estimate stands
		t.Error(err)
	}
	if got := e.UsageTotals()[2]; got != (UsageTotals{Cut: 1, Reserved: 9000}) {
		t.Errorf("totals %+v", got)
	}
}

// TestUsageNeverOverwritesTheProgram settles calls that the handler has settled
// by itself.
func TestUsageNeverOverwritesTheProgram(t *testing.T) {
	for name, handle := range map[string]func(v *Verdict) int64{
		"spent":          func(v *Verdict) int64 { v.Spent(Tokens, 77); return 77 },
		"spent the same": func(v *Verdict) int64 { v.Spent(Tokens, 100); return 100 },
		"given back":     func(v *Verdict) int64 { v.GiveBack("tokens"); return 0 },
		"all given back": func(v *Verdict) int64 { v.GiveBack(); return 0 },
		"spent twice":    func(v *Verdict) int64 { v.Spent(Tokens, 5); v.Spent(Tokens, 6); return 6 },
		"another rule":   func(v *Verdict) int64 { v.GiveBack("requests"); return 3 },
	} {
		t.Run(name, func(t *testing.T) {
			e := usageEngine(t, []Usage{{Format: "openai", Input: "0", Output: "100"}},
				tokensRule(t, "tokens", "1/h burst 1000"), testRule(t, "requests", "1/h burst 10"))
			c, v := reserve(e, Attrs{}, "")
			want := handle(&v)
			c.Answer("application/json", "")
			c.Write([]byte(`{"usage":{"prompt_tokens":1,"completion_tokens":2}}`))
			if err := c.Settle(&v, 200, true); err != nil {
				t.Error(err)
			}
			if got := 1000 - remains(e, "tokens", nil); got != want {
				t.Errorf("%d are charged, want %d", got, want)
			}
		})
	}
	// Nor does the end of a request give back what a program said was spent.
	r := testRule(t, "failures", "1/h burst 10")
	r.Failures = []string{"401"}
	e := testEngine(t, r)
	v := e.Decide(context.Background(), Attrs{}, At(start))
	v.Spent(Requests, 4)
	v.Ended("200")
	if got := remains(e, "failures", nil); got != 6 {
		t.Errorf("%d left, want 6", got)
	}
}

// TestParallelCallsCannotOverspendTogether : estimates are reserved before the
// calls, so that of many at once only as many pass as the limit can pay for
// (litellm 18730 let 663 through a limit of 100; membrane/api-gateway 3210).
func TestParallelCallsCannotOverspendTogether(t *testing.T) {
	e := usageEngine(t, []Usage{{Format: "openai", Input: "0", Output: "10"}}, tokensRule(t, "tokens", "1/h burst 100"))
	var mu sync.Mutex
	var passed []*Verdict
	var calls []*Call
	var wait sync.WaitGroup
	for range 200 {
		wait.Go(func() {
			c, v := reserve(e, Attrs{}, "")
			mu.Lock()
			defer mu.Unlock()
			if v.Allowed {
				passed, calls = append(passed, &v), append(calls, c)
			}
		})
	}
	wait.Wait()
	if len(passed) != 10 {
		t.Fatalf("%d calls of 10 passed a limit of 100 at once", len(passed))
	}
	// What they use beyond their estimates is owed, and counted.
	for i, c := range calls {
		c.Answer("application/json", "")
		c.Write([]byte(`{"usage":{"prompt_tokens":0,"completion_tokens":13}}`))
		c.Settle(passed[i], 200, true)
	}
	if got := e.UsageTotals()[0]; got != (UsageTotals{Told: 10, Reserved: 100, Over: 30}) {
		t.Errorf("totals %+v", got)
	}
	v := e.Decide(context.Background(), Attrs{}, At(start))
	if v.Allowed || v.Of("tokens").Decision.ResetAfter.Hours() < 129 {
		t.Errorf("with 30 owed of 100: %+v", v.Of("tokens").Decision)
	}
}

// TestOverReservedIsBackAtOnce : what an estimate reserved too much is there for
// the next call as soon as the answer has told.
func TestOverReservedIsBackAtOnce(t *testing.T) {
	e := usageEngine(t, []Usage{{Format: "openai", Input: "0", Output: "90"}}, tokensRule(t, "tokens", "1/h burst 100"))
	for i := range 5 {
		c, v := reserve(e, Attrs{}, "")
		if want := i < 5; v.Allowed != want {
			t.Fatalf("call %d: %v", i, v.Err())
		}
		if _, second := reserve(e, Attrs{}, ""); second.Allowed {
			t.Fatalf("call %d: another passed beside it", i)
		}
		c.Answer("application/json", "")
		c.Write([]byte(`{"usage":{"prompt_tokens":0,"completion_tokens":2}}`))
		c.Settle(&v, 200, true)
	}
	if got := remains(e, "tokens", nil); got != 90 {
		t.Errorf("%d left, want 90", got)
	}
}

// TestEstimateOfNothingIsSettled : a call that is thought to cost nothing is
// charged for what it costs.
func TestEstimateOfNothingIsSettled(t *testing.T) {
	e := usageEngine(t, []Usage{{Format: "openai", Input: "0", Output: "0"}}, tokensRule(t, "tokens", "1/h burst 100"))
	c, v := reserve(e, Attrs{}, "")
	c.Answer("application/json", "")
	c.Write([]byte(`{"usage":{"prompt_tokens":20,"completion_tokens":22}}`))
	c.Settle(&v, 200, true)
	if got := remains(e, "tokens", nil); got != 58 {
		t.Errorf("%d left, want 58", got)
	}
}

// TestEachSettingOfUsageIsEnforced : no setting is taken and then not applied
// (Envoy AI Gateway's QuotaPolicy accepts names that it does not know). Each case
// differs from the first in one of them.
func TestEachSettingOfUsageIsEnforced(t *testing.T) {
	const body = `{"max_tokens":400,"generation":{"most":70},"messages":["hello"]}` // 64 bytes
	const told = `{"usage":{"prompt_tokens":100,"completion_tokens":50,"prompt_tokens_details":{"cached_tokens":60},"completion_tokens_details":{"reasoning_tokens":20}},
		"tokens":{"in":7,"of":{"cache":5,"stored":1},"out":9,"think":3}}`
	own := map[string][]string{"input": {"tokens.in"}, "output": {"tokens.out"}}
	for name, c := range map[string]struct {
		usage    Usage
		answer   string
		status   int
		reserved int64
		settled  int64
	}{
		"none":             {Usage{Format: "openai"}, told, 200, 16 + 400, 150},
		"input":            {Usage{Format: "openai", Input: "bytes/2"}, told, 200, 32 + 400, 150},
		"output":           {Usage{Format: "openai", Output: "77"}, told, 200, 16 + 77, 150},
		"output else":      {Usage{Format: "openai", Output: "p95 else 33"}, told, 200, 16 + 33, 150},
		"read":             {Usage{Format: "openai", Read: 10}, told, 200, 16 + 1000, 150},
		"weight input":     {Usage{Format: "openai", Weights: map[string]int{"input": 200}}, told, 200, 32 + 400, 190},
		"weight cached":    {Usage{Format: "openai", Weights: map[string]int{"cached": 10}}, told, 200, 16 + 400, 96},
		"weight output":    {Usage{Format: "openai", Weights: map[string]int{"output": 300}}, told, 200, 16 + 1200, 210},
		"weight reasoning": {Usage{Format: "openai", Weights: map[string]int{"reasoning": 0}}, told, 200, 16 + 400, 130},
		"errors":           {Usage{Format: "openai"}, "{}", 500, 16 + 400, 0},
		"errors kept":      {Usage{Format: "openai", Keep: true}, "{}", 500, 16 + 400, 16 + 400},
		"format":           {Usage{Format: "anthropic"}, `{"usage":{"input_tokens":1,"cache_read_input_tokens":2,"cache_creation_input_tokens":4,"output_tokens":8}}`, 200, 16 + 400, 15},
		"weight written":   {Usage{Format: "anthropic", Weights: map[string]int{"written": 1000}}, `{"usage":{"input_tokens":1,"cache_read_input_tokens":2,"cache_creation_input_tokens":4,"output_tokens":8}}`, 200, 16 + 400, 51},
		"paths":            {Usage{Paths: own}, told, 200, 16 + 1000, 16},
		"path of most":     {Usage{Paths: map[string][]string{"output": {"tokens.out"}, "most": {"generation.most"}}}, told, 200, 16 + 70, 9},
		"path of cached":   {Usage{Paths: map[string][]string{"input": {"tokens.in"}, "output": {"tokens.out"}, "cached": {"tokens.of.cache"}}, Weights: map[string]int{"cached": 0}}, told, 200, 16 + 1000, 11},
		"path of written":  {Usage{Paths: map[string][]string{"input": {"tokens.in"}, "written": {"tokens.of.stored"}}, Weights: map[string]int{"written": 500}}, told, 200, 16 + 1000, 11},
		"path of thinking": {Usage{Paths: map[string][]string{"output": {"tokens.out", "tokens.think"}, "reasoning": {"tokens.think"}}, Weights: map[string]int{"reasoning": 200}}, told, 200, 16 + 1000, 15},
		"another unit":     {Usage{Format: "openai", Unit: "others"}, told, 200, 1, 1},
		"another path":     {Usage{Format: "openai", Match: Match{{Attribute: Attribute{Kind: Path}, Values: []string{"/else"}}}}, told, 200, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			others := testRule(t, "others", "1/h burst 10_000")
			others.Unit = "others"
			e := usageEngine(t, []Usage{c.usage}, tokensRule(t, "tokens", "1/h burst 10_000"), others)
			attrs := Attrs{"path": "/v1"}
			call := e.Call(attrs)
			opts := []Option{At(start)}
			if call != nil {
				opts = call.Reserve(opts, int64(len(body)), []byte(body))
			}
			v := e.Decide(context.Background(), attrs, opts...)
			if got := 10_000 - remains(e, "tokens", attrs); got != c.reserved {
				t.Errorf("%d reserved, want %d", got, c.reserved)
			}
			if call != nil {
				call.Answer("application/json", "")
				call.Write([]byte(c.answer))
				if err := call.Settle(&v, c.status, true); err != nil {
					t.Error(err)
				}
			}
			if got := 10_000 - remains(e, "tokens", attrs); got != c.settled {
				t.Errorf("%d charged, want %d", got, c.settled)
			}
		})
	}
}
