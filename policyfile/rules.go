package policyfile

import (
	"errors"
	"fmt"
	"regexp"
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
	tests  []*Test
	off    bool   // nobody is refused
	unread bool   // some rule is no mapping
	wrong  []bool // of each rule, whether it can't be compiled

	usage       []policy.Usage
	usagePlaces []mapping

	excepts        bool // there are overrides, right or wrong
	overrides      []policy.Override
	overridePlaces []mapping
	listed         []policy.Override // with what their lists hold
	paths          policy.Paths
}

var documentForm = form[document]{
	what:    "a policy file",
	example: `"rules:" and a list of rules under it`,
	also:    map[string]string{"limits": "rules", "policy": "rules", "policies": "rules", "gateway": "server", "serve": "server", "test": "tests", "scenarios": "tests"},
	fields: []field[document]{
		{
			key: "server", about: "How the gateway serves. Programs that only want the policy pass it over.",
			schema: schema{"$ref": "#/$defs/server"},
			read: func(d *decoder, n *yaml.Node, into *document) {
				readServer(d, n, into.server)
			},
		},
		{
			key: "rules", about: "The rules. All that match a request apply; their order does not matter.",
			schema: schema{"type": "array", "minItems": 1, "maxItems": policy.MaxRules, "items": schema{"$ref": "#/$defs/rule"}},
			read: func(d *decoder, n *yaml.Node, into *document) {
				d.list(n, "a list of rules", "write at least one, such as rules: [{name: all, limit: 10/s, key: client.ip}]", into.rule(d))
			},
		},
		{
			key: "tests", about: "Scenarios, which spillgate test runs: requests at given times, and what must be said of each.",
			schema: schema{"type": "array", "minItems": 1, "items": schema{"$ref": "#/$defs/test"}},
			read: func(d *decoder, n *yaml.Node, into *document) {
				d.items(n, "a list of tests", into.test(d))
			},
		},
		overridesField,
		enforceField, pathsField,
		usageField,
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
			d.fail(n, "use one rule with a key for what differs by a value alone", "more than %d rules", policy.MaxRules)
			d.full = true
			return
		}
		outer := d.in
		d.in = ""
		var r policy.Rule
		m, ok := ruleForm.read(d, n, &r)
		d.in = outer
		if !ok {
			doc.unread = true
			return
		}
		r.Source = fmt.Sprintf("%s:%d", d.src.name, m.node.Line)
		doc.rules, doc.places = append(doc.rules, r), append(doc.places, m)
	}
}

var serverForm = form[Server]{
	what:    "the server part",
	example: "server: {listen: " + DefaultListen + "}",
	also:    map[string]string{"address": "listen", "addr": "listen", "port": "listen", "backend": "upstream", "proxies": "client_ip"},
	fields: []field[Server]{
		in("listen", "The address and port at which the gateway listens.", listen,
			func(s *Server, v string) { s.Listen = v }),
		in("upstream", "Where the gateway sends what may pass: http://, https://, or h2c:// for HTTP/2 without TLS, as servers of gRPC speak it.", upstream,
			func(s *Server, v string) { s.Upstream = v }),
		in("upstream_ca_file", "The file with the certificates of those who sign the certificates of https upstreams, in PEM. Left out, those that the system trusts.", filePath,
			func(s *Server, v string) { s.UpstreamCAFile = v }),
		{
			key: "client_ip", about: "Whose word about a client's address is believed. Left out, the client is the peer.",
			schema: schema{"$ref": "#/$defs/client_ip"},
			read:   func(d *decoder, n *yaml.Node, s *Server) { readClientIP(d, n, s) },
		},
		in("headers", "Which answers carry RateLimit fields: all, refusals, or none.", oneOf(headersWords...),
			func(s *Server, v Headers) { s.Headers = v }),
		in("state", "The file that the gateway keeps its counters in over a restart.", filePath,
			func(s *Server, v string) { s.State = v }),
		storeField,
		fingerprintKeyField,
		connectionsField, tlsField, h2cField,
		dialectsField, jitterField, partitionsField,
	},
}

var headersWords = []choice[Headers]{{"on", HeadersOn}, {"refusals", HeadersRefusals}, {"off", HeadersOff}}

var clientIPForm = form[clientip.Options]{
	what:    "the client_ip part",
	example: "client_ip: {trusted: private, from: x-forwarded-for}",
	also:    map[string]string{"header": "from", "proxies": "trusted", "networks": "trusted"},
	fields: []field[clientip.Options]{
		in("trusted", "The proxies' networks: addresses, CIDRs, or private, loopback, link-local, unix, any.", needed(wordOr("write an address, a network, or a name such as private")),
			func(o *clientip.Options, v []string) { o.Trusted = v }),
		in("from", "The one header that the proxies set: forwarded, x-forwarded-for, or one that holds a single address.", word,
			func(o *clientip.Options, v string) { o.Header = v }),
	},
}

