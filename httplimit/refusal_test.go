package httplimit_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/httplimit"
	"github.com/spillgate/spillgate/policy"
)

// problem is a body of RFC 9457.
type problem struct {
	Type       string   `json:"type"`
	Title      string   `json:"title"`
	Status     int      `json:"status"`
	Detail     string   `json:"detail"`
	Violated   []string `json:"violated-policies"`
	RetryAfter int64    `json:"retry_after"`
	ID         string   `json:"refusal_id"`
}

const (
	quotaExceeded   = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	reducedCapacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
)

// problemOf reads the body strictly.
func problemOf(t *testing.T, answer *http.Response) problem {
	t.Helper()
	if got := answer.Header.Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("Content-Type %q", got)
	}
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(strings.NewReader(string(body)))
	d.DisallowUnknownFields()
	var p problem
	if err := d.Decode(&p); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	if p.Status != answer.StatusCode {
		t.Errorf("status %d in the body of a %d", p.Status, answer.StatusCode)
	}
	if !regexp.MustCompile(`^[0-9a-f]{16}$`).MatchString(p.ID) {
		t.Errorf("refusal id %q", p.ID)
	}
	return p
}

func TestWhatARefusedClientIsTold(t *testing.T) {
	deny := rule(t, "closed", "")
	deny.Deny = true
	who := rule(t, "who", "1/h burst 1", "user")
	who.Missing = policy.Refuse
	quota := rule(t, "quota", "2/m burst 6")
	shut := quota
	shut.OnFault = policy.Shut
	costing := httplimit.Cost("requests", func(r *http.Request) int64 { return r.ContentLength })
	for _, c := range []struct {
		name    string
		rule    policy.Rule
		store   func(spillgate.Charge) (spillgate.Decision, error)
		opts    []httplimit.Option
		change  func(*http.Request)
		status  int
		kind    string
		retry   string
		fields  bool
		details []string
	}{
		{name: "used up", rule: quota, store: refuses(29_000_000_001, 179*time.Second, spillgate.OverLimit),
			status: 429, kind: quotaExceeded, retry: "30", fields: true, details: []string{"quota", "used up", "Retry after 30 s", "reset, in 179 s", "whole quota"}},
		{name: "for less than a second", rule: quota, store: refuses(1, 1, spillgate.OverLimit),
			status: 429, kind: quotaExceeded, retry: "1", fields: true},
		{name: "for a whole second", rule: quota, store: refuses(time.Second, time.Second, spillgate.OverLimit),
			status: 429, kind: quotaExceeded, retry: "1", fields: true},
		{name: "for longer than a century", rule: quota, store: refuses(spillgate.Never-1, spillgate.Never-1, spillgate.OverLimit),
			status: 429, kind: quotaExceeded, retry: "9223372037", fields: true},
		{name: "for ever", rule: quota, store: refuses(spillgate.Never, spillgate.Never, spillgate.OverLimit),
			status: 429, kind: quotaExceeded, fields: true, details: []string{"waiting does not help"}},
		{name: "cost that never fits", rule: quota, store: refuses(spillgate.Never, 0, spillgate.NeverFits),
			status: 429, kind: quotaExceeded, fields: true, details: []string{"ever holds", "Waiting does not help"}},
		{name: "a rule that denies", rule: deny, status: 403, kind: "about:blank", details: []string{"closed", "Waiting does not help"}},
		{name: "a missing attribute", rule: who, status: 403, kind: "about:blank", details: []string{"who"}},
		{name: "store down, closed", rule: shut, store: fails(fmt.Errorf("dial: %w", spillgate.ErrUnavailable)),
			status: 503, kind: reducedCapacity, retry: "1", details: []string{"nothing about your quota"}},
		{name: "store broken, closed", rule: shut, store: fails(errors.New("unexpected reply")),
			status: 503, kind: reducedCapacity, retry: "1"},
		{name: "a charge that the store can't carry out", rule: quota, store: fails(spillgate.ErrCharge),
			status: 500, kind: "about:blank", details: []string{"nothing about your quota"}},
		{name: "a negative cost", rule: quota, opts: []httplimit.Option{costing}, change: func(r *http.Request) { r.ContentLength = -1 },
			status: 400, kind: "about:blank"},
		{name: "an overflowing cost", rule: quota, opts: []httplimit.Option{costing}, change: func(r *http.Request) { r.ContentLength = 1<<63 - 1 },
			status: 429, kind: quotaExceeded, fields: true},
		{name: "out of time", rule: quota, change: func(r *http.Request) {
			ctx, cancel := context.WithDeadline(r.Context(), time.Now().Add(-time.Second))
			t.Cleanup(cancel)
			*r = *r.WithContext(ctx)
		}, status: 503, kind: reducedCapacity, retry: "1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var store spillgate.Store = spillgate.NewMemory()
			if c.store != nil {
				store = &scripted{decide: c.store}
			}
			h := httplimit.Policy(engineOn(t, store, c.rule), c.opts...)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				t.Error("the handler ran")
			}))
			if c.change == nil {
				c.change = func(*http.Request) {}
			}
			answer := get(h, c.change)
			if answer.StatusCode != c.status {
				t.Fatalf("%s; want %d", answer.Status, c.status)
			}
			p := problemOf(t, answer)
			if p.Type != c.kind || p.Title == "" {
				t.Errorf("type %q, title %q; want %q", p.Type, p.Title, c.kind)
			}
			if got := answer.Header.Get("Retry-After"); got != c.retry {
				t.Errorf("Retry-After %q; want %q", got, c.retry)
			}
			if want := ""; p.RetryAfter != 0 {
				if want = fmt.Sprint(p.RetryAfter); want != c.retry {
					t.Errorf("retry_after %s in the body, %q in the header", want, c.retry)
				}
			}
			policies, limits := fieldsOf(t, answer.Header)
			if got := len(policies) == 1 && len(limits) == 1; got != c.fields {
				t.Errorf("fields: %v", answer.Header)
			}
			if denied := c.status == 429 || c.status == 403; denied != slices.Equal(p.Violated, []string{c.rule.Name}) {
				t.Errorf("violated %q", p.Violated)
			}
			for _, word := range c.details {
				if !strings.Contains(p.Detail, word) {
					t.Errorf("detail %q lacks %q", p.Detail, word)
				}
			}
		})
	}
}

