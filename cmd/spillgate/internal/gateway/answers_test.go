package gateway_test

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/cmd/spillgate/internal/gateway"
	"github.com/spillgate/spillgate/httplimit"
	"github.com/spillgate/spillgate/policy"
)

// What the upstream sends under the names of the older fields is replaced, also
// after an interim answer: one answer tells of one decision.
func TestOlderFieldsAreTheGatewaysOwn(t *testing.T) {
	addr := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/early" {
			w.Header().Set("Link", "</a.css>")
			w.WriteHeader(http.StatusEarlyHints)
		}
		w.Header().Set("X-RateLimit-Limit", "999")
		w.Header().Set("X-RateLimit-Remaining", "998")
		w.Header().Set("X-Other", "kept")
	})
	f := serve(t, addr, compile(t, rule(t, "a", "10/min", []string{"client.ip"})), func(c *gateway.Config) {
		c.Answers = []httplimit.Option{httplimit.Dialects(httplimit.Delta)}
	})
	for i, path := range []string{"/", "/early", "/"} {
		resp := get(t, visitor(t, "127.0.0.1"), f.url+path)
		want := []string{"9", "8", "7"}[i]
		if limit, left := resp.Header.Values("X-RateLimit-Limit"), resp.Header.Values("X-RateLimit-Remaining"); len(limit) != 1 || limit[0] != "10" ||
			len(left) != 1 || left[0] != want || resp.Header.Get("X-Other") != "kept" || resp.Header.Get("RateLimit") != "" {
			t.Errorf("%s: %v", path, resp.Header)
		}
	}
}

// An answer tells of limits in one voice: what the upstream says in the fields
// that a dialect uses is dropped, also where the gateway has nothing to say in
// them; what no dialect uses passes, and so do the items of the draft's lists.
func TestUpstreamsFieldsDoNotMixWithTheGateways(t *testing.T) {
	addr := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-RateLimit-Scope", "9")
		h.Set("X-RateLimit-Limit-Tokens", "9")
		h.Set("X-RateLimit-Odd", "9")
		h.Set("RateLimit", `"theirs";r=9`)
		h.Set("Spillgate-Refusal", "0123456789abcdef")
		if r.URL.Path == "/busy" {
			w.WriteHeader(http.StatusTooManyRequests)
		}
	})
	for _, dialect := range []httplimit.Dialect{httplimit.Draft, httplimit.GitHub, httplimit.Delta, httplimit.OpenAI, httplimit.Envoy} {
		f := serve(t, addr, compile(t, rule(t, "a", "10/min", nil)), func(c *gateway.Config) {
			c.Answers = []httplimit.Option{httplimit.Dialects(dialect)}
		})
		for _, path := range []string{"/", "/busy"} { // a refusal of another gateway behind has its own id
			h := get(t, visitor(t, "127.0.0.1"), f.url+path).Header
			theirs := 0
			for _, name := range []string{"X-RateLimit-Scope", "X-RateLimit-Limit-Tokens", "X-RateLimit-Odd"} {
				if h.Get(name) != "" {
					theirs++
				}
			}
			if passes := dialect == httplimit.Draft; (theirs != 0) == !passes || passes && theirs != 3 {
				t.Errorf("%s: %v", dialect, h)
			}
			if items := len(h.Values("RateLimit")); (items == 2) != (dialect == httplimit.Draft) {
				t.Errorf("%s: RateLimit %q", dialect, h.Values("RateLimit"))
			}
			if got := h.Get("Spillgate-Refusal") != ""; got != (path == "/busy") {
				t.Errorf("%s: an answer to %s has a refusal's id: %t", dialect, path, got)
			}
		}
	}
}

