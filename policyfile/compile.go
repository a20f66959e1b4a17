package policyfile

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/policy"
	"go.yaml.in/yaml/v4"
)

// file reads the root of a document into f, and compiles its rules.
func (d *decoder) file(root *yaml.Node, f *File) {
	if root == nil || root.Kind == yaml.ScalarNode && root.ShortTag() == "!!null" {
		d.failAt(1, 1, "write at least one rule, such as: rules: [{name: all, limit: 10/s, key: client.ip}]", "the file is empty, and would limit nothing")
		return
	}
	doc := document{server: &f.Server}
	d.foresee(root)
	m, ok := documentForm.read(d, root, &doc)
	f.ForGateway = m.values["server"] != nil
	switch {
	case !ok:
	case m.values["rules"] != nil:
		if f.Policy = d.compile(&doc); f.Policy == nil {
			f.Policy = doc.sketch() // for what speaks of the rules
		}
		f.Policy = d.usage(f.Policy, &doc)
		d.override(&doc, f)
		beyond := append(d.beyondGateway(&doc), d.overridesBeyondGateway(&doc)...)
		if f.ForGateway {
			d.report(beyond...)
		}
		d.upstreamCAs(root, &doc)
		f.beyond = sorted(beyond)
		f.Tests = doc.tests
		d.settleTests(&doc, f)
		if len(d.errs) == 0 {
			f.Warnings = d.warnings(root, &doc, f)
		}
	case !m.strange: // else a key that is not known may be meant so
		d.fail(root, `list at least one rule under "rules:"`, "no rules: the file would limit nothing")
	}
}

// upstreamCAs reports that it is said who signs the certificates of upstreams where
// none has any. One that is not named may have.
func (d *decoder) upstreamCAs(root *yaml.Node, doc *document) {
	s := doc.server
	encrypted := func(u string) bool { return u == "" || strings.HasPrefix(u, "https:") }
	if s.UpstreamCAFile == "" || encrypted(s.Upstream) ||
		slices.ContainsFunc(doc.rules, func(r policy.Rule) bool { return r.Backup != nil && encrypted(r.Backup.Upstream) }) ||
		slices.ContainsFunc(doc.places, func(m mapping) bool { return m.bad["backup"] }) {
		return
	}
	d.fail(under(under(root, "server"), "upstream_ca_file"), "write https:// in the upstream for TLS, or remove it", "upstream_ca_file: no upstream is spoken to over TLS, so no certificate has an effect")
}

// compile compiles the rules, and finds the places of what is wrong with them.
func (d *decoder) compile(doc *document) *policy.Policy {
	intact := !doc.unread
	doc.wrong = make([]bool, len(doc.rules))
	for i := range doc.places {
		doc.places[i].standIn(&doc.rules[i], i)
		intact = intact && !doc.places[i].spoilt()
	}
	pol, err := policy.Compile(doc.rules, policy.WithPaths(doc.paths))
	if err == nil {
		if doc.off {
			pol = pol.Unenforced()
		}
		return pol
	}
	for _, err := range flatten(err) {
		var wrong *policy.RuleError
		switch {
		case d.full:
			return nil
		case !errors.As(err, &wrong) || wrong.Index >= len(doc.places):
			d.failAt(1, 1, "", "%s", plain(err)).Err = err
		case doc.places[wrong.Index].bad[wrong.Field]:
			// Told already, as the cause of this.
			doc.wrong[wrong.Index] = true
		case doc.places[wrong.Index].strange && doc.places[wrong.Index].values[wrong.Field] == nil:
			// Missing, but maybe meant by a key that is not known.
		case !intact && (wrong.Field == "key" || wrong.Field == "group"):
			// About several rules, one of which may be read in part only.
		default:
			doc.wrong[wrong.Index] = true
			d.ruleError(wrong, doc)
		}
	}
	return nil
}

// sketch returns a policy that stands for one whose rules are wrong, so that
// what speaks of them is checked all the same: their names, groups and units,
// and the limits of those that are right. It is nil if there is nothing to speak
// of.
func (doc *document) sketch() *policy.Policy {
	var rules []policy.Rule
	simple := spillgate.Limit{Rate: 1, Period: time.Second, Burst: 1}
	some := policy.Match{{Attribute: policy.Attribute{Kind: policy.Path}, Values: []string{"/"}}}
	named := make(map[string]bool)
	for i := range doc.rules {
		r := &doc.rules[i]
		s := policy.Rule{Name: r.Name, Group: r.Group, Match: some}
		if named[r.Name] || probe(func(p *policy.Rule) { p.Name = r.Name }) != nil {
			s.Name = fmt.Sprintf("unnamed-%d", i+1) // its group and unit are there
		}
		if named[s.Name] {
			continue
		}
		switch {
		case r.Exempt:
			s.Exempt, s.Group = true, ""
		case r.Deny:
			s.Deny = true
		case doc.wrong[i] || doc.places[i].spoilt():
			s.Unit, s.Limit = r.Unit, simple
		default:
			s.Unit, s.Limit, s.TTL, s.Cost, s.Prices = r.Unit, r.Limit, r.TTL, r.Cost, r.Prices
		}
		named[s.Name] = true
		rules = append(rules, s)
	}
	if len(rules) == 0 {
		return nil
	}
	pol, _ := policy.Compile(rules) // nil if it fails
	return pol
}

