package policyfile

import (
	"github.com/spillgate/spillgate/policy"
	"go.yaml.in/yaml/v4"
)

// enforceField switches all refusals off, at the top of the file.
var enforceField = field[document]{
	key:    "enforce",
	about:  "off: nobody is refused, by whatever rule; all that the rules count and report goes on. on if left out.",
	schema: onOff.schema,
	read: func(d *decoder, n *yaml.Node, into *document) {
		if on, ok := onOff.read(d, n); ok {
			into.off = !on
		}
	},
}

var onOff = oneOf(choice[bool]{"on", true}, choice[bool]{"off", false})

// applyFields say whether and to whom a rule applies at all.
var applyFields = []field[policy.Rule]{
	in("enabled", "false switches the rule off: it is checked, and applies to nothing.", truth,
		func(r *policy.Rule, v bool) { r.Disabled = !v }),
	in("group", "A name that several rules share, so that an exemption can speak of them together.",
		plainName(func(r *policy.Rule, s string) { r.Group = s }),
		func(r *policy.Rule, v string) { r.Group = v }),
	in("exempt", "Requests that match are not charged: by no rule of its group, or, without one, by no rule that has a limit. Such a rule has neither limit nor key.", truth,
		func(r *policy.Rule, v bool) { r.Exempt = v }),
}

// ruleSorts are the sorts of rules, of which each rule is one: those with a
// limit, those that deny and those that exempt.
func ruleSorts() []any {
	exempt := schema{"exempt": schema{"const": true}, "deny": schema{"const": false}, "enforce": schema{"const": 100}, "on_fault": schema{"const": "local"}}
	for _, key := range ruleForm.keys() {
		switch key {
		case "name", "enabled", "group", "exempt", "match", "deny", "enforce", "on_fault":
		case "missing", "tell", "at_cap": // may say what is so without them
		default:
			exempt[key] = false
		}
	}
	no := schema{"const": false}
	return []any{
		schema{"required": []string{"limit"}, "properties": schema{"deny": no, "exempt": no}},
		schema{"required": []string{"deny"}, "properties": schema{"deny": schema{"const": true}, "exempt": no, "limit": false}},
		schema{"required": []string{"exempt", "match"}, "properties": exempt},
	}
}
