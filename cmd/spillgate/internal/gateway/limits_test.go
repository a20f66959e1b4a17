package gateway_test

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/cmd/spillgate/internal/gateway"
	"github.com/spillgate/spillgate/cmd/spillgate/internal/nginxtest"
	"github.com/spillgate/spillgate/httplimit"
	"github.com/spillgate/spillgate/policy"
)

const everywhere = "location / { return 200 ok; }"

func TestLimitsByEachAttributeInFrontOfNginx(t *testing.T) {
	ng := nginxtest.Start(t, everywhere)
	for _, c := range []struct {
		name       string
		key        []string
		match      []string
		meets      []string // method, path, then fields
		other      []string // is told apart, or does not match
		otherFrom  string
		otherUnder bool // other has a limit of its own
	}{
		{
			name: "client address", key: []string{"client.ip"},
			meets: []string{"GET", "/"}, other: []string{"GET", "/"}, otherFrom: "127.0.0.9", otherUnder: true,
		},
		{
			name: "host", key: []string{"host"},
			meets: []string{"GET", "/", "Host", "A.test:80"}, other: []string{"GET", "/", "Host", "b.test"}, otherUnder: true,
		},
		{
			name: "header", key: []string{"header.x-user-id"},
			meets: []string{"GET", "/", "X-User-Id", "ann"}, other: []string{"GET", "/", "X-User-Id", "bob"}, otherUnder: true,
		},
		{
			name: "method", match: []string{"method", "POST PUT"},
			meets: []string{"PUT", "/"}, other: []string{"GET", "/"},
		},
		{
			name: "path", match: []string{"path", "/login /api/**"},
			meets: []string{"GET", "/api/%6Cist/"}, other: []string{"GET", "/apis"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := serve(t, ng.Addr, compile(t,
				rule(t, "r", "3/h burst 3", c.key, c.match...),
				rule(t, "wide", "1000/s", []string{"client.ip"})))
			one, two := visitor(t, "127.0.0.1"), visitor(t, "127.0.0.1")
			if c.otherFrom != "" {
				two = visitor(t, c.otherFrom)
			}
			try := func(who *http.Client, what []string) func() reply {
				return func() reply { return do(t, who, request(t, what[0], f.url+what[1], nil, what[2:]...)) }
			}
			if n := passes(t, 8, try(one, c.meets)); n != 3 {
				t.Errorf("%d of 8 passed, want 3", n)
			}
			want := 8
			if c.otherUnder {
				want = 3
			}
			if n := passes(t, 8, try(two, c.other)); n != want {
				t.Errorf("the other: %d of 8 passed, want %d", n, want)
			}
		})
	}
}

