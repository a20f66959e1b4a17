package policyfile

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/clientip"
	"github.com/spillgate/spillgate/policy"
	"go.yaml.in/yaml/v4"
)

// document is a whole file, before its rules are compiled.
type document struct {
	server *Server
	rules  []policy.Rule
	places []mapping // of the rules
}

var documentForm = form[document]{
	what: "a policy file",
	fields: []field[document]{
		{
			key: "server", about: "How the gateway serves. Programs that only want the policy pass it over.",
			schema: schema{"$ref": "#/$defs/server"},
			read: func(d *decoder, n *yaml.Node, into *document) {
				serverForm.read(d, n, into.server)
			},
		},
		{
			key: "rules", about: "The rules. All that match a request apply; their order does not matter.",
			schema: schema{"type": "array", "minItems": 1, "maxItems": policy.MaxRules, "items": schema{"$ref": "#/$defs/rule"}},
			read: func(d *decoder, n *yaml.Node, into *document) {
				d.items(n, "a list of rules", into.rule(d))
			},
		},
	},
	hint: func(key string) string {
		switch {
		case serverForm.field(key) != nil:
			return fmt.Sprintf("%q belongs under \"server:\"", key)
		case ruleForm.field(key) != nil:
			return fmt.Sprintf("%q belongs to a rule, in the list under \"rules:\"", key)
		}
		return ""
	},
}

// rule returns what reads one rule more.
func (doc *document) rule(d *decoder) func(n *yaml.Node) {
	return func(n *yaml.Node) {
		if len(doc.rules) == policy.MaxRules {
			d.fail(n, "", "more than %d rules", policy.MaxRules)
			d.full = true
			return
		}
		outer := d.in
		d.in = ""
		var r policy.Rule
		m, ok := ruleForm.read(d, n, &r)
		d.in = outer
		if !ok {
			return
		}
		r.Source = fmt.Sprintf("%s:%d", d.src.name, m.node.Line)
		doc.rules, doc.places = append(doc.rules, r), append(doc.places, m)
	}
}

var serverForm = form[Server]{
	what: "the server part",
	fields: []field[Server]{
		in("listen", "The address and port at which the gateway listens.", listen,
			func(s *Server, v string) { s.Listen = v }),
		in("upstream", "Where the gateway sends what may pass.", upstream,
			func(s *Server, v string) { s.Upstream = v }),
		{
			key: "client_ip", about: "Whose word about a client's address is believed. Left out, the client is the peer.",
			schema: schema{"$ref": "#/$defs/client_ip"},
			read:   func(d *decoder, n *yaml.Node, s *Server) { readClientIP(d, n, s) },
		},
		in("headers", "Which answers carry RateLimit fields: all, refusals, or none.", oneOf(headersWords...),
			func(s *Server, v Headers) { s.Headers = v }),
		in("state", "The file that the gateway keeps its counters in over a restart.", filePath,
			func(s *Server, v string) { s.State = v }),
	},
}

var headersWords = []choice[Headers]{{"on", HeadersOn}, {"refusals", HeadersRefusals}, {"off", HeadersOff}}

var clientIPForm = form[clientip.Options]{
	what: "the client_ip part",
	fields: []field[clientip.Options]{
		in("trusted", "The proxies' networks: addresses, CIDRs, or private, loopback, link-local, unix, any.", oneOrMore(word),
			func(o *clientip.Options, v []string) { o.Trusted = v }),
		in("from", "The one header that the proxies set: forwarded, x-forwarded-for, or one that holds a single address.", word,
			func(o *clientip.Options, v string) { o.Header = v }),
	},
}

func readClientIP(d *decoder, n *yaml.Node, s *Server) {
	var o clientip.Options
	m, ok := clientIPForm.read(d, n, &o)
	if !ok || m.bad["trusted"] || m.bad["from"] {
		return
	}
	if o.Header == "" && o.Trusted != nil {
		d.fail(m.node, "add the header that they set, such as from: x-forwarded-for", "proxies are trusted, but no header of theirs is named")
		return
	}
	client, err := clientip.New(o)
	var network *clientip.NetworkError
	switch {
	case err == nil:
		s.Client = client
	case errors.As(err, &network):
		at := m.at("trusted")
		if at.Kind == yaml.AliasNode && at.Alias != nil {
			at = at.Alias
		}
		if at.Kind == yaml.SequenceNode && network.Index < len(at.Content) {
			at = at.Content[network.Index]
		}
		d.fail(at, "", "trusted: %.60q: %s", network.Entry, network.Reason).Err = err
	case errors.Is(err, clientip.ErrEverythingTrusted):
		d.cause(m.at("trusted"), "", err)
	default:
		d.cause(m.at("from"), "", err)
	}
}

