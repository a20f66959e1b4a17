package policy

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate"
)

func batch() Attribute { return Attribute{Kind: Header, Name: "x-batch"} }

func TestCostFromAnAttribute(t *testing.T) {
	const never = -1 // refused, and no wait helps
	for _, tt := range []struct {
		name  string
		price Price
		value string // "-" is absent
		want  int64
	}{
		{"plain", Price{}, "7", 7},
		{"leading zeros", Price{}, "007", 7},
		{"zero", Price{}, "0", 1}, // nothing is for nothing
		{"absent", Price{}, "-", 1},
		{"absent, with a default", Price{Default: 5}, "-", 5},
		{"zero, with a default", Price{Default: 5}, "0", 1},
		{"a KiB each", Price{Per: 1024}, "1024", 1},
		{"a KiB and a byte", Price{Per: 1024}, "1025", 2},
		{"less than a KiB", Price{Per: 1024}, "1", 1},
		{"at the most", Price{Most: 50}, "50", 50},
		{"above the most", Price{Most: 50}, "51", 50},
		{"more than fits", Price{}, "101", never},
		{"all that fits", Price{}, "100", 100},

		// What a client may send to pay less, or to break something.
		{"negative", Price{}, "-7", never},
		{"negative, at most", Price{Most: 50}, "-7", 50},
		{"a sign", Price{Most: 50}, "+7", 50},
		{"a word", Price{}, "many", never},
		{"a word, at most", Price{Most: 50}, "many", 50},
		{"a word, with a default", Price{Default: 2, Most: 50}, "many", 50},
		{"empty", Price{Most: 50}, "", 1}, // is missing
		{"a blank", Price{Most: 50}, "1 7", 50},
		{"a fraction", Price{Most: 50}, "1.5", 50},
		{"a power", Price{Most: 50}, "1e3", 50},
		{"hexadecimal", Price{Most: 50}, "0x7", 50},
		{"two of them", Price{Most: 50}, "1, 99", 50},
		{"other digits", Price{Most: 50}, "٧", 50},
		{"a NUL", Price{Most: 50}, "7\x00", 50},
		{"2^63-1", Price{}, "9223372036854775807", never},
		{"2^63", Price{}, "9223372036854775808", never},
		{"2^64", Price{}, "18446744073709551616", never},
		{"2^64+1, which wraps to 1", Price{Most: 50}, "18446744073709551617", 50},
		{"10^30", Price{}, "1" + strings.Repeat("0", 30), never},
		{"10^30 by 10^9", Price{Per: 1_000_000_000}, "1" + strings.Repeat("0", 30), never},
		{"10^30, at most", Price{Most: 50}, "1" + strings.Repeat("0", 30), 50},
		{"a long text", Price{}, strings.Repeat("9", 100_000), never},
	} {
		r := testRule(t, "r", "100/h")
		tt.price.From = batch()
		r.Prices = []Price{tt.price}
		e := testEngine(t, r)
		attrs := Attrs{"client.ip": "192.0.2.1"}
		if tt.value != "-" {
			attrs["header.x-batch"] = tt.value
		}
		v := decide(e, 0, attrs)
		d := v.Outcome(0).Decision
		switch {
		case v.err != nil:
			t.Errorf("%s: %v", tt.name, v.err)
		case tt.want == never && (v.Allowed || d.Reason != spillgate.NeverFits || d.RetryAfter != spillgate.Never || d.Remaining != 100):
			t.Errorf("%s: %+v, want a refusal for ever", tt.name, d)
		case tt.want != never && (!v.Allowed || d.Taken != tt.want):
			t.Errorf("%s: allowed %v, %d taken, want %d", tt.name, v.Allowed, d.Taken, tt.want)
		}
	}
}

func TestCostsByMatch(t *testing.T) {
	r := testRule(t, "r", "1000/h")
	r.Prices = []Price{
		{Match: on(t, "path", "/public/**"), Units: 2},
		{Match: on(t, "method", "POST"), Units: 5},
		{Match: on(t, "path", "/search"), From: Attribute{Kind: Query, Name: "n"}, Default: 10, Most: 100},
	}
	e := testEngine(t, r)
	for _, tt := range []struct {
		method, path, n string
		want            int64
	}{
		{"GET", "/", "", 1},
		{"GET", "/search", "30", 30},
		{"GET", "/search", "", 10},
		{"POST", "/search", "30", 5},
		{"GET", "/public/x", "", 2},
		{"POST", "/public/x", "", 2},
		{"POST", "/public/..;/x", "", 5}, // cheap by one reading only
		{"GET", "/public/..;/search", "30", 30},
	} {
		attrs := Attrs{"method": tt.method, "path": string(AppendPath(nil, tt.path))}
		if tt.n != "" {
			attrs["query.n"] = tt.n
		}
		if v := decide(e, 0, attrs); v.Outcome(0).Decision.Taken != tt.want {
			t.Errorf("%s %s n=%s costs %d, want %d", tt.method, tt.path, tt.n, v.Outcome(0).Decision.Taken, tt.want)
		}
	}
}

// What the program says of the cost goes before what the rule says.
func TestFrontKnowsTheCost(t *testing.T) {
	r := testRule(t, "r", "1000/h")
	r.Prices = []Price{{From: batch(), Most: 9}}
	e := testEngine(t, r)
	if v := decide(e, 0, Attrs{"header.x-batch": "7"}, Cost(Requests, 500)); v.Outcome(0).Decision.Taken != 500 {
		t.Errorf("%+v", v.Outcome(0).Decision)
	}
	v := decide(e, 0, Attrs{"header.x-batch": "7"})
	if err := v.Spent(Requests, 2); err != nil {
		t.Fatal(err)
	}
	if d, _ := v.Peek(t.Context(), "r"); d.Remaining != 498 {
		t.Errorf("%d remain after the truth was told, want 498", d.Remaining)
	}
}

