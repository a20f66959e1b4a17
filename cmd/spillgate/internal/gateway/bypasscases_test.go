package gateway_test

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/spillgate/spillgate/policy"
)

// Cases of the public list that are about answers, and about several callers: over a
// real socket, where the tricks beside these only count who came through.

// waits returns the Retry-After of an answer, -1 if it is no whole number above 0.
func waits(r reply) int {
	text := r.Header.Get("Retry-After")
	n, err := strconv.Atoi(text)
	if err != nil || !regexp.MustCompile(`^[1-9][0-9]*$`).MatchString(text) {
		return -1
	}
	return n
}

// hourly is a gateway whose rule is drained of its ten units at once, and says so.
func hourly(t *testing.T, limit string) (ask func(cost int) reply) {
	r := rule(t, "r", limit, []string{"client.ip"})
	r.Prices = []policy.Price{{From: policy.Attribute{Kind: policy.Query, Name: "n"}, Most: 10}}
	f := serve(t, upstream(t, func(http.ResponseWriter, *http.Request) {}), compile(t, r))
	c := visitor(t, "127.0.0.1")
	ask = func(cost int) reply { return get(t, c, fmt.Sprintf("%s/?n=%d", f.url, cost)) }
	if first := ask(10); first.StatusCode != http.StatusOK || !strings.Contains(first.Header.Get("RateLimit"), `"r";r=0`) {
		t.Fatalf("all ten at once: %d, %q", first.StatusCode, first.Header.Get("RateLimit"))
	}
	return ask
}

func TestB022OverHTTP(t *testing.T) {
	if got := hourly(t, "1/h burst 10")(1); got.StatusCode != http.StatusTooManyRequests || waits(got) < 3598 || waits(got) > 3600 {
		t.Errorf("%d, to come back in %d s, want 429 and the hour in which one is earned", got.StatusCode, waits(got))
	}
}

func TestB036OverHTTP(t *testing.T) {
	if got := hourly(t, "2/h burst 10")(4); got.StatusCode != http.StatusTooManyRequests || waits(got) < 7198 || waits(got) > 7200 {
		t.Errorf("%d, to come back in %d s, want 429 and the two hours in which four are earned", got.StatusCode, waits(got))
	}
}

func TestB056OverHTTP(t *testing.T) {
	for _, limit := range []string{"7/h burst 10", "10/7s", "10/3ms burst 10", "10/h fixed", "10/h sliding", "10/h log"} {
		ask, whole := hourly(t, limit), regexp.MustCompile(`^"r";r=\d+(;t=\d+)?$`)
		for range 3 {
			got := ask(10)
			if told := got.Header.Get("RateLimit"); !whole.MatchString(told) {
				t.Errorf("%s: RateLimit %q", limit, told)
			}
			if got.StatusCode == http.StatusTooManyRequests && waits(got) < 1 {
				t.Errorf("%s: Retry-After %q", limit, got.Header.Get("Retry-After"))
			}
		}
	}
}

func TestB070OverHTTP(t *testing.T) {
	f := serve(t, upstream(t, func(http.ResponseWriter, *http.Request) {}),
		compile(t, rule(t, "hour", "100/h", []string{"client.ip"}), rule(t, "day", "5/d", []string{"client.ip"})))
	c := visitor(t, "127.0.0.1")
	var fifth reply
	for range 5 {
		fifth = get(t, c, f.url)
	}
	told, quotas := fifth.Header.Get("RateLimit"), fifth.Header.Get("RateLimit-Policy")
	for _, want := range []string{`"hour";r=95;`, `"day";r=0;`} {
		if fifth.StatusCode != http.StatusOK || !strings.Contains(told+";", want) {
			t.Errorf("the fifth: %d, RateLimit %q, want %s in it", fifth.StatusCode, told, want)
		}
	}
	for _, want := range []string{`"hour";q=100;w=3600`, `"day";q=5;w=86400`} {
		if !strings.Contains(quotas, want) {
			t.Errorf("RateLimit-Policy %q, want %s in it", quotas, want)
		}
	}
}

func TestB112OverHTTP(t *testing.T) {
	r := rule(t, "r", "1/h burst 1", []string{"proxy.x-user else client.ip"})
	f := serve(t, upstream(t, func(http.ResponseWriter, *http.Request) {}), compile(t, r), trusting(t, "127.0.0.2"))
	c := visitor(t, "127.0.0.2")
	user := func() int {
		return get(t, c, f.url, "X-Forwarded-For", "198.51.100.7", "X-User", "203.0.113.9").StatusCode
	}
	nobody := func() int { return get(t, c, f.url, "X-Forwarded-For", "203.0.113.9").StatusCode }
	for i, got := range []int{user(), nobody(), user(), nobody()} {
		if want := []int{200, 200, 429, 429}[i]; got != want {
			t.Errorf("request %d: %d, want %d", i, got, want)
		}
	}
}

func TestB114OverHTTP(t *testing.T) {
	all, failing := rule(t, "all", "200/h", []string{"client.ip"}), rule(t, "failing", "3/h burst 3", []string{"client.ip"})
	failing.Failures = []string{"401"}
	f := serve(t, upstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/bad" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}), compile(t, all, failing))
	c := visitor(t, "127.0.0.1")
	for i, want := range []int{200, 200, 200, 200, 200, 200, 200, 200, 200, 200, 401, 401, 200, 401, 429} {
		path := "/good"
		if want == http.StatusUnauthorized {
			path = "/bad"
		}
		if got := get(t, c, f.url+path); got.StatusCode != want {
			t.Errorf("request %d: %d, want %d", i, got.StatusCode, want)
		}
	}
}

func TestB116OverHTTP(t *testing.T) {
	own, guard := rule(t, "own", "1/h burst 1", []string{"query.k"}), rule(t, "guard", "1000/h burst 1000", []string{"client.ip"})
	f := serve(t, upstream(t, func(http.ResponseWriter, *http.Request) {}), compile(t, own, guard))
	c := visitor(t, "127.0.0.1")
	for _, key := range []string{"\x00", "\n", "\x7f", "\xff", "%", "*", "{x}", "\xed\xa0\x80", "a", "\r\nX: y", strings.Repeat("k", 9000)} {
		for i, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
			if got := get(t, c, f.url+"/?k="+url.QueryEscape(key)); got.StatusCode != want {
				t.Errorf("key %.20q, request %d: %d, want %d", key, i, got.StatusCode, want)
			}
		}
	}
}

// With nobody trusted the peer is the client, whatever it says of others; the list of
// tricks has more of it.
func TestB126OverHTTP(t *testing.T) {
	f := serve(t, upstream(t, func(http.ResponseWriter, *http.Request) {}), compile(t, rule(t, "r", "1/h burst 1", []string{"client.ip"})))
	a, b := visitor(t, "127.0.0.3"), visitor(t, "127.0.0.4")
	for i, got := range []int{
		get(t, a, f.url, "X-Forwarded-For", "203.0.113.1").StatusCode, get(t, a, f.url, "X-Forwarded-For", "203.0.113.2").StatusCode,
		get(t, b, f.url, "X-Forwarded-For", "203.0.113.1").StatusCode, get(t, a, f.url, "X-Forwarded-For", "127.0.0.4").StatusCode,
	} {
		if want := []int{200, 429, 200, 429}[i]; got != want {
			t.Errorf("request %d: %d, want %d", i, got, want)
		}
	}
}