func TestALimiterRefusesAlike(t *testing.T) {
	cost := int64(1)
	lim := spillgate.Must("2/m burst 2")
	h := httplimit.New(lim, httplimit.Cost("pages", func(*http.Request) int64 { return cost }))(trivial)
	for _, c := range []struct {
		cost   int64
		status int
		kind   string
	}{
		{2, 200, ""}, {1, 429, quotaExceeded}, {3, 429, quotaExceeded}, {-1, 400, "about:blank"},
	} {
		cost = c.cost
		answer := get(h)
		if answer.StatusCode != c.status {
			t.Fatalf("cost %d: %s; want %d", c.cost, answer.Status, c.status)
		}
		if c.status != 200 {
			if p := problemOf(t, answer); p.Type != c.kind {
				t.Errorf("cost %d: type %q", c.cost, p.Type)
			}
		}
		if policies, _ := fieldsOf(t, answer.Header); c.status != 400 && policies[0].params["qu"] != "pages" {
			t.Errorf("cost %d: %v", c.cost, policies)
		}
	}
	if err := lim.Close(); err != nil {
		t.Fatal(err)
	}
	cost = 1
	answer := get(h)
	if p := problemOf(t, answer); answer.StatusCode != 503 || p.Type != reducedCapacity || answer.Header.Get("RateLimit") != "" {
		t.Errorf("closed: %s, %+v", answer.Status, p)
	}
}

func TestTheLongestWaitOfAllThatRefuse(t *testing.T) {
	h := httplimit.Policy(engine(t, rule(t, "minute", "1/m burst 1"), rule(t, "hour", "1/h burst 1"), rule(t, "roomy", "9/s burst 9")))(trivial)
	get(h)
	answer := get(h)
	p := problemOf(t, answer)
	if answer.Header.Get("Retry-After") != "3600" || p.RetryAfter != 3600 || !slices.Equal(p.Violated, []string{"minute", "hour"}) {
		t.Errorf("Retry-After %s, body %+v", answer.Header.Get("Retry-After"), p)
	}
	if !strings.Contains(p.Detail, "rule minute and of 1 more") {
		t.Errorf("named after the first that refuses? %q", p.Detail)
	}
	if _, limits := fieldsOf(t, answer.Header); len(limits) != 3 || limits[0].value != "minute" || limits[1].value != "hour" {
		t.Errorf("%v", limits)
	}
}

func TestWaitingRetryAfterIsEnoughAndNotASecondTooLong(t *testing.T) {
	for _, limit := range []string{
		"10/s burst 20", "1/10s burst 10", "3/s burst 1", "7/h burst 2", "1000/s burst 1", "1/1500ms burst 3",
		"5/m fixed", "7/13s sliding", "11/calendar hour", "4/7s log",
	} {
		t.Run(limit, func(t *testing.T) {
			for _, short := range []time.Duration{0, time.Second} {
				synctest.Test(t, func(t *testing.T) {
					h := httplimit.Policy(engine(t, rule(t, "a", limit, "client.ip")))(trivial)
					time.Sleep(1234567890 * time.Nanosecond) // not on a boundary of windows
					answer := get(h)
					for answer.StatusCode == 200 {
						answer = get(h)
					}
					retry, err := time.ParseDuration(answer.Header.Get("Retry-After") + "s")
					if err != nil || retry < time.Second {
						t.Fatalf("Retry-After %q", answer.Header.Get("Retry-After"))
					}
					time.Sleep(retry - short)
					if got := get(h).StatusCode; (got == 200) != (short == 0) {
						t.Errorf("after %v of %v: %d", retry-short, retry, got)
					}
				})
			}
		})
	}
}

