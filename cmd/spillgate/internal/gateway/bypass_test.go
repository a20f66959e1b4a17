package gateway_test

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillgate/spillgate/cmd/spillgate/internal/gateway"
	"github.com/spillgate/spillgate/policy"
)

// The bypass suite: whoever wants past a limit writes its requests otherwise.
// Each trick has a gateway of its own, sends a dozen requests as bytes, and
// counts what an upstream that reads them as loosely as any would serve as a
// login. No more may come through than the limit admits.

// A trick is one way to write the n-th request.
type trick struct {
	name  string
	write func(n int) string
	// rejected tells that such a request is never passed on, so that nothing
	// may come through at all.
	rejected bool
	// rules stand in place of the usual ones; 3 logins an hour is their limit.
	rules     []policy.Rule
	overrides []policy.Override
	// proxy lets the requests come from a trusted proxy.
	proxy bool
	// paths says how the upstream takes them.
	paths policy.Paths
	// count, if there is one, says what is counted, in place of logins.
	count func(r *http.Request) bool
}

const (
	loginLimit = 3
	attempts   = 12
)

// head writes a request of HTTP/1.1 that ends the connection.
func head(line string, fields ...string) string {
	return line + " HTTP/1.1\r\n" + strings.Join(append(fields, "Connection: close", "Content-Length: 0"), "\r\n") + "\r\n\r\n"
}

// login is the request as everybody writes it, with further fields.
func login(fields ...string) string {
	return head("POST /login", append([]string{"Host: x"}, fields...)...)
}

// spelled writes a login with another target each time.
func spelled(targets ...string) func(int) string {
	return func(n int) string { return head("POST "+targets[n%len(targets)], "Host: x") }
}

// claiming writes a field whose value differs each time.
func claiming(format string) func(int) string {
	return func(n int) string { return login(fmt.Sprintf(format, n+1)) }
}

