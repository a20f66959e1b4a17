package policyfile

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spillgate/spillgate/policy"
	"go.yaml.in/yaml/v4"
)

// A Test is a scenario of a policy file: requests at given times, and what the
// policy must say of each.
type Test struct {
	// Name tells tests apart.
	Name string
	// Source is where the test is written, "limits.yaml:12".
	Source string

	file     *File
	src      *source
	node     *yaml.Node // of the name
	start    time.Time
	with     given
	requests []request
}

// given is what a request brings.
type given struct {
	attrs  policy.Attrs
	cost   map[string]int64 // by unit
	spent  map[string]int64 // by unit, told at the end
	ends   string           // how it ends, an outcome
	takes  *time.Duration   // how long it takes to its end
	down   bool             // the store does not answer
	downAt *yaml.Node       // nil if nothing is said of the store
}

// request is an entry of requests: one request or several alike.
type request struct {
	given
	node  *yaml.Node
	at    moment
	times int64
	every time.Duration
	want  *expectation
}

// moment is a time after the start of a test, or an instant of its own.
type moment struct {
	node  *yaml.Node // nil: at the time of the request before
	after time.Duration
	clock time.Time
}

// in returns the moment as an instant.
func (m moment) in(start time.Time) time.Time {
	if m.clock.IsZero() {
		return start.Add(m.after)
	}
	return m.clock
}

// testStart is when a test begins that does not say: midnight in UTC, where
// windows of all usual lengths begin too.
var testStart = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)

const (
	// maxTimes is how many requests alike an entry stands for at most, and
	// maxAsked how many a file asks for altogether: seconds of work.
	maxTimes = 100_000
	maxAsked = 1_000_000
	// maxSpan bounds times within a test.
	maxSpan = 100 * 366 * 24 * time.Hour
)

var testForm = form[Test]{
	what:    "a test",
	example: "{name: two pass, requests: [{times: 2, client.ip: 203.0.113.7, expect: allowed}]}",
	also:    map[string]string{"steps": "requests", "request": "with", "common": "with", "given": "with", "now": "start", "time": "start", "title": "name", "test": "name"},
	fields: []field[Test]{
		{
			key: "name", about: "Tells what is tested, in words; each name once.", schema: word.schema,
			read: func(d *decoder, n *yaml.Node, t *Test) {
				if s, ok := word.read(d, n); ok {
					t.Name, t.node = s, target(n)
				}
			},
		},
		in("start", "When the test begins, such as 2026-03-29T00:00:00+01:00; 2026-01-01T00:00:00Z if left out.", instant,
			func(t *Test, v time.Time) { t.start = v }),
		{
			key: "with", about: "What all requests of the test have in common; a request may say otherwise.", schema: schema{"$ref": "#/$defs/with"},
			read: func(d *decoder, n *yaml.Node, t *Test) { withForm.read(d, n, &t.with) },
		},
		{
			key: "requests", about: "The requests, in the order of their times.",
			schema: schema{"type": "array", "minItems": 1, "items": schema{"$ref": "#/$defs/request"}},
			read: func(d *decoder, n *yaml.Node, t *Test) {
				d.list(n, "a list of requests", "write at least one, such as requests: [{expect: allowed}]", func(n *yaml.Node) {
					a := request{times: 1, node: target(n)}
					outer := d.in
					d.in = ""
					m, ok := requestForm.read(d, n, &a)
					if ok && a.every != 0 && a.times == 1 && !m.bad["times"] && !m.strange {
						d.fail(m.at("every"), "add times: 10, or leave it out", "every: there is one request only")
					}
					d.in = outer
					if ok {
						t.requests = append(t.requests, a)
					}
				})
			},
		},
	},
}

// givenFields are the keys of a request besides its attributes, for whatever
// a given is part of.
func givenFields[T any](of func(*T) *given) []field[T] {
	return []field[T]{
		in("cost", "What the program says the request costs, by unit: {tokens: 500}.", amounts(1),
			func(into *T, v map[string]int64) { of(into).cost = v }),
		in("spent", "What the request used in truth, told at its end, by unit: {tokens: 120}.", amounts(0),
			func(into *T, v map[string]int64) { of(into).spent = v }),
		in("ends", "How the request ends: a status, a code of gRPC, error or aborted; 200 if left out.", ending,
			func(into *T, v string) { of(into).ends = v }),
		in("takes", "How long the request takes to its end: 0s if left out.", span,
			func(into *T, v time.Duration) { of(into).takes = &v }),
		{
			key: "store", about: "Whether the store of the counters answers.", schema: storeWords.schema,
			read: func(d *decoder, n *yaml.Node, into *T) {
				if down, ok := storeWords.read(d, n); ok {
					of(into).down, of(into).downAt = down, n
				}
			},
		},
	}
}

var storeWords = oneOf(choice[bool]{"up", false}, choice[bool]{"down", true})

