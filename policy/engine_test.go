package policy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate"
)

var start = time.Unix(1_700_000_000, 0)

// rule builds a rule whose limit is text.
func testRule(t testing.TB, name, limit string, key ...string) Rule {
	t.Helper()
	r := Rule{Name: name}
	if limit != "" {
		l, err := spillgate.ParseLimit(limit)
		if err != nil {
			t.Fatal(err)
		}
		r.Limit = l
	}
	for _, k := range key {
		p, err := ParsePart(k)
		if err != nil {
			t.Fatal(err)
		}
		r.Key = append(r.Key, p)
	}
	return r
}

func testEngine(t testing.TB, rules ...Rule) *Engine {
	t.Helper()
	p, err := Compile(rules)
	if err != nil {
		t.Fatal(err)
	}
	m := spillgate.NewMemory()
	t.Cleanup(func() { m.Close() })
	return NewEngine(p, m)
}

func decide(e *Engine, after time.Duration, attrs Attrs, opts ...Option) Verdict {
	return e.Decide(context.Background(), attrs, append(opts, At(start.Add(after)))...)
}

func TestGreedyVisitorLeavesTheSharedBudgetAlone(t *testing.T) {
	own := func() Rule { return testRule(t, "own", "3/h burst 3", "client.ip") }
	shared := func() Rule { return testRule(t, "shared", "10/h burst 10", "host") }
	for name, rules := range map[string][]Rule{
		"own first": {own(), shared()}, "shared first": {shared(), own()},
	} {
		t.Run(name, func(t *testing.T) {
			e := testEngine(t, rules...)
			for i := range 50 {
				v := decide(e, 0, Attrs{"client.ip": "192.0.2.1", "host": "a"})
				if v.Allowed != (i < 3) {
					t.Fatalf("try %d of the greedy visitor: allowed %v", i+1, v.Allowed)
				}
			}
			passed := 0
			for i := range 20 {
				if v := decide(e, 0, Attrs{"client.ip": fmt.Sprintf("192.0.2.%d", 10+i), "host": "a"}); v.Allowed {
					passed++
				} else if got := v.Refusing().Rule.Name; got != "shared" {
					t.Errorf("visitor %d refused by %q", i, got)
				}
			}
			if passed != 7 {
				t.Errorf("%d of the 20 others passed, want 7", passed)
			}
			// The full tunnel charged none of those it refused.
			v := decide(e, 0, Attrs{"client.ip": "192.0.2.29", "host": "b"})
			if got := v.Of("own").Decision.Remaining; got != 2 {
				t.Errorf("a visitor refused by the shared limit has %d of 3 left after one use elsewhere, want 2", got)
			}
		})
	}
}

func TestRetryAfterIsTheLongestOfAllThatRefuse(t *testing.T) {
	e := testEngine(t, testRule(t, "fast", "1/s burst 1"), testRule(t, "slow", "1/min burst 1"))
	decide(e, 0, nil)
	v := decide(e, 0, nil)
	if v.Allowed || v.Refusing().Rule.Name != "fast" || v.RetryAfter() != time.Minute {
		t.Fatalf("allowed %v, by %q, retry %s", v.Allowed, v.Refusing().Rule.Name, v.RetryAfter())
	}
	var denied *DeniedError
	if err := v.Err(); !errors.As(err, &denied) || !errors.Is(err, spillgate.ErrDenied) || denied.RetryAfter != time.Minute {
		t.Errorf("error %v", v.Err())
	}
	if v := decide(e, time.Minute, nil); !v.Allowed {
		t.Error("waiting exactly retry-after was not enough")
	}
}

func TestTrialRulesNeverChangeAnAnswer(t *testing.T) {
	shadow := testRule(t, "shadow", "1/h burst 1")
	shadow.Spare = 100
	e := testEngine(t, shadow, testRule(t, "real", "5/h burst 5"))
	passed, would := 0, 0
	for range 10 {
		v := decide(e, 0, nil)
		if v.Allowed {
			passed++
		}
		if !v.Of("shadow").Decision.Allowed {
			would++
		}
	}
	if passed != 5 || would != 9 {
		t.Errorf("%d passed, %d would have been refused; want 5 and 9", passed, would)
	}
}

