package policyfile

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/policy"
	"go.yaml.in/yaml/v4"
)

// An answer is what the policy may say of a request.
type answer string

const (
	allowed     answer = "allowed"
	denied      answer = "denied"
	unavailable answer = "unavailable"
)

var answerWords = oneOf(choice[answer]{"allowed", allowed}, choice[answer]{"denied", denied}, choice[answer]{"unavailable", unavailable})

// An expectation is what must be said of a request. What it does not name is
// not looked at.
type expectation struct {
	node   *yaml.Node
	answer answer
	rules  map[string][]string      // the rules that did something, by the key that says so
	waits  map[string]time.Duration // retry_after and delay
	left   map[string]int64         // remaining, by rule
	at     map[string]*yaml.Node    // where each key's value stands, and each rule's number as "remaining.RULE"
	named  []*yaml.Node             // the names of rules in it
}

// overridesName is what overrides are called where a rule is named: those that
// refuse whatever the rules say, and those that exempt.
const overridesName = "overrides"

// ruleKeys are the keys of an expectation whose values are rules.
var ruleKeys = []string{"denied", "would_deny", "peeked", "exempt", "backup", "rules"}

var expectForm = form[expectation]{
	what:    "an expectation",
	example: "{denied: login, retry_after: 10s}",
	also: map[string]string{
		"refused": "denied", "by": "denied", "rule": "rules", "applied": "rules", "retry": "retry_after", "wait": "retry_after",
		"left": "remaining", "shadow": "would_deny", "trial": "would_deny",
	},
	hint: func(key string) string {
		switch key {
		case "allowed", "unavailable":
			return "write expect: " + key + "; a mapping without denied expects the request to pass"
		}
		return ""
	},
	fields: []field[expectation]{
		ruleField("denied", "The rules that refuse: these and no others."),
		waitField("retry_after", "When to come back, exactly: the longest wait of the rules that refuse, or never.", true),
		waitField("delay", "How long the request must wait before it goes on, exactly.", false),
		{
			key: "remaining", about: "What remains after the request, by rule.",
			schema: schema{"type": "object", "minProperties": 1, "propertyNames": schema{"pattern": ruleNamePattern}, "additionalProperties": remaining.schema},
			read: func(d *decoder, n *yaml.Node, e *expectation) {
				d.pairs(n, "what remains by rule", "{login: 3}", func(key, value *yaml.Node) {
					if v, ok := remaining.read(d, value); ok {
						e.left[key.Value] = v
						e.at["remaining."+key.Value] = value
						e.named = append(e.named, key)
					}
				})
			},
		},
		ruleField("would_deny", "The rules that would refuse, and spare this key: these and no others."),
		ruleField("peeked", "The rules that are asked and not charged: these and no others."),
		ruleField("exempt", "The rule by which the request is exempt, the first if there are several, or overrides; [] for none."),
		ruleField("backup", "The rule whose backup a refused request goes to; [] for none."),
		ruleField("rules", "The rules that apply: these and no others."),
	},
}

const ruleNamePattern = "^[a-z0-9._-]{1,64}$"

var remaining = whole(0, 1<<62)

// ruleNames are the names of rules: one, or a list, which may be empty.
var ruleNames = kind[[]*yaml.Node]{
	schema: schema{"anyOf": []any{
		schema{"type": "string", "pattern": ruleNamePattern},
		schema{"type": "array", "items": schema{"type": "string", "pattern": ruleNamePattern}},
	}},
	read: func(d *decoder, n *yaml.Node) (out []*yaml.Node, good bool) {
		v, ok := d.value(n)
		if !ok {
			return nil, false
		}
		if v.Kind == yaml.SequenceNode && len(v.Content) == 0 {
			return nil, true
		}
		names := kind[*yaml.Node]{read: func(d *decoder, n *yaml.Node) (*yaml.Node, bool) {
			_, ok := word.read(d, n)
			return target(n), ok
		}}
		return oneOrMore(names).read(d, v)
	},
}

func ruleField(key, about string) field[expectation] {
	return field[expectation]{key: key, about: about, schema: ruleNames.schema, read: func(d *decoder, n *yaml.Node, e *expectation) {
		names, ok := ruleNames.read(d, n)
		if !ok {
			return
		}
		e.at[key] = n
		e.rules[key] = []string{}
		for _, name := range names {
			e.rules[key] = append(e.rules[key], name.Value)
		}
		e.named = append(e.named, names...)
	}}
}

