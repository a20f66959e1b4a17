package gateway_test

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/cmd/spillgate/internal/gateway"
	"github.com/spillgate/spillgate/policy"
)

// The part of the bypass suite that is about who is asking: one credential is
// one caller, however it is written. What is counted is what an upstream may
// serve for the token T.

// brings reports whether some line of the field is the token, in any form that
// a server might take for it.
func brings(field string) func(r *http.Request) bool {
	return func(r *http.Request) bool {
		return slices.ContainsFunc(r.Header.Values(field), func(v string) bool {
			words := strings.FieldsFunc(v, func(c rune) bool { return c == ' ' || c == '\t' })
			return len(words) > 0 && words[len(words)-1] == "T"
		})
	}
}

// asks reports whether some parameter of that name has that value.
func asks(name, value string) func(r *http.Request) bool {
	return func(r *http.Request) bool { return slices.Contains(r.URL.Query()[name], value) }
}

// cookied reports whether the cookie is the token, wherever it stands.
func cookied(r *http.Request) bool {
	for _, line := range r.Header["Cookie"] {
		for one := range strings.SplitSeq(line, ";") {
			if strings.Trim(one, " \t") == "sid=T" {
				return true
			}
		}
	}
	return false
}

// tokenAsked reports whether some server might take T for the parameter api_key.
func tokenAsked(r *http.Request) bool {
	for part := range strings.FieldsFuncSeq(r.URL.RawQuery, func(c rune) bool { return c == '&' || c == ';' }) {
		if name, value, _ := strings.Cut(part, "="); value == "T" {
			name, _ = url.QueryUnescape(name)
			name, _, _ = strings.Cut(name, "\x00")
			name = strings.NewReplacer("[]", "", "[0]", "").Replace(strings.TrimRight(name, ".x"))
			if strings.NewReplacer(".", "_", " ", "_", "[", "_").Replace(strings.Trim(name, "[] ")) == "api_key" {
				return true
			}
		}
	}
	return false
}

// tokenBaked reports whether some server might take T for the cookie my_sid.
func tokenBaked(r *http.Request) bool {
	for _, line := range r.Header["Cookie"] {
		for one := range strings.SplitSeq(line, ";") {
			name, value, _ := strings.Cut(strings.Trim(one, " "), "=")
			name = strings.NewReplacer(".", "_", " ", "_", "[]", "", "[", "_", "%5f", "_").Replace(name)
			if name == "my_sid" && value == "T" {
				return true
			}
			for _, word := range strings.FieldsFunc(one, func(c rune) bool { return c == ' ' || c == ',' }) {
				if word == "my_sid=T" {
					return true
				}
			}
		}
	}
	return false
}

// written writes a token in another way each time.
func written(field string) func(int) string {
	forms := []string{"Bearer T", "bearer T", "BEARER T", "bEaReR T", "Bearer  T", "Bearer\tT", "Bearer \t  T", "  Bearer T  ", "\tbearer\t\tT\t"}
	return func(n int) string { return login(field + ": " + forms[n%len(forms)]) }
}