func TestSparedKeysStayOnTheirSide(t *testing.T) {
	r := testRule(t, "rollout", "1/h burst 1", "user")
	r.Spare = 30
	e := testEngine(t, r)
	spared := 0
	for i := range 2000 {
		attrs := Attrs{"user": fmt.Sprint(i)}
		decide(e, 0, attrs)
		first, second := decide(e, 0, attrs), decide(e, 0, attrs)
		if first.Allowed != second.Allowed {
			t.Fatalf("user %d changed sides", i)
		}
		if first.Allowed {
			spared++
		}
	}
	if spared < 500 || spared > 700 { // 600 ± 5 standard deviations
		t.Errorf("%d of 2000 keys spared, want about 600", spared)
	}
}

func TestMissingParts(t *testing.T) {
	for missing, want := range map[Missing][3]bool{
		Share: {true, false, false}, Skip: {true, true, true}, Refuse: {false, false, false},
	} {
		r := testRule(t, "user", "1/h burst 1", "user")
		r.Missing = missing
		e := testEngine(t, r)
		for i, w := range want {
			if v := decide(e, 0, Attrs{}); v.Allowed != w {
				t.Errorf("missing %d, request %d: allowed %v", missing, i, v.Allowed)
			}
		}
		if v := decide(e, 0, Attrs{"user": "a"}); !v.Allowed {
			t.Errorf("missing %d: a user who is there was refused", missing)
		}
	}
}

func TestDenyRefusesAndChargesNobody(t *testing.T) {
	deny := testRule(t, "closed", "")
	deny.Deny = true
	deny.Match = Match{{Attribute{Kind: Path}, []string{"/admin/**"}}}
	e := testEngine(t, testRule(t, "all", "1/h burst 1"), deny)
	v := decide(e, 0, Attrs{"path": "/admin/x"})
	if v.Allowed || v.Refusing().Rule.Name != "closed" || v.RetryAfter() != spillgate.Never {
		t.Fatalf("%+v", v)
	}
	if v := decide(e, 0, Attrs{"path": "/"}); !v.Allowed {
		t.Error("the denied request was charged to another rule")
	}
}

func TestPeekAndFailures(t *testing.T) {
	r := testRule(t, "password", "1/10s burst 10", "client.ip", "host")
	r.Match = Match{{Attribute{Kind: Path}, []string{"/login"}}}
	r.Peek = Match{{Attribute{Kind: Path}, []string{"/login"}}, {Attribute{Kind: Method}, []string{"GET"}}}
	r.Failures = []string{"401", "403"}
	e := testEngine(t, r)
	at := Attrs{"path": "/login", "method": "GET", "client.ip": "192.0.2.1", "host": "a"}
	post := Attrs{"path": "/login", "method": "POST", "client.ip": "192.0.2.1", "host": "a"}
	left := func() int64 { v := decide(e, 0, at); return v.Of("password").Decision.Remaining }
	if got := left(); got != 10 {
		t.Fatalf("%d left before any try", got)
	}
	v := decide(e, 0, post)
	if err := v.Ended("401"); err != nil {
		t.Fatal(err)
	}
	if got := left(); got != 9 {
		t.Errorf("%d left after a wrong password, want 9", got)
	}
	v = decide(e, 0, post)
	if d, ok := v.Peek(context.Background(), "password"); !ok || d.Remaining != 8 {
		t.Errorf("during a try a handler sees %d left (%v), want 8", d.Remaining, ok)
	}
	v.Ended("200")
	v.Ended("200")
	if got := left(); got != 9 {
		t.Errorf("%d left after a right password, want 9: given back once", got)
	}
	// Of many guesses at once exactly the burst gets through.
	passed := 0
	for range 100 {
		if v := decide(e, 0, post); v.Allowed {
			passed++
		}
	}
	if passed != 9 {
		t.Errorf("%d guesses passed, want 9", passed)
	}
	if v := decide(e, 0, at); !v.Allowed {
		t.Error("a peek was refused")
	}
}

