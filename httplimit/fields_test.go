package httplimit_test

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/httplimit"
	"github.com/spillgate/spillgate/policy"
)

// item is what a test expects of one member of a field.
type item map[string]any

func same(got []sfItem, want []item) bool {
	if len(got) != len(want) {
		return false
	}
	for i := range got {
		if !maps.Equal(got[i].params, want[i].params()) || got[i].value != want[i]["name"] {
			return false
		}
	}
	return true
}

func (it item) params() map[string]any {
	p := map[string]any{}
	for k, v := range it {
		if n, ok := v.(int); ok {
			v = int64(n)
		}
		if k != "name" {
			p[k] = v
		}
	}
	return p
}

// fieldsOf reads both fields of a response strictly.
func fieldsOf(t *testing.T, h http.Header) (policies, limits []sfItem) {
	t.Helper()
	var err error
	if policies, err = parseList(h.Values("RateLimit-Policy")); err != nil {
		t.Fatalf("RateLimit-Policy %q: %v", h.Values("RateLimit-Policy"), err)
	}
	if limits, err = parseList(h.Values("RateLimit")); err != nil {
		t.Fatalf("RateLimit %q: %v", h.Values("RateLimit"), err)
	}
	return policies, limits
}

// get asks h once, from an address, and returns the answer.
func get(h http.Handler, change ...func(*http.Request)) *http.Response {
	r := httptest.NewRequest("GET", "http://alice.example.com/", nil)
	r.RemoteAddr = "203.0.113.9:51234"
	for _, c := range change {
		c(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func TestFieldsOfEveryAlgorithm(t *testing.T) {
	hour := func(r policy.Rule) policy.Rule { r.TTL = 3600e9; return r }
	for _, c := range []struct {
		name           string
		rule           policy.Rule
		policy, limits item
	}{
		{"bucket", rule(t, "a", "10/s burst 20"), item{"q": 20, "w": 2}, item{"r": 19, "t": 1}},
		{"the window is rounded up", rule(t, "a", "3/s burst 10"), item{"q": 10, "w": 4}, item{"r": 9, "t": 1}},
		{"slow bucket", rule(t, "a", "1/10s burst 10"), item{"q": 10, "w": 100}, item{"r": 9, "t": 10}},
		{"huge numbers are capped", rule(t, "a", "1000000000000/s burst 2000000000000000"),
			item{"q": 999_999_999_999_999, "w": 2000}, item{"r": 999_999_999_999_999, "t": 1}},
		{"no refill", hour(rule(t, "a", "0/s burst 5")), item{"q": 5}, item{"r": 4, "t": 3600}},
		{"queue", rule(t, "a", "1/s queue 4"), item{"q": 5, "w": 5}, item{"r": 4, "t": 1}},
		{"a unit of its own", func() policy.Rule { r := rule(t, "a", "10/h burst 10"); r.Unit = "content-bytes"; return r }(),
			item{"q": 10, "w": 3600, "qu": "content-bytes"}, item{"r": 9, "t": 360}},
		{"fractions of a second count as one", rule(t, "a", "5/10ms burst 5"), item{"q": 5, "w": 1}, item{"r": 4, "t": 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := httplimit.Policy(engine(t, c.rule))(trivial)
			answer := get(h)
			policies, limits := fieldsOf(t, answer.Header)
			c.policy["name"], c.limits["name"] = "a", "a"
			if !same(policies, []item{c.policy}) {
				t.Errorf("RateLimit-Policy: %s, want %v", answer.Header.Get("RateLimit-Policy"), c.policy)
			}
			if !same(limits, []item{c.limits}) {
				t.Errorf("RateLimit: %s, want %v", answer.Header.Get("RateLimit"), c.limits)
			}
		})
	}
}

func TestFieldsOfLogsAndSlots(t *testing.T) {
	store := &scripted{decide: grants}
	h := httplimit.Policy(engineOn(t, store, rule(t, "log", "5/m log"), rule(t, "slots", "5 at once")))(trivial)
	policies, limits := fieldsOf(t, get(h).Header)
	if !same(policies, []item{{"name": "log", "q": 5, "w": 60}, {"name": "slots", "q": 5, "qu": "concurrent-requests"}}) {
		t.Errorf("RateLimit-Policy: %v", policies)
	}
	// When a slot becomes free nobody knows.
	if !same(limits, []item{{"name": "log", "r": 4, "t": 2}, {"name": "slots", "r": 4}}) {
		t.Errorf("RateLimit: %v", limits)
	}
}

func TestFieldsOfWindows(t *testing.T) {
	// Their reset depends on the time of day.
	for limit, w := range map[string]any{
		"5/m fixed": int64(60), "5/90s sliding": int64(90), "5/calendar day": int64(86400),
		"5/calendar week in Europe/Berlin": int64(604800), "5/calendar month": nil, "5/calendar hour": int64(3600), "5/calendar minute": int64(60),
	} {
		answer := get(httplimit.Policy(engine(t, rule(t, "a", limit)))(trivial))
		policies, limits := fieldsOf(t, answer.Header)
		if len(policies) != 1 || len(limits) != 1 {
			t.Fatalf("%s: %v", limit, answer.Header)
		}
		if got := policies[0].params["w"]; got != w || policies[0].params["q"] != int64(5) {
			t.Errorf("%s: RateLimit-Policy %v; want w=%v", limit, policies[0].params, w)
		}
		if reset, ok := limits[0].params["t"].(int64); !ok || reset < 1 || limits[0].params["r"] != int64(4) {
			t.Errorf("%s: RateLimit %v", limit, limits[0].params)
		}
	}
}

func TestFieldsTellOfEveryRuleThatApplied(t *testing.T) {
	shadow := rule(t, "shadow", "1/h burst 1")
	shadow.Spare = 100
	other := rule(t, "other", "1/h burst 1")
	other.Match = policy.Match{{Attribute: policy.Attribute{Kind: policy.Host}, Values: []string{"elsewhere.example"}}}
	h := httplimit.Policy(engine(t, rule(t, "wide", "100/h burst 9"), shadow, other,
		rule(t, "free", "unlimited"), rule(t, "narrow", "1/h burst 2")))(trivial)
	for i, want := range [][]item{
		{{"name": "wide", "r": 8, "t": 36}, {"name": "narrow", "r": 1, "t": 3600}},
		{{"name": "wide", "r": 7, "t": 72}, {"name": "narrow", "r": 0, "t": 7200}},
		{{"name": "narrow", "r": 0, "t": 7200}, {"name": "wide", "r": 7, "t": 72}}, // refused: it comes first
	} {
		answer := get(h)
		policies, limits := fieldsOf(t, answer.Header)
		if !same(limits, want) {
			t.Errorf("answer %d: RateLimit: %s", i, answer.Header.Get("RateLimit"))
		}
		for k := range policies {
			if policies[k].value != limits[k].value {
				t.Errorf("answer %d: %s in RateLimit-Policy, %s in RateLimit", i, policies[k].value, limits[k].value)
			}
		}
	}
}

func TestHeaderModes(t *testing.T) {
	for mode, want := range map[httplimit.HeaderMode][2]bool{
		httplimit.Always: {true, true}, httplimit.Refusals: {false, true}, httplimit.Off: {false, false},
	} {
		for name, h := range map[string]http.Handler{
			"policy":  httplimit.Policy(engine(t, rule(t, "a", "1/h burst 1")), httplimit.Headers(mode))(trivial),
			"limiter": httplimit.New(spillgate.Must("1/h burst 1"), httplimit.Headers(mode))(trivial),
		} {
			for i, fields := range want {
				answer := get(h)
				for _, field := range []string{"RateLimit", "RateLimit-Policy"} {
					if got := answer.Header.Get(field) != ""; got != fields {
						t.Errorf("%s, mode %d, answer %d: %s present: %v", name, mode, i, field, got)
					}
				}
				if refused := answer.StatusCode == 429; refused != (answer.Header.Get("Retry-After") != "") || refused != (i == 1) {
					t.Errorf("%s, mode %d, answer %d: %s, Retry-After %q", name, mode, i, answer.Status, answer.Header.Get("Retry-After"))
				}
			}
		}
	}
}

func TestTwoMiddlewaresShareTheFields(t *testing.T) {
	inner := httplimit.New(spillgate.Must("1/h burst 1"), httplimit.Name("inner"))(trivial)
	h := httplimit.New(spillgate.Must("1/h burst 5"), httplimit.Name(`ou"ter`))(inner)
	for i, want := range [][]string{{"ou_ter", "inner"}, {"inner", "ou_ter"}} {
		policies, limits := fieldsOf(t, get(h).Header)
		for k := range want {
			if len(policies) != 2 || len(limits) != 2 || policies[k].value != want[k] || limits[k].value != want[k] {
				t.Fatalf("answer %d: %v, %v; want %v", i, policies, limits, want)
			}
		}
	}
}

func TestTell(t *testing.T) {
	password := rule(t, "password", "1/10s burst 10", "client.ip")
	password.Tell = true
	second := rule(t, "second", "1/10s burst 3", "client.ip")
	second.Tell = true
	var got []string
	h := httplimit.Policy(engine(t, rule(t, "visitor", "1/s burst 5"), password, second))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out := r.Header.Clone()
		httplimit.Tell(out, policy.FromContext(r.Context()))
		got = out.Values("Spillgate-Remaining")
	}))
	get(h, func(r *http.Request) { r.Header["Spillgate-Remaining"] = []string{`"password";r=99`, "more"} })
	if want := `"password";r=9, "second";r=2`; len(got) != 1 || got[0] != want {
		t.Errorf("%q; want %q", got, want)
	}
	if _, err := parseList(got); err != nil {
		t.Error(err)
	}

	// A rule that refuses nobody tells which requests are beyond its limit.
	trial, off := rule(t, "trial", "1/h burst 2", "client.ip"), rule(t, "off", "1/h burst 1", "client.ip")
	trial.Tell, trial.Spare, off.Tell = true, 100, true
	trial.Peek = policy.Match{{Attribute: policy.Attribute{Kind: policy.Method}, Values: []string{"HEAD"}}}
	p, err := policy.Compile([]policy.Rule{trial, off})
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	h = httplimit.Policy(policy.NewEngine(p.Unenforced(), spillgate.NewMemory()))(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		out := make(http.Header)
		v := policy.FromContext(r.Context())
		httplimit.Tell(out, v)
		told = out.Values("Spillgate-Remaining")
		if o := v.Of("trial"); o.WouldRefuse() != strings.Contains(told[0], `"trial";r=0;over`) || o.Refuses() {
			t.Errorf("the program hears %v, the upstream %q", o.WouldRefuse(), told)
		}
	}))
	for i, want := range []string{`"trial";r=1, "off";r=0`, `"trial";r=0, "off";r=0;over`, `"trial";r=0;over, "off";r=0;over`, `"trial";r=0;over, "off";r=0;over`} {
		if get(h); len(told) != 1 || told[0] != want {
			t.Errorf("request %d: %q; want %q", i, told, want)
		}
		if _, err := parseList(told); err != nil {
			t.Error(err)
		}
	}
	get(h, func(r *http.Request) { r.Method = "HEAD" })
	if want := `"trial";r=0, "off";r=0;over`; told[0] != want { // it is only asked, and nobody would refuse it
		t.Errorf("a peek: %q; want %q", told, want)
	}

	forged := http.Header{"Spillgate-Remaining": {`"password";r=99`}}
	httplimit.Tell(forged, nil)
	if len(forged) != 0 {
		t.Errorf("a client's own header goes through: %v", forged)
	}
}

