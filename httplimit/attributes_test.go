package httplimit

import (
	"bytes"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/spillgate/spillgate/clientip"
	"github.com/spillgate/spillgate/policy"
)

// ask asks r for an attribute by name; "-" means that it is missing.
func ask(t testing.TB, r *http.Request, name string, opts ...Option) string {
	t.Helper()
	attr, err := policy.ParseAttribute(name)
	if err != nil {
		t.Fatal(err)
	}
	var a attributes
	a.begin(&shared{options: optionsOf(opts)}, r)
	v, ok := a.AppendAttr([]byte("before "), attr)
	rest, kept := bytes.CutPrefix(v, []byte("before "))
	if !kept {
		t.Fatalf("%s: what stood in the buffer is gone: %q", name, v)
	}
	if !ok {
		return "-"
	}
	return string(rest)
}

func TestAttributes(t *testing.T) {
	r, err := http.NewRequest("post", "http://ALICE.example.com.:8080/a//b/../%6cogin;v=1?q=1&q=2&empty=&na%6De=a+b%21", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.RemoteAddr = "[2001:db8::1%eth0]:4711"
	r.Header = http.Header{
		"X-User-Id": {"bob", "eve"}, "X-Empty": {""}, "X-None": {},
		"Cookie":          {`a=1; session="s 1"; b=x"y; session=2`, "b=3"},
		"X-Forwarded-For": {"192.0.2.1"},
	}
	r.Pattern = "/{page}"
	for name, want := range map[string]string{
		"client.ip":        "2001:db8::1",
		"method":           "post\x00POST", // some servers take it for POST
		"path":             "/a/login\x00/a/b/../login\x00/a/login;v=1\x00/a/b/../login;v=1",
		"host":             "alice.example.com",
		"route":            "/{page}",
		"user":             "-",
		"header.x-user-id": "bob, eve",
		"header.X-USER-ID": "bob, eve",
		"header.host":      "ALICE.example.com.:8080",
		"header.x-empty":   "",
		"header.x-none":    "-",
		"header.x-other":   "-",
		"cookie.session":   "s 1",
		"cookie.b":         "3", // as net/http, which doesn't read x"y
		"cookie.other":     "-",
		"query.q":          "1",
		"query.empty":      "",
		"query.name":       "a b!",
		"query.other":      "-",
		"claim.sub":        "-",
		"attr.plan":        "-",
	} {
		if got := ask(t, r, name); got != want {
			t.Errorf("%s: %q; want %q", name, got, want)
		}
	}

	say := func(s string) func(*http.Request) string { return func(*http.Request) string { return s } }
	opts := []Option{
		User(say("alice")), Tenant(say("")), Device(say("phone")), Route(say("/:page")), Attr("plan", say("gold")), Attr("other", say("")),
		Claim(func(_ *http.Request, name string) (string, bool) { return "the " + name, name == "sub" }),
	}
	for name, want := range map[string]string{
		"user": "alice", "tenant": "-", "device": "phone", "route": "/:page", "attr.plan": "gold", "attr.other": "-", "attr.unknown": "-",
		"claim.sub": "the sub", "claim.iss": "-",
	} {
		if got := ask(t, r, name, opts...); got != want {
			t.Errorf("%s: %q; want %q", name, got, want)
		}
	}
}

func TestClientAddress(t *testing.T) {
	proxies, err := clientip.New(clientip.Options{Trusted: []string{"10.0.0.0/8"}, Header: clientip.XForwardedFor})
	if err != nil {
		t.Fatal(err)
	}
	header := http.Header{"X-Forwarded-For": {"198.51.100.1", "203.0.113.9"}}
	for _, c := range []struct {
		peer    string
		trusted *clientip.Resolver
		want    string
	}{
		{"192.0.2.1:1", nil, "192.0.2.1"},
		{"192.0.2.1:1", proxies, "192.0.2.1"}, // no proxy of ours: its header is not looked at
		{"10.0.0.1:1", nil, "10.0.0.1"},
		{"10.0.0.1:1", proxies, "203.0.113.9"},
		{"[::ffff:1.2.3.4]:1", nil, "1.2.3.4"},
		{"@", nil, "-"}, // a unix socket
		{"", nil, "-"},
	} {
		r := &http.Request{RemoteAddr: c.peer, Header: header}
		if got := ask(t, r, "client.ip", TrustedProxies(c.trusted)); got != c.want {
			t.Errorf("peer %q, proxies %v: %q; want %q", c.peer, c.trusted != nil, got, c.want)
		}
	}
}

func TestPaths(t *testing.T) {
	for target, want := range map[string]string{
		"/": "/", "/login": "/login", "//login": "/login\x00/", "/login/": "/login", "/%6cogin": "/login", "/lo%67in": "/login",
		"/a/../login": "/login\x00/a/../login", "/./login": "/login\x00/./login", "/login;a=b": "/login\x00/login;a=b", "/a%2fb": "/a%2Fb\x00/a/b", "/a%252fb": "/a%252fb",
		"/%2e%2e/login": "/login\x00/../login", "/a%2541": "/a%2541", "/a%20b": "/a b", "/%00": "/%00", "/%c3%a9": "/é", "*": "*", "/%5clogin": "/%5Clogin\x00/login\x00/",
		"http://example.com/login": "/login", "http://example.com": "/", "foo:login": "/login", "/login?x=/other": "/login",
	} {
		u, err := url.ParseRequestURI(target)
		if err != nil {
			t.Errorf("%s: %v", target, err)
			continue
		}
		if got := string(appendPath(nil, u, policy.Paths{})); got != want {
			t.Errorf("%s: %q; want %q", target, got, want)
		}
	}
	if got := string(appendPath(nil, &url.URL{Host: "example.com:443"}, policy.Paths{})); got != "/" { // as CONNECT comes
		t.Errorf("no path: %q", got)
	}
}

func TestAttributesAllocateNothing(t *testing.T) {
	r, err := http.NewRequest("GET", "http://Alice.example.com:8080/a%20b/%C3%A9?x=%41&y%5b1%5d=1;%5bq=a+b&q.r=1", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.RemoteAddr = "203.0.113.9:4711"
	r.Header = http.Header{"X-User-Id": {"bob", "eve"}, "Cookie": {"a=1; b=2"}}
	var a attributes
	s := &shared{options: optionsOf([]Option{AnyServer()}), canonical: map[string]string{"x-user-id": "X-User-Id"}}
	buf := make([]byte, 0, 256)
	for _, name := range []string{"client.ip", "method", "path", "host", "route", "user", "header.x-user-id", "cookie.b", "query.q", "query.q.r", "claim.sub"} {
		attr, err := policy.ParseAttribute(name)
		if err != nil {
			t.Fatal(err)
		}
		if n := testing.AllocsPerRun(100, func() {
			a.begin(s, r)
			a.AppendAttr(buf, attr)
		}); n > 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func TestHeaderNamesOfRules(t *testing.T) {
	attr := func(name string) policy.Attribute {
		a, err := policy.ParseAttribute(name)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	got := canonical([]policy.Rule{{
		Match: policy.Match{{Attribute: attr("header.x-a"), Values: []string{"1"}}},
		Peek:  policy.Match{{Attribute: attr("header.x-b"), Values: []string{"1"}}},
		Key:   []policy.Part{{Attributes: []policy.Attribute{attr("user"), attr("header.etag")}}},
	}})
	if len(got) != 3 || got["x-a"] != "X-A" || got["x-b"] != "X-B" || got["etag"] != "Etag" {
		t.Error(got)
	}
}

func FuzzAttributes(f *testing.F) {
	for _, seed := range [][4]string{
		{"/login", "example.com:443", "a=1; b=2", "a=1&b=2"},
		{"//a/../%6cogin;x", "[::1]:80", `name="quoted"; name=2`, "na%6De=%zz&name=a+b;&name"},
		{"*", "EXAMPLE.com.", "name", "%&=&name=%2"},
		{"/%2e%2e/%00\\x", "", " name = x", "name=;"},
		{"/", "x", "name=1", "name=1"},
	} {
		f.Add(seed[0], seed[1], seed[2], seed[3])
	}
	f.Fuzz(func(t *testing.T, target, host, cookie, query string) {
		r := &http.Request{Method: "GET", Host: host, RemoteAddr: host, Header: http.Header{"Cookie": {cookie}, "X-Name": {cookie, query}}}
		if u, err := url.ParseRequestURI(target); err == nil {
			r.URL = u
		} else {
			r.URL = &url.URL{Path: target}
		}
		r.URL.RawQuery = query

		// The normal forms are those of themselves.
		h := string(policy.AppendHost(nil, host))
		if again := string(policy.AppendHost(nil, h)); again != h {
			t.Errorf("host %q becomes %q, then %q", host, h, again)
		}
		p := ask(t, r, "path")
		if p != "*" && !strings.HasPrefix(p, "/") {
			t.Errorf("path %q becomes %q", target, p)
		}
		if again := string(policy.AppendPath(nil, p)); p != "*" && !strings.ContainsAny(p, "%;?#\\\x00") && again != p {
			t.Errorf("path %q becomes %q, then %q", target, p, again)
		}
		// The quick way is the long way.
		if u := r.URL; u.Opaque == "" && p != "*" {
			if want := string(policy.AppendPath(nil, u.EscapedPath())); p != want {
				t.Errorf("path %q: %q; escaped first it is %q", target, p, want)
			}
		}

		// What we read is what net/http reads.
		want := "-"
		if c, err := r.Cookie("name"); err == nil {
			want = c.Value
		}
		if got := ask(t, r, "cookie.name"); got != want && strings.Count(cookie, ";") < 100 {
			t.Errorf("cookie %q: %q; net/http reads %q", cookie, got, want)
		}
		want = "-"
		if v := r.URL.Query(); v.Has("name") {
			want = v.Get("name")
		}
		if got := ask(t, r, "query.name"); got != want && strings.Count(query, "&") < 100 {
			t.Errorf("query %q: %q; net/url reads %q", query, got, want)
		}
		if got := ask(t, r, "header.x-name"); cookie != query && got != cookie+", "+query || cookie == query && got != cookie {
			t.Errorf("header: %q", got)
		}
		ask(t, r, "client.ip")
	})
}
