package httplimit_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/httplimit"
	"github.com/spillgate/spillgate/policy"
)

// refused returns the answer of a rule that refuses.
func refused(t *testing.T, r policy.Rule, change func(*http.Request), opts ...httplimit.Option) (*http.Response, string) {
	t.Helper()
	store := &scripted{decide: refuses(29_500_000_000, 59*time.Second, spillgate.OverLimit)}
	h := httplimit.Policy(engineOn(t, store, r), opts...)(trivial)
	resp := get(h, func(r *http.Request) {
		if change != nil {
			change(r)
		}
	})
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

func TestAnswersByRule(t *testing.T) {
	for name, c := range map[string]struct {
		answer policy.Answer
		deny   bool
		status int
		kind   string // of the body
		body   string // the whole, or what is in it
		title  string
		header map[string]string
	}{
		"nothing said":         {status: 429, kind: "application/problem+json", body: "#quota-exceeded", title: "Quota exceeded"},
		"status":               {answer: policy.Answer{Status: 420}, status: 420, kind: "application/problem+json", body: "used up. Retry after 30 s", title: "Quota exceeded"},
		"capacity":             {answer: policy.Answer{Problem: policy.ReducedCapacity}, status: 503, kind: "application/problem+json", body: "#temporary-reduced-capacity", title: "Temporarily reduced capacity"},
		"abnormal":             {answer: policy.Answer{Problem: policy.AbnormalUsage}, status: 429, kind: "application/problem+json", body: "#abnormal-usage-detected", title: "Abnormal usage detected"},
		"abnormal, forbidden":  {answer: policy.Answer{Problem: policy.AbnormalUsage, Status: 403}, status: 403, kind: "application/problem+json", body: "used up", title: "Abnormal usage detected"},
		"a rule that denies":   {deny: true, status: 403, kind: "application/problem+json", body: "does not admit", title: "Forbidden"},
		"it denies as missing": {answer: policy.Answer{Status: 404}, deny: true, status: 404, kind: "application/problem+json", body: "about:blank", title: "Not Found"},
		"no such status":       {answer: policy.Answer{Status: 599}, deny: true, status: 599, kind: "application/problem+json", body: "about:blank", title: "Refused"},
		"page":                 {answer: policy.Answer{Status: 200, Type: "text/html; charset=utf-8", Body: "<h1>Busy</h1>"}, status: 200, kind: "text/html; charset=utf-8", body: "<h1>Busy</h1>"},
		"json": {answer: policy.Answer{Type: "application/json", Body: `{"e":1}`, Header: map[string]string{"x-reason": "busy", "Cache-Control": "max-age=1"}}, status: 429,
			kind: "application/json", body: `{"e":1}`, header: map[string]string{"X-Reason": "busy", "Cache-Control": "max-age=1"}},
		"empty text": {answer: policy.Answer{Type: "text/plain"}, status: 429, kind: "text/plain"},
		"no content": {answer: policy.Answer{Status: 204}, status: 204},
	} {
		t.Run(name, func(t *testing.T) {
			r := rule(t, "quota", "2/m burst 6")
			if c.deny {
				r = rule(t, "quota", "")
				r.Deny = true
			}
			if name != "nothing said" && name != "a rule that denies" {
				r.Answer = &c.answer
			}
			resp, body := refused(t, r, nil)
			if resp.StatusCode != c.status || resp.Header.Get("Content-Type") != c.kind {
				t.Errorf("%d %q", resp.StatusCode, resp.Header.Get("Content-Type"))
			}
			if c.kind == "application/problem+json" {
				var p problem
				if err := json.Unmarshal([]byte(body), &p); err != nil || p.Title != c.title || p.Status != c.status || !strings.Contains(body, c.body) {
					t.Errorf("%v in %s", err, body)
				}
				if p.ID != resp.Header.Get(httplimit.RefusalHeader) {
					t.Errorf("the body says %s, the field %q", p.ID, resp.Header.Get(httplimit.RefusalHeader))
				}
			} else if body != c.body {
				t.Errorf("body %q", body)
			}
			if id := resp.Header.Get(httplimit.RefusalHeader); len(id) != 16 {
				t.Errorf("refusal %q", id)
			}
			if want := map[bool]string{false: "30"}[c.deny]; resp.Header.Get("Retry-After") != want {
				t.Errorf("Retry-After %q, want %q", resp.Header.Get("Retry-After"), want)
			}
			if got := resp.Header.Get("Content-Length"); c.status != 204 && got != strconv.Itoa(len(body)) || c.status == 204 && got != "" {
				t.Errorf("Content-Length %q of %d", got, len(body))
			}
			for name, want := range c.header {
				if got := resp.Header.Values(name); len(got) != 1 || got[0] != want {
					t.Errorf("%s: %q", name, got)
				}
			}
			head, body := refused(t, r, func(r *http.Request) { r.Method = "HEAD" })
			if body != "" || head.StatusCode != c.status || head.Header.Get("Content-Type") != c.kind {
				t.Errorf("HEAD: %d %q %q", head.StatusCode, head.Header.Get("Content-Type"), body)
			}
		})
	}
}

// The first rule that refuses names the answer; an answer of another is not
// given.
func TestTheFirstThatRefusesAnswers(t *testing.T) {
	first, second := rule(t, "first", "2/m burst 6"), rule(t, "second", "2/m burst 6")
	first.Answer, second.Answer = &policy.Answer{Status: 420}, &policy.Answer{Status: 421}
	store := &scripted{decide: refuses(time.Second, time.Second, spillgate.OverLimit)}
	if got := get(httplimit.Policy(engineOn(t, store, first, second))(trivial)); got.StatusCode != 420 {
		t.Errorf("status %d", got.StatusCode)
	}
}

// A fault is not the rule's answer to give.
func TestFaultsHaveTheirOwnAnswer(t *testing.T) {
	r := rule(t, "quota", "2/m burst 6")
	r.OnFault, r.Answer = policy.Shut, &policy.Answer{Status: 200, Type: "text/plain", Body: "degraded"}
	h := httplimit.Policy(engineOn(t, &scripted{decide: fails(spillgate.ErrUnavailable)}, r))(trivial)
	if got := get(h); got.StatusCode != 503 {
		t.Errorf("status %d", got.StatusCode)
	}
}

// A rule says by itself what is told while the store fails: as it is for clients,
// but no denial for logs, calls of gRPC and who comes again.
func TestFaultsAreAnsweredAsTheRuleSays(t *testing.T) {
	for name, c := range map[string]struct {
		answer     policy.Answer
		accept     string
		status     int
		kind, body string // of which a part, or, without one, the whole
	}{
		"json":   {policy.Answer{Type: "application/json", Body: `{"error":"later"}`, Header: map[string]string{"x-reason": "store"}}, "", 503, "application/json", `{"error":"later"}`},
		"a page": {policy.Answer{Status: 200, Type: "text/html", Body: "<p>Later"}, "", 200, "text/html", "<p>Later"},
		"status": {policy.Answer{Status: 400}, "", 400, "application/problem+json", `#temporary-reduced-capacity","title":"Temporarily reduced capacity","status":400,"detail":"It can't be decided right now`},
		"text":   {policy.Answer{Status: 500}, "text/plain", 500, "text/plain; charset=utf-8", "This says nothing about your quota."},
		"empty":  {policy.Answer{Status: 204}, "", 204, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			first, second := rule(t, "first", "2/m burst 6"), rule(t, "second", "2/m burst 6")
			first.OnFault, first.FaultAnswer, first.Answer = policy.Shut, &c.answer, &policy.Answer{Status: 420}
			second.OnFault, second.FaultAnswer = policy.Shut, &policy.Answer{Status: 599}
			for _, gone := range []policy.OnFault{policy.Open, policy.Local} {
				passes := rule(t, "passes", "2/m burst 6")
				passes.OnFault = gone
				var log strings.Builder
				h := httplimit.Policy(engineOn(t, &scripted{decide: fails(spillgate.ErrUnavailable)}, passes, first, second), httplimit.Logger(slog.New(slog.NewTextHandler(&log, nil))))(trivial)
				got := get(h, func(r *http.Request) { r.Header.Set("Accept", c.accept) })
				body, err := io.ReadAll(got.Body)
				if err != nil {
					t.Fatal(err)
				}
				if got.StatusCode != c.status || got.Header.Get("Content-Type") != c.kind || !strings.Contains(string(body), c.body) || c.body == "" && len(body) > 0 {
					t.Errorf("%d %q %s", got.StatusCode, got.Header.Get("Content-Type"), body)
				}
				if h := got.Header; h.Get("Retry-After") != "1" || h.Get("RateLimit") != "" || h.Get(httplimit.RefusalHeader) == "" || h.Get("X-Reason") != c.answer.Header["x-reason"] {
					t.Errorf("fields %v", h)
				}
				if !strings.Contains(log.String(), `level=WARN msg="request not decided"`) {
					t.Errorf("log: %s", log.String())
				}
				call := get(h, func(r *http.Request) {
					r.Method, r.ProtoMajor = "POST", 2
					r.Header.Set("Content-Type", "application/grpc")
				})
				if code := call.Header.Get("Grpc-Status"); code != "14" || call.StatusCode != 200 {
					t.Errorf("gRPC: status %d, code %q", call.StatusCode, code)
				}
			}
		})
	}
	// Who is refused, or whose request can't be decided for another reason, is not told that.
	r := rule(t, "quota", "2/m burst 6")
	r.OnFault, r.FaultAnswer = policy.Shut, &policy.Answer{Status: 599}
	if resp, _ := refused(t, r, nil); resp.StatusCode != 429 {
		t.Errorf("refused: %d", resp.StatusCode)
	}
	if got := get(httplimit.Policy(engineOn(t, &scripted{decide: fails(spillgate.ErrCost)}, r))(trivial)); got.StatusCode != 400 {
		t.Errorf("a bad cost: %d", got.StatusCode)
	}
	left, leave := context.WithCancel(t.Context())
	leaves := func(spillgate.Charge) (spillgate.Decision, error) {
		leave()
		return spillgate.Decision{}, spillgate.ErrUnavailable
	}
	if got := get(httplimit.Policy(engineOn(t, &scripted{decide: leaves}, r))(trivial), func(r *http.Request) { *r = *r.WithContext(left) }); got.StatusCode != 499 {
		t.Errorf("a client that left: %d", got.StatusCode)
	}
}