func readClientIP(d *decoder, n *yaml.Node, s *Server) {
	var o clientip.Options
	m, ok := clientIPForm.read(d, n, &o)
	if !ok || m.spoilt() {
		return
	}
	if o.Header == "" && o.Trusted != nil {
		d.fail(m.node, "add the header that they set, such as from: x-forwarded-for", "proxies are trusted, but no header of theirs is named")
		return
	}
	good := clientip.Options{Header: o.Header}
	for i, name := range o.Trusted {
		_, err := clientip.ParseNetworks(name)
		var network *clientip.NetworkError
		if !errors.As(err, &network) {
			good.Trusted = append(good.Trusted, name)
			continue
		}
		fix := ""
		if name := closest(name, trustedNames); name != "" {
			fix = fmt.Sprintf("did you mean %q?", name)
		}
		d.fail(entry(m.at("trusted"), i), fix, "trusted: %.60q: %s", name, network.Reason).Err = err
	}
	client, err := clientip.New(good)
	switch {
	case err == nil:
		s.Client, s.ClientIP = client, o
	case errors.Is(err, clientip.ErrNothingTrusted) && len(o.Trusted) > 0: // all of them were told
	case errors.Is(err, clientip.ErrEverythingTrusted):
		d.cause(m.at("trusted"), "", err)
	default:
		d.cause(m.at("from"), "", err)
	}
}

// trustedNames stand for networks.
var trustedNames = []string{clientip.Private, clientip.Loopback, clientip.LinkLocal, clientip.Unix, clientip.Any}

