package policyfile

import (
	"errors"
	"fmt"

	"github.com/spillgate/spillgate/policy"
	"go.yaml.in/yaml/v4"
)

// file reads the root of a document and compiles its rules.
func (d *decoder) file(root *yaml.Node, server *Server) *policy.Policy {
	if root == nil || root.Kind == yaml.ScalarNode && root.ShortTag() == "!!null" {
		d.failAt(1, 1, "write at least one rule, such as: rules: [{name: all, limit: 10/s, key: client.ip}]", "the file is empty, and would limit nothing")
		return nil
	}
	doc := document{server: server}
	m, ok := documentForm.read(d, root, &doc)
	if !ok {
		return nil
	}
	if m.values["rules"] == nil {
		d.fail(root, `list at least one rule under "rules:"`, "no rules: the file would limit nothing")
		return nil
	}
	return d.compile(&doc)
}

// compile compiles the rules, and finds the places of what is wrong with them.
func (d *decoder) compile(doc *document) *policy.Policy {
	intact := len(d.errs) == 0
	for i := range doc.places {
		if doc.places[i].bad["name"] {
			// Not to be told as missing, or as the name of another one.
			doc.rules[i].Name = fmt.Sprintf("rule-%d", i+1)
		}
	}
	pol, err := policy.Compile(doc.rules)
	if err == nil {
		return pol
	}
	all := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		all = joined.Unwrap()
	}
	for _, err := range all {
		var wrong *policy.RuleError
		switch {
		case d.full:
			return nil
		case !errors.As(err, &wrong) || wrong.Index >= len(doc.places):
			d.failAt(1, 1, "", "%s", plain(err)).Err = err
		case doc.places[wrong.Index].bad[wrong.Field]:
			// Told already, as the cause of this.
		case doc.places[wrong.Index].strange && doc.places[wrong.Index].values[wrong.Field] == nil:
			// Missing, but maybe meant by a key that is not known.
		case !intact && wrong.Field == "key":
			// About two rules, one of which may be read in part only.
		default:
			d.ruleError(wrong, &doc.places[wrong.Index])
		}
	}
	return nil
}

// ruleError reports what Compile found, at the value that it speaks of.
func (d *decoder) ruleError(wrong *policy.RuleError, m *mapping) {
	at := m.at(wrong.Field)
	if wrong.Field == "ttl" {
		at = m.at("ttl", "limit")
	}
	d.in = wrong.Field
	d.fail(at, "", "%s", plain(wrong.Err)).Err = wrong
	d.in = ""
}

// probe reports what is wrong with one value of a rule, by itself.
func probe(set func(r *policy.Rule)) error {
	r := policy.Rule{Name: "probe", Deny: true}
	set(&r)
	_, err := policy.Compile([]policy.Rule{r})
	var wrong *policy.RuleError
	if errors.As(err, &wrong) {
		return wrong.Err
	}
	return err
}