// It is so of those who wait in the handler, and in front of it.
func TestWaitingRetryAfterIsEnoughWhereOthersAreUnderWay(t *testing.T) {
	for _, limit := range []string{"1/2500ms queue 2", "2 at once for 7s"} {
		for _, short := range []time.Duration{0, time.Second} {
			synctest.Test(t, func(t *testing.T) {
				end := make(chan struct{})
				h := httplimit.Policy(engine(t, rule(t, "a", limit, "client.ip")))(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
					if strings.Contains(limit, "at once") {
						<-end
					}
				}))
				var requests sync.WaitGroup
				refused := make(chan *http.Response, 1)
				come := func() {
					requests.Go(func() {
						if answer := get(h); answer.StatusCode != 200 {
							refused <- answer
						}
					})
					synctest.Wait()
				}
				for len(refused) == 0 {
					come()
					time.Sleep(10 * time.Millisecond)
				}
				text := (<-refused).Header.Get("Retry-After")
				retry, err := time.ParseDuration(text + "s")
				if err != nil {
					t.Fatalf("Retry-After %q", text)
				}
				time.Sleep(retry - short - 10*time.Millisecond)
				if come(); (len(refused) == 0) != (short == 0) {
					t.Errorf("%s: after %s of %s: refused: %d", limit, retry-short, retry, len(refused))
				}
				close(end)
				requests.Wait()
			})
		}
	}
}

func TestHeadHasNoBody(t *testing.T) {
	h := httplimit.New(spillgate.Must("1/h burst 1"))(trivial)
	get(h)
	answer := get(h, func(r *http.Request) { r.Method = "HEAD" })
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != 429 || len(body) != 0 || answer.Header.Get("Retry-After") != "3600" || answer.Header.Get("Content-Length") == "0" {
		t.Errorf("%s, %q, %v", answer.Status, body, answer.Header)
	}
}

func TestOwnAnswer(t *testing.T) {
	var got httplimit.Refusal
	own := httplimit.Denied(func(w http.ResponseWriter, r *http.Request, f httplimit.Refusal) {
		got = f
		w.Header().Set("Content-Type", "text/plain")
		w.WriteHeader(http.StatusTeapot)
		fmt.Fprint(w, "come back later")
	})
	h := httplimit.New(spillgate.Must("1/m burst 2"), own)(trivial)
	get(h)
	get(h)
	answer := get(h)
	body, _ := io.ReadAll(answer.Body)
	if answer.StatusCode != http.StatusTeapot || string(body) != "come back later" || answer.Header.Get("Retry-After") != "60" {
		t.Errorf("%s %q %v", answer.Status, body, answer.Header)
	}
	if got.Status != 429 || got.Rule != "default" || got.RetryAfter <= 59*time.Second || got.ResetAfter <= 119*time.Second || got.ID == "" || got.Err != nil {
		t.Errorf("%+v", got)
	}
}

func TestAFaultIsNeverToldInNumbers(t *testing.T) {
	open := rule(t, "open", "1/h burst 1", "client.ip")
	open.OnFault = policy.Open
	local := rule(t, "local", "1/h burst 1", "client.ip")
	for _, c := range []struct {
		rule policy.Rule
		want []int
	}{{open, []int{200, 200, 200}}, {local, []int{200, 429, 429}}} {
		h := httplimit.Policy(engineOn(t, &scripted{decide: fails(spillgate.ErrUnavailable)}, c.rule))(trivial)
		for i, want := range c.want {
			answer := get(h)
			if answer.StatusCode != want || answer.Header.Get("RateLimit") != "" || answer.Header.Get("RateLimit-Policy") != "" {
				t.Errorf("%s, answer %d: %s, %v", c.rule.Name, i, answer.Status, answer.Header)
			}
		}
	}
}

func TestAClientThatWentAway(t *testing.T) {
	gone := func(r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		cancel()
		*r = *r.WithContext(ctx)
	}
	answer := get(httplimit.Policy(engine(t, rule(t, "a", "1/h burst 1")))(trivial), gone)
	if body, _ := io.ReadAll(answer.Body); answer.StatusCode != 499 || len(body) != 0 {
		t.Errorf("%s %q", answer.Status, body)
	}
}