// TestHostileCostsUnderEachAlgorithm: no value passes for nothing, or ends in an
// error, whatever counts it.
func TestHostileCostsUnderEachAlgorithm(t *testing.T) {
	for _, limit := range []string{"10/s burst 10", "10/s queue 9", "10/s fixed", "10/s sliding", "10/s log", "10 at once", "10/calendar day"} {
		r := testRule(t, "r", limit)
		r.Prices = []Price{{From: batch()}}
		e := testEngine(t, r)
		for _, value := range []string{"-1", "x", "9223372036854775807", "9223372036854775808", "1" + strings.Repeat("0", 30)} {
			v := decide(e, time.Hour, Attrs{"header.x-batch": value})
			if o := v.Outcome(0); v.Allowed || v.err != nil || o.Decision.Reason != spillgate.NeverFits {
				t.Errorf("%s: %q: allowed %v, error %v, %+v", limit, value, v.Allowed, v.err, o.Decision)
			}
		}
		if v := decide(e, time.Hour, Attrs{"header.x-batch": "10"}); !v.Allowed {
			t.Errorf("%s: hostile costs were charged", limit)
		}
	}
}

func FuzzNumber(f *testing.F) {
	for _, s := range []string{"0", "7", "-1", "9223372036854775807", "9223372036854775800", "922337203685477580", "18446744073709551617", "1e9", ""} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, v []byte) {
		n, plain := number(v), len(v) > 0
		for _, c := range v {
			plain = plain && '0' <= c && c <= '9'
		}
		want := int64(0)
		for _, c := range v {
			if want > (math.MaxInt64-9)/10 {
				plain = false
				break
			}
			want = want*10 + int64(c-'0')
		}
		if !plain {
			want = math.MaxInt64
		}
		if n != want {
			t.Errorf("%q is %d, want %d", v, n, want)
		}
	})
}

func TestPriceErrors(t *testing.T) {
	post := on(t, "method", "POST")
	for name, tt := range map[string]struct {
		cost   int64
		prices []Price
		want   string
	}{
		"one":               {0, []Price{{Units: 5}}, ""},
		"a few":             {0, []Price{{Match: post, Units: 5}, {From: batch(), Per: 1000, Default: 2, Most: 10}}, ""},
		"two ways":          {3, []Price{{Units: 5}}, "cost: one cost for all and a list of costs"},
		"nothing":           {0, []Price{{Match: post}}, "cost, entry 1: says neither what a request costs"},
		"both":              {0, []Price{{Units: 5, From: batch()}}, "cost, entry 1: cost is one number for all"},
		"per without from":  {0, []Price{{Units: 5, Per: 10}}, "cost, entry 1: per, default and most speak of an attribute"},
		"no number":         {0, []Price{{From: Attribute{Kind: Path}}}, "cost, entry 1: from: path is no number"},
		"a negative cost":   {0, []Price{{Units: -5}}, "cost, entry 1: cost: -5: must not be negative"},
		"a negative most":   {0, []Price{{From: batch(), Most: -5}}, "cost, entry 1: most: -5: must not be negative"},
		"never fits":        {0, []Price{{Units: 11}}, "cost, entry 1: cost: 11 is more than ever fits at once (10)"},
		"default that is":   {0, []Price{{From: batch(), Default: 11}}, "cost, entry 1: default: 11 is more than ever fits"},
		"most that is":      {0, []Price{{From: batch(), Most: 11}}, "cost, entry 1: most: 11 is more than ever fits"},
		"default above":     {0, []Price{{From: batch(), Default: 7, Most: 6}}, "cost, entry 1: default: 7 is more than the most, 6"},
		"never reached":     {0, []Price{{Units: 5}, {Match: post, Units: 1}}, "cost, entry 1: this cost has no match"},
		"a bad match":       {0, []Price{{Match: on(t, "path", "login"), Units: 5}}, `cost, entry 1: match: path: value "login"`},
		"the second is bad": {0, []Price{{Match: post, Units: 5}, {}}, "cost, entry 2: says neither"},
	} {
		r := testRule(t, "r", "10/s")
		r.Cost, r.Prices = tt.cost, tt.prices
		_, err := Compile([]Rule{r})
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
	if _, err := Compile([]Rule{{Name: "r", Deny: true, Prices: []Price{{Units: 5}}}}); err == nil {
		t.Error("a rule that denies has costs")
	}
}

// TestRuleAttributes: a front that prepares for what rules ask must hear of all.
func TestRuleAttributes(t *testing.T) {
	r := testRule(t, "r", "10/s", "user else client.ip")
	r.Match, r.Peek = on(t, "method", "POST"), on(t, "cookie.a", "x")
	r.Lanes = []Lane{{Match: on(t, "header.x-plan", "paid")}, {Keep: 1}}
	r.Prices = []Price{{Match: on(t, "query.n", "x"), Units: 2}, {From: batch()}}
	var names []string
	for _, a := range r.Attributes() {
		names = append(names, a.String())
	}
	if got := strings.Join(names, " "); got != "user client.ip method cookie.a header.x-plan query.n header.x-batch" {
		t.Error(got)
	}
}