func TestSpentReplacesTheEstimate(t *testing.T) {
	r := testRule(t, "tokens", "1000/h burst 1000", "user")
	r.Unit = "tokens"
	e := testEngine(t, r, testRule(t, "requests", "100/h burst 100", "user"))
	who := Attrs{"user": "a"}
	left := func() int64 {
		v := decide(e, 0, who, Cost("tokens", 0), Cost("requests", 0))
		return v.Of("tokens").Decision.Remaining
	}
	v := decide(e, 0, who, Cost("tokens", 600))
	if again := decide(e, 0, who, Cost("tokens", 600)); again.Allowed {
		t.Error("two estimates of 600 both fitted into 1000")
	}
	if err := v.Spent("tokens", 150); err != nil {
		t.Fatal(err)
	}
	if got := left(); got != 850 {
		t.Errorf("%d left after settling 600 to 150, want 850", got)
	}
	v.Spent("tokens", 150)
	v.Spent("tokens", 400)
	if got := left(); got != 600 {
		t.Errorf("%d left after the truth rose to 400, want 600", got)
	}
	v.Spent("tokens", 100)
	if got := left(); got != 900 {
		t.Errorf("%d left after the truth fell to 100, want 900", got)
	}
	v.Spent("tokens", 2000)
	if got := left(); got != 0 {
		t.Errorf("%d left in debt, want 0", got)
	}
	if err := v.Spent("tokens", -1); !errors.Is(err, spillgate.ErrCost) {
		t.Errorf("spending -1: %v", err)
	}
	if err := v.Spent("token", 1); !errors.Is(err, ErrRule) {
		t.Errorf("a unit that nobody counts: %v", err)
	}
	if err := v.GiveBack("request"); !errors.Is(err, ErrRule) {
		t.Errorf("a rule that is not there: %v", err)
	}
	if v.Of("requests").Decision.Taken != 1 {
		t.Error("a token settle touched the requests")
	}
}

// Tries that are held open and given back late must not fill the bucket a
// second time.
func TestLateGiveBacksAreNotEarnedTwice(t *testing.T) {
	r := testRule(t, "password", "1/s burst 5")
	r.Failures = []string{"401"}
	e := testEngine(t, r)
	var held []Verdict
	for i := range 25 {
		v := decide(e, time.Duration(i)*time.Second, nil)
		if !v.Allowed {
			t.Fatal("one a second was refused")
		}
		held = append(held, v)
	}
	const now = 30 * time.Second
	failed := 0
	for i := -1; i < len(held); i++ {
		if i >= 0 {
			held[i].at = start.Add(now)
			held[i].Ended("200")
		}
		for {
			v := decide(e, now, nil)
			if !v.Allowed {
				break
			}
			v.Ended("401")
			failed++
		}
	}
	if failed != 5 {
		t.Errorf("%d failures at one instant, burst 5", failed)
	}
}

func TestWhoLeavesHasTried(t *testing.T) {
	r := testRule(t, "password", "1/h burst 2")
	r.Failures = []string{"401"}
	e := testEngine(t, r)
	for i := range 3 {
		v := decide(e, 0, nil)
		if v.Allowed != (i < 2) {
			t.Fatalf("try %d: allowed %v", i+1, v.Allowed)
		}
		v.Ended(Aborted)
	}
}

func TestSlotsAreHeldUntilDone(t *testing.T) {
	e := testEngine(t, testRule(t, "slots", "1 at once"))
	v := decide(e, 0, nil)
	v.GiveBack()
	v.Spent(Requests, 0)
	v.Ended("200")
	if other := decide(e, 0, nil); other.Allowed {
		t.Error("a slot was freed by who is still inside")
	}
	v.Done()
	v.Done()
	if other := decide(e, 0, nil); !other.Allowed {
		t.Error("a slot was not freed by Done")
	}
}

func TestZeroVerdicts(t *testing.T) {
	var none *Verdict
	zero := &Verdict{}
	for _, v := range []*Verdict{none, zero} {
		v.Done()
		v.Ended("200")
		v.Of("x")
		v.Refusing()
		v.RetryAfter()
		v.Delay()
	}
	if none.Err() != nil || !errors.Is(zero.Err(), spillgate.ErrDenied) {
		t.Errorf("%v, %v", none.Err(), zero.Err())
	}
}

func TestTooManyRulesForOneRequest(t *testing.T) {
	var rules []Rule
	for i := range spillgate.MaxCharges + 1 {
		rules = append(rules, testRule(t, fmt.Sprint("r", i), "1/s"))
	}
	if _, err := Compile(rules); !errors.Is(err, ErrRule) || !strings.Contains(err.Error(), "at most 256") {
		t.Errorf("error %v", err)
	}
	if _, err := Compile(rules[1:]); err != nil {
		t.Error(err)
	}
}