func bypassTricks(t *testing.T) []trick {
	byIP := func(key ...string) []policy.Rule {
		guard := rule(t, "login", "3/h burst 3", key, "path", "/login", "method", "POST")
		return []policy.Rule{guard}
	}
	// A key that the client makes up, with the companion that check asks for.
	claimed := func(key string) []policy.Rule {
		own := rule(t, "own", "2/h burst 2", []string{key}, "path", "/login", "method", "POST")
		return append(byIP("client.ip"), own)
	}
	hosted := func(match ...string) []policy.Rule {
		return []policy.Rule{rule(t, "login", "3/h burst 3", []string{"host"}, append([]string{"path", "/login"}, match...)...)}
	}
	email := []policy.Rule{
		rule(t, "email", "3/h burst 3", []string{"query.email lower trim"}, "path", "/login"), rule(t, "address", "1000/h burst 1000", []string{"client.ip"}),
	}
	peeks := byIP("client.ip")
	peeks[0].Match, peeks[0].Peek = nil, when(t, "method", "GET", "path", "/login")
	all := func(*http.Request) bool { return true }
	fields := func(names ...string) func(int) string {
		return func(n int) string {
			var lines []string
			for _, name := range names {
				lines = append(lines, fmt.Sprintf("%s: 203.0.113.%d", name, n+1))
			}
			return login(lines...)
		}
	}
	pipelined := func(n int) string {
		if n > 0 {
			return login()
		}
		one := "POST /login HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"
		return strings.Repeat(one, attempts) + login()
	}
	hidden := "POST /login HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"
	inBody := func(line string, fields ...string) func(int) string {
		return func(n int) string {
			return line + " HTTP/1.1\r\nHost: x\r\n" + strings.Join(fields, "\r\n") + "\r\n\r\n" + strings.Repeat(hidden, 3) + login()
		}
	}
	long := len(strings.Repeat(hidden, 3))
	chunk := fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(hidden), hidden)

	return append(identityTricks(t), []trick{
		{name: "none: the limit as everybody meets it", write: func(int) string { return login() }},

		// Who is asking, by their own word.
		{name: "a new X-Forwarded-For", write: claiming("X-Forwarded-For: 203.0.113.%d")},
		{name: "X-Forwarded-For in lower case", write: claiming("x-forwarded-for: 203.0.113.%d")},
		{name: "X_Forwarded_For", write: claiming("X_Forwarded_For: 203.0.113.%d")},
		{name: "X-Forwarded-For as a list", write: claiming("X-Forwarded-For: 203.0.113.%d, 10.0.0.1, 127.0.0.1")},
		{name: "two lines of X-Forwarded-For", write: fields("X-Forwarded-For", "X-Forwarded-For")},
		{name: "X-Forwarded-For of IPv6", write: claiming("X-Forwarded-For: 2001:db8::%x")},
		{name: "Forwarded", write: claiming(`Forwarded: for="[2001:db8::%x]:443";proto=https`)},
		{name: "every header of every CDN", write: fields("X-Real-IP", "True-Client-IP", "CF-Connecting-IP", "Fastly-Client-IP",
			"X-Client-IP", "X-Cluster-Client-IP", "X-Originating-IP", "Client-IP", "X-Remote-Addr", "X-ProxyUser-Ip", "Fly-Client-IP", "X-Azure-ClientIP")},
		{name: "the PROXY protocol", rejected: true, write: func(n int) string {
			return fmt.Sprintf("PROXY TCP4 203.0.113.%d 127.0.0.1 4711 80\r\n", n) + login()
		}},
		{name: "a field that is folded", rejected: true, write: func(n int) string {
			return "POST /login HTTP/1.1\r\nHost: x\r\n X-Forwarded-For: 203.0.113.1\r\nContent-Length: 0\r\n\r\n"
		}},
		{name: "a claim hidden by Connection", write: claiming("Connection: X-Forwarded-For, x-%d\r\nX-Forwarded-For: 203.0.113.9")},
		{name: "the gateway's own field", write: claiming("Spillgate-Remaining: \"login\";r=%d")},

		// Who is asking, by a proxy that is trusted, behind claims of the client.
		{name: "leftmost behind a proxy", proxy: true, write: claiming("X-Forwarded-For: 198.51.100.%d, 203.0.113.9")},
		{name: "leftmost in a line of its own", proxy: true, write: claiming("X-Forwarded-For: 198.51.100.%d\r\nX-Forwarded-For: 203.0.113.9")},
		{name: "garbage leftmost", proxy: true, write: claiming("X-Forwarded-For: ,%d,unknown,\"\t, 203.0.113.9")},
		{name: "a port each time", proxy: true, write: claiming("X-Forwarded-For: 203.0.113.9:%d")},
		{name: "one address, written otherwise", proxy: true, write: func(n int) string {
			forms := []string{"203.0.113.9", "::ffff:203.0.113.9", "::ffff:cb00:7109", "[::ffff:203.0.113.9]:443", "0:0:0:0:0:ffff:cb00:7109", " 203.0.113.9 ", "64:ff9b::203.0.113.9"}
			return login("X-Forwarded-For: " + forms[n%len(forms)])
		}},
		{name: "a /64 of addresses", proxy: true, write: claiming("X-Forwarded-For: 2001:db8:1:2:%x::1")},
		{name: "a /64, with zone and port", proxy: true, write: claiming("X-Forwarded-For: [2001:db8:1:2::%x%%25eth0]:443")},
		{name: "garbage in place of the address", proxy: true, write: claiming("X-Forwarded-For: _hidden%d")},
		{name: "another header than the named one", proxy: true, write: claiming("X-Real-IP: 203.0.113.%d\r\nX-Forwarded-For: 203.0.113.9")},

		// A new user each time.
		{name: "a new user", rules: claimed("header.x-user-id"), write: claiming("X-User-ID: user%d")},
		{name: "a new user in two lines", rules: claimed("header.x-user-id"), rejected: true, write: claiming("X-User-ID: alice\r\nX-User-ID: user%d")},
		{name: "another user with underscores", rules: claimed("header.x-user-id"), rejected: true, write: claiming("X_User_ID: alice\r\nX-User-ID: user%d"),
			count: func(r *http.Request) bool { return r.Header["X_user_id"] != nil }},
		{name: "another user with dots", rules: claimed("header.x-user-id"), rejected: true, write: claiming("X.User.ID: alice\r\nX-User-ID: user%d"),
			count: func(r *http.Request) bool { return asVariables(r)["x-user-id"] == "alice" }},
		{name: "another user without underscores", rules: claimed("header.x_user_id"), rejected: true, write: claiming("X-User-ID: alice\r\nX_User_ID: user%d"),
			count: func(r *http.Request) bool { return r.Header["X-User-Id"] != nil }},
		{name: "a new token", rules: claimed("header.authorization"), write: claiming("Authorization: Bearer t%d")},
		{name: "a new cookie", rules: claimed("cookie.session"), write: claiming("Cookie: session=s%d; session=t")},
		{name: "a new user or none", rules: claimed("header.x-user-id else client.ip"), write: func(n int) string {
			if n%2 == 0 {
				return login()
			}
			return login(fmt.Sprintf("X-User-ID: user%d", n))
		}},
		{name: "a new parameter", rules: claimed("query.user"), rejected: true, write: func(n int) string {
			return head(fmt.Sprintf("POST /login?user=%d&user=a&%%75ser=b;user=c", n), "Host: x")
		}},
		{name: "one account, written otherwise", rules: email, write: func(n int) string {
			forms := []string{"a@x.org", "A@X.org", "%20a@x.org", "a@x.org%20", "a%40x.org", "a@x.org%00", "%09a@x.org", "+a@x.org"}
			return head("POST /login?email="+forms[n%len(forms)], "Host: x")
		}},

		// What is asked for.
		{name: "slashes", write: spelled("//login", "///login", "/login/", "/login//", "//login//", "/login?", "/login?/")},
		{name: "dots", write: spelled("/./login", "/login/.", "/x/../login", "/x/y/../../login", "/login/x/..", "/../login", "/.//login")},
		{name: "dots over empty segments", write: spelled("/x//../login", "//../login", "/x//../../login", "/a/b//../../login")},
		{name: "encoded letters", write: spelled("/%6cogin", "/%6C%6f%67%69%6e", "/lo%67in", "/logi%6E")},
		{name: "encoded dots and slashes", write: spelled("/%2e/login", "/x/%2e%2e/login", "/x/.%2E/login", "/%2flogin", "/login%2f", "/x%2f..%2flogin", "/x%2F%2e%2E%2Flogin")},
		{name: "backslashes", write: spelled(`\login`, `/\login`, `/x\..\login`, "/%5clogin", "/x%5c..%5clogin", `/login\`)},
		{name: "a host in front", write: spelled("//x/login", "//u:p@x:80/login", "///x/login", "//x//login/", "/%2fx/login", "//x%2fy/login", "//x/y/../login", "/.//x/login",
			`/\x/login`, `\\x\login`, "/%5cx/login", "http://x//y/login")},
		{name: "slashes of one kind", write: spelled("/login%2fx%5c../..", "/l%5cx/%2E./login%2f", "/login%2fy%5c/..%2f.", "/x%5c..%2f../login", "/x%2f..%5c../login")},
		{name: "dots before and after slashes are decoded", write: spelled("/x/b%2f../../..%2flogin", "/b%2f../../c%2f../login", "/a/%2e%2e%2f../login")},
		{name: "encoded parameters", write: spelled("/login%3bx", "/login%3Bx;y", "/x/..%3b/login", "/login;%2fx", "/login;x%2f../a")},
		{name: "more readings than are told apart", write: func(n int) string {
			return head("POST /"+strings.Repeat("a%2f..%5c;.//%2e%3b/", n+2)+"/../..//%2e./login", "Host: x")
		}},
		{name: "parameters", write: spelled("/login;a=b", "/login;", "/;x/login", "/x/..;/login", "/..;a=b/login", "/login;jsessionid=1;v=2", "/x;y/..;z/login")},
		{name: "parameters that are a query", write: spelled("/login;/x", "/%6cogin;;a../..", "/login;http://x", "/login;a/../x", "//login;/", "/x/../login;y/z", "/login%3b/x")},
		{name: "queries that are encoded", write: spelled("/login%3f", "/login%3Fx=y/z", "/login%23x", "/%6cogin%23/../x", "//login%3f//", "//x/login%3f", "//x%2flogin%23%3f", "/x/../login%3f;")},
		{name: "queries", write: func(n int) string { return head(fmt.Sprintf("POST /login?n=%d&next=/a", n), "Host: x") }},
		{name: "absolute form", write: spelled("http://x/login", "http://other.test/login", "http://x:80//login", "http://x/a/../login", "HTTP://X/login")},
		{name: "absolute form with a user", write: spelled("http://u:p@x/login")},
		{name: "a target without a path", rejected: true, write: spelled("x:http://x/login", "http:login")},
		{name: "a scheme that nobody knows", write: spelled("x:/login", "x://x/login")},
		{name: "blanks in the request line", rejected: true, write: func(int) string { return "POST  /login HTTP/1.1\r\nHost: x\r\n\r\n" }},
		{name: "bare line feeds", write: func(int) string { return "POST /login HTTP/1.1\nHost: x\nContent-Length: 0\nConnection: close\n\n" }},
		{name: "HTTP/0.9", rejected: true, write: func(int) string { return "POST /login\r\n\r\n" }},
		{name: "HTTP/1.0", write: func(int) string { return "POST /login HTTP/1.0\r\nHost: x\r\nContent-Length: 0\r\n\r\n" }},
		{name: "no host", rules: hosted("host", "!x.test"), rejected: true, count: all, write: func(n int) string {
			line := []string{"POST /login HTTP/1.0", "POST /login HTTP/1.1\r\nHost:", "POST /login HTTP/1.1\r\nHost: \t", "POST http:///login HTTP/1.1\r\nHost:", "POST x:/login HTTP/1.1\r\nHost:"}
			return line[n%len(line)] + "\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
		}},
		{name: "another host", write: func(n int) string { return head("POST /login", fmt.Sprintf("Host: h%d.test", n)) }},
		{name: "two hosts", rejected: true, write: func(int) string { return login("Host: y") }},
		{name: "a large body", write: func(int) string {
			return "POST /login HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 100000\r\n\r\n" + strings.Repeat("a", 100000)
		}},

		// On a server that takes letters of either case for the same.
		{name: "case", paths: policy.Paths{AnyCase: true}, write: spelled("/LOGIN", "/Login", "/lOGIN/", "/%4cogin", "//LOG%49N;x", "/X/../LOGIN"),
			count: func(r *http.Request) bool {
				return isLoginPath(strings.NewReplacer("%4c", "l", "%49", "i").Replace(strings.ToLower(r.RequestURI)))
			}},
		{name: "a slash that matters", paths: policy.Paths{Slash: true}, write: spelled("/login", "//login", "/login?/", "/./login", "/login;x"),
			count: func(r *http.Request) bool { return isLoginPath(r.RequestURI) && !strings.HasSuffix(r.RequestURI, "n/") }},

		// The host as a key and as a condition.
		{name: "one host, written otherwise", rules: hosted(), write: func(n int) string {
			forms := []string{"x.test", "X.TEST", "x.test.", "x.test:443", "X.test.:80", "x.test:"}
			return head("POST /login", "Host: "+forms[n%len(forms)])
		}},
		{name: "one host in absolute form", rules: hosted("host", "x.test"), write: func(n int) string {
			forms := []string{"http://x.test/login", "http://X.TEST:8080/login", "http://x.test./login"}
			return head("POST "+forms[n%len(forms)], fmt.Sprintf("Host: h%d.test", n))
		}},
		{name: "X-Forwarded-Host", rules: hosted("host", "x.test"), count: func(r *http.Request) bool { return r.Header.Get("X-Forwarded-Host") != r.Host },
			rejected: true, write: func(n int) string { return head("POST /login", "Host: y.test", "X-Forwarded-Host: x.test") }},
		{name: "X-Forwarded-Host, by a trusted proxy", proxy: true, rules: hosted("host", "x.test"), count: func(r *http.Request) bool { return r.Header.Get("X-Forwarded-Host") != r.Host },
			rejected: true, write: func(n int) string {
				return head("POST /login", "Host: y.test", "X-Forwarded-For: 203.0.113.7", "X-Forwarded-Host: x.test")
			}},

		// How it is asked for.
		{name: "a method override", write: func(n int) string {
			names := []string{"X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override", "x-http-method-override"}
			return head("PUT /login", "Host: x", names[n%len(names)]+": "+[]string{"POST", "post", " Post "}[n%3])
		}},
		{name: "a list of methods", write: func(n int) string {
			return head("PUT /login", "Host: x", "X-HTTP-Method-Override: "+[]string{"POST, x", "POST,", ",POST", "x,y,z,a,b, post"}[n%4])
		}},
		{name: "another path in a field", rejected: true, count: otherPath, write: func(n int) string {
			names := []string{"X-Original-URL", "X-Rewrite-URL", "x-original-url", "X_Original_URL", "X-Rewrite_Url", "X.Original.URL", "X!Rewrite~Url"}
			return head("POST /x", "Host: x", names[n%len(names)]+": /login")
		}},
		{name: "a prefix in a field", rejected: true, count: otherPath, write: func(n int) string {
			names := []string{"X-Script-Name", "X-Forwarded-Prefix", "SCRIPT_NAME", "PATH_INFO", "Daphne-Root-Path", "x_script_name", "X.Script.Name"}
			return head("POST /x/login", "Host: x", names[n%len(names)]+": /x")
		}},
		{name: "a prefix in a field, by a trusted proxy", proxy: true, rejected: true, count: otherPath, write: func(n int) string {
			names := []string{"SCRIPT_NAME", "script_name", "Script-Name", "PATH_INFO", "Daphne-Root-Path", "daphne_root_path"}
			return head("POST /x/login", "Host: x", names[n%len(names)]+": /x")
		}},
		{name: "a method override by another name", rejected: true, count: func(r *http.Request) bool { return asVariables(r)["x-http-method-override"] == "POST" }, write: func(n int) string {
			names := []string{"X.HTTP.Method.Override", "X!HTTP-Method~Override", "X_HTTP_Method_Override", "x.http-method_override"}
			return head("PUT /login", "Host: x", names[n%len(names)]+": POST")
		}},
		{name: "an address by another name", rejected: true, count: func(r *http.Request) bool { return asVariables(r)["x-forwarded-for"] != "127.0.0.1" },
			write: func(n int) string {
				names := []string{"X.Forwarded.For", "X_Forwarded.For", "X~Forwarded~For", "X'Forwarded-For"}
				return login(names[n%len(names)] + ": 203.0.113.7")
			}},
		{name: "what the gateway tells by another name", rejected: true, count: func(r *http.Request) bool { return asVariables(r)["spillgate-remaining"] != "" },
			write: claiming("Spillgate.Remaining: \"login\";r=%d")},
		{name: "a path with an odd end", write: spelled("/login%2F", "/login/", "/login//", "/login/.", "/login/x/..", "/%6Cogin")},
		{name: "a method in lower case", write: func(n int) string {
			return head([]string{"post", "Post", "pOST", "POST"}[n%4]+" /login", "Host: x")
		}},
		{name: "a peek that is none", rules: peeks, count: all, write: func(n int) string {
			targets := []string{"GET /login;x/..;/report", "GET /login/..;/login/../x", "GET /login%2f..%2fx", "GET /x"}
			if n%2 == 0 {
				return head("GET /login", "Host: x", "X-HTTP-Method-Override: POST")
			}
			return head(targets[n/2%len(targets)], "Host: x")
		}},
		{name: "pipelining", write: pipelined},
		{name: "a change of protocol", write: func(n int) string {
			return login("Upgrade: " + []string{"h2c", "HTTP/2.0", "TLS/1.0", "websocket, h2c"}[n%4])
		}},
		{name: "the preface of HTTP/2", rejected: true, write: func(int) string { return "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + hidden }},

		// Requests within requests.
		{name: "in a body with a length", write: inBody("POST /x", fmt.Sprintf("Content-Length: %d", long))},
		{name: "in the body of a GET", write: inBody("GET /x", fmt.Sprintf("Content-Length: %d", long))},
		{name: "a length dropped by Connection", write: inBody("POST /x", "Connection: Content-Length", fmt.Sprintf("Content-Length: %d", long))},
		{name: "length against chunks", write: func(int) string {
			return fmt.Sprintf("POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n%s", 5+len(hidden), hidden)
		}},
		{name: "chunks against length", rejected: true, write: func(int) string {
			return "POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n" + chunk
		}},
		{name: "two codings", rejected: true, write: func(int) string {
			return "POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n" + hidden
		}},
		{name: "a coding spelt oddly", rejected: true, write: func(n int) string {
			odd := []string{"Transfer-Encoding: xchunked", "Transfer-Encoding : chunked", "Transfer-Encoding:\x0bchunked", "Transfer-Encoding: chunked, identity"}
			return "POST /x HTTP/1.1\r\nHost: x\r\n" + odd[n%len(odd)] + "\r\n\r\n0\r\n\r\n" + hidden
		}},
		{name: "a chunk's extension", rejected: true, write: func(int) string {
			return fmt.Sprintf("POST /x HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n%x;a=\"\n\"\r\n%s\r\n0\r\n\r\n", len(hidden), hidden)
		}},
		{name: "line ends in the target", rejected: true, write: spelled("/x%0d%0aHost:%20x%0d%0a%0d%0aPOST%20/login%20HTTP/1.1%0d%0a")},
		{name: "two lengths", rejected: true, write: func(int) string {
			return fmt.Sprintf("POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nContent-Length: %d\r\n\r\n%s", len(hidden), hidden)
		}},
		{name: "a field with a carriage return", rejected: true, write: func(int) string {
			return "POST /x HTTP/1.1\r\nHost: x\r\nA: b\rPOST /login HTTP/1.1\r\n\r\n"
		}},
	}...)
}

// A loose upstream counts what it may serve as a login.
type loose struct {
	mu     sync.Mutex
	n      int
	counts func(r *http.Request) bool
}

func (l *loose) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.counts(r) {
		l.n++
	}
}

// held checks that no more came through than may: nothing if such requests are
// rejected, else the limit, and something unless that is chance.
func (l *loose) held(t *testing.T, rejected, chance bool) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case rejected && l.n > 0:
		t.Errorf("%d came through, want none", l.n)
	case l.n > loginLimit:
		t.Errorf("%d came through, want %d", l.n, loginLimit)
	case !rejected && !chance && l.n == 0:
		t.Error("nothing came through: this tries nothing")
	}
}

// isLogin takes a request for a login if any server might: by any method that
// is named, by any reading of the target.
func isLogin(r *http.Request) bool {
	methods := []string{strings.ToUpper(r.Method)}
	for _, name := range []string{"X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override"} {
		for other := range strings.SplitSeq(r.Header.Get(name), ",") {
			methods = append(methods, strings.ToUpper(strings.TrimSpace(other)))
		}
	}
	for _, m := range methods {
		if m == http.MethodPost {
			return isLoginPath(r.RequestURI)
		}
	}
	return false
}

// otherPath reports whether some server might take another path than the target's.
func otherPath(r *http.Request) bool {
	seen := asVariables(r)
	for _, name := range []string{"x-original-url", "x-rewrite-url", "x-script-name", "x-forwarded-prefix", "script-name", "path-info", "daphne-root-path"} {
		if seen[name] != "" {
			return true
		}
	}
	return false
}

// asVariables returns the fields as a program may see them that gets them as
// variables, in which all signs are one: whichever of two spellings is there
// replaces the other, and here that is the odd one.
func asVariables(r *http.Request) map[string]string {
	seen := make(map[string]string)
	for _, odd := range []bool{false, true} {
		for name, lines := range r.Header {
			plain := strings.Map(func(c rune) rune {
				if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' {
					return c
				}
				return '-'
			}, strings.ToLower(name))
			if odd == (plain != strings.ToLower(name)) {
				seen[plain] = lines[0]
			}
		}
	}
	return seen
}

func isLoginPath(target string) bool {
	target, _, _ = strings.Cut(target, "?")
	if _, rest, ok := strings.Cut(target, "://"); ok {
		_, rest, _ = strings.Cut(rest, "/")
		target = "/" + rest
	}
	for n := range 256 {
		slashes, params, merge, early, backs, host := n&1 != 0, n&2 != 0, n&4 != 0, n&8 != 0, n&16 != 0, n&32 != 0
		ends := []string{"", ";", "?#", ";?#"}[n>>6] // what begins the query, besides a "?" as it was sent
		path := target
		if !slashes {
			path = strings.NewReplacer("%2f", "%252f", "%2F", "%252F").Replace(path)
		}
		if !backs {
			path = strings.NewReplacer("%5c", "%255c", "%5C", "%255C").Replace(path)
		}
		decode := func(s string) string {
			if d, err := url.PathUnescape(s); err == nil {
				s = d
			}
			return strings.ReplaceAll(s, `\`, "/")
		}
		if early {
			path = decode(path)
		}
		if i := strings.IndexAny(path, ends); i >= 0 {
			path = path[:i]
		}
		if host {
			path = withoutHost(path)
		}
		var out []string
		for _, seg := range strings.Split(path, "/")[1:] {
			if params {
				seg, _, _ = strings.Cut(seg, ";")
			}
			for _, seg := range strings.Split(decode(seg), "/") {
				switch {
				case seg == "..":
					out = out[:max(0, len(out)-1)]
				case seg == "." || seg == "" && merge:
				default:
					out = append(out, seg)
				}
			}
		}
		var whole []string
		for _, seg := range out {
			if seg != "" {
				whole = append(whole, seg)
			}
		}
		if strings.Join(whole, "/") == "login" {
			return true
		}
	}
	return false
}

// withoutHost takes what stands behind two slashes or more for a host.
func withoutHost(path string) string {
	rest := strings.TrimLeft(path, `/\`)
	if i := strings.IndexAny(rest, `/\`); i >= 0 && len(path)-len(rest) > 1 {
		return rest[i:]
	}
	return path
}

// A scene is where a trick is played. Logins are counted, and three an hour are the
// limit, unless the trick says otherwise.
type scene struct {
	rules     []policy.Rule
	overrides []policy.Override
	proxy     bool
	paths     policy.Paths
	count     func(r *http.Request) bool
}

// serve starts the gateway of a scene and the upstream behind it, and returns the
// address from which the requests come.
func (s scene) serve(t *testing.T, change ...func(*gateway.Config)) (f *front, up *loose, peer string) {
	if s.rules == nil {
		s.rules = []policy.Rule{
			rule(t, "login", "3/h burst 3", []string{"client.ip"}, "path", "/login", "method", "POST"),
			rule(t, "all", "1000/h burst 1000", []string{"client.ip"}),
		}
	}
	if s.count == nil {
		s.count = isLogin
	}
	up, peer = &loose{counts: s.count}, "127.0.0.1"
	if s.proxy {
		peer = "127.0.0.2"
		change = append(change, trusting(t, peer))
	}
	p, err := policy.Compile(s.rules, policy.WithPaths(s.paths))
	if err != nil {
		t.Fatal(err)
	}
	if p, err = p.WithOverrides(s.overrides); err != nil {
		t.Fatal(err)
	}
	return serve(t, upstream(t, up.ServeHTTP), p, change...), up, peer
}

func TestBypass(t *testing.T) {
	for _, c := range bypassTricks(t) {
		t.Run(c.name, func(t *testing.T) {
			f, up, peer := scene{c.rules, c.overrides, c.proxy, c.paths, c.count}.serve(t, func(g *gateway.Config) {
				g.Timeouts.Idle, g.Timeouts.Header, g.Timeouts.Stall = 200*time.Millisecond, 200*time.Millisecond, 200*time.Millisecond
			})
			for n := range attempts {
				for _, status := range exchange(t, peer, f.addr, c.write(n)) {
					if status >= 500 && status != http.StatusNotImplemented && status != http.StatusHTTPVersionNotSupported {
						t.Errorf("request %d: status %d", n, status)
					}
				}
			}
			up.held(t, c.rejected, false)
		})
	}
}

// exchange sends bytes from an address, and returns the statuses of the
// answers.
func exchange(t *testing.T, from, to, text string) (all []int) {
	t.Helper()
	c := rawFrom(t, from, to, "")
	defer c.Close()
	go func() { _, _ = io.WriteString(c, text) }() // the answer may come first
	return statuses(c)
}

// Whoever leaves before the answer has tried: else the tries that only count
// as failures would be free.
func TestBypassByLeaving(t *testing.T) {
	reached := make(chan struct{}, attempts)
	addr := upstream(t, func(_ http.ResponseWriter, r *http.Request) {
		reached <- struct{}{}
		<-r.Context().Done()
	})
	guard := rule(t, "password", "3/h burst 3", []string{"client.ip"}, "path", "/login")
	guard.Failures = []string{"401"}
	f := serve(t, addr, compile(t, guard))
	came := 0
	for range attempts {
		c := raw(t, f.addr, "POST /login HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			_, _ = c.Read(make([]byte, 1))
		}()
		select {
		case <-reached:
			came++
		case <-answered:
		}
		c.Close()
		<-answered
	}
	if came != loginLimit {
		t.Errorf("%d came through, want %d", came, loginLimit)
	}
}

// A flood of new callers frees nobody who is limited.
func TestBypassByFlood(t *testing.T) {
	up := &loose{counts: isLogin}
	guard := rule(t, "login", "3/h burst 3", []string{"client.ip"})
	guard.MaxKeys = 16
	f := serve(t, upstream(t, up.ServeHTTP), compile(t, guard), trusting(t, "127.0.0.2"))
	ask := func(addr string) (status int) {
		return exchange(t, "127.0.0.2", f.addr, login("X-Forwarded-For: "+addr))[0]
	}
	for range attempts {
		ask("203.0.113.9")
	}
	for i := range 100 {
		ask(fmt.Sprintf("198.51.100.%d", i))
	}
	if status := ask("203.0.113.9"); status != http.StatusTooManyRequests {
		t.Errorf("after the flood: %d", status)
	}
	if most := 16*loginLimit + loginLimit; up.n > most {
		t.Errorf("%d came through, want %d at most", up.n, most)
	}
}