func TestOwnAnswersKnowTheRules(t *testing.T) {
	r := rule(t, "quota", "2/m burst 6")
	r.Answer = &policy.Answer{Status: 420, Type: "text/plain", Body: "of the rule"}
	resp, body := refused(t, r, nil, httplimit.Denied(func(w http.ResponseWriter, _ *http.Request, f httplimit.Refusal) {
		w.WriteHeader(f.Status)
		_, _ = io.WriteString(w, "not "+f.Answer.Body)
	}))
	if resp.StatusCode != 420 || body != "not of the rule" {
		t.Errorf("%d %q", resp.StatusCode, body)
	}
}

func TestAcceptChoosesTheBody(t *testing.T) {
	for accept, text := range map[string]bool{
		"": false, "*/*": false, "application/json": false, "text/plain": true, "TEXT/plain": true, "text/*": true,
		"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8": false,
		"text/plain;q=0.5, application/json;q=0.4":                        true,
		"text/plain;q=0.5, */*;q=0.6":                                     false,
		"text/plain;q=0":                                                  false,
		"text/plain; q=0, */*":                                            false,
		"application/problem+json, text/plain":                            false,
		"text/*;q=0.2, text/plain;q=0.9, application/*;q=0.5":             true,
		"text/plain;q=nonsense":                                           true, "text/plain;q=7": true, ",,;;=": false, "text/html": false,
	} {
		resp, body := refused(t, rule(t, "quota", "2/m burst 6"), func(r *http.Request) {
			if accept != "" {
				r.Header.Set("Accept", accept)
			}
		})
		kind := resp.Header.Get("Content-Type")
		if got := kind == "text/plain; charset=utf-8"; got != text {
			t.Errorf("%q: %q", accept, kind)
		}
		if id := resp.Header.Get(httplimit.RefusalHeader); !strings.Contains(body, id) {
			t.Errorf("%q: no %s in %q", accept, id, body)
		}
		if text && !strings.HasPrefix(body, "Quota exceeded. The quota of rule quota is used up. Retry after 30 s") {
			t.Errorf("%q: %q", accept, body)
		}
	}
}