func TestAnswersByRuleInTheGateway(t *testing.T) {
	r := rule(t, "a", "1/h burst 1", []string{"client.ip"})
	r.Answer = &policy.Answer{Status: 503, Type: "text/html; charset=utf-8", Body: "<h1>Busy</h1>", Header: map[string]string{"X-Reason": "busy"}}
	f := serve(t, upstream(t, func(http.ResponseWriter, *http.Request) {}), compile(t, r))
	c := visitor(t, "127.0.0.1")
	get(t, c, f.url+"/")
	resp := get(t, c, f.url+"/")
	if resp.StatusCode != 503 || resp.Header.Get("X-Reason") != "busy" || resp.Header.Get("Retry-After") == "" {
		t.Errorf("%d %v", resp.StatusCode, resp.Header)
	}
	if id := resp.Header.Get(httplimit.RefusalHeader); !strings.Contains(f.log.String(), id) {
		t.Errorf("no %s in the log: %s", id, f.log)
	}
}

func TestBackupUpstreams(t *testing.T) {
	reply := func(name string) string {
		return upstream(t, func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			fmt.Fprintf(w, "%s %s %s %s %s", name, r.Host, r.RequestURI, body, r.Header.Get("X-Forwarded-For"))
		})
	}
	render := rule(t, "render", "1/h burst 1", nil)
	render.Answer = &policy.Answer{Status: 503, Type: "text/plain", Body: "busy"}
	render.Backup = &policy.Backup{Upstream: "http://" + reply("spare") + "/base", Match: when(t, "client.ip", "127.0.0.7/32")}
	f := serve(t, reply("main"), compile(t, render, rule(t, "address", "2/h burst 2", []string{"client.ip"})))
	post := func(from string) (int, string) {
		resp, err := visitor(t, from).Post(f.url+"/a?b=1", "text/plain", strings.NewReader("hello"))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(body)
	}
	for i, c := range []struct{ from, want string }{
		{"127.0.0.1", "200 main " + f.addr + " /a?b=1 hello 127.0.0.1"},
		{"127.0.0.1", "503 busy"},
		{"127.0.0.7", "200 spare " + f.addr + " /base/a?b=1 hello 127.0.0.7"},
		{"127.0.0.7", "200 spare " + f.addr + " /base/a?b=1 hello 127.0.0.7"},
		{"127.0.0.1", "503 busy"},
		{"127.0.0.7", "503 busy"}, // since address has counted those that the backup served
	} {
		status, body := post(c.from)
		if got := fmt.Sprint(status, " ", body); got != c.want {
			t.Errorf("%d: %s, want %s", i, got, c.want)
		}
	}
	// The base path of a backup is guarded as the upstream's is.
	if got := statuses(raw(t, f.addr, "GET /../base/x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")); fmt.Sprint(got) != "[503]" {
		t.Errorf("climbing: %v", got)
	}
}

func TestBackupsMustBeURLs(t *testing.T) {
	r := rule(t, "a", "1/s", nil)
	r.Backup = &policy.Backup{Upstream: "http://b.test"}
	p := compile(t, r)
	r.Backup.Upstream = "http://b.test?x" // after it was checked
	u, _ := url.Parse("http://127.0.0.1:9")
	if _, err := gateway.New(gateway.Config{Engine: policy.NewEngine(p, spillgate.NewMemory()), Upstream: u}); err == nil || !strings.Contains(err.Error(), `rule "a": backup`) {
		t.Errorf("error %v", err)
	}
}

// A request is held until it fits, and a client that leaves frees its place.
func TestDelaysInTheGateway(t *testing.T) {
	r := rule(t, "a", "10/s burst 1", nil)
	r.Delay = policy.Delay{Most: 5 * time.Second, Queue: 3}
	f := serve(t, upstream(t, func(http.ResponseWriter, *http.Request) {}), compile(t, r))
	start := time.Now()
	results := make(chan int)
	for range 4 {
		go func() {
			resp, err := http.Get(f.url + "/")
			if err != nil {
				results <- 0
				return
			}
			resp.Body.Close()
			results <- resp.StatusCode
		}()
	}
	for range 4 {
		if status := <-results; status != 200 {
			t.Errorf("status %d", status)
		}
	}
	if took := time.Since(start); took < 300*time.Millisecond-5*time.Millisecond {
		t.Errorf("four passed in %s", took)
	}
}