var ruleForm = form[policy.Rule]{
	what: "a rule",
	fields: []field[policy.Rule]{
		in("name", "Identifies the rule in answers, logs and metrics, and its counters across changes of the file.",
			kind[string]{read: word.read, schema: schema{"type": "string", "pattern": "^[a-z0-9._-]{1,64}$"}},
			func(r *policy.Rule, v string) { r.Name = v }),
		in("match", "Which requests are charged: all conditions must hold. Left out, every request.", match,
			func(r *policy.Rule, v policy.Match) { r.Match = v }),
		in("peek", "Which requests are only told how much is left, and not charged.", match,
			func(r *policy.Rule, v policy.Match) { r.Peek = v }),
		in("key", "What tells callers apart. Left out, all share one limit.", oneOrMore(part),
			func(r *policy.Rule, v []policy.Part) { r.Key = v }),
		in("missing", "What happens to a request that lacks a part of the key: it shares one limit with its like, the rule is skipped, or it is refused.",
			oneOf(choice[policy.Missing]{"share", policy.Share}, choice[policy.Missing]{"skip", policy.Skip}, choice[policy.Missing]{"deny", policy.Refuse}),
			func(r *policy.Rule, v policy.Missing) { r.Missing = v }),
		in("limit", "How much each key may use.", limit,
			func(r *policy.Rule, v spillgate.Limit) { r.Limit = v }),
		in("deny", "Refuses every request that matches. Such a rule has no limit.", truth,
			func(r *policy.Rule, v bool) { r.Deny = v }),
		in("unit", "What is counted; requests if left out.", word,
			func(r *policy.Rule, v string) { r.Unit = v }),
		in("cost", "How many units a request costs when the program says nothing else; 1 if left out.", whole(1, math.MaxInt64),
			func(r *policy.Rule, v int64) { r.Cost = v }),
		in("failures", "Only requests that end so are charged; others get their charge back.", oneOrMore(outcome),
			func(r *policy.Rule, v []string) { r.Failures = v }),
		in("enforce", "The percentage of keys that the rule may refuse. 0 makes it a shadow rule, which only counts; 100 if left out.", whole(0, 100),
			func(r *policy.Rule, v int64) { r.Spare = int(100 - v) }),
		in("tell", "Tells the program behind how much is left.", truth,
			func(r *policy.Rule, v bool) { r.Tell = v }),
		in("on_fault", "How the rule decides while the store can't answer: in local memory, open (let pass), or closed (refuse as unavailable).",
			oneOf(choice[policy.OnFault]{"local", policy.Local}, choice[policy.OnFault]{"open", policy.Open}, choice[policy.OnFault]{"closed", policy.Shut}),
			func(r *policy.Rule, v policy.OnFault) { r.OnFault = v }),
		in("max_keys", "How many callers are told apart at most; 1048576 if left out.", whole(1, 1<<31),
			func(r *policy.Rule, v int64) { r.MaxKeys = int(v) }),
		in("at_cap", "What happens to newcomers beyond max_keys: they share one overflow limit, or the entry nearest to unused makes room.",
			oneOf(choice[spillgate.AtCap]{"overflow", spillgate.Overflow}, choice[spillgate.AtCap]{"make_room", spillgate.MakeRoom}),
			func(r *policy.Rule, v spillgate.AtCap) { r.AtCap = v }),
		in("ttl", "How long after its last charge a key is forgotten, whatever its limit says.", lifetime,
			func(r *policy.Rule, v time.Duration) { r.TTL = v }),
	},
	hint: func(key string) string {
		switch strings.ToLower(key) {
		case "rate", "burst", "period", "per", "window", "quota", "requests":
			return `rate, period and burst are one text: limit: 10/s burst 20`
		case "by", "per_key":
			return `did you mean "key"?`
		case "when", "if", "where", "on":
			return `did you mean "match"?`
		case "shadow", "dry_run", "mode":
			return "a shadow rule has enforce: 0"
		}
		if _, err := policy.ParseAttribute(key); err == nil {
			return fmt.Sprintf("a condition stands under match: match: {%s: …}", key)
		}
		return ""
	},
}