func TestCostsThatCantBe(t *testing.T) {
	e := testEngine(t, testRule(t, "all", "10/s burst 20"))
	v := decide(e, 0, nil, Cost(Requests, -1))
	if err := v.Err(); v.Allowed || !errors.Is(err, spillgate.ErrCost) {
		t.Errorf("cost -1: %v", err)
	}
	v = decide(e, 0, nil, Cost(Requests, 1<<63-1))
	if err := v.Err(); v.Allowed || !errors.Is(err, spillgate.ErrNeverFits) || v.RetryAfter() != spillgate.Never {
		t.Errorf("cost 2^63-1: %v", err)
	}
	if v := decide(e, 0, nil, Cost(Requests, 20)); !v.Allowed {
		t.Error("impossible costs used something up")
	}
}

// brokenStore fails as a store does whose server is away.
type brokenStore struct{ err error }

func (b brokenStore) Take(context.Context, time.Time, []spillgate.Charge, []spillgate.Decision) error {
	return b.err
}
func (b brokenStore) Settle(context.Context, time.Time, []spillgate.Correction) error { return b.err }

func TestFaultsFollowTheRule(t *testing.T) {
	down := brokenStore{fmt.Errorf("redis: %w", spillgate.ErrUnavailable)}
	for _, tt := range []struct {
		name    string
		onFault OnFault
		nodes   int
		want    int
	}{{"open", Open, 1, 10}, {"shut", Shut, 1, 0}, {"local", Local, 1, 4}, {"local on two nodes", Local, 2, 2}} {
		t.Run(tt.name, func(t *testing.T) {
			r := testRule(t, "r", "1/h burst 4")
			r.OnFault = tt.onFault
			p, err := Compile([]Rule{r})
			if err != nil {
				t.Fatal(err)
			}
			e := NewEngine(p, down, Nodes(tt.nodes))
			passed := 0
			for range 10 {
				v := e.Decide(context.Background(), Attrs{}, At(start))
				if v.Allowed {
					passed++
				}
				if !errors.Is(v.Fault, spillgate.ErrUnavailable) {
					t.Fatalf("fault %v", v.Fault)
				}
				if err := v.Err(); tt.onFault == Shut && (!errors.Is(err, spillgate.ErrUnavailable) || errors.Is(err, spillgate.ErrDenied)) {
					t.Fatalf("a fault was told as %v", err)
				}
				if err := v.GiveBack(); tt.onFault != Local && err != nil {
					t.Errorf("settling: %v", err)
				}
				if tt.onFault == Local && v.Allowed {
					v.Spent(Requests, 1)
				}
			}
			if passed != tt.want {
				t.Errorf("%d of 10 passed, want %d", passed, tt.want)
			}
		})
	}
}

func TestShare(t *testing.T) {
	for _, tt := range []struct {
		limit string
		n     int
		want  string
	}{
		{"10/s burst 20", 1, "10/s burst 20"},
		{"10/s burst 20", 2, "5/s burst 10"},
		{"10/s burst 20", 3, "10/3s burst 6"},
		{"1/s burst 1", 4, "1/4s burst 1"},
		{"100/min fixed", 3, "33/min fixed"},
		{"2/min fixed", 3, "1/min fixed"},
		{"unlimited", 3, "unlimited"},
	} {
		l, err := spillgate.ParseLimit(tt.limit)
		if err != nil {
			t.Fatal(err)
		}
		if got := share(l, tt.n).Limit().String(); got != tt.want {
			t.Errorf("%s on %d nodes: %s, want %s", tt.limit, tt.n, got, tt.want)
		}
	}
}

