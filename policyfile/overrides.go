package policyfile

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
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
		in("until", "When it ends: a date (its first instant, in UTC), or a time with its zone. Left out, never.", expiry,
			func(o *policy.Override, v time.Time) { o.Until = v }),
	},
}

// overridesField is the key of the document.
var overridesField = field[document]{
	key: "overrides", about: "Exceptions from the rules: for whom they do not apply, apply with another limit, or refuse.",
	schema: schema{"type": "array", "minItems": 1, "maxItems": policy.MaxOverrides, "items": schema{"$ref": "#/$defs/override"}},
	read: func(d *decoder, n *yaml.Node, into *document) {
		into.excepts = true
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
			if ok && m.values["key"] != nil && m.values["list"] == nil && !m.strange {
				d.fail(m.at("key"), "remove it, or add a list of its values", "key: without a list it says nothing")
			}
			d.in = outer
			if !ok {
				return
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

// override gives a policy the overrides of the document, with their lists.
func (d *decoder) override(doc *document, f *File) {
	if len(doc.overrides) == 0 {
		return
	}
	f.overrides = doc.overrides
	doc.listed = d.lists(doc, f)
	if f.Policy == nil {
		return
	}
	pol, err := f.Policy.WithOverrides(doc.listed)
	if err == nil {
		f.Policy = pol
		return
	}
	for _, err := range flatten(err) {
		var wrong *policy.OverrideError
		if !errors.As(err, &wrong) || wrong.Index >= len(doc.overridePlaces) {
			d.failAt(1, 1, "", "%s", plain(err)).Err = err
			continue
		}
		m := &doc.overridePlaces[wrong.Index]
		if m.bad[wrong.Field] || m.strange && m.values[wrong.Field] == nil || wrong.Field == "" && len(m.bad) > 0 && slices.Contains(slices.Collect(maps.Values(m.bad)), true) {
			continue // told already, or as the cause of this
		}
		switch {
		case wrong.Field == "limit" && (m.strange || m.bad["rule"] || m.bad["group"]), wrong.Field == "rule" && doc.lost("name"), wrong.Field == "group" && doc.lost("group"), wrong.Field == "limit" && doc.unsure(&doc.overrides[wrong.Index]):
			continue // what is wrong with a rule may be the cause of this
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

// lists returns the overrides with what their lists hold.
func (d *decoder) lists(doc *document, f *File) []policy.Override {
	full := append([]policy.Override(nil), doc.overrides...)
	r := listsReader{files: f.files}
	for i := range full {
		m := &doc.overridePlaces[i]
		o := &full[i]
		if o.List == "" || m.bad["list"] || m.bad["key"] {
			continue
		}
		if d.files == nil {
			d.fail(m.at("list"), "write the addresses under match, as client.ip: [203.0.113.0/24]", "list: this policy is read by itself, without other files")
			continue
		}
		if m.strange && m.values["key"] == nil {
			continue // nobody knows what it is a list of
		}
		var err error
		if o.Entries, err = r.read(o); err == nil {
			continue
		}
		var wrong Errors
		if !errors.As(err, &wrong) {
			fix := "name a list that is there, an empty one if need be"
			if !fs.ValidPath(o.List) {
				fix = "put it beside the policy file or in a folder below, and name it from there: " + path.Base(o.List)
			}
			d.fail(m.at("list"), fix, "list: %s", strings.TrimPrefix(err.Error(), "policyfile: ")).Err = err
		}
		for _, e := range wrong {
			d.fail(m.at("list"), e.Fix, "list: %s: %s", e.place(), e.Msg).Err = e
		}
	}
	return full
}

// overridesBeyondGateway returns what is wrong with the overrides in the
// gateway.
func (d *decoder) overridesBeyondGateway(doc *document) (errs []*Error) {
	for i := 0; i < len(doc.overrides) && len(errs) <= maxErrors; i++ {
		o, m := &doc.overrides[i], &doc.overridePlaces[i]
		for _, a := range o.Key.Attributes {
			if !doc.server.offers(a) {
				errs = append(errs, d.beyond(m.at("key"), a, fmt.Sprintf("key: the gateway knows no %s, so the list names nobody", a)))
			}
		}
		for _, c := range o.Match {
			if !doc.server.offers(c.Attribute) {
				errs = append(errs, d.beyond(condition(m.at("match"), c.Attribute), c.Attribute,
					fmt.Sprintf("match: the gateway knows no %s, so this says nothing about a request", c.Attribute)))
			}
		}
	}
	return errs
}

// overrideWarnings finds what is odd about the overrides at that time.
func (doc *document) overrideWarnings(now time.Time, add func(code string, at *yaml.Node, msg, fix string)) {
	for i := range doc.overrides {
		o, m := &doc.overrides[i], &doc.overridePlaces[i]
		if !o.Until.IsZero() && !now.Before(o.Until) {
			add("expired", target(m.at("until")), "until: the override has ended, and has no effect", "remove the override, or write a later date")
		} else if n, first := ended(doc.listed[i].Entries, now); n > 0 {
			add("expired", target(m.at("list")), fmt.Sprintf("list: %d of %d entries of %s have ended, and have no effect, the first in line %d", n, len(doc.listed[i].Entries), o.List, first),
				"remove them, or write later dates")
		}
		if a, ok := o.OnWord(); ok && (o.Exempt || o.Limit != (spillgate.Limit{}) && a.Kind.Claimed()) {
			gives := "is exempt"
			if !o.Exempt {
				gives = "has this limit"
			}
			add("claimed-exempt", condition(m.at("match", "list"), a), fmt.Sprintf("whoever says the right %s %s, and the client chooses what it says", a, gives),
				"add a condition that it can't choose, such as client.ip, or keep the value secret")
		}
	}
}

// ended counts the entries that have ended, and returns the line of the first.
func ended(entries []policy.Entry, now time.Time) (n, first int) {
	for i := range entries {
		if e := &entries[i]; !e.Until.IsZero() && !now.Before(e.Until) {
			if n++; n == 1 {
				first = e.Line
			}
		}
	}
	return n, first
}

// fixReference says which rule or group may be meant, "" if all that are named
// are there.
func (doc *document) fixReference(wrong *policy.OverrideError) string {
	var names []string
	asked := doc.overrides[wrong.Index].Rules
	for i := range doc.rules {
		if wrong.Field == "rule" {
			names = append(names, doc.rules[i].Name)
		} else if g := doc.rules[i].Group; g != "" && !doc.rules[i].Exempt {
			names = append(names, g)
		}
	}
	if wrong.Field == "group" {
		asked = doc.overrides[wrong.Index].Groups
	}
	asked = slices.DeleteFunc(slices.Clone(asked), func(name string) bool { return slices.Contains(names, name) })
	for _, name := range asked {
		if close := closest(name, names); close != "" {
			return fmt.Sprintf("did you mean %q?", close)
		}
	}
	if len(asked) == 0 {
		return ""
	}
	return "name a " + wrong.Field + " of this file"
}

// flatten returns the errors that err joins, none if it is nil.
func flatten(err error) []error {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return []error{err}
}

// expiry is a date or a time with its zone.
var expiry = kind[time.Time]{
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
		t, ok := parseExpiry(n.Value)
		if !ok {
			d.wrong(n, want, fixExpiry(n.Value))
		}
		return t, ok
	},
}

// parseExpiry reads an instant in the form of RFC 3339, or a date, which is its
// first instant in UTC.
func parseExpiry(s string) (time.Time, bool) {
	if len(s) == len(time.DateOnly) {
		s += "T00:00:00Z"
	}
	return parseInstant(s)
}

// fixExpiry returns the fix for what is no instant.
func fixExpiry(s string) string {
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