func identityTricks(t *testing.T) []trick {
	keyed := func(key string, match ...string) []policy.Rule {
		return []policy.Rule{rule(t, "own", "3/h burst 3", []string{key}, match...), rule(t, "address", "1000/h burst 1000", []string{"client.ip"})}
	}
	token, apiKey := keyed("header.authorization"), keyed("header.x-api-key")
	by := func(o policy.Override, key string, values ...string) []policy.Override {
		part, err := policy.ParsePart(key)
		if err != nil {
			t.Fatal(err)
		}
		o.Key = part
		for _, v := range values {
			o.Entries = append(o.Entries, policy.Entry{Value: v})
		}
		return []policy.Override{o}
	}
	once, err := spillgate.ParseLimit("1/h burst 1")
	if err != nil {
		t.Fatal(err)
	}
	none := keyed("header.authorization")
	none[0] = rule(t, "none", "3/h burst 3", nil, "header.x-api-key", "T")
	none[0].Deny, none[0].Limit = true, spillgate.Limit{}
	n, err := policy.ParseAttribute("query.n")
	if err != nil {
		t.Fatal(err)
	}
	dear := rule(t, "dear", "1000/h burst 1000", []string{"client.ip"})
	dear.Prices = []policy.Price{{From: n}}
	dearest := dear
	dearest.Prices = []policy.Price{{From: n, Most: 300}}
	skipping := func(key string) []policy.Rule {
		rules := keyed(key)
		rules[0].Missing = policy.Skip
		return rules
	}
	target := func(format string) func(int) string {
		return func(n int) string { return head("POST "+fmt.Sprintf(format, n), "Host: x") }
	}
	guests := func(field string) []policy.Rule {
		return []policy.Rule{rule(t, "guests", "3/h burst 3", []string{"client.ip"}, field, "!*"), rule(t, "address", "1000/h burst 1000", []string{"client.ip"})}
	}
	lacks := func(field string) func(r *http.Request) bool {
		return func(r *http.Request) bool { return r.Header.Get(field) == "" }
	}
	users := keyed("proxy.x-user")
	bearer := policy.Match{{Attribute: token[0].Key[0].Attributes[0], Values: []string{"Bearer T"}}}
	named := rule(t, "named", "3/h burst 3", nil)
	named.Match = bearer
	needed := keyed("header.x-api-key")
	needed[0].Missing = policy.Refuse
	proxies := rule(t, "proxies", "1/s", nil, "client.ip", "127.0.0.0/8")
	proxies.Exempt, proxies.Limit = true, spillgate.Limit{}
	return []trick{
		{name: "a token hidden by Connection", rules: guests("header.authorization"), count: lacks("Authorization"), write: claiming("Connection: Authorization\r\nAuthorization: t%d")},
		{name: "a token hidden in a list", rules: guests("header.authorization"), count: lacks("Authorization"), write: claiming("Connection: keep-alive, x ,AUTHORIZATION\r\nAuthorization: t%d")},
		{name: "a token hidden beside an upgrade", rules: guests("header.authorization"), count: lacks("Authorization"),
			write: claiming("Connection: Upgrade\r\nConnection: Authorization\r\nUpgrade: x\r\nAuthorization: t%d")},
		{name: "a proxy's user, by a client", rules: users, write: claiming("X-User: u%d")},
		{name: "a proxy's user, by a client that names a proxy", rules: users, write: claiming("X-User: u%d\r\nX-Forwarded-For: 127.0.0.2\r\nForwarded: for=127.0.0.2")},
		{name: "a proxy's user with an underscore", rules: users, write: claiming("X_User: u%d")},
		{name: "a proxy's user, and none by Connection", proxy: true, rejected: true, rules: guests("proxy.x-user"), count: lacks("X-User"), write: claiming("Connection: X-User\r\nX-User: u%d")},
		{name: "a proxy's user beside another", proxy: true, rules: users, rejected: true, write: claiming("X-User: u%d\r\nX-User: ann")},
		{name: "a proxy's user with one in another spelling", proxy: true, rules: users, write: claiming("X_User: u%d\r\nX-User: ann")},
		{name: "a cookie hidden by Connection", rules: guests("cookie.sid"), count: lacks("Cookie"), write: claiming("Connection: cookie\r\nCookie: sid=%d")},
		{name: "an empty token", rules: guests("header.authorization"), count: lacks("Authorization"), write: func(n int) string {
			return login("Authorization:" + strings.Repeat(" ", n))
		}},
		{name: "an empty token twice", rules: guests("header.authorization"), count: lacks("Authorization"), write: func(n int) string {
			return login(slices.Repeat([]string{"Authorization:"}, 1+n%3)...)
		}},
		{name: "an empty token and another", rules: guests("header.authorization"), count: lacks("Authorization"), write: claiming("Authorization:\r\nAuthorization: t%d")},
		{name: "an empty cookie", rules: guests("cookie.sid"), write: func(n int) string { return login("Cookie: sid=" + []string{"", "\"\"", " ; sid="}[n%3]) }},
		{name: "an empty parameter", rules: guests("query.k"), write: func(n int) string {
			return head("POST /login?k"+[]string{"=", "", "=+", "=%20", "=%09", "=&k="}[n%6], "Host: x")
		}},
		{name: "an empty key where none may be missing", rules: needed, rejected: true, count: lacks("X-Api-Key"), write: func(n int) string {
			return login([]string{"X-Api-Key:", "X-Api-Key: \t", "x-api-key:\r\nX-Api-Key:"}[n%3])
		}},
		{name: "a token for proxies", rules: guests("header.proxy-authorization"), count: lacks("Proxy-Authorization"), write: claiming("Proxy-Authorization: t%d")},
		{name: "an upgrade that is none", rules: guests("header.upgrade"), count: lacks("Upgrade"), write: func(n int) string {
			return login([]string{"Upgrade: websocket", "Connection: Upgrade\r\nUpgrade: h2c", "Connection: Upgrade\r\nUpgrade: a, b", "Connection: x\r\nUpgrade: y"}[n%4])
		}},
		{name: "codings of the transfer", rules: guests("header.te"), count: lacks("Te"), write: func(n int) string { return login([]string{"TE: gzip", "TE: x", "TE: trailer", "X: y"}[n%4]) }},
		{name: "the address hidden by Connection", rules: []policy.Rule{rule(t, "login", "3/h burst 3", []string{"client.ip"}), proxies}, proxy: true,
			write: claiming("Connection: X-Forwarded-For, x%d\r\nX-Forwarded-For: 203.0.113.9")},
		{name: "a parameter by another name", rules: keyed("query.api_key"), rejected: true, count: tokenAsked, write: func(n int) string {
			names := []string{"api.key", "api_key[]", "[api_key]", "api%5fkey", "+api_key", "api%5bkey", "%5bapi_key%5d", "api_key%00", "api+key", "api_key[0]", "[api_key]x", "api_key[]x"}
			return head(fmt.Sprintf("POST /login?api_key=new%d&%s=T", n, names[n%len(names)]), "Host: x")
		}},
		{name: "a parameter by other names alone", rules: skipping("query.api_key"), count: tokenAsked, write: func(n int) string {
			names := []string{"api.key", "api_key[]", "[api_key]", "+api_key", "api%5bkey", "%5bapi_key%5d", "[api_key].x"}
			return head("POST /login?"+names[n%len(names)]+"=T", "Host: x")
		}},
		{name: "a parameter behind a semicolon", rules: keyed("query.api_key"), rejected: true, count: tokenAsked, write: target("/login?api_key=new%d&x;api_key=T")},
		{name: "a cookie by another name", rules: keyed("cookie.my_sid"), rejected: true, count: tokenBaked, write: func(n int) string {
			names := []string{"my.sid", "my_sid[]", "my sid", "my%5fsid", "my[sid", "x=1 my_sid", "x=1,my_sid"}
			pair := []string{"my_sid=new%d; %s=T", "%[2]s=T; my_sid=new%[1]d"}[n%2]
			return login("Cookie: " + fmt.Sprintf(pair, n, names[n%len(names)]))
		}},
		{name: "a cookie behind a blank in its own", rules: keyed("cookie.my_sid"), rejected: true, count: tokenBaked, write: claiming("Cookie: my_sid=new%d my_sid=T")},
		{name: "a token once", rules: token, count: brings("Authorization"), write: func(int) string { return login("Authorization: Bearer T") }},
		{name: "a token, written otherwise", rules: token, count: brings("Authorization"), write: written("Authorization")},
		{name: "a blocked token, written otherwise", rules: token, overrides: by(policy.Override{Deny: true}, "header.authorization", "Bearer T"),
			rejected: true, count: brings("Authorization"), write: written("Authorization")},
		{name: "a token blocked in lower case, written otherwise", rules: token, overrides: by(policy.Override{Deny: true}, "header.authorization", "bearer  T"),
			rejected: true, count: brings("Authorization"), write: written("Authorization")},
		{name: "a token that a condition blocks, written otherwise", rules: token, overrides: []policy.Override{{Deny: true, Match: bearer}}, rejected: true,
			count: brings("Authorization"), write: written("Authorization")},
		{name: "tokens that a pattern blocks, written otherwise", rules: token, overrides: []policy.Override{{Deny: true, Match: when(t, "header.authorization", "Bearer*")}}, rejected: true,
			count: brings("Authorization"), write: written("Authorization")},
		{name: "a token that a rule limits, written otherwise", rules: []policy.Rule{named}, count: brings("Authorization"), write: written("Authorization")},
		{name: "a token and another", rules: token, rejected: true, count: brings("Authorization"), write: claiming("Authorization: Bearer T\r\nAuthorization: %d")},
		{name: "another and a token", rules: token, rejected: true, count: brings("Authorization"), write: claiming("Authorization: %d\r\nAuthorization: Bearer T")},
		{name: "an empty token and a token", rules: token, rejected: true, count: brings("Authorization"), write: claiming("Authorization:\r\nX-N: %d\r\nAuthorization: Bearer T")},
		{name: "a token twice", rules: token, count: brings("Authorization"), write: func(n int) string {
			return login(slices.Repeat([]string{"Authorization: Bearer T"}, 1+n%3)...)
		}},
		{name: "a key among many", rules: apiKey, rejected: true, count: brings("X-Api-Key"), write: func(n int) string {
			lines := slices.Repeat([]string{"X-Api-Key: a"}, 40+n)
			lines[20] = "X-Api-Key: T"
			return login(lines...)
		}},
		{name: "a key in two fields, or the address", rules: keyed("header.x-api-key else client.ip"), rejected: true, count: brings("X-Api-Key"),
			write: claiming("X-Api-Key: %d\r\nX-Api-Key: T")},
		{name: "a parameter and another", rules: keyed("query.k"), rejected: true, count: asks("k", "T"), write: target("/x?k=T&k=%d")},
		{name: "another and a parameter", rules: keyed("query.k"), rejected: true, count: asks("k", "T"), write: target("/x?k=%d&a=b&%%6b=T")},
		{name: "an empty parameter and a parameter", rules: keyed("query.k"), rejected: true, count: asks("k", "T"), write: target("/x?n=%d&k=&k=T")},
		{name: "a parameter with a NUL", rules: keyed("query.k"), rejected: true, count: asks("k", "T"), write: target("/x?k=T%%00%d&k=T")},
		{name: "a parameter twice", rules: keyed("query.k"), count: asks("k", "T"), write: target("/x?k=T&n=%d&k=T")},
		{name: "a cookie behind another", rules: keyed("cookie.sid"), rejected: true, count: cookied, write: claiming("Cookie: sid=%d; sid=T")},
		{name: "a cookie in another line", rules: keyed("cookie.sid"), rejected: true, count: cookied, write: claiming("Cookie: a=b; sid=%d\r\nCookie: sid=T; c=d")},
		{name: "a cookie before another", rules: keyed("cookie.sid"), count: cookied, write: claiming("Cookie: sid=T; sid=%d")},
		{name: "a cookie behind one that is none", rules: keyed("cookie.sid"), count: cookied, write: claiming("Cookie: sid=\"%d; sid=T")},
		{name: "a blocked token and another", rules: token, overrides: by(policy.Override{Deny: true}, "header.authorization", "Bearer T"), rejected: true,
			count: brings("Authorization"), write: claiming("Authorization: %d\r\nAuthorization: Bearer T")},
		{name: "a key that a condition blocks, and another", rules: apiKey, overrides: []policy.Override{{Deny: true, Match: when(t, "header.x-api-key", "T")}}, rejected: true,
			count: brings("X-Api-Key"), write: claiming("X-Api-Key: T\r\nX-Api-Key: %d")},
		{name: "a key that a pattern blocks, and another", rules: token, overrides: []policy.Override{{Deny: true, Match: when(t, "header.x-api-key", "T*")}}, rejected: true,
			count: brings("X-Api-Key"), write: claiming("X-Api-Key: T\r\nX-Api-Key: %d")},
		{name: "a key that a rule denies, and another", rules: none, rejected: true, count: brings("X-Api-Key"), write: claiming("X-Api-Key: %d\r\nX-Api-Key: T")},
		{name: "a parameter that a condition blocks, and another", rules: token, overrides: []policy.Override{{Deny: true, Match: when(t, "query.k", "T")}}, rejected: true,
			count: asks("k", "T"), write: target("/x?k=%d&k=T")},
		{name: "a key with a lower limit, and another", rules: keyed("client.ip"), overrides: by(policy.Override{Rules: []string{"own", "address"}, Limit: once}, "header.x-api-key", "T"),
			rejected: true, count: brings("X-Api-Key"), write: claiming("X-Api-Key: %d\r\nX-Api-Key: T")},
		{name: "a cost and a lower one", rules: []policy.Rule{dear}, rejected: true, count: asks("n", "1001"), write: target("/x?n=1&n=1001&x=%d")},
		{name: "a cost beside others", rules: []policy.Rule{dearest}, count: asks("n", "300"), write: target("/x?n=1&n=300&x=%d")},
	}
}

