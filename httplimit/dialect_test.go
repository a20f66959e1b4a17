package httplimit_test

import (
	"encoding/base64"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/httplimit"
	"github.com/spillgate/spillgate/policy"
)

// older returns the fields before the draft.
func older(h http.Header) map[string]string {
	out := map[string]string{}
	for name, lines := range h {
		if rest, ok := strings.CutPrefix(name, "X-Ratelimit-"); ok {
			out[rest] = strings.Join(lines, " | ")
		}
	}
	return out
}

func TestDialects(t *testing.T) {
	user := func(r *http.Request) { r.Header.Set("User", "alice") }
	tokens := rule(t, "tokens", "100000/min burst 40000", "user else client.ip")
	tokens.Unit = "tokens"
	rules := []policy.Rule{
		rule(t, "slots", "5 at once", "client.ip"), rule(t, "hour", "1000/h burst 100", "host"),
		rule(t, "minute", "1/s burst 3", "user else client.ip"), tokens,
	}
	shared := map[string]string{"Limit": "3", "Remaining": "2", "Used": "1", "Resource": "minute", "Burst": "3"}
	with := func(more ...string) map[string]string {
		m := maps.Clone(shared)
		for i := 0; i < len(more); i += 2 {
			m[more[i]] = more[i+1]
		}
		return m
	}
	openai := map[string]string{
		"Limit-Requests": "3", "Remaining-Requests": "2", "Reset-Requests": "1s",
		"Limit-Tokens": "40000", "Remaining-Tokens": "39999", "Reset-Tokens": "1ms",
	}
	for _, c := range []struct {
		name     string
		dialects []httplimit.Dialect
		change   func(*http.Request)
		draft    bool
		want     map[string]string
	}{
		{"draft", []httplimit.Dialect{httplimit.Draft}, nil, true, map[string]string{}},
		{"github", []httplimit.Dialect{httplimit.GitHub}, user, false, with("Reset", "946684802", "Scope", "token")},
		{"github by address", []httplimit.Dialect{httplimit.GitHub}, nil, false, with("Reset", "946684802", "Scope", "ip")},
		{"delta", []httplimit.Dialect{httplimit.Delta}, nil, false, with("Reset", "1", "Scope", "ip")},
		{"openai", []httplimit.Dialect{httplimit.OpenAI}, nil, false, openai},
		{"envoy", []httplimit.Dialect{httplimit.Envoy}, nil, false, map[string]string{
			"Limit": `3, 5;name="slots", 100;w=360;name="hour", 3;w=3;name="minute", 40000;w=24;name="tokens"`, "Remaining": "2", "Reset": "1",
		}},
		{"several", []httplimit.Dialect{httplimit.Draft, httplimit.OpenAI, httplimit.Delta}, nil, true, func() map[string]string {
			m := with("Reset", "1", "Scope", "ip")
			maps.Copy(m, openai)
			return m
		}()},
		{"the last of one name", []httplimit.Dialect{httplimit.Envoy, httplimit.Delta}, nil, false, with("Reset", "1", "Scope", "ip")},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				<-time.After(300 * time.Millisecond) // the epoch is rounded up
				h := httplimit.Policy(engine(t, rules...), httplimit.User(headerOf("User")), httplimit.Dialects(c.dialects...))(trivial)
				change := c.change
				if change == nil {
					change = func(*http.Request) {}
				}
				resp := get(h, change)
				if got := older(resp.Header); !maps.Equal(got, c.want) {
					t.Errorf("got  %v\nwant %v", got, c.want)
				}
				if got := resp.Header.Get("RateLimit") != ""; got != c.draft {
					t.Errorf("draft: %t", got)
				}
			})
		})
	}
}

// Of a refusal the fields tell of the rule that refuses first.
func TestDialectsOnRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine(t, rule(t, "tight", "1/h burst 1", "user"), rule(t, "wide", "1/min burst 2", "client.ip"))
		h := httplimit.Policy(e, httplimit.Dialects(httplimit.GitHub, httplimit.OpenAI), httplimit.Headers(httplimit.Refusals),
			httplimit.User(headerOf("User")))(trivial)
		for i := range 3 {
			resp := get(h, with("User", strconv.Itoa(i)))
			got := older(resp.Header)
			if i < 2 {
				if resp.StatusCode != 200 || len(got) > 0 {
					t.Errorf("%d: %d %v", i, resp.StatusCode, got)
				}
				continue
			}
			want := map[string]string{
				"Limit": "2", "Remaining": "0", "Used": "2", "Resource": "wide", "Burst": "2", "Reset": "946684920", "Scope": "ip",
				"Limit-Requests": "2", "Remaining-Requests": "0", "Reset-Requests": "2m0s",
			}
			if resp.StatusCode != 429 || !maps.Equal(got, want) {
				t.Errorf("%d: got  %v\nwant %v", resp.StatusCode, got, want)
			}
		}
	})
}

func TestDialectsOfALimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			name   string
			limit  string
			opts   []httplimit.Option
			change func(*http.Request)
			want   map[string]string
		}{
			{"address", "10/s", nil, func(*http.Request) {}, map[string]string{"Scope": "ip", "Resource": "default", "Burst": "10", "Reset": "1"}},
			{"user", "10/s", []httplimit.Option{httplimit.User(headerOf("User"))}, with("User", "a"), map[string]string{"Scope": "token"}},
			{"nobody", "10/s", []httplimit.Option{httplimit.User(headerOf("User"))}, func(*http.Request) {}, map[string]string{"Scope": ""}},
			{"window", "10/min fixed", nil, func(*http.Request) {}, map[string]string{"Burst": "", "Limit": "10", "Used": "1", "Reset": "60"}},
			{"slots", "10 at once", nil, func(*http.Request) {}, map[string]string{"Limit": "10", "Remaining": "9", "Reset": ""}},
			{"no limit", "unlimited", nil, func(*http.Request) {}, map[string]string{"Limit": "", "Reset": ""}},
		} {
			h := httplimit.New(spillgate.Must(c.limit), append(c.opts, httplimit.Dialects(httplimit.Delta))...)(trivial)
			got := older(get(h, c.change).Header)
			for name, want := range c.want {
				if got[name] != want {
					t.Errorf("%s: %s is %q, want %q", c.name, name, got[name], want)
				}
			}
		}
	})
}

