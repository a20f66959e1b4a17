package gateway_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/spillgate/spillgate/policy"
)

// heard answers with what an upstream that gets fields as variables hears under
// these names.
func heard(names ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		var all []string
		for _, from := range []http.Header{r.Header, r.Trailer} {
			for name, lines := range from {
				if slices.Contains(names, strings.ToLower(strings.ReplaceAll(name, "_", "-"))) {
					all = append(all, lines...)
				}
			}
		}
		slices.Sort(all)
		_, _ = fmt.Fprint(w, strings.Join(all, "|"))
	}
}

// answerOf sends bytes from an address, and reads one answer.
func answerOf(t *testing.T, from, to, text string) reply {
	t.Helper()
	c := rawFrom(t, from, to, text)
	defer c.Close()
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return reply{resp, string(body)}
}

// What only a trusted proxy sets, nobody else does: neither rules nor the upstream
// hear it of another peer, and of the proxy they hear the same.
func TestOnlyTrustedProxiesNameTheirUsers(t *testing.T) {
	rules := func(field string) []policy.Rule {
		user := rule(t, "user", "1/h burst 1", []string{"proxy." + field})
		user.Missing = policy.Skip
		return []policy.Rule{user, rule(t, "guest", "1000/h burst 1000", []string{"client.ip"}, "proxy."+field, "!*")}
	}
	const client, proxy = "127.0.0.1", "127.0.0.2"
	for _, c := range []struct {
		name, peer, fields string
		status             int
		applied, heard     string
	}{
		{"a client", client, "X-User: ann", 200, "guest", ""},
		{"a client, in lower case", client, "x-user: ann", 200, "guest", ""},
		{"a client, with an underscore", client, "X_User: ann", 200, "guest", ""},
		{"a client, in all spellings", client, "X-User: ann\r\nX_User: ann\r\nx_USER: ann", 200, "guest", ""},
		{"a client, twice", client, "X-User: ann\r\nX-User: bob", 200, "guest", ""},
		{"a client that names a proxy", client, "X-User: ann\r\nX-Forwarded-For: 127.0.0.2", 200, "guest", ""},
		{"a client, by Connection", client, "Connection: X-User\r\nX-User: ann", 200, "guest", ""},
		{"a client, in a trailer", client, "Transfer-Encoding: chunked\r\nTrailer: X-User", 200, "guest", ""},
		{"a client, in a trailer of another spelling", client, "Transfer-Encoding: chunked\r\nTrailer: X_User", 200, "guest", ""},
		{"a proxy", proxy, "X-User: ann", 200, "user", "ann"},
		{"a proxy that passes on another spelling", proxy, "X-User: ann\r\nX_User: bob", 200, "user", "ann"},
		{"a proxy that passes Connection on", proxy, "Connection: x-user\r\nX-User: ann", 200, "user", "ann"},
		{"a proxy that passes a trailer on", proxy, "X-User: ann\r\nTransfer-Encoding: chunked\r\nTrailer: X-User", 200, "user", "ann"},
		{"a proxy, twice the same", proxy, "X-User: ann\r\nX-User: ann", 200, "user", "ann|ann"},
		{"a proxy that adds to the client's", proxy, "X-User: bob\r\nX-User: ann", 400, "", ""},
		{"a proxy that says nothing", proxy, "X-User:", 200, "guest", ""},
		{"a proxy without the field", proxy, "X-Other: ann", 200, "guest", ""},
		{"a proxy, with a client's spelling alone", proxy, "X_User: bob", 200, "guest", ""},
	} {
		for _, swap := range []bool{false, true} { // the field's own name may have an underscore
			field, fields := "x-user", c.fields
			if swap {
				field = "x_user"
				fields = strings.NewReplacer("X-User", "X_User", "X_User", "X-User", "x-user", "x_user").Replace(fields)
			}
			f := serve(t, upstream(t, heard("x-user")), compile(t, rules(field)...), trusting(t, proxy))
			body := ""
			if strings.Contains(fields, "chunked") {
				body = "2\r\nok\r\n0\r\n" + fields[strings.Index(fields, "Trailer: ")+len("Trailer: "):] + ": eve\r\n\r\n"
			} else {
				fields += "\r\nContent-Length: 0"
			}
			resp := answerOf(t, c.peer, f.addr, "POST / HTTP/1.1\r\nHost: x\r\n"+strings.TrimSpace(fields)+"\r\nConnection: close\r\n\r\n"+body)
			applied := strings.Trim(strings.SplitN(resp.Header.Get("Ratelimit"), ";", 2)[0], `"`)
			if resp.StatusCode != c.status || applied != c.applied || c.status == 200 && resp.body != c.heard {
				t.Errorf("%s, %s: %d by %q, and the upstream heard %q; want %d by %q, and %q", c.name, field, resp.StatusCode, applied, resp.body, c.status, c.applied, c.heard)
			}
		}
	}
}

// A rule that speaks of the header reads of a peer that is not trusted as much as
// the upstream gets.
func TestHeadersOfProxiesAreNoClaims(t *testing.T) {
	named := rule(t, "named", "1/h burst 1", nil, "header.x-user", "*")
	user := rule(t, "user", "1000/h burst 1000", []string{"proxy.x-user"})
	f := serve(t, upstream(t, heard("x-user")), compile(t, named, user), trusting(t, "127.0.0.2"))
	for peer, want := range map[string]int{"127.0.0.1": 3, "127.0.0.2": 1} {
		c := visitor(t, peer)
		if n := passes(t, 3, func() reply { return get(t, c, f.url, "X-User", "ann") }); n != want {
			t.Errorf("%s: %d passed, want %d", peer, n, want)
		}
	}
}
