package policyfile

import (
	"slices"
	"strings"

	"github.com/spillgate/spillgate/policy"
	"go.yaml.in/yaml/v4"
)

var pathsForm = form[policy.Paths]{
	what:    "the paths part",
	example: "paths: {case: ignored}",
	also:    map[string]string{"letters": "case", "case_sensitive": "case", "slash": "trailing_slash"},
	fields: []field[policy.Paths]{
		in("case", "Whether /LOGIN is another path than /login for the server: matters, the default, or ignored.",
			oneOf(choice[bool]{"matters", false}, choice[bool]{"ignored", true}),
			func(p *policy.Paths, v bool) { p.AnyCase = v }),
		in("trailing_slash", "Whether /login/ is another path than /login for the server: ignored, the default, or matters.",
			oneOf(choice[bool]{"ignored", false}, choice[bool]{"matters", true}),
			func(p *policy.Paths, v bool) { p.Slash = v }),
	},
}

// pathsField says how the server behind takes paths.
var pathsField = field[document]{
	key: "paths", about: "How the server behind takes paths, where servers differ by choice.",
	schema: schema{"$ref": "#/$defs/paths"},
	read: func(d *decoder, n *yaml.Node, into *document) {
		pathsForm.read(d, n, &into.paths)
	},
}

// foresee notes how paths are taken before any is read: the part that says so
// may stand below.
func (d *decoder) foresee(root *yaml.Node) {
	value := func(n *yaml.Node, key string) *yaml.Node {
		n = target(n)
		for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == key {
				return n.Content[i+1]
			}
		}
		return &yaml.Node{}
	}
	paths := value(root, "paths")
	slash := target(value(paths, "trailing_slash")).Value
	d.paths.Slash = slash == "matters"
	d.pathsUnread = strange(root, documentForm.keys()) || strange(paths, pathsForm.keys()) || slash != "" && slash != "matters" && slash != "ignored"
}

// strange reports whether a mapping has a key that is not known.
func strange(n *yaml.Node, known []string) bool {
	n = target(n)
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		if !slices.Contains(known, n.Content[i].Value) {
			return true
		}
	}
	return false
}

// valueError is valueError, which takes a path with a slash at its end if that
// tells it apart.
func (d *decoder) valueError(a policy.Attribute, s string) error {
	err := valueError(a, s)
	if path := strings.TrimPrefix(s, "!"); err != nil && d.paths.Slash && a.Kind == policy.Path && len(path) > 1 &&
		strings.HasSuffix(path, "/") && valueError(a, strings.TrimSuffix(s, "/")) == nil {
		return nil
	}
	return err
}
