package httplimit_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/clientip"
	"github.com/spillgate/spillgate/httplimit"
)

func from(addr string) func(*http.Request) {
	return func(r *http.Request) { r.RemoteAddr = addr }
}

func with(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Add(name, value) }
}

func headerOf(name string) func(*http.Request) string {
	return func(r *http.Request) string { return r.Header.Get(name) }
}

// a step is one request and whether it passes a limit of one.
type step struct {
	who    string
	change func(*http.Request)
	want   int
}

func TestWhoIsLimited(t *testing.T) {
	user := httplimit.User(headerOf("User"))
	proxies, err := clientip.New(clientip.Options{Trusted: []string{"127.0.0.0/8"}, Header: clientip.XForwardedFor})
	if err != nil {
		t.Fatal(err)
	}
	both := func(a, b func(*http.Request)) func(*http.Request) {
		return func(r *http.Request) { a(r); b(r) }
	}
	for _, c := range []struct {
		name  string
		opts  []httplimit.Option
		steps []step
	}{
		{"the address is the default", nil, []step{
			{"one", from("192.0.2.1:1"), 200}, {"another port", from("192.0.2.1:2"), 429}, {"another", from("192.0.2.2:1"), 200},
			{"spoofed", both(from("192.0.2.1:1"), with("X-Forwarded-For", "192.0.2.77")), 429},
		}},
		{"user, else address; kinds never meet", []httplimit.Option{user, httplimit.ClientIP()}, []step{
			{"alice", with("User", "alice"), 200}, {"alice from elsewhere", both(with("User", "alice"), from("192.0.2.1:1")), 429},
			{"a user called like an address", with("User", "203.0.113.9"), 200}, {"anonymous from there", from("203.0.113.9:1"), 200},
			{"a user called like a key", with("User", "client.ip:203.0.113.9"), 200}, {"anonymous again", from("203.0.113.9:1"), 429},
		}},
		{"the first that is present", []httplimit.Option{httplimit.ClientIP(), user}, []step{
			{"alice", with("User", "alice"), 200}, {"bob from there", with("User", "bob"), 429},
			{"alice on a unix socket", both(with("User", "alice"), from("@")), 200}, {"again", both(with("User", "alice"), from("")), 429},
		}},
		{"who has no source shares a bucket", []httplimit.Option{user}, []step{
			{"nobody", from("192.0.2.1:1"), 200}, {"nobody from elsewhere", from("192.0.2.2:1"), 429}, {"none", with("User", "none"), 200},
		}},
		{"IPv6 by /64", nil, []step{
			{"one", from("[2001:db8:1:2::1]:1"), 200}, {"next address", from("[2001:db8:1:2::64]:1"), 429}, {"next network", from("[2001:db8:1:3::1]:1"), 200},
		}},
		{"IPv6 by /48", []httplimit.Option{httplimit.IPv6Prefix(48)}, []step{
			{"one", from("[2001:db8:1:2::1]:1"), 200}, {"same /48", from("[2001:db8:1:3::1]:1"), 429}, {"next /48", from("[2001:db8:2::1]:1"), 200},
		}},
		{"IPv4 in IPv6 is IPv4", nil, []step{{"mapped", from("[::ffff:1.2.3.4]:1"), 200}, {"plain", from("1.2.3.4:1"), 429}}},
		{"behind a proxy", []httplimit.Option{httplimit.TrustedProxies(proxies)}, []step{
			{"one", both(from("127.0.0.1:1"), with("X-Forwarded-For", "6.6.6.6, 203.0.113.9")), 200},
			{"other lies", both(from("127.0.0.1:1"), with("X-Forwarded-For", "7.7.7.7, 203.0.113.9")), 429},
			{"another", both(from("127.0.0.1:1"), with("X-Forwarded-For", "203.0.113.10")), 200},
		}},
		{"other sources", []httplimit.Option{httplimit.Tenant(headerOf("T")), httplimit.Device(headerOf("D")), httplimit.Attr("plan", headerOf("P"))}, []step{
			{"tenant", with("T", "x"), 200}, {"device", with("D", "x"), 200}, {"plan", with("P", "x"), 200}, {"plan again", with("P", "x"), 429},
		}},
		{"any bytes are a user", []httplimit.Option{user}, []step{
			{"nul", with("User", "\x00"), 200}, {"ff", with("User", "\xff"), 200}, {"braces", with("User", "{x}"), 200}, {"nul again", with("User", "\x00"), 429},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := httplimit.New(spillgate.Must("1/h burst 1"), c.opts...)(trivial)
			for _, s := range c.steps {
				if got := get(h, s.change).StatusCode; got != s.want {
					t.Errorf("%s: %d; want %d", s.who, got, s.want)
				}
			}
		})
	}
}