// otherAttribute reads an attribute of a request.
func otherAttribute[T any](of func(*T) *given) func(d *decoder, key, value *yaml.Node, into *T) bool {
	return func(d *decoder, key, value *yaml.Node, into *T) bool {
		a, err := policy.ParseAttribute(key.Value)
		if err != nil {
			if msg, fix := attributeError(err, key.Value); strings.HasPrefix(fix, "did you mean") && closest(key.Value, requestKeys) == "" {
				d.fail(key, fix, "%s", msg).Err = err
				return true
			}
			return false
		}
		outer := d.in
		d.in = a.String()
		defer func() { d.in = outer }()
		s, ok := readValue(d, value, a, "")
		if !ok {
			return true
		}
		if msg, fix := attributeValue(a, s); msg != "" {
			d.fail(value, fix, "%s", msg)
			return true
		}
		if a.Kind == policy.Path {
			s = string(d.paths.Append(nil, s))
		}
		g := of(into)
		if g.attrs == nil {
			g.attrs = make(policy.Attrs)
		}
		if _, dup := g.attrs[a.String()]; dup {
			d.fail(key, "leave one of them out", "%s is there twice", a)
		}
		g.attrs[a.String()] = s
		return true
	}
}

// attributeValue says what is wrong with the value of an attribute in a
// request, "" if it can come from a front.
func attributeValue(a policy.Attribute, s string) (msg, fix string) {
	switch a.Kind {
	case policy.ClientIP:
		if _, err := netip.ParseAddr(s); err != nil {
			return fmt.Sprintf("%q is no address", s), "write one address, such as 203.0.113.7"
		}
	case policy.Path:
		if !strings.HasPrefix(s, "/") {
			return fmt.Sprintf("%q: a path begins with /", s), "write " + written("/"+s)
		}
		if path, _, ok := strings.Cut(s, "?"); ok {
			return fmt.Sprintf("%q: a path has no query", s), fmt.Sprintf("write %s, and query.NAME: value beside it", written(path))
		}
	case policy.Host:
		if err := valueError(a, s); err != nil {
			return strings.TrimPrefix(plain(err), a.String()+": "), fixValue(a, s)
		}
	case policy.Method:
		if s == "" {
			return "empty", "write a method such as GET, or leave it out"
		}
	}
	return "", ""
}

func givenOf(g *given) *given     { return g }
func requestOf(a *request) *given { return &a.given }

// attributePatterns are the attributes of a request, by their names.
func attributePatterns() schema {
	text, length := schema{"type": "string"}, policy.Attribute{Kind: policy.ContentLength}.String()
	others := slices.DeleteFunc(attributeNames(), func(name string) bool { return name == length })
	return schema{patternOf(others): text, patternOf([]string{length}): lengthSchema(text)}
}

var withForm = form[given]{
	what:    "the requests of a test",
	example: "{client.ip: 203.0.113.7}",
	also:    givenWords,
	hint:    requestHint,
	fields:  givenFields(givenOf),
	other:   otherAttribute(givenOf),
}

var givenWords = map[string]string{
	"count": "times", "repeat": "times", "n": "times", "answer": "ends", "status": "ends", "outcome": "ends",
	"time": "at", "when": "at", "after": "at", "interval": "every", "wants": "expect", "want": "expect", "then": "expect", "expected": "expect",
	"uses": "spent", "used": "spent", "for": "takes", "duration": "takes",
}

var requestForm = form[request]{
	what:    "a request",
	example: "{at: 0s, client.ip: 203.0.113.7, expect: allowed}",
	also:    givenWords,
	hint:    requestHint,
	other:   otherAttribute(requestOf),
	fields: append([]field[request]{
		in("at", "When: a time since the start, or an instant such as 2026-03-29T03:00:00+02:00; that of the request before if left out.", moments,
			func(a *request, v moment) { a.at = v }),
		in("times", "How many such requests there are; 1 if left out.", whole(1, maxTimes),
			func(a *request, v int64) { a.times = v }),
		in("every", "How far such requests are apart; all at once if left out.", span,
			func(a *request, v time.Duration) { a.every = v }),
		{
			key: "expect", about: "What the policy must say of the request. With times it is said of each; numbers are those of the last.",
			schema: schema{"$ref": "#/$defs/expect"},
			read: func(d *decoder, n *yaml.Node, a *request) {
				a.want = readExpectation(d, n)
			},
		},
	}, givenFields(requestOf)...),
}

// test returns what reads one test more.
func (doc *document) test(d *decoder) func(n *yaml.Node) {
	return func(n *yaml.Node) {
		outer := d.in
		d.in = ""
		defer func() { d.in = outer }()
		t := &Test{start: testStart, src: d.src}
		m, ok := testForm.read(d, n, t)
		if !ok {
			return
		}
		t.Source = fmt.Sprintf("%s:%d", d.src.name, m.node.Line)
		if m.values["name"] == nil && !m.strange {
			d.fail(m.node, `add a name, such as name: "the fourth is refused"`, "a test without a name")
		}
		if m.values["requests"] == nil && !m.strange {
			d.fail(m.node, "add requests: [{expect: allowed}]", "a test without requests")
		}
		doc.tests = append(doc.tests, t)
	}
}