// Of two middlewares the inner one tells, and nothing of the outer one's stays.
func TestDialectsOfTwoMiddlewaresDoNotMix(t *testing.T) {
	inner := httplimit.New(spillgate.Must("10 at once"), httplimit.User(headerOf("User")), httplimit.Dialects(httplimit.Envoy))(trivial)
	outer := httplimit.New(spillgate.Must("5/h"), httplimit.Dialects(httplimit.GitHub))(inner)
	if got, want := older(get(outer).Header), map[string]string{"Limit": `10, 10;name="default"`, "Remaining": "9"}; !maps.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// One response's absolute reset is its relative reset from now.
func TestEpochAndDeltaAgree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, wait := range []time.Duration{1, time.Second - 1, time.Second, 1500 * time.Millisecond, time.Hour + 1} {
			store := &scripted{decide: refuses(wait, wait, spillgate.OverLimit)}
			h := func(d httplimit.Dialect) map[string]string {
				return older(get(httplimit.Policy(engineOn(t, store, rule(t, "a", "1/s")), httplimit.Dialects(d))(trivial)).Header)
			}
			epoch, err := strconv.ParseInt(h(httplimit.GitHub)["Reset"], 10, 64)
			if err != nil || time.Unix(epoch, 0).Before(time.Now().Add(wait)) || time.Unix(epoch-1, 0).After(time.Now().Add(wait)) {
				t.Errorf("%s: epoch %d is not the second after %s", wait, epoch, time.Now().Add(wait))
			}
			delta, err := strconv.ParseInt(h(httplimit.Delta)["Reset"], 10, 64)
			if err != nil || time.Duration(delta)*time.Second < wait || time.Duration(delta-1)*time.Second >= wait {
				t.Errorf("%s: delta %d", wait, delta)
			}
		}
	})
}

func TestPartitionKeys(t *testing.T) {
	ask := func(h http.Handler, addr string) (string, string) {
		policies, limits := fieldsOf(t, get(h, from(addr)).Header)
		if len(policies) != 2 || len(limits) != 2 {
			t.Fatalf("%v %v", policies, limits)
		}
		p, ok := policies[0].params["pk"].([]byte)
		l, ok2 := limits[0].params["pk"].([]byte)
		if !ok || !ok2 || string(p) != string(l) || len(p) != 8 {
			t.Fatalf("pk %v and %v", policies[0].params["pk"], limits[0].params["pk"])
		}
		all, _ := policies[1].params["pk"].([]byte)
		return base64.StdEncoding.EncodeToString(p), string(all)
	}
	h := httplimit.Policy(engine(t, rule(t, "a", "10/s", "client.ip"), rule(t, "b", "10/s")), httplimit.PartitionKeys())(trivial)
	one, all := ask(h, "203.0.113.9:1")
	same, _ := ask(h, "203.0.113.9:2")
	other, all2 := ask(h, "203.0.113.10:1")
	if one != same || one == other || all != all2 {
		t.Errorf("one %s, the same %s, another %s, all together %x and %x", one, same, other, all, all2)
	}
	if plain := get(httplimit.Policy(engine(t, rule(t, "a", "10/s")))(trivial)).Header.Get("RateLimit"); strings.Contains(plain, "pk") {
		t.Errorf("unasked: %s", plain)
	}
}

func TestPartitionKeysOfALimiter(t *testing.T) {
	ask := func(h http.Handler, user string, status int) string {
		t.Helper()
		answer := get(h, with("User", user))
		policies, limits := fieldsOf(t, answer.Header)
		if answer.StatusCode != status || len(policies) != 1 || len(limits) != 1 {
			t.Fatalf("%s: %v %v", answer.Status, policies, limits)
		}
		p, _ := policies[0].params["pk"].([]byte)
		l, _ := limits[0].params["pk"].([]byte)
		if len(p) != 8 || string(p) != string(l) {
			t.Fatalf("pk %v and %v", p, l)
		}
		return string(p)
	}
	byUser := func(opts ...httplimit.Option) http.Handler {
		return httplimit.New(spillgate.Must("1/h"), append(opts, httplimit.User(headerOf("User")))...)(trivial)
	}
	h := byUser(httplimit.PartitionKeys())
	one, again, other := ask(h, "a", 200), ask(h, "a", 429), ask(h, "b", 200)
	if elsewhere := ask(byUser(httplimit.PartitionKeys()), "a", 200); one != again || one == other || one == elsewhere {
		t.Errorf("one %x, again %x, another %x, of another limiter %x", one, again, other, elsewhere)
	}
	if plain := get(byUser()).Header.Get("RateLimit"); strings.Contains(plain, "pk") {
		t.Errorf("unasked: %s", plain)
	}
}

func TestNamesOfDialects(t *testing.T) {
	var names []string
	for d := httplimit.Draft; d <= httplimit.Envoy; d++ {
		names = append(names, d.String())
	}
	if want := []string{"draft", "github", "delta", "openai", "envoy"}; !slices.Equal(names, want) {
		t.Error(names)
	}
	if got := httplimit.Dialect(99).String(); got != "dialect(99)" {
		t.Error(got)
	}
}
