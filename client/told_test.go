package client_test

import (
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/client"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func header(lines ...string) http.Header {
	h := http.Header{}
	for _, l := range lines {
		name, value, _ := strings.Cut(l, ": ")
		h.Add(name, value)
	}
	return h
}

func TestRetryAfter(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"120":                                 2 * time.Minute,
		" 7 ":                                 7 * time.Second,
		"0":                                   0,
		"1.5":                                 1500 * time.Millisecond,
		"0.0000000001":                        1,
		"Sun, 01 Mar 2026 12:00:30 GMT":       30 * time.Second,
		"Sun, 01 Mar 2026 12:00:30 UTC":       30 * time.Second, // of Go's time.RFC1123
		"Sunday, 01-Mar-26 12:00:30 GMT":      30 * time.Second,
		"Sun Mar  1 12:00:30 2026":            30 * time.Second,
		"Sun, 01 Mar 2026 11:00:00 GMT":       0, // past
		"Fri, 31 Dec 9999 23:59:59 GMT":       spillgate.Never,
		"9223372035":                          9223372035 * time.Second,
		"9223372037":                          spillgate.Never,
		"1" + strings.Repeat("0", 30):         spillgate.Never,
		"":                                    client.Untold,
		"-1":                                  client.Untold,
		"+1":                                  client.Untold,
		"NaN":                                 client.Untold,
		"Inf":                                 client.Untold,
		"1e30":                                client.Untold,
		"0x10":                                client.Untold,
		"1.":                                  client.Untold,
		".5":                                  client.Untold,
		"3,5":                                 5 * time.Second, // a proxy made one line of two
		"30, 5":                               30 * time.Second,
		"soon, 5":                             5 * time.Second,
		"5, Sun, 01 Mar 2026 12:00:30 GMT, 7": 30 * time.Second,
		"Sun, 01 Mar 2026 12:00:30 GMT,Sunday, 01-Mar-26 12:00:40 GMT,,9": 40 * time.Second,
		", ,":                           client.Untold,
		"soon":                          client.Untold,
		"Sun, 99 Mar 2026 12:00:30 GMT": client.Untold,
		"2026-03-01T12:00:30Z":          client.Untold,
		strings.Repeat("9", 1<<20):      client.Untold,
	} {
		got := client.Read(header("Retry-After: "+text), now)
		if got.RetryAfter != want || got.Wait() != want {
			t.Errorf("%.40q: %s, wait %s; want %s", text, got.RetryAfter, got.Wait(), want)
		}
	}
}