func waitField(key, about string, never bool) field[expectation] {
	k := span
	if never {
		k = kind[time.Duration]{
			schema: schema{"anyOf": []any{span.schema, schema{"const": "never"}}},
			read: func(d *decoder, n *yaml.Node) (time.Duration, bool) {
				if v := target(n); v.Kind == yaml.ScalarNode && v.Value == "never" {
					return spillgate.Never, true
				}
				return span.read(d, n)
			},
		}
	}
	return field[expectation]{key: key, about: about, schema: k.schema, read: func(d *decoder, n *yaml.Node, e *expectation) {
		if v, ok := k.read(d, n); ok {
			e.waits[key], e.at[key] = v, n
		}
	}}
}

// readExpectation reads a word or a mapping; nil if it is neither.
func readExpectation(d *decoder, n *yaml.Node) *expectation {
	e := &expectation{
		node: n, answer: allowed, rules: make(map[string][]string), waits: make(map[string]time.Duration),
		left: make(map[string]int64), at: make(map[string]*yaml.Node),
	}
	v, ok := d.value(n)
	if !ok {
		return nil
	}
	if v.Kind == yaml.ScalarNode {
		e.answer, ok = answerWords.read(d, v)
		if !ok {
			return nil
		}
		return e
	}
	m, ok := expectForm.read(d, n, e)
	if !ok {
		return nil
	}
	if names, ok := e.rules["denied"]; ok {
		e.answer = denied
		if len(names) == 0 {
			d.fail(m.at("denied"), "leave it out: without it the request must pass", "denied: names no rule")
		}
	}
	switch {
	case m.values["retry_after"] != nil && m.values["denied"] == nil && !m.strange:
		d.fail(m.at("retry_after"), "add the rule that refuses, such as denied: login", "retry_after: only a refusal has one")
	case m.values["delay"] != nil && m.values["denied"] != nil:
		d.fail(m.at("delay"), "leave one of them out", "delay: a request that is denied has none")
	}
	return e
}

// verdictAnswer returns what was said of a request.
func verdictAnswer(v *policy.Verdict) answer {
	switch {
	case v.Allowed:
		return allowed
	case v.Refusing() != nil:
		return denied
	}
	return unavailable
}

// rulesOf returns the names of the rules that did what a key of an expectation
// asks for, in the policy's order.
func rulesOf(key string, v *policy.Verdict) []string {
	out := []string{}
	if x := v.Exempt(); key == "exempt" && x != nil {
		out = append(out, x.Name)
	}
	if key == "exempt" && v.Exemption() != nil {
		out = append(out, overridesName)
	}
	if key == "backup" && v.Backup() != nil {
		out = append(out, v.Refusing().Rule.Name)
	}
	for i := range v.Len() {
		o := v.Outcome(i)
		if key == "rules" || key == "denied" && o.Refuses() || key == "peeked" && o.Peeked ||
			key == "would_deny" && o.WouldRefuse() {
			out = append(out, o.Rule.Name)
		}
	}
	return out
}

func waitOf(key string, v *policy.Verdict) time.Duration {
	if key == "delay" {
		return v.Delay()
	}
	return v.RetryAfter()
}

// A miss is one thing that came otherwise than expected.
type miss struct {
	key       string     // of the expectation, "" for the whole
	node      *yaml.Node // its value
	want, got string
	write     string // what to write in its place, "" if nothing can be; not for the whole
	step      int    // of the test
}

// compare returns in what a verdict is not as expected. Numbers are compared if
// it is the last of several alike.
func (e *expectation) compare(v *policy.Verdict, last bool) []miss {
	if got := verdictAnswer(v); got != e.answer {
		return []miss{{node: e.node, want: e.text(), got: describeVerdict(v)}}
	}
	var out []miss
	for _, key := range ruleKeys {
		want, ok := e.rules[key]
		if !ok {
			continue
		}
		if got := rulesOf(key, v); !sameNames(want, got) {
			out = append(out, miss{key: key, node: e.at[key], want: names(key, want), got: names(key, got), write: flowNames(got)})
		}
	}
	if !last {
		return out
	}
	for _, key := range []string{"retry_after", "delay"} {
		want, ok := e.waits[key]
		if got := waitOf(key, v); ok && got != want {
			word := strings.ReplaceAll(key, "_", " ")
			out = append(out, miss{key: key, node: e.at[key], want: word + " " + elapsed(want), got: elapsed(got), write: elapsed(got)})
		}
	}
	for i := range e.named {
		rule := e.named[i].Value
		want, ok := e.left[rule]
		node := e.at["remaining."+rule]
		if !ok || slices.ContainsFunc(out, func(m miss) bool { return m.node == node }) {
			continue
		}
		m := miss{key: "remaining", node: node, want: fmt.Sprintf("%d of %s", want, rule)}
		switch o := v.Of(rule); {
		case o == nil:
			m.got = rule + " does not apply"
		case !o.Judged():
			m.got = rule + " asks no limit"
		case o.Decision.Remaining != want:
			m.write = fmt.Sprint(o.Decision.Remaining)
			m.got = m.write
		default:
			continue
		}
		out = append(out, m)
	}
	return out
}