func TestKeysAreKnownToTheLimiter(t *testing.T) {
	lim := spillgate.Must("1/h burst 9")
	h := httplimit.New(lim, httplimit.User(headerOf("User")), httplimit.ClientIP())(trivial)
	get(h, with("User", "alice"))
	get(h, from("203.0.113.9:1"))
	get(h, from("203.0.113.9:1"))
	get(h, from("[2001:db8::1]:1"))
	for key, want := range map[string]int64{"user:alice": 8, "client.ip:203.0.113.9": 7, "client.ip:2001:db8::/64": 8, "alice": 9} {
		if got := lim.Peek(key).Remaining; got != want {
			t.Errorf("%s: %d left; want %d", key, got, want)
		}
	}
}

func TestAQueueHoldsRequests(t *testing.T) {
	for name, wrap := range map[string]func(t *testing.T) func(http.Handler) http.Handler{
		"limiter": func(t *testing.T) func(http.Handler) http.Handler {
			return httplimit.New(spillgate.Must("1/s queue 2"))
		},
		"policy": func(t *testing.T) func(http.Handler) http.Handler {
			return httplimit.Policy(engine(t, rule(t, "a", "1/s queue 2")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				type result struct {
					status int
					after  time.Duration
				}
				results := make(chan result, 10)
				h := wrap(t)(trivial)
				ask := func(ctx context.Context) {
					answer := get(h, func(r *http.Request) { *r = *r.WithContext(ctx) })
					results <- result{answer.StatusCode, time.Since(start)}
				}
				ctx, leave := context.WithCancel(t.Context())
				go ask(t.Context())
				synctest.Wait()
				go ask(t.Context())
				synctest.Wait()
				go ask(ctx)
				synctest.Wait()
				go ask(t.Context()) // no place is left
				synctest.Wait()
				leave() // the third gives its place back
				synctest.Wait()
				go ask(t.Context())
				got := []result{<-results, <-results, <-results, <-results, <-results}
				want := []result{{200, 0}, {429, 0}, {499, 0}, {200, time.Second}, {200, 2 * time.Second}}
				if fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("%v; want %v", got, want)
				}
			})
		})
	}
}

func TestSlotsAreHeldWhileTheHandlerWorks(t *testing.T) {
	for name, wrap := range map[string]func(http.Handler) http.Handler{
		"limiter":             httplimit.New(spillgate.Must("2 at once")),
		"policy":              httplimit.Policy(engine(t, rule(t, "a", "2 at once", "client.ip"))),
		"policy, no verdict":  httplimit.Policy(engine(t, rule(t, "a", "2 at once", "client.ip")), httplimit.NoVerdict()),
		"limiter, no headers": httplimit.New(spillgate.Must("2 at once"), httplimit.Headers(httplimit.Off)),
	} {
		t.Run(name, func(t *testing.T) {
			inside, leave := make(chan bool), make(chan bool)
			h := wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				inside <- true
				<-leave
			}))
			done := make(chan int, 4)
			enter := func() { done <- get(h).StatusCode }
			go enter()
			<-inside
			go enter()
			<-inside
			if got := get(h).StatusCode; got != 429 {
				t.Errorf("a third at once: %d", got)
			}
			leave <- true
			if got := <-done; got != 200 {
				t.Errorf("the first: %d", got)
			}
			go enter()
			<-inside // its place is free again
			leave <- true
			leave <- true
			<-done
			<-done
		})
	}
}

func TestAChangedLimitIsTold(t *testing.T) {
	lim := spillgate.Must("1/m burst 5")
	h := httplimit.New(lim)(trivial)
	for _, c := range []struct{ limit, policy, left string }{
		{"1/m burst 5", `"default";q=5;w=300`, `"default";r=4;t=60`},
		{"1/m burst 3", `"default";q=3;w=180`, `"default";r=2;t=60`}, // what was used is clamped to the new burst
		{"unlimited", "", ""},
	} {
		l, err := spillgate.ParseLimit(c.limit)
		if err != nil {
			t.Fatal(err)
		}
		if err := lim.SetLimit(l); err != nil {
			t.Fatal(err)
		}
		answer := get(h)
		if p, r := answer.Header.Get("RateLimit-Policy"), answer.Header.Get("RateLimit"); p != c.policy || r != c.left {
			t.Errorf("%s: %s, %s; want %s, %s", c.limit, p, r, c.policy, c.left)
		}
	}
}