// The answer's own date tells how the server's clock stands.
func TestDatesAreTheServers(t *testing.T) {
	h := header("Date: Sun, 01 Mar 2026 15:00:00 GMT", "Retry-After: Sun, 01 Mar 2026 15:00:10 GMT", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 1772377220")
	got := client.Read(h, now)
	if got.RetryAfter != 10*time.Second || got.Quotas[0].Reset != 20*time.Second {
		t.Errorf("read %+v", got)
	}
}

func TestMilliseconds(t *testing.T) {
	for text, want := range map[string]time.Duration{"250": 250 * time.Millisecond, "0.5": 500 * time.Microsecond, "1" + strings.Repeat("0", 30): spillgate.Never, "x": 9 * time.Second, "250, 400": 400 * time.Millisecond} {
		if got := client.Read(header("Retry-After-Ms: "+text, "Retry-After: 9"), now).RetryAfter; got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// Where two refuse, a gateway and the server behind it, the longer wait is enough.
func TestTheLongestRetryAfterCounts(t *testing.T) {
	for _, lines := range [][]string{{"5", "30"}, {"30", "5"}, {"soon", "30"}, {"Sun, 01 Mar 2026 12:00:30 GMT", "5"}} {
		if got := client.Read(header("Retry-After: "+lines[0], "Retry-After: "+lines[1]), now).RetryAfter; got != 30*time.Second {
			t.Errorf("%q: %s", lines, got)
		}
	}
}

func TestQuotas(t *testing.T) {
	for _, c := range []struct {
		name   string
		lines  []string
		quotas []client.Quota
		wait   time.Duration
	}{
		{
			"the draft's example",
			[]string{`RateLimit-Policy: "permin";q=50;w=60,"perhr";q=1000;w=3600`, `RateLimit: "permin";r=50;t=30`},
			[]client.Quota{{"permin", "requests", 50, 50, time.Minute, 30 * time.Second}},
			client.Untold,
		},
		{
			"several, some used up; the longest counts",
			[]string{`RateLimit-Policy: "a";q=5;w=10;qu="tokens";pk=:cHNzdA==:, "b";q=1`, `RateLimit: "a";r=0;t=3, "b";r=0;t=7`, `RateLimit: "c";r=1;t=99;own=?1;d=@1659578233;x=1.5`},
			[]client.Quota{
				{"a", "tokens", 5, 0, 10 * time.Second, 3 * time.Second},
				{"b", "requests", 1, 0, -1, 7 * time.Second},
				{"c", "requests", -1, 1, -1, 99 * time.Second},
			},
			7 * time.Second,
		},
		{
			"no reset: the window",
			[]string{`RateLimit-Policy: "a";q=5;w=10`, `RateLimit: "a";r=0`},
			[]client.Quota{{"a", "requests", 5, 0, 10 * time.Second, -1}}, 10 * time.Second,
		},
		{
			"a name with an escape, and a parameter without a value",
			[]string{`RateLimit: "a\"b\\";r=1;x ,  "c"; r=2`},
			[]client.Quota{{`a"b\`, "requests", -1, 1, -1, -1}, {"c", "requests", -1, 2, -1, -1}}, client.Untold,
		},
		{"items without what they must have", []string{`RateLimit: "a", "b";r=-1, "c";r="1", token;r=0;t=9, "d";r=1.5`}, nil, client.Untold},
		{"no list: a comma at the end", []string{`RateLimit: "a";r=0;t=9,`}, nil, client.Untold},
		{"no list: an open string", []string{`RateLimit: "a;r=0;t=9`}, nil, client.Untold},
		{"draft 07", []string{`RateLimit: limit=10, remaining=0, reset=9`, `RateLimit-Policy: 10;w=60`}, []client.Quota{{"", "requests", 10, 0, -1, 9 * time.Second}}, 9 * time.Second},
		{"draft 07, otherwise", []string{`RateLimit: reset=9;x="y",remaining=1,own`}, []client.Quota{{"", "requests", -1, 1, -1, 9 * time.Second}}, client.Untold},
		{"draft 07 without what it must have", []string{`RateLimit: limit=10, reset=9`}, nil, client.Untold},
		{"draft 07 with a comma at the end", []string{`RateLimit: limit=10, remaining=0, reset=9,`}, nil, client.Untold},
		{"draft 07 with no number", []string{`RateLimit: limit=10, remaining=zero, reset=9`}, nil, client.Untold},
		{
			"both, as a proxy may leave them",
			[]string{`RateLimit-Policy: "a";q=5;w=10`, `RateLimit: "a";r=3;t=2`, `RateLimit: limit=100, remaining=0, reset=60`, `RateLimit: "b`},
			[]client.Quota{{"a", "requests", 5, 3, 10 * time.Second, 2 * time.Second}, {"", "requests", 100, 0, -1, time.Minute}}, time.Minute,
		},
		{"drafts 03 to 06", []string{`RateLimit-Limit: 100, 100;w=60`, `RateLimit-Remaining: 0`, `RateLimit-Reset: 7`, `RateLimit-Policy: 100;w=60`}, []client.Quota{{"", "requests", 100, 0, -1, 7 * time.Second}}, 7 * time.Second},
		{
			"numbers beyond bounds",
			[]string{`RateLimit: "a";r=0;t=9223372036854775807, "b";r=99999999999999999999;t=1, "c";r=1;t=-5`},
			[]client.Quota{{"a", "requests", -1, 0, -1, spillgate.Never}, {"c", "requests", -1, 1, -1, -1}}, spillgate.Never,
		},
		{
			"GitHub",
			[]string{"X-RateLimit-Limit: 60", "X-RateLimit-Remaining: 0", "X-RateLimit-Used: 60", "X-RateLimit-Reset: 1772366430"},
			[]client.Quota{{"", "requests", 60, 0, -1, 30 * time.Second}}, 30 * time.Second,
		},
		{
			"OpenAI",
			[]string{
				"x-ratelimit-limit-requests: 60", "x-ratelimit-remaining-requests: 59", "x-ratelimit-reset-requests: 1s",
				"x-ratelimit-limit-tokens: 150000", "x-ratelimit-remaining-tokens: 0", "x-ratelimit-reset-tokens: 6m0s",
			},
			[]client.Quota{{"", "requests", 60, 59, -1, time.Second}, {"", "tokens", 150000, 0, -1, 6 * time.Minute}}, 6 * time.Minute,
		},
		{
			"Envoy",
			[]string{`x-ratelimit-limit: 3, 3;w=60;name="x"`, "x-ratelimit-remaining: 0", "x-ratelimit-reset: 12"},
			[]client.Quota{{"", "requests", 3, 0, -1, 12 * time.Second}}, 12 * time.Second,
		},
		{"older drafts", []string{"RateLimit-Limit: 5", "RateLimit-Remaining: 0", "RateLimit-Reset: 4"}, []client.Quota{{"", "requests", 5, 0, -1, 4 * time.Second}}, 4 * time.Second},
		{"other spelling, milliseconds", []string{"X-Rate-Limit-Remaining: 0", "X-Rate-Limit-Reset: 1772366400250"}, []client.Quota{{"", "requests", -1, 0, -1, 250 * time.Millisecond}}, 250 * time.Millisecond},
		{"a time", []string{"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 2026-03-01T13:00:05+01:00"}, []client.Quota{{"", "requests", -1, 0, -1, 5 * time.Second}}, 5 * time.Second},
		{"past", []string{"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 1572366400"}, []client.Quota{{"", "requests", -1, 0, -1, 0}}, 0},
		{"far", []string{"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 1" + strings.Repeat("0", 30)}, []client.Quota{{"", "requests", -1, 0, -1, spillgate.Never}}, spillgate.Never},
		{"unreadable resets", []string{"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: -5m"}, []client.Quota{{"", "requests", -1, 0, -1, -1}}, client.Untold},
		{"not a number", []string{"X-RateLimit-Remaining: NaN", "X-RateLimit-Reset: 5"}, nil, client.Untold},
		{"negative", []string{"X-RateLimit-Remaining: -1", "X-RateLimit-Reset: 5"}, nil, client.Untold},
		{"too long to be read", []string{`RateLimit: "a";r=0;t=9` + strings.Repeat(`, "a";r=0;t=9`, 1<<16)}, nil, client.Untold},
	} {
		got := client.Read(header(c.lines...), now)
		if !reflect.DeepEqual(got.Quotas, c.quotas) || got.Wait() != c.wait {
			t.Errorf("%s:\n got %+v, wait %s\nwant %+v, wait %s", c.name, got.Quotas, got.Wait(), c.quotas, c.wait)
		}
	}
}

func TestManyQuotasAreBounded(t *testing.T) {
	got := client.Read(header(`RateLimit: "a";r=1`+strings.Repeat(`, "a";r=1`, 500)), now)
	if len(got.Quotas) != 32 {
		t.Errorf("%d quotas", len(got.Quotas))
	}
}

func FuzzRead(f *testing.F) {
	f.Add("120", `"a";r=0;t=1`, `"a";q=1;w=2`, "1772366430")
	f.Add("Sun, 01 Mar 2026 12:00:30 UTC", `"a\"";r=0;x=:YQ==:`, `"`, "6m0s")
	f.Add("9", "limit=100, remaining=0, reset=60", "100;w=60", "60")
	f.Add("1e30", ";;;,", "a=(1 2)", "-9223372036854775809")
	f.Fuzz(func(t *testing.T, retry, limit, policy, reset string) {
		h := http.Header{
			"Retry-After": {retry}, "Ratelimit": {limit}, "Ratelimit-Policy": {policy},
			"X-Ratelimit-Remaining": {"0"}, "X-Ratelimit-Reset": {reset}, "X-Ratelimit-Limit": {policy},
		}
		told := client.Read(h, now)
		if told.RetryAfter < client.Untold || told.Wait() < client.Untold || len(told.Quotas) > 32 {
			t.Errorf("read %+v", told)
		}
		for _, q := range told.Quotas {
			if q.Limit < -1 || q.Remaining < 0 || q.Reset < -1 || q.Window < -1 {
				t.Errorf("read %+v", q)
			}
		}
	})
}