func TestRefusalSaysWhoWhyAndUntilWhen(t *testing.T) {
	ng := nginxtest.Start(t, everywhere)
	f := serve(t, ng.Addr, compile(t,
		rule(t, "visitor", "1/s burst 1", []string{"client.ip"}),
		rule(t, "site", "100/3s burst 200", nil)))
	c := visitor(t, "127.0.0.1")

	first := get(t, c, f.url)
	if first.StatusCode != http.StatusOK || first.body != "ok" {
		t.Fatalf("first: %d %q", first.StatusCode, first.body)
	}
	// w is the time to earn a whole burst: 200*3 s/100.
	if got, want := first.Header.Get("RateLimit-Policy"), `"visitor";q=1;w=1, "site";q=200;w=6`; got != want {
		t.Errorf("RateLimit-Policy %s, want %s", got, want)
	}
	if got, want := first.Header.Get("RateLimit"), `"visitor";r=0;t=1, "site";r=199;t=1`; got != want {
		t.Errorf("RateLimit %s, want %s", got, want)
	}

	asked := time.Now()
	second := get(t, c, f.url)
	if second.StatusCode != http.StatusTooManyRequests {
		t.Fatalf("second: %d", second.StatusCode)
	}
	if got := second.Header.Values("Retry-After"); len(got) != 1 || got[0] != "1" {
		t.Errorf("Retry-After %q, want 1", got)
	}
	if got := second.Header.Get("RateLimit"); !strings.HasPrefix(got, `"visitor";r=0;t=1`) {
		t.Errorf("RateLimit %s", got)
	}
	if got := second.Header.Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("Content-Type %s", got)
	}
	var problem struct {
		Type     string   `json:"type"`
		Status   int      `json:"status"`
		Violated []string `json:"violated-policies"`
	}
	if err := json.Unmarshal([]byte(second.body), &problem); err != nil {
		t.Fatalf("%v in %s", err, second.body)
	}
	if !strings.HasSuffix(problem.Type, "#quota-exceeded") || problem.Status != 429 || len(problem.Violated) != 1 || problem.Violated[0] != "visitor" {
		t.Errorf("problem %s", second.body)
	}
	if text := f.log.String(); strings.Count(text, "request refused") != 1 || !strings.Contains(text, "rule=visitor") {
		t.Errorf("log: %s", text)
	}

	// Waiting what was said is enough, to the moment.
	wait, err := strconv.Atoi(second.Header.Get("Retry-After"))
	if err != nil {
		t.Fatal(err)
	}
	<-time.After(time.Until(asked.Add(time.Duration(wait) * time.Second)))
	if third := get(t, c, f.url); third.StatusCode != http.StatusOK {
		t.Errorf("after Retry-After: %d %s", third.StatusCode, third.body)
	}
}

func TestHeadersOnRefusalsOrNever(t *testing.T) {
	ng := nginxtest.Start(t, everywhere)
	for _, c := range []struct {
		mode            httplimit.HeaderMode
		passed, refused bool
	}{{httplimit.Always, true, true}, {httplimit.Refusals, false, true}, {httplimit.Off, false, false}} {
		f := serve(t, ng.Addr, compile(t, rule(t, "r", "1/h", nil)), func(g *gateway.Config) { g.Headers = c.mode })
		v := visitor(t, "127.0.0.1")
		passed, refused := get(t, v, f.url), get(t, v, f.url)
		for _, name := range []string{"RateLimit", "RateLimit-Policy"} {
			if got := passed.Header.Get(name) != ""; got != c.passed {
				t.Errorf("mode %d: %s on the answer: %t", c.mode, name, got)
			}
			if got := refused.Header.Get(name) != ""; got != c.refused {
				t.Errorf("mode %d: %s on the refusal: %t", c.mode, name, got)
			}
		}
		if refused.StatusCode != 429 || refused.Header.Get("Retry-After") == "" {
			t.Errorf("mode %d: %d, Retry-After %q", c.mode, refused.StatusCode, refused.Header.Get("Retry-After"))
		}
	}
}

func TestRefusalsAreLoggedSampledUnderAttack(t *testing.T) {
	ng := nginxtest.Start(t, everywhere)
	f := serve(t, ng.Addr, compile(t, rule(t, "r", "1/h", nil)))
	c := visitor(t, "127.0.0.1")
	start := time.Now()
	for range 300 {
		get(t, c, f.url)
	}
	most := policy.JournalLines * (1 + int(time.Since(start)/time.Second+1))
	if err := f.stop(); err != nil {
		t.Fatal(err)
	}
	lines, counted := 0, 0
	for line := range strings.Lines(f.log.String()) {
		if strings.Contains(line, "request refused") {
			lines++
		}
		if _, n, ok := strings.Cut(strings.TrimSpace(line), " suppressed="); ok {
			more, err := strconv.Atoi(n)
			if err != nil {
				t.Fatal(err)
			}
			counted += more
		}
	}
	if lines < policy.JournalLines || lines > most || lines+counted != 299 {
		t.Errorf("%d lines, %d counted: want 299 in all, and %d to %d lines", lines, counted, policy.JournalLines, most)
	}
}
