package policyfile

import (
	"errors"
	"fmt"
	"time"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/policy"
	"go.yaml.in/yaml/v4"
)

var overrideForm = form[policy.Override]{
	what:    "an override",
	example: "{deny: true, match: {client.ip: 203.0.113.0/24}, reason: abuse}",
	also: map[string]string{
		"rules": "rule", "groups": "group", "when": "match", "if": "match", "for": "match", "file": "list", "by": "key",
		"allow": "exempt", "skip": "exempt", "block": "deny", "ban": "deny", "expires": "until", "expiry": "until",
		"why": "reason", "comment": "reason", "contact": "owner", "who": "owner",
	},
	fields: []field[policy.Override]{
		in("rule", "The rules that it is an exception from, by name. Left out, and without group, all.", oneOrMore(word),
			func(o *policy.Override, v []string) { o.Rules = v }),
		in("group", "The groups of rules that it is an exception from.", oneOrMore(word),
			func(o *policy.Override, v []string) { o.Groups = v }),
		in("match", "Whom it is for: all conditions must hold, and an entry of the list, if there is one.", match,
			func(o *policy.Override, v policy.Match) { o.Match = v }),
		in("list", "A file of whom it is for: an address, a network or a value a line.", filePath,
			func(o *policy.Override, v string) { o.List = v }),
		in("key", "The attribute whose values the list holds; client.ip if left out.", part,
			func(o *policy.Override, v policy.Part) { o.Key = v }),
		in("exempt", "The rules do not apply.", truth,
			func(o *policy.Override, v bool) { o.Exempt = v }),
		in("deny", "What the rules match is refused; without rule and group, everything.", truth,
			func(o *policy.Override, v bool) { o.Deny = v }),
		in("limit", "The limit that takes the place of the rules' own.", limit,
			func(o *policy.Override, v spillgate.Limit) { o.Limit = v }),
		in("reason", "Why, for people.", word,
			func(o *policy.Override, v string) { o.Reason = v }),
		in("owner", "Who answers for it, for people.", word,
			func(o *policy.Override, v string) { o.Owner = v }),
		in("until", "When it ends: a date (its first instant, in UTC), or a time with its zone. Left out, never.", instant,
			func(o *policy.Override, v time.Time) { o.Until = v }),
	},
}

// overridesField is the key of the document.
var overridesField = field[document]{
	key: "overrides", about: "Exceptions from the rules: for whom they do not apply, apply with another limit, or refuse.",
	schema: schema{"type": "array", "minItems": 1, "maxItems": policy.MaxOverrides, "items": schema{"$ref": "#/$defs/override"}},
	read: func(d *decoder, n *yaml.Node, into *document) {
		d.items(n, "a list of overrides", func(n *yaml.Node) {
			if len(into.overrides) == policy.MaxOverrides {
				d.fail(n, "put what differs by a value alone into a list", "more than %d overrides", policy.MaxOverrides)
				d.full = true
				return
			}
			outer := d.in
			d.in = ""
			var o policy.Override
			m, ok := overrideForm.read(d, n, &o)
			d.in = outer
			if !ok {
				return
			}
			if m.values["key"] != nil && m.values["list"] == nil && !m.strange {
				d.fail(m.at("key"), "remove it, or add a list of its values", "key: without a list it says nothing")
			}
			o.Source = fmt.Sprintf("%s:%d", d.src.name, m.node.Line)
			into.overrides, into.overridePlaces = append(into.overrides, o), append(into.overridePlaces, m)
		})
	},
}

func overrideSchema() schema {
	s := overrideForm.asSchema()
	one := func(key string) schema {
		said := schema{"required": []string{key}}
		if key != "limit" {
			said["properties"] = schema{key: schema{"const": true}}
		}
		return said
	}
	s["oneOf"] = []any{one("exempt"), one("deny"), one("limit")}
	s["anyOf"] = []any{schema{"required": []string{"match"}}, schema{"required": []string{"list"}}}
	return s
}