func TestCompileNamesWhatIsWrong(t *testing.T) {
	good := func() Rule { return testRule(t, "r", "1/s burst 1", "client.ip") }
	claimed := func(name string) Rule { return testRule(t, name, "1/s burst 1", "header.x-user-id") }
	tests := []struct {
		name, field, want string
		rules             []Rule
	}{
		{"no name", "name", "missing", []Rule{{Limit: good().Limit}}},
		{"odd name", "name", "lower-case", []Rule{testRule(t, "A b", "1/s")}},
		{"same name", "name", "rule 1 already", []Rule{good(), good()}},
		{"no limit", "limit", "missing", []Rule{{Name: "r"}}},
		{"burst 0", "limit", "deny: true", []Rule{testRule(t, "r", "1/s burst 0")}},
		{"rate 0", "ttl", "never frees", []Rule{testRule(t, "r", "0/s burst 5")}},
		{"cost", "cost", "never fits", []Rule{{Name: "r", Limit: good().Limit, Cost: -1}}},
		{"cost above", "cost", "more than ever fits", []Rule{{Name: "r", Limit: good().Limit, Cost: 2}}},
		{"enforce", "enforce", "0 to 100", []Rule{{Name: "r", Limit: good().Limit, Spare: 101}}},
		{"failures", "failures", "HTTP statuses", []Rule{{Name: "r", Limit: good().Limit, Failures: []string{"bad"}}}},
		{"misspelt code", "failures", "HTTP statuses", []Rule{{Name: "r", Limit: good().Limit, Failures: []string{"UNAUTHENTICATD"}}}},
		{"odd unit", "unit", "lower-case", []Rule{{Name: "r", Limit: good().Limit, Unit: "Tokens!"}}},
		{"max keys", "max_keys", "2^31", []Rule{{Name: "r", Limit: good().Limit, MaxKeys: -1}}},
		{"claimed", "key", "walks around", []Rule{claimed("r")}},
		{"claimed, companion elsewhere", "key", "walks around", func() []Rule {
			ip := good()
			ip.Name, ip.Match = "ip", Match{{Attribute{Kind: Path}, []string{"/other"}}}
			return []Rule{claimed("r"), ip}
		}()},
		{"claimed else proven", "key", "walks around", []Rule{testRule(t, "r", "1/s", "header.x-user-id else client.ip")}},
	}
	for _, tt := range tests {
		_, err := Compile(tt.rules)
		var re *RuleError
		if !errors.As(err, &re) || !errors.Is(err, ErrRule) {
			t.Errorf("%s: error %v", tt.name, err)
			continue
		}
		found := false
		for _, e := range err.(interface{ Unwrap() []error }).Unwrap() {
			if errors.As(e, &re) && re.Field == tt.field && (strings.Contains(re.Error(), tt.want) || tt.name == "cost") {
				found = true
			}
		}
		if !found {
			t.Errorf("%s: %v; want field %q saying %q", tt.name, err, tt.field, tt.want)
		}
	}
	ip := good()
	ip.Name = "ip"
	for name, change := range map[string]func(*Rule){
		"unlimited":     func(r *Rule) { r.Limit = spillgate.Limit{Algorithm: spillgate.Unlimited} },
		"failures only": func(r *Rule) { r.Failures = []string{"401"} },
		"peeked":        func(r *Rule) { r.Peek = Match{{Attribute{Kind: Method}, []string{"*"}}} },
		"shadow":        func(r *Rule) { r.Spare = 1 },
		"of bytes":      func(r *Rule) { r.Unit = Bytes },
		"of tokens":     func(r *Rule) { r.Unit = Tokens },
		"with a way out": func(r *Rule) {
			r.Backup = &Backup{Upstream: "http://b.test", Match: Match{{Attribute{Kind: ClientIP}, []string{"10.0.0.0/8"}}}}
		},
		"that skips":   func(r *Rule) { r.Missing = Skip },
		"switched off": func(r *Rule) { r.Disabled = true },
	} {
		weak := ip
		weak.Key = slices.Clone(ip.Key)
		change(&weak)
		if _, err := Compile([]Rule{claimed("r"), weak}); err == nil || !strings.Contains(err.Error(), "; ip is none, since ") {
			t.Errorf("claimed with a companion that is %s: %v", name, err)
		}
	}
	weak := ip
	weak.Key = append(slices.Clone(ip.Key), Part{Attributes: []Attribute{{Kind: Host}}})
	if _, err := Compile([]Rule{claimed("r"), weak}); err == nil {
		t.Error("claimed with a companion by host too: no error")
	}
	if _, err := Compile([]Rule{testRule(t, "r", "1/s burst 1", "host")}); err != nil {
		t.Errorf("keyed by the host: %v", err)
	}
	if _, err := Compile([]Rule{claimed("r"), ip}); err != nil {
		t.Errorf("claimed with a companion: %v", err)
	}
	if _, err := Compile([]Rule{testRule(t, "r", "1/s", "header.x-user-id", "client.ip")}); err == nil {
		t.Error("claimed beside a proven part: no error")
	}
}

func BenchmarkDecideThreeRules(b *testing.B) {
	e := testEngine(b,
		testRule(b, "visitor", "1000000000/s burst 1000000000", "client.ip"),
		testRule(b, "tunnel", "1000000000/s burst 1000000000", "host"),
		testRule(b, "both", "1000000000/s burst 1000000000", "client.ip", "host"))
	var attrs Attributes = Attrs{"client.ip": "203.0.113.7", "host": "a.example"}
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		v := e.Decide(ctx, attrs)
		if !v.Allowed {
			b.Fatal("denied")
		}
	}
}