// lost reports whether what some rule says under a key is not known.
func (doc *document) lost(key string) bool {
	return doc.unread || slices.ContainsFunc(doc.places, func(m mapping) bool {
		return m.bad[key] || m.values[key] == nil && (m.strange || key == "name")
	})
}

// unsure reports whether an override is of a rule that is wrong, so that nobody
// knows whether its limit fits.
func (doc *document) unsure(o *policy.Override) bool {
	for i := range doc.rules {
		r := &doc.rules[i]
		if (doc.wrong[i] || doc.places[i].spoilt()) && (slices.Contains(o.Rules, r.Name) || slices.Contains(o.Groups, r.Group)) {
			return true
		}
	}
	return false
}

// standIn puts something in the place of what could not be read of the i-th rule,
// so that what stands beside it is not told as missing, or as without effect.
func (m *mapping) standIn(r *policy.Rule, i int) {
	lost := func(key string) bool { return m.bad[key] || m.strange && m.values[key] == nil }
	if m.bad["name"] {
		r.Name = fmt.Sprintf("rule-%d", i+1)
	}
	if lost("key") {
		r.Key = []policy.Part{{Attributes: []policy.Attribute{{Kind: policy.Path}}}}
	}
	if (m.bad["deny"] || m.bad["exempt"]) && m.values["limit"] == nil {
		r.Limit = spillgate.Limit{Rate: 1, Period: time.Second, Burst: math.MaxInt32}
	}
}

// ruleError reports what Compile found, at the value that it speaks of.
func (d *decoder) ruleError(wrong *policy.RuleError, doc *document) {
	m, r := &doc.places[wrong.Index], &doc.rules[wrong.Index]
	what, _, _ := strings.Cut(strings.Replace(wrong.Err.Error(), ":", " ", 1), " ") // the key of a mapping, mostly
	at, fix := under(m.at(wrong.Field), what), ""
	switch {
	case strings.HasSuffix(wrong.Err.Error(), "; remove it"):
	case wrong.Field == "ttl":
		at, fix = m.at("ttl", "limit"), "add ttl: 30d, or write a rate above 0"
	case wrong.Entry > 0:
		at = under(entry(at, wrong.Entry-1), what)
	case wrong.Field == "cost" && (r.Exempt || len(r.Prices) > 0):
	case wrong.Field == "cost" && r.Limit.Algorithm == spillgate.Bucket:
		larger := r.Limit
		larger.Burst = r.Cost
		fix = fmt.Sprintf("write %d, the most, or limit: %s", r.Limit.Cap(), larger)
	case wrong.Field == "cost":
		fix = fmt.Sprintf("write %d, the most, or a larger limit", r.Limit.Cap())
	case wrong.Field == "match" && m.values["match"] == nil:
		fix = "add a match that says which requests the rule is for"
	case wrong.Field == "name" && r.Name == "":
		fix = "add a name, such as name: " + doc.free("rule")
	case wrong.Field == "name":
		fix = "write " + doc.free(r.Name)
	}
	d.in = wrong.Field
	d.fail(at, fix, "%s", plain(wrong.Err)).Err = wrong
	d.in = ""
}

// free returns the name that no rule has yet, name with a number.
func (doc *document) free(name string) string {
	taken := make(map[string]bool, len(doc.rules))
	for i := range doc.rules {
		taken[doc.rules[i].Name] = true
	}
	for n := 2; ; n++ {
		number := fmt.Sprintf("-%d", n)
		if free := name[:min(len(name), 64-len(number))] + number; !taken[free] {
			return free
		}
	}
}

// probe reports what is wrong with one value of a rule, by itself.
func probe(set func(r *policy.Rule)) error {
	r := policy.Rule{Name: "probe", Limit: spillgate.Limit{Rate: 1, Period: time.Second, Burst: 1}}
	set(&r)
	_, err := policy.Compile([]policy.Rule{r})
	var wrong *policy.RuleError
	if errors.As(err, &wrong) {
		return wrong.Err
	}
	return err
}