// settleTests checks what the tests say against each other and, once they are
// compiled, the rules.
func (d *decoder) settleTests(doc *document, f *File) {
	seen := make(map[string]bool)
	total := int64(0)
	for _, t := range doc.tests {
		t.file = f
		if t.Name != "" && seen[t.Name] {
			d.fail(t.node, "give each test its own name", "name: %.60q is there twice", t.Name)
		}
		seen[t.Name] = true
		before := t.start
		last := moment{}
		for i := range t.requests {
			a := &t.requests[i]
			if a.at.node == nil {
				a.at.clock = before
			} else if last = a.at; a.at.in(t.start).Before(before) {
				d.fail(last.node, "put the requests in the order of their times", "at: earlier than the request above it (%s)", elapsed(before.Sub(t.start)))
			}
			before = a.at.in(t.start).Add(time.Duration(a.times-1) * a.every)
			if before.Sub(t.start) > maxSpan {
				d.fail(a.node, "use shorter times", "more than 100 years after the start")
			}
			if total += a.times; total > maxAsked {
				d.fail(a.node, "use fewer", "more than %d requests in the tests of a file", maxAsked)
				return
			}
			if f.Policy != nil {
				d.known(a, f, doc)
			}
		}
		if f.Policy != nil {
			d.known(&request{given: t.with, node: t.node}, f, doc)
		}
	}
}

// known reports what a request names that the policy does not have.
func (d *decoder) known(a *request, f *File, doc *document) {
	rules := f.Policy.Rules()
	for key, values := range map[string]map[string]int64{"cost": a.cost, "spent": a.spent} {
		for _, unit := range slices.Sorted(maps.Keys(values)) {
			var units []string
			for i := range rules {
				units = append(units, unitOf(&rules[i]))
			}
			if !slices.Contains(units, unit) && !doc.lost("unit") {
				d.fail(a.node, nearest(unit, units, "a unit that a rule counts"), "%s: no rule counts %q", key, unit)
			}
		}
	}
	for name := range a.attrs {
		if at, err := policy.ParseAttribute(name); err == nil && f.ForGateway && !f.Server.offers(at) {
			d.fail(a.node, "leave it out", "the gateway knows no %s", at)
		}
	}
	if a.want == nil {
		return
	}
	var names []string
	for i := range rules {
		names = append(names, rules[i].Name)
	}
	if doc.excepts {
		names = append(names, overridesName)
	}
	for _, r := range a.want.named {
		if !slices.Contains(names, r.Value) && !doc.lost("name") {
			d.fail(r, nearest(r.Value, names, "a rule of this file"), "expect: there is no rule %.60q", r.Value)
		}
	}
}

func unitOf(r *policy.Rule) string {
	if r.Unit == "" {
		return policy.Requests
	}
	return r.Unit
}

func nearest(word string, words []string, what string) string {
	if w := closest(word, words); w != "" {
		return fmt.Sprintf("did you mean %q?", w)
	}
	return "name " + what
}

// merged returns what a request brings, with what all have in common.
func (t *Test) merged(a *request) given {
	g := t.with
	g.attrs = make(policy.Attrs, len(t.with.attrs)+len(a.attrs))
	maps.Copy(g.attrs, t.with.attrs)
	maps.Copy(g.attrs, a.attrs)
	otherMethods(g.attrs)
	if a.cost != nil {
		g.cost = a.cost
	}
	if a.spent != nil {
		g.spent = a.spent
	}
	if a.ends != "" {
		g.ends = a.ends
	}
	if a.takes != nil {
		g.takes = a.takes
	}
	if a.downAt != nil {
		g.down = a.down
	}
	return g
}

// otherMethods gives a request the methods beside its own that it may be served
// as, as fronts read them from it and from these headers.
func otherMethods(attrs policy.Attrs) {
	method, there := attrs["method"]
	if there {
		attrs["method"] = string(policy.AppendMethod(nil, method))
	}
	for _, name := range []string{"header.x-http-method-override", "header.x-http-method", "header.x-method-override"} {
		if other := strings.ToUpper(strings.TrimSpace(attrs[name])); there && other != "" && other != method && len(other) <= 24 {
			attrs["method"] += "\x00" + other
		}
	}
}

// requestHint says what a request may hold, where no key comes to mind.
func requestHint(key string) string {
	if givenWords[strings.ToLower(key)] == "" && closest(key, requestKeys) == "" {
		return "known are attributes, such as path and client.ip, and " + strings.Join(requestKeys, ", ")
	}
	return ""
}

// requestKeys are the keys of a request that are no attributes.
var requestKeys = []string{"at", "times", "every", "expect", "cost", "spent", "ends", "takes", "store"}