func sameNames(a, b []string) bool {
	a, b = slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))
	return slices.Equal(slices.Compact(a), b)
}

func names(key string, rules []string) string {
	what := map[string]string{"denied": "denied by ", "would_deny": "would be denied by ", "peeked": "peeked by ", "exempt": "exempt by ", "backup": "sent to the backup of ", "rules": "applies: "}[key]
	if len(rules) == 0 {
		return what + "no rule"
	}
	return what + strings.Join(rules, " and ")
}

// flowNames writes names as a value.
func flowNames(rules []string) string {
	if len(rules) == 1 {
		return written(rules[0])
	}
	out := make([]string, len(rules))
	for i, r := range rules {
		out[i] = written(r)
	}
	return "[" + strings.Join(out, ", ") + "]"
}

// text says for people what is expected.
func (e *expectation) text() string {
	if rules, ok := e.rules["denied"]; ok {
		return names("denied", rules)
	}
	return string(e.answer)
}

// describeVerdict says for people what came.
func describeVerdict(v *policy.Verdict) string {
	switch verdictAnswer(v) {
	case allowed:
		s := "allowed"
		if x := v.Exempt(); x != nil {
			s += ", exempt by " + x.Name
		}
		if d := v.Delay(); d > 0 {
			s += " after a delay of " + elapsed(d)
		}
		for i := range v.Len() {
			switch o := v.Outcome(i); {
			case !o.Decision.Allowed:
				s += ", would be denied by " + o.Rule.Name
			case o.Judged() && o.Rule.Limit.Algorithm != spillgate.Unlimited:
				s += fmt.Sprintf(", %s: %d left", o.Rule.Name, o.Decision.Remaining)
			}
		}
		return s
	case denied:
		s := names("denied", rulesOf("denied", v))
		if w := v.RetryAfter(); w == spillgate.Never {
			return s + ", waiting does not help"
		} else {
			return s + ", retry after " + elapsed(w)
		}
	}
	return "unavailable"
}

// rewritten returns the expectation that a verdict meets, in the same detail.
func (e *expectation) rewritten(v *policy.Verdict) string {
	asked := func(key string) bool { return e.at[key] != nil }
	return expectationOf(v, func(key string) bool {
		switch key {
		case "denied":
			return true
		case "retry_after", "delay":
			return asked(key) || asked("retry_after") || asked("delay")
		case "remaining":
			return len(e.left) > 0
		}
		return asked(key)
	})
}

// expectationOf writes what a verdict says, with the keys that are wanted.
func expectationOf(v *policy.Verdict, wanted func(key string) bool) string {
	var parts []string
	add := func(key, value string) { parts = append(parts, key+": "+value) }
	came := verdictAnswer(v)
	if came == unavailable {
		return string(unavailable)
	}
	if came == denied {
		add("denied", flowNames(rulesOf("denied", v)))
		if wanted("retry_after") {
			add("retry_after", elapsed(v.RetryAfter()))
		}
	} else if d := v.Delay(); d > 0 && wanted("delay") {
		add("delay", elapsed(d))
	}
	if wanted("remaining") && came == allowed {
		var left []string
		for i := range v.Len() {
			if o := v.Outcome(i); o.Judged() && o.Rule.Limit.Algorithm != spillgate.Unlimited {
				left = append(left, fmt.Sprintf("%s: %d", written(o.Rule.Name), o.Decision.Remaining))
			}
		}
		if len(left) > 0 {
			add("remaining", "{"+strings.Join(left, ", ")+"}")
		}
	}
	for _, key := range []string{"would_deny", "peeked", "exempt", "backup", "rules"} {
		if got := rulesOf(key, v); wanted(key) && (len(got) > 0 || key == "rules") {
			add(key, flowNames(got))
		}
	}
	if len(parts) == 0 {
		return string(allowed)
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// expectSchema is the schema of what is expected: a word or a mapping.
func expectSchema() schema {
	mapping := expectForm.asSchema()
	mapping["properties"].(schema)["denied"].(schema)["anyOf"] = oneOrMore(kind[string]{schema: schema{"type": "string", "pattern": ruleNamePattern}}).schema["anyOf"]
	mapping["dependentRequired"] = schema{"retry_after": []string{"denied"}}
	mapping["not"] = schema{"required": []string{"denied", "delay"}}
	return schema{"anyOf": []any{answerWords.schema, mapping}}
}