var ruleForm = form[policy.Rule]{
	what:    "a rule",
	example: "{name: everybody, key: client.ip, limit: 10/s}",
	also: map[string]string{
		"by": "key", "per_key": "key", "when": "match", "if": "match", "where": "match", "on": "match", "id": "name",
		"allow": "exempt", "bypass": "exempt", "skip": "exempt", "active": "enabled", "tags": "group",
		"capacity": "max_keys", "expire": "ttl", "on_error": "on_fault", "weight": "cost",
	},
	fields: append([]field[policy.Rule]{
		in("name", "Identifies the rule in answers and logs, and its counters across changes of the file.",
			plainName(func(r *policy.Rule, s string) { r.Name = s }),
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
		in("unit", "What is counted; requests if left out.",
			plainName(func(r *policy.Rule, s string) { r.Unit = s }),
			func(r *policy.Rule, v string) { r.Unit = v }),
		costField,
		lanesField,
		in("failures", "Only requests that end so are charged; others get their charge back.", oneOrMore(outcome),
			func(r *policy.Rule, v []string) { r.Failures = v }),
		in("enforce", "The percentage of keys that the rule may refuse. 0 makes it a shadow rule, which only counts; 100 if left out.", whole(0, 100),
			func(r *policy.Rule, v int64) { r.Spare = int(100 - v) }),
		in("penalty", "Blocks a key that the rule has refused too often.", penalty,
			func(r *policy.Rule, v policy.Penalty) { r.Penalty = v }),
		in("tell", "Tells the program behind how much is left.", truth,
			func(r *policy.Rule, v bool) { r.Tell = v }),
		in("headers", "Whether RateLimit fields tell of this rule: on or off; on if left out.", oneOf(choice[bool]{"on", false}, choice[bool]{"off", true}),
			func(r *policy.Rule, v bool) { r.Hide = v }),
		answerField, delayField, backupField,
		onFaultField,
		in("max_keys", "How many callers are told apart at most; 1048576 if left out.", whole(1, 1<<31),
			func(r *policy.Rule, v int64) { r.MaxKeys = int(v) }),
		in("at_cap", "What happens to newcomers beyond max_keys: they share one overflow limit, or the entry nearest to unused makes room.",
			oneOf(choice[spillgate.AtCap]{"overflow", spillgate.Overflow}, choice[spillgate.AtCap]{"make_room", spillgate.MakeRoom}),
			func(r *policy.Rule, v spillgate.AtCap) { r.AtCap = v }),
		in("ttl", "How long after its last charge a key is forgotten, whatever its limit says.", lifetime,
			func(r *policy.Rule, v time.Duration) { r.TTL = v }),
	}, applyFields...),
	hint: func(key string) string {
		switch strings.ToLower(key) {
		case "rate", "burst", "period", "per", "window", "quota", "requests":
			return `rate, period and burst are one text: limit: 10/s burst 20`
		case "shadow", "dry_run", "mode":
			return "a shadow rule has enforce: 0"
		case "disabled":
			return "a rule that is off has enabled: false"
		}
		if port(key) && len(key) == 3 && '1' <= key[0] && key[0] <= '5' {
			return fmt.Sprintf("several statuses are a list: failures: [401, %s]; a number has no commas", key)
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
		ok, _ := d.pairs(n, "conditions", "conditions such as {method: POST, path: /login}", func(key, value *yaml.Node) {
			a, err := policy.ParseAttribute(key.Value)
			switch {
			case err != nil:
				msg, fix := attributeError(err, key.Value)
				d.fail(key, fix, "%s", msg).Err = err
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
var anyText = kind[string]{schema: schema{"type": "string"}}

// readValues reads the values of a condition, and checks each by itself.
func readValues(d *decoder, n *yaml.Node, a policy.Attribute) []string {
	checked := kind[string]{read: func(d *decoder, n *yaml.Node) (string, bool) {
		n, ok := d.value(n)
		if !ok {
			return "", false
		}
		fix := ""
		if n.Kind == yaml.ScalarNode && n.ShortTag() != "!!str" && valueError(a, n.Value) != nil {
			fix = fixValue(a, n.Value)
		}
		s, ok := readValue(d, n, a, fix)
		if !ok {
			return "", false
		}
		err := d.valueError(a, s)
		if short, ok := strings.CutSuffix(s, "/"); err != nil && ok && d.pathsUnread && valueError(a, short) == nil {
			return short, true // the part that can't be read may say that slashes matter
		}
		if err != nil {
			// The attribute is named in d.in already.
			msg, fix := strings.TrimPrefix(plain(err), a.String()+": "), fixValue(a, s)
			if cut, advised := advice(msg); strings.HasPrefix(advised, "write ") && fix != "" {
				msg = cut // ours is valid, which theirs may not be
			}
			d.fail(n, fix, "%s", msg).Err = err
		}
		return s, err == nil
	}}
	values, _ := oneOrMore(checked).read(d, n)
	return values
}

// valueError reports what is wrong with a value of a condition.
func valueError(a policy.Attribute, s string) error {
	if (a.Kind == policy.Method || a.Kind == policy.Host) && strings.ContainsAny(s, ", |") {
		return fmt.Errorf("value %q: a %s holds no blank, comma or bar, so it would never match", s, a)
	}
	if a.Kind == policy.Host && strings.Contains(s, "]:") {
		return fmt.Errorf("value %q: hosts are matched without their port", s)
	}
	return probe(func(r *policy.Rule) { r.Match = policy.Match{{Attribute: a, Values: []string{s}}} })
}

// attributeNames lists the attributes; some end in a dot, for a name to follow.
func attributeNames() []string {
	var names []string
	for k := policy.ClientIP; k <= policy.Proxy; k++ {
		names = append(names, policy.Attribute{Kind: k}.String())
	}
	return names
}

// attributeHeads lists the words before the dot of those that have a name behind it.
func attributeHeads() (heads []string) {
	for _, name := range attributeNames() {
		if head, ok := strings.CutSuffix(name, "."); ok {
			heads = append(heads, head)
		}
	}
	return heads
}

// badAttribute finds the word in what policy says of one that is no attribute.
var badAttribute = regexp.MustCompile(`^(?:unknown )?attribute "([^"]*)"`)

// part is a part of a key.
var part = kind[policy.Part]{
	schema: schema{
		"type": "string", "minLength": 1,
		"examples": []string{"client.ip", "client.ip/56", "host", "header.x-api-key", "user else client.ip", "header.x-email lower trim", "header.x-id secret"},
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
		s, ok := readText(d, n, "write an attribute, such as client.ip")
		if !ok {
			return p, false
		}
		p, err := policy.ParsePart(s)
		if err == nil {
			return p, true
		}
		msg, fix := advice(plain(err))
		if word := badAttribute.FindStringSubmatch(msg); word != nil {
			msg, fix = attributeError(err, word[1])
		}
		if better := fixPart(s); better != "" {
			fix = better
		} else if fix == "" {
			fix = "write an attribute, such as client.ip"
		}
		d.fail(n, fix, "%s", msg).Err = err
		return p, false
	},
}

// asPart guesses the part that is meant by a mapping such as {Header: X-Id},
// as other products write it.
func asPart(n *yaml.Node) string {
	if len(n.Content) != 2 {
		return "write an attribute, such as client.ip"
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
	return "write an attribute, such as client.ip"
}
