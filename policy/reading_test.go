package policy

import (
	"context"
	"math/rand/v2"
	"net/url"
	"strings"
	"testing"
)

// everyWay is each way to take a path, whether it makes a difference or not.
var everyWay = ways{1<<3 - 1, 1<<len(firsts) - 1, 1<<6 - 1, 1<<3 - 1, 1<<3 - 1, 1<<2 - 1, 1<<2 - 1}

// A step is something that a server does to the text of a path.
type step func(path string) string

// A server makes of a path, step by step, what it goes by. They are written
// from the servers' documentation and sources, and share nothing with what is
// tested.
type server struct {
	name  string
	steps []step
}

// replacing replaces each pair of texts at once.
func replacing(pairs ...string) step { return strings.NewReplacer(pairs...).Replace }

var (
	// unreserved decodes what may be decoded before a path is parsed.
	unreserved = replacing("%2e", ".")
	backslash1 = replacing(`\`, "/")
	slashless  = replacing("%2f", "%2F", "%5c", "%5C", `\`, "%5C")
	encoded    = replacing("%2f", "/", "%5c", `\`)
	merged     = func(p string) string {
		for strings.Contains(p, "//") {
			p = strings.ReplaceAll(p, "//", "/")
		}
		return p
	}
)

// decoded decodes everything but what is named, once.
func decoded(but ...string) step {
	var pairs []string
	for _, b := range but {
		pairs = append(pairs, b, "%25"+b[1:])
	}
	keep := replacing(pairs...)
	return func(p string) string {
		p = keep(p)
		if d, err := url.PathUnescape(p); err == nil {
			return d
		}
		return p
	}
}

// resolved resolves dots as RFC 3986 does, section 5.2.4: an empty segment is one.
func resolved(p string) string {
	segs, out := strings.Split(strings.TrimPrefix(p, "/"), "/"), []string{}
	for i, seg := range segs {
		last := i == len(segs)-1
		switch seg {
		case ".":
		case "..":
			out = out[:max(0, len(out)-1)]
		default:
			out = append(out, seg)
			continue
		}
		if last {
			out = append(out, "")
		}
	}
	return "/" + strings.Join(out, "/")
}

// uncut cuts parameters from segments.
func uncut(p string) string {
	segs := strings.Split(p, "/")
	for i, seg := range segs {
		segs[i], _, _ = strings.Cut(seg, ";")
	}
	return strings.Join(segs, "/")
}

// hostless takes what follows two slashes, or more if there may be more, for a
// host.
func hostless(more bool) step {
	return func(p string) string {
		rest, ok := strings.CutPrefix(p, "//")
		if !ok {
			return p
		}
		if more {
			rest = strings.TrimLeft(rest, "/")
		}
		i := strings.IndexByte(rest, '/')
		if i < 0 {
			return "/"
		}
		return rest[i:]
	}
}

// until cuts what stands behind the first of these.
func until(any string) step {
	return func(p string) string {
		if i := strings.IndexAny(p, any); i >= 0 {
			return p[:i]
		}
		return p
	}
}

func servers() []server {
	whatwg := []step{backslash1, hostless(true), unreserved, resolved}
	nginx, unmerged := []step{decoded(), merged, resolved}, []step{decoded(), resolved}
	apache := []step{unreserved, merged, resolved}
	envoy := []step{unreserved, backslash1, resolved, merged}
	unescaping := append([]step{encoded}, envoy...)
	haproxy := []step{resolved}
	tomcat := []step{uncut, decoded(), merged, resolved}
	then := func(name string, all ...[]step) server {
		s := server{name: name}
		for _, steps := range all {
			s.steps = append(s.steps, steps...)
		}
		return s
	}
	literal := []step{decoded("%2f", "%5c")}
	parser := []step{hostless(false)}
	return []server{
		then("Express, Django, a router that resolves nothing", []step{decoded()}),
		then("one that keeps encoded slashes", literal),
		then("nginx", nginx),
		then("nginx, merge_slashes off", unmerged),
		then("Apache, AllowEncodedSlashes NoDecode", apache, literal),
		then("Apache, AllowEncodedSlashes On", apache, []step{decoded(), merged, resolved}),
		then("Apache, MergeSlashes Off", []step{unreserved, resolved, decoded(), resolved}),
		then("Node's new URL", whatwg, literal),
		then("Node's new URL, decoded", whatwg, []step{decoded()}),
		then("Node's new URL, a file", whatwg, []step{decoded(), merged, resolved}),
		then("Go's path.Clean", []step{decoded(), merged, resolved}),
		then("Python's urlsplit", parser, []step{decoded()}),
		then("Python's urlsplit, normpath", parser, []step{decoded(), merged, resolved}),
		then("Python's unquote, urlsplit", []step{decoded()}, parser, []step{merged, resolved}),
		then("Python's urlparse(unquote)", []step{decoded(), until("?#")}, parser),
		then("Node's new URL(decodeURIComponent)", []step{decoded(), backslash1, until("?#"), hostless(true), resolved}),
		then("Node's url.parse(decodeURIComponent), a file", []step{decoded(), until("?#"), merged, resolved}),
		then("find-my-way: restify, Fastify", []step{until(";"), decoded()}),
		then("find-my-way, useSemicolonDelimiter off", []step{decoded()}),
		then("Envoy before find-my-way", envoy, []step{until(";"), decoded()}),
		then("nginx before find-my-way", nginx, []step{until(";"), decoded()}),
		then("nginx, $uri, before find-my-way", nginx, []step{until("?#;")}),
		then("nginx, $uri, before Express", nginx, []step{until("?#")}),
		then("nginx, $uri, unmerged, before Node", unmerged, []step{until("?#"), hostless(true), resolved}),
		then("PHP's parse_url, a file", parser, []step{decoded(), merged, resolved}),
		then("Java's URI", parser, []step{resolved, decoded()}),
		then("Kestrel", []step{decoded("%2f"), resolved}),
		then("IIS", []step{decoded(), backslash1, merged, resolved}),
		then("IIS, encoded slashes kept", []step{decoded("%2f"), backslash1, resolved}),
		then("Tomcat, encodedSolidusHandling decode", tomcat),
		then("Tomcat, encodedSolidusHandling passthrough", []step{uncut, decoded("%2f"), merged, resolved}),
		then("Tomcat, ALLOW_BACKSLASH", []step{uncut, decoded(), backslash1, merged, resolved}),
		then("Jetty", []step{uncut, decoded("%2f"), resolved}),
		then("Envoy", envoy, literal),
		then("Envoy, UNESCAPE_AND_FORWARD", unescaping, literal),
		then("Envoy before Express", envoy, []step{decoded()}),
		then("Envoy, unmerged, before Node", envoy[:3], whatwg, literal),
		then("Envoy before nginx", envoy, nginx),
		then("Envoy before Tomcat", envoy, tomcat),
		then("Envoy, UNESCAPE_AND_FORWARD, before Tomcat", unescaping, tomcat),
		then("HAProxy, path-strip-dotdot, before Go", haproxy, []step{decoded(), merged, resolved}),
		then("HAProxy, path-strip-dotdot, before Node", haproxy, whatwg, literal),
		then("nginx before Tomcat", nginx, tomcat),
		then("nginx before Node", unmerged, whatwg, literal),
	}
}

// took is what a server goes by, in the form of readings: what is no slash to it
// is encoded.
func (s server) took(path string) string {
	for _, do := range s.steps {
		path = do(path)
	}
	path = slashless(path)
	if path = merged("/" + path + "/"); path != "/" {
		path = strings.TrimSuffix(path, "/")
	}
	return path
}

// has reports whether a rule on the path a server takes would see it.
func has(readings []string, path string) bool {
	for _, r := range readings {
		if r == path || r == anyReading {
			return true
		}
	}
	return false
}

// octets are those on which servers differ, and a name.
var octets = []string{"/", `\`, ".", "..", "%2f", "%5c", "%2e", ";", "%3b", "%3f", "a", "b"}

// Each server that is known takes each path in one of its readings.
func testReadings(t *testing.T, all []server, raw string) {
	t.Helper()
	readings := strings.Split(string(AppendPath(nil, raw)), "\x00")
	for _, s := range all {
		if took := s.took(raw); !has(readings, took) {
			t.Fatalf("%s: %s takes it for %s, the rules for %q", raw, s.name, took, readings)
		}
	}
}

func TestReadingsOfShortPathsAreThoseOfServers(t *testing.T) {
	all := servers()
	var grow func(raw string, more int)
	grow = func(raw string, more int) {
		testReadings(t, all, raw)
		for _, o := range octets[:min(more, 1)*len(octets)] {
			grow(raw+o, more-1)
		}
	}
	grow("/", 3)
}

func TestReadingsOfLongPathsAreThoseOfServers(t *testing.T) {
	all, r, loose := servers(), rand.New(rand.NewPCG(1, 2)), 0
	const n = 1500
	for range n {
		raw := "/"
		for range 4 + r.IntN(12) {
			raw += octets[r.IntN(len(octets))]
		}
		testReadings(t, all, raw)
		if strings.HasSuffix(string(AppendPath(nil, raw)), anyReading) {
			loose++
		}
	}
	if loose > n/3 {
		t.Errorf("%d of %d are any path, so that this tests little", loose, n)
	}
}

// FuzzReadings does so with whatever paths, as bytes that choose.
func FuzzReadings(f *testing.F) {
	f.Add([]byte("\x00\x09\x04\x09\x05\x00\x03"))
	all := servers()
	f.Fuzz(func(t *testing.T, choices []byte) {
		raw := "/"
		for _, c := range choices[:min(len(choices), 40)] {
			raw += octets[int(c)%len(octets)]
		}
		testReadings(t, all, raw)
	})
}

// What a path is read as is bounded, and no path is long and costs a lot.
func TestReadingsAreBounded(t *testing.T) {
	hostile := strings.Repeat(`/%5c..%2f;a/..//;.%2e/%2e%5c/%3b`, 2000)
	for _, raw := range []string{hostile, hostile[:40], hostile[:400], "//" + hostile[:200]} {
		out := AppendPath(nil, raw)
		readings := strings.Split(string(out), "\x00")
		if len(readings) > maxReadings+1 || len(out) > (maxReadings+1)*(len(raw)*3+2) {
			t.Errorf("%d readings of %d octets", len(readings), len(raw))
		}
		if len(raw) > 300 && (len(readings) != 2 || readings[1] != anyReading) {
			t.Errorf("%d octets: %d readings, want the first and any", len(raw), len(readings))
		}
	}
	// What honest programs send is read to its end, however long it is.
	for _, raw := range []string{"//a;b/c%2Fd", "/a%2Fb", "/a;b%2Fc", "/../a", "//a"} {
		raw += strings.Repeat("/some-segment", 4000)
		if strings.HasSuffix(string(AppendPath(nil, raw)), anyReading) && !strings.HasPrefix(raw, "//a;") {
			t.Errorf("%.20s… is any path", raw)
		}
	}
}

// A path that may be any is charged by every rule on a path, and exempt by none.
func TestPathsThatMayBeAny(t *testing.T) {
	any := string(AppendPath(nil, strings.Repeat(`/%5c..%2f;a/..//;.%2e/%2e%5c/%3b`, 100)))
	login, health := testRule(t, "login", "1/h burst 1", "client.ip"), testRule(t, "health", "")
	login.Match = Match{{Attribute{Kind: Path}, []string{"/a/login", "/b/**"}}}
	health.Match, health.Exempt = Match{{Attribute{Kind: Path}, []string{"/health/**"}}}, true
	not, peek := testRule(t, "not", "9/h burst 9", "client.ip"), testRule(t, "peek", "9/h burst 9", "client.ip")
	not.Match = Match{{Attribute{Kind: Path}, []string{"!/a"}}}
	peek.Peek = Match{{Attribute{Kind: Path}, []string{"/**"}}}
	e := testEngine(t, login, health, not, peek)
	for n := range 2 {
		v := e.Decide(context.Background(), Attrs{"path": any, "client.ip": "203.0.113.7"})
		if v.Len() != 3 || v.Exempt() != nil || v.Allowed != (n == 0) {
			t.Errorf("%d: %d rules, exempt by %v, allowed %t", n, v.Len(), v.Exempt(), v.Allowed)
		}
		for i := range v.Len() {
			if v.Outcome(i).Peeked {
				t.Errorf("%s is only peeked", v.Outcome(i).Rule.Name)
			}
		}
	}
	x := e.policy.Explain(Attrs{"path": any})
	if why := x.Rules[1].Why; !strings.Contains(why, "or any other, not /health/**") {
		t.Error(why)
	}
}