func TestTheRefusalIsNamedInAnswerBodyAndLog(t *testing.T) {
	var log strings.Builder
	resp, body := refused(t, rule(t, "quota", "2/m burst 6"), nil, httplimit.Logger(slog.New(slog.NewTextHandler(&log, nil))))
	id := resp.Header.Get(httplimit.RefusalHeader)
	if len(id) != 16 || !strings.Contains(body, id) || !strings.Contains(log.String(), "refusal_id="+id) {
		t.Errorf("id %q, body %s, log %s", id, body, &log)
	}
}

// Jitter goes upward only, up to the percentage and by a second at least, and
// spreads over all that is between.
func TestJitter(t *testing.T) {
	for _, c := range []struct {
		wait          time.Duration
		percent, most int64
	}{
		{time.Second, 10, 2}, {10 * time.Second, 10, 11}, {10_000_000_001, 10, 13}, {100 * time.Second, 50, 150},
		{time.Second, 0, 1}, {time.Second, -7, 1}, {time.Second, 1000, 2}, {spillgate.Never - 1, 10, 9223372037 + 922337204},
	} {
		store := &scripted{decide: refuses(c.wait, c.wait, spillgate.OverLimit)}
		h := httplimit.Policy(engineOn(t, store, rule(t, "quota", "2/m burst 6")), httplimit.Jitter(int(c.percent)))(trivial)
		least := int64((c.wait + time.Second - 1) / time.Second)
		if c.wait > spillgate.Never-time.Second {
			least = 9223372037
		}
		seen := map[int64]bool{}
		for range 500 {
			resp := get(h)
			got, err := strconv.ParseInt(resp.Header.Get("Retry-After"), 10, 64)
			if err != nil || got < least || got > c.most {
				t.Fatalf("%s with %d %%: Retry-After %q, want %d to %d", c.wait, c.percent, resp.Header.Get("Retry-After"), least, c.most)
			}
			if p := problemOf(t, resp); p.RetryAfter != got {
				t.Fatalf("the body says %d, the field %d", p.RetryAfter, got)
			}
			seen[got] = true
		}
		if width := c.most - least + 1; width < 50 && int64(len(seen)) != width {
			t.Errorf("%s with %d %%: only %v were seen", c.wait, c.percent, seen)
		}
	}
}

func TestRequestsAreHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := rule(t, "a", "1/s burst 1")
		r.Delay = policy.Delay{Most: 2 * time.Second}
		h := httplimit.Policy(engine(t, r))(trivial)
		start, times := time.Now(), make(chan string, 5)
		for i := range 5 {
			go func() {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if i == 1 { // leaves
					time.AfterFunc(500*time.Millisecond, cancel)
				}
				resp := get(h, func(r *http.Request) { *r = *r.WithContext(ctx) })
				times <- fmt.Sprint(i, " ", resp.StatusCode, " ", resp.Header.Get("Retry-After"), " at ", time.Since(start))
			}()
			synctest.Wait()
		}
		for _, want := range []string{"0 200  at 0s", "3 429 3 at 0s", "4 429 3 at 0s", "1 499  at 500ms", "2 200  at 1s"} {
			if got := <-times; got != want {
				t.Errorf("%s, want %s", got, want)
			}
		}
	})
}

// A request that the backup serves ends as any other: what it held is given
// back, and what it did not use.
func TestBackupsAreSettled(t *testing.T) {
	first, slots, failed, traffic := rule(t, "first", "1/h burst 1"), rule(t, "slots", "1 at once"), rule(t, "failed", "1/h burst 1"), rule(t, "traffic", "100/h burst 100")
	first.Backup, failed.Failures = &policy.Backup{Upstream: "http://b.test"}, []string{"500"}
	traffic.Unit, traffic.Cost = policy.Bytes, 50
	spare := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "spare") })
	h := httplimit.Policy(engine(t, first, slots, failed, traffic), httplimit.Backup(spare), httplimit.NoVerdict())(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	get(h)
	for i := range 11 { // 5 bytes each, of 100 of which 50 must be there
		resp := get(h)
		body, _ := io.ReadAll(resp.Body)
		if resp.StatusCode != 200 || string(body) != "spare" {
			t.Fatalf("%d: %d %s", i, resp.StatusCode, body)
		}
	}
	if resp := get(h); resp.StatusCode != 429 {
		t.Errorf("status %d, beyond the bytes that answers may have", resp.StatusCode)
	}
}

func TestBackupHandler(t *testing.T) {
	r := rule(t, "a", "1/h burst 1")
	r.Backup = &policy.Backup{Upstream: "http://b.test", Match: policy.Match{{Attribute: policy.Attribute{Kind: policy.User}, Values: []string{"paid"}}}}
	spare := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, policy.FromContext(r.Context()).Backup().Upstream)
	})
	for _, c := range []struct {
		user string
		opts []httplimit.Option
		want int
	}{{"paid", []httplimit.Option{httplimit.Backup(spare)}, 200}, {"free", []httplimit.Option{httplimit.Backup(spare)}, 429}, {"paid", nil, 429}} {
		h := httplimit.Policy(engine(t, r), append(c.opts, httplimit.User(headerOf("User")))...)(trivial)
		get(h)
		resp := get(h, with("User", c.user))
		body, _ := io.ReadAll(resp.Body)
		if resp.StatusCode != c.want || c.want == 200 && (string(body) != "http://b.test" || resp.Header.Get("RateLimit") != "") {
			t.Errorf("%s: %d %s", c.user, resp.StatusCode, body)
		}
	}
}