// override gives a policy the overrides of the document. Those of lists have
// no entries yet.
func (d *decoder) override(doc *document, f *File) {
	if f.Policy == nil || len(doc.overrides) == 0 {
		return
	}
	intact := len(d.errs) == 0
	pol, err := f.Policy.WithOverrides(doc.overrides)
	if err == nil {
		f.Policy, f.overrides = pol, doc.overrides
		return
	}
	for _, err := range flatten(err) {
		var wrong *policy.OverrideError
		if !errors.As(err, &wrong) || wrong.Index >= len(doc.overridePlaces) {
			d.failAt(1, 1, "", "%s", plain(err)).Err = err
			continue
		}
		m := &doc.overridePlaces[wrong.Index]
		if m.bad[wrong.Field] || m.strange && m.values[wrong.Field] == nil || !intact && wrong.Field == "" {
			continue // told already, or as the cause of this
		}
		d.in = wrong.Field
		fix := ""
		if name := wrong.Field; name == "rule" || name == "group" {
			fix = doc.fixReference(wrong)
		}
		d.fail(m.at(wrong.Field), fix, "%s", plain(wrong.Err)).Err = wrong
		d.in = ""
	}
}

// fixReference says which rule or group may be meant.
func (doc *document) fixReference(wrong *policy.OverrideError) string {
	var names []string
	asked := doc.overrides[wrong.Index].Rules
	for i := range doc.rules {
		if wrong.Field == "rule" {
			names = append(names, doc.rules[i].Name)
		} else if g := doc.rules[i].Group; g != "" {
			names = append(names, g)
		}
	}
	if wrong.Field == "group" {
		asked = doc.overrides[wrong.Index].Groups
	}
	for _, name := range asked {
		if close := closest(name, names); close != "" && close != name {
			return fmt.Sprintf("did you mean %q?", close)
		}
	}
	return "name a " + wrong.Field + " of this file"
}

// flatten returns the errors that err joins.
func flatten(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return []error{err}
}

// instant is a date or a time with its zone.
var instant = kind[time.Time]{
	schema: schema{
		"type": "string", "pattern": `^[0-9]{4}-[0-9]{2}-[0-9]{2}(T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2}))?$`,
		"examples": []string{"2027-01-31", "2027-01-31T18:00:00+01:00"},
	},
	read: func(d *decoder, n *yaml.Node) (time.Time, bool) {
		const want = "a date such as 2027-01-31, or a time with its zone such as 2027-01-31T18:00:00Z"
		n, ok := d.scalar(n, want)
		if !ok {
			return time.Time{}, false
		}
		t, err := parseInstant(n.Value)
		if err != nil {
			d.wrong(n, want, fixInstant(n.Value))
			return time.Time{}, false
		}
		return t, true
	},
}

// parseInstant reads an instant in the form of RFC 3339: a time with its zone,
// or a date, which is its first instant in UTC.
func parseInstant(s string) (time.Time, error) {
	if len(s) == len(time.DateOnly) {
		return time.Parse(time.DateOnly, s)
	}
	return time.Parse(time.RFC3339Nano, s)
}

// fixInstant returns the fix for what is no instant.
func fixInstant(s string) string {
	for _, layout := range []string{"2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02T15:04", "2006-01-02 15:04"} {
		if t, err := time.Parse(layout, s); err == nil {
			return fmt.Sprintf("name the zone: %s, or +01:00 in place of Z", t.Format(time.RFC3339))
		}
	}
	for _, layout := range []string{"2006/01/02", "2006-1-2", "2.1.2006", "20060102", "Jan 2, 2006", "2 Jan 2006"} {
		if t, err := time.Parse(layout, s); err == nil {
			return "write " + t.Format(time.DateOnly)
		}
	}
	return "write year, month and day, such as 2027-01-31"
}