// Whoever sends two different values is told which field it is, is charged
// nothing, and costs nobody else anything; in lists that are no credentials a
// condition finds each.
func TestWhoSendsTwoIsTold(t *testing.T) {
	own := rule(t, "own", "1/h burst 1", []string{"header.x-api-key"}, "path", "/api")
	shadow := rule(t, "shadow", "1/h burst 1", []string{"query.k"})
	shadow.Spare = 100
	pages := rule(t, "pages", "1/h burst 1", nil, "header.accept", "text/html")
	f := open(t, upstream(t, func(http.ResponseWriter, *http.Request) {}), func(c *gateway.Config) {
		c.Engine = policy.NewEngine(compile(t, own, shadow, pages, rule(t, "address", "4/h burst 4", []string{"client.ip"})), spillgate.NewMemory())
	})
	c := visitor(t, "127.0.0.1")
	ask := func(target string, fields ...string) reply { return get(t, c, f.url+target, fields...) }
	for range 5 {
		r := ask("/api", "X-Api-Key", "a", "X-Api-Key", "b")
		if r.StatusCode != http.StatusBadRequest || !strings.Contains(r.body, "field x-api-key comes several times") || strings.Contains(r.Header.Get("Ratelimit"), "r=") {
			t.Fatalf("%d %s", r.StatusCode, r.body)
		}
	}
	for _, one := range []struct {
		target string
		fields []string
		want   int
	}{
		{"/api", []string{"X-Api-Key", "a"}, 200},
		{"/api", []string{"X-Api-Key", "a"}, 429},
		{"/x", []string{"X-Api-Key", "a", "X-Api-Key", "b"}, 200}, // no rule reads it here
		{"/x?k=1&k=2", nil, 200},                                  // nobody is refused by a rule on trial
		{"/x", []string{"Accept", "text/html", "Accept", "text/plain"}, 200},
		{"/x", []string{"Accept", "text/plain", "Accept", "text/html"}, 429},
		{"/x", nil, 429},
	} {
		if r := ask(one.target, one.fields...); r.StatusCode != one.want {
			t.Errorf("%s %q: %d, want %d", one.target, one.fields, r.StatusCode, one.want)
		}
	}
	if text := f.log.String(); !strings.Contains(text, "header.x-api-key comes several times") || strings.Contains(text, "level=WARN") {
		t.Errorf("log: %s", text)
	}
}