// match is a mapping of attributes to what they must be.
var match = kind[policy.Match]{
	schema: schema{"$ref": "#/$defs/match"},
	read: func(d *decoder, n *yaml.Node) (policy.Match, bool) {
		var m policy.Match
		outer, before := d.in, len(d.errs)
		seen := make(map[policy.Attribute]bool)
		ok, _ := d.pairs(n, "conditions", func(key, value *yaml.Node) {
			a, err := policy.ParseAttribute(key.Value)
			switch {
			case err != nil:
				fix := ""
				if !strings.Contains(err.Error(), "did you mean") {
					fix = attributeMeant(key.Value)
				}
				d.cause(key, fix, err)
				return
			case seen[a]:
				d.fail(key, "make it one condition with a list of values", "%s is there twice", a)
				return
			}
			seen[a] = true
			d.in = outer + ": " + a.String()
			m = append(m, policy.Condition{Attribute: a, Values: readValues(d, value, a)})
			d.in = outer
		})
		return m, ok && len(d.errs) == before
	},
}

// anyText is a string, which may be empty.
var anyText = kind[string]{schema: schema{"type": "string"}, read: readText}

// readValues reads the values of a condition, and checks each by itself.
func readValues(d *decoder, n *yaml.Node, a policy.Attribute) []string {
	checked := kind[string]{read: func(d *decoder, n *yaml.Node) (string, bool) {
		n, ok := d.value(n)
		if !ok {
			return "", false
		}
		s, ok := readText(d, n)
		if !ok {
			return "", false
		}
		err := probe(func(r *policy.Rule) { r.Match = policy.Match{{Attribute: a, Values: []string{s}}} })
		if err != nil {
			// The attribute is named in d.in already.
			d.fail(n, "", "%s", strings.TrimPrefix(plain(err), a.String()+": ")).Err = err
		}
		return s, err == nil
	}}
	values, _ := oneOrMore(checked).read(d, n)
	return values
}

// attributeMeant returns the fix for a misspelt attribute, if one comes to mind.
func attributeMeant(s string) string {
	if w := closest(s, attributeNames()); w != "" && w != s {
		return fmt.Sprintf("did you mean %q?", w)
	}
	return ""
}

// attributeNames lists the attributes; some end in a dot, for a name to follow.
func attributeNames() []string {
	var names []string
	for k := policy.ClientIP; k <= policy.Own; k++ {
		names = append(names, policy.Attribute{Kind: k}.String())
	}
	return names
}

// part is a part of a key.
var part = kind[policy.Part]{
	schema: schema{
		"type": "string", "minLength": 1,
		"examples": []string{"client.ip", "client.ip/56", "host", "header.x-api-key", "user else client.ip", "header.x-email lower trim"},
	},
	read: func(d *decoder, n *yaml.Node) (p policy.Part, ok bool) {
		n, ok = d.value(n)
		if !ok {
			return p, false
		}
		if n.Kind == yaml.MappingNode {
			d.wrong(n, "text such as client.ip", asPart(n))
			return p, false
		}
		s, ok := readText(d, n)
		if !ok {
			return p, false
		}
		p, err := policy.ParsePart(s)
		if err != nil {
			d.cause(n, "", err)
		}
		return p, err == nil
	},
}

// asPart guesses the part that is meant by a mapping such as {Header: X-Id},
// as other products write it.
func asPart(n *yaml.Node) string {
	if len(n.Content) != 2 {
		return ""
	}
	name, value := strings.ToLower(n.Content[0].Value), n.Content[1].Value
	for _, guess := range []string{name, name + "." + strings.ToLower(value)} {
		if _, err := policy.ParseAttribute(guess); err == nil {
			return "write " + guess
		}
	}
	switch name {
	case "ip", "client_ip", "remote_addr", "address":
		return "write client.ip"
	}
	return ""
}
