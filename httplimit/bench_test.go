package httplimit_test

import (
	"net/http"
	"testing"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/httplimit"
	"github.com/spillgate/spillgate/policy"
)

// A sink is a ResponseWriter that costs nothing, so that what is measured is
// the middleware. Its header is cleared by each use, as a server's is new.
type sink struct {
	header http.Header
	status int
}

func (s *sink) Header() http.Header         { return s.header }
func (s *sink) Write(b []byte) (int, error) { return len(b), nil }
func (s *sink) WriteHeader(status int)      { s.status = status }

func (s *sink) clear() {
	clear(s.header)
	s.status = 0
}

var trivial = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusOK) })

// ways are the ways to limit a trivial handler, with the most allocations that
// each may cost.
var ways = []struct {
	name   string
	allocs float64
	wrap   func(testing.TB) func(http.Handler) http.Handler
}{
	{"bare handler", 0, func(testing.TB) func(http.Handler) http.Handler {
		return func(h http.Handler) http.Handler { return h }
	}},
	{"limiter with fields", 2, func(testing.TB) func(http.Handler) http.Handler {
		return httplimit.New(spillgate.Must("1000000/s burst 1000000"))
	}},
	{"limiter without fields", 0, func(testing.TB) func(http.Handler) http.Handler {
		return httplimit.New(spillgate.Must("1000000/s burst 1000000"), httplimit.Headers(httplimit.Off))
	}},
	{"one rule with fields", 2, func(t testing.TB) func(http.Handler) http.Handler {
		return httplimit.Policy(engine(t, rule(t, "visitor", "1000000/s burst 1000000", "client.ip")))
	}},
	{"one rule without fields", 2, func(t testing.TB) func(http.Handler) http.Handler {
		return httplimit.Policy(engine(t, rule(t, "visitor", "1000000/s burst 1000000", "client.ip")), httplimit.Headers(httplimit.Off))
	}},
	{"one rule, no fields, no verdict", 0, func(t testing.TB) func(http.Handler) http.Handler {
		return httplimit.Policy(engine(t, rule(t, "visitor", "1000000/s burst 1000000", "client.ip")),
			httplimit.Headers(httplimit.Off), httplimit.NoVerdict())
	}},
	{"three rules with fields", 2, func(t testing.TB) func(http.Handler) http.Handler {
		return httplimit.Policy(engine(t,
			rule(t, "visitor", "1000000/s burst 1000000", "client.ip"),
			rule(t, "tunnel", "1000000/s burst 1000000", "host"),
			rule(t, "page", "1000000/s burst 1000000", "client.ip", "path")))
	}},
	{"three rules, no fields, no verdict", 0, func(t testing.TB) func(http.Handler) http.Handler {
		return httplimit.Policy(engine(t,
			rule(t, "visitor", "1000000/s burst 1000000", "client.ip"),
			rule(t, "tunnel", "1000000/s burst 1000000", "host"),
			rule(t, "page", "1000000/s burst 1000000", "client.ip", "path")),
			httplimit.Headers(httplimit.Off), httplimit.NoVerdict())
	}},
	{"seven rules with fields", 3, func(t testing.TB) func(http.Handler) http.Handler {
		return httplimit.Policy(engine(t, seven(t)...))
	}},
	{"seven rules, no fields, no verdict", 1, func(t testing.TB) func(http.Handler) http.Handler {
		return httplimit.Policy(engine(t, seven(t)...), httplimit.Headers(httplimit.Off), httplimit.NoVerdict())
	}},
}

// seven is more rules than a verdict and its fields have room for in themselves.
func seven(t testing.TB) (rules []policy.Rule) {
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		rules = append(rules, rule(t, "visitor-"+name, "1000000/s burst 1000000", "client.ip"))
	}
	return rules
}

func request(t testing.TB) *http.Request {
	r, err := http.NewRequest("GET", "http://alice.example.com/a%20page?q=1", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.RemoteAddr = "203.0.113.9:51234"
	return r
}

func BenchmarkMiddleware(b *testing.B) {
	for _, way := range ways {
		b.Run(way.name, func(b *testing.B) {
			h := way.wrap(b)(trivial)
			w, r := &sink{header: http.Header{}}, request(b)
			b.ReportAllocs()
			for b.Loop() {
				h.ServeHTTP(w, r)
				w.clear()
			}
		})
	}
}

func BenchmarkRefusal(b *testing.B) {
	h := httplimit.Policy(engine(b, rule(b, "visitor", "1/h burst 1", "client.ip")))(trivial)
	w, r := &sink{header: http.Header{}}, request(b)
	h.ServeHTTP(w, r)
	b.ReportAllocs()
	for b.Loop() {
		w.clear()
		h.ServeHTTP(w, r)
	}
	if w.status != http.StatusTooManyRequests {
		b.Fatal(w.status)
	}
}

// engine makes an engine of rules with a memory of its own.
func engine(t testing.TB, rules ...policy.Rule) *policy.Engine {
	t.Helper()
	return engineOn(t, spillgate.NewMemory(), rules...)
}

func engineOn(t testing.TB, s spillgate.Store, rules ...policy.Rule) *policy.Engine {
	t.Helper()
	p, err := policy.Compile(rules)
	if err != nil {
		t.Fatal(err)
	}
	return policy.NewEngine(p, s)
}

func rule(t testing.TB, name, limit string, key ...string) policy.Rule {
	t.Helper()
	r := policy.Rule{Name: name}
	if limit != "" {
		l, err := spillgate.ParseLimit(limit)
		if err != nil {
			t.Fatal(err)
		}
		r.Limit = l
	}
	for _, k := range key {
		part, err := policy.ParsePart(k)
		if err != nil {
			t.Fatal(err)
		}
		r.Key = append(r.Key, part)
	}
	return r
}