// A rule that says headers: off is in no field of any dialect, on a refusal
// either; who it refuses still hears when to come back.
func TestHiddenRulesAreNotToldOf(t *testing.T) {
	hidden := rule(t, "hidden", "3/h burst 3")
	hidden.Hide = true
	h := httplimit.Policy(engine(t, rule(t, "open", "100/h burst 100"), hidden), httplimit.Dialects(httplimit.Draft, httplimit.GitHub, httplimit.OpenAI))(trivial)
	for i := range 4 {
		answer := get(h)
		if want := map[bool]int{true: 429, false: 200}[i == 3]; answer.StatusCode != want || (answer.Header.Get("Retry-After") != "") != (i == 3) {
			t.Errorf("request %d: %s, %v", i, answer.Status, answer.Header)
		}
		for name, values := range answer.Header {
			if httplimit.IsField(name) && strings.Contains(fmt.Sprint(values), "hidden") {
				t.Errorf("request %d: %s: %q", i, name, values)
			}
		}
		if got := answer.Header.Get("RateLimit-Policy"); got != `"open";q=100;w=3600` {
			t.Errorf("request %d: RateLimit-Policy %s", i, got)
		}
		if got := answer.Header.Get("X-RateLimit-Limit"); got != "100" {
			t.Errorf("request %d: X-RateLimit-Limit %s", i, got)
		}
	}
}
