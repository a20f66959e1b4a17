package policyfile

import (
	"fmt"
	"io/fs"
	"regexp"
	"strings"

	"github.com/spillgate/spillgate/policy"
	"go.yaml.in/yaml/v4"
)

// A decoder reads the nodes of one file, and collects what is wrong.
type decoder struct {
	src   *source
	in    string // the key whose value is being read, for messages
	errs  Errors
	read  int
	paths policy.Paths // how paths are taken

	pathsUnread bool  // as far as that is known
	files       fs.FS // beside the policy file; nil if none are read
	full        bool  // no more errors are wanted, or values read
}

// fail reports what is wrong at a node, and what to write instead.
func (d *decoder) fail(n *yaml.Node, fix, format string, args ...any) *Error {
	return d.failAt(n.Line, n.Column, fix, format, args...)
}

func (d *decoder) failAt(line, column int, fix, format string, args ...any) *Error {
	msg := fmt.Sprintf(format, args...)
	if fix == "" {
		msg, fix = advice(msg)
	}
	if d.in != "" {
		msg = d.in + ": " + msg
	}
	e := d.src.errorAt(line, column, msg, fix)
	d.report(e)
	return e
}

func (d *decoder) report(errs ...*Error) {
	for _, e := range errs {
		if d.full {
			return
		}
		d.errs = append(d.errs, e)
		if len(d.errs) == maxErrors {
			d.full = true
			d.errs = append(d.errs, d.src.errorAt(e.Line, e.Column, fmt.Sprintf("and maybe more: only the first %d errors are told", maxErrors), "mend these first"))
		}
	}
}

// cause reports an error that another package found in the value of a node.
func (d *decoder) cause(n *yaml.Node, fix string, err error) {
	d.fail(n, fix, "%s", plain(err)).Err = err
}

// plain returns an error's text without the name of our package that it comes
// from, which says nothing to the author of a policy.
func plain(err error) string {
	s := err.Error()
	for _, p := range []string{"spillgate: ", "policy: ", "clientip: "} {
		s = strings.TrimPrefix(s, p)
	}
	return s
}

// value follows an alias, and counts what is read. It reports false if there
// is nothing to read on.
func (d *decoder) value(n *yaml.Node) (*yaml.Node, bool) {
	if d.full {
		return n, false
	}
	if d.read++; d.read > maxReads {
		d.fail(n, "use fewer aliases", "too many values: those behind an alias count as often as it is used")
		d.full = true
		return n, false
	}
	if n.Kind == yaml.AliasNode && n.Alias != nil {
		n = n.Alias
	}
	if n.Style&yaml.TaggedStyle != 0 {
		tag := n.Tag
		if rest, ok := strings.CutPrefix(tag, "tag:yaml.org,2002:"); ok {
			tag = "!!" + rest
		}
		fix := "remove it"
		if !strings.HasPrefix(tag, "!!") {
			fix = fmt.Sprintf(`if the text is meant, put it in quotes: "%s"`, tag)
		}
		d.fail(n, fix, "%s is a YAML tag, and a policy has none", tag)
		return n, false
	}
	return n, true
}

// describe says what a node is, for "want …, not …".
func describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	switch n.ShortTag() {
	case "!!null":
		return "nothing"
	case "!!str":
		return fmt.Sprintf("the text %.60q", n.Value)
	}
	return fmt.Sprintf("%.60s", n.Value)
}

// wrong reports that a node is not what is wanted.
func (d *decoder) wrong(n *yaml.Node, want, fix string) {
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" {
		fix = "write a value, or remove it"
	}
	d.fail(n, fix, "want %s, not %s", want, describe(n))
}

// A schema is a JSON Schema, or a part of one.
type schema = map[string]any

// A kind is one kind of value: how it is read, and what it may be in terms of
// JSON Schema. read reports false if it reported an error.
type kind[V any] struct {
	read   func(d *decoder, n *yaml.Node) (V, bool)
	schema schema
}

// A field is a key of a mapping that is read into a T.
type field[T any] struct {
	key    string
	about  string // what it means, in a sentence
	read   func(d *decoder, n *yaml.Node, into *T)
	schema schema
}

// in makes a field out of a kind and of where its value goes.
func in[T, V any](key, about string, k kind[V], put func(into *T, v V)) field[T] {
	return field[T]{key: key, about: about, schema: k.schema, read: func(d *decoder, n *yaml.Node, into *T) {
		if v, ok := k.read(d, n); ok {
			put(into, v)
		}
	}}
}

// A form is a mapping whose keys are known.
type form[T any] struct {
	what    string // "a rule"
	example string
	main    string // the key that a value by itself is meant for, "" if it can't be told
	fields  []field[T]
	hint    func(key string) string // the fix for a key that is unknown, if known better
	// other reads a key that is none of the fields, and reports whether it did.
	other func(d *decoder, key, value *yaml.Node, into *T) bool
	also  map[string]string // what others call a key, in lower case
}

func (f *form[T]) keys() []string {
	out := make([]string, len(f.fields))
	for i := range f.fields {
		out[i] = f.fields[i].key
	}
	return out
}

func (f *form[T]) field(key string) *field[T] {
	for i := range f.fields {
		if f.fields[i].key == key {
			return &f.fields[i]
		}
	}
	return nil
}

// A mapping remembers where the values of a form stand.
type mapping struct {
	node   *yaml.Node
	values map[string]*yaml.Node
	bad    map[string]bool // what was reported already
	// strange tells that there was a key that is not known.
	strange bool
}

// at returns the node of the first of keys that the mapping has, else the
// mapping.
func (m *mapping) at(keys ...string) *yaml.Node {
	for _, k := range keys {
		if n := m.values[k]; n != nil {
			return n
		}
	}
	return m.node
}

// read reads a mapping into a T.
func (f *form[T]) read(d *decoder, n *yaml.Node, into *T) (mapping, bool) {
	m := mapping{node: n, values: make(map[string]*yaml.Node), bad: make(map[string]bool)}
	there := make(map[string]bool)
	if n.Kind == yaml.AliasNode && n.Alias != nil {
		m.node = n.Alias
	}
	for i := 0; i < len(m.node.Content) && m.node.Kind == yaml.MappingNode; i += 2 {
		there[m.node.Content[i].Value] = true
	}
	example, ok := f.example, false
	if f.main != "" && m.node.Kind == yaml.ScalarNode {
		trial := decoder{src: d.src}
		if f.field(f.main).read(&trial, m.node, new(T)); len(trial.errs) == 0 {
			key, _, _ := strings.Cut(f.example, ":")
			example = fmt.Sprintf("%s: {%s: %s}", key, f.main, m.node.Value)
		}
	}
	ok, m.strange = d.pairs(n, f.what, example, func(key, value *yaml.Node) {
		field := f.field(key.Value)
		if field == nil && f.other != nil && f.other(d, key, value, into) {
			return
		}
		if field == nil {
			m.bad[""] = true
			meant, fix := f.meant(key.Value)
			d.fail(key, fix, "unknown key %.60q in %s", key.Value, f.what)
			if meant == "" || there[meant] {
				return
			}
			// What stands under a misspelt key is checked as what was meant.
			there[meant], field = true, f.field(meant)
		}
		m.values[field.key] = value
		outer, before := d.in, len(d.errs)
		if d.in = field.key; outer != "" {
			d.in = outer + ": " + field.key
		}
		field.read(d, value, into)
		d.in = outer
		m.bad[field.key] = len(d.errs) > before
	})
	m.strange = m.strange || m.bad[""]
	return m, ok
}

// behindComma is what is left of a number with a comma.
var behindComma = regexp.MustCompile(`^[0-9]{3}([^0-9].*)?$`)

// meant returns the key that an unknown one stands for, if one comes to mind,
// and the fix.
func (f *form[T]) meant(key string) (known, fix string) {
	if f.hint != nil {
		if fix := f.hint(key); fix != "" {
			return "", fix
		}
	}
	if behindComma.MatchString(key) {
		return "", "inside braces a comma ends a value, so write numbers without commas"
	}
	known = f.also[strings.ToLower(key)]
	if known == "" {
		known = closest(key, f.keys())
	}
	if known != "" {
		return known, fmt.Sprintf("did you mean %q?", known)
	}
	return "", "known are " + strings.Join(f.keys(), ", ")
}

// pairs calls each with the keys and values of a mapping, where the keys are
// plain words that stand once. It reports false if there is no mapping, and
// whether it passed over keys.
func (d *decoder) pairs(n *yaml.Node, what, example string, each func(key, value *yaml.Node)) (ok, strange bool) {
	n, ok = d.value(n)
	if !ok {
		return false, false
	}
	if n.Kind != yaml.MappingNode {
		d.wrong(n, what+`, a mapping ("key: value")`, "write "+example)
		return false, false
	}
	if len(n.Content) == 0 {
		d.fail(n, "leave it out", "empty")
		return false, false
	}
	seen := make(map[string]*yaml.Node, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content) && !d.full; i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		switch first := seen[key.Value]; {
		case key.Kind != yaml.ScalarNode || key.Style&yaml.TaggedStyle != 0:
			d.fail(key, "write it without tags and brackets", "a key must be a plain word")
			strange = true
		case key.ShortTag() == "!!merge":
			d.fail(key, "write the keys out, or use an alias for one value", "merge keys (<<) are not known")
			strange = true
		case first != nil:
			d.fail(key, "remove one of them", "%.60q is there twice; first in line %d", key.Value, first.Line)
		default:
			seen[key.Value] = key
			each(key, value)
		}
	}
	return true, strange
}

// items calls each with the entries of a list, which may be left out.
func (d *decoder) items(n *yaml.Node, want string, each func(n *yaml.Node)) bool {
	return d.list(n, want, "name at least one, or leave it out", each)
}

// list is items for any list; fix is what to do about an empty one.
func (d *decoder) list(n *yaml.Node, want, fix string, each func(n *yaml.Node)) bool {
	n, ok := d.value(n)
	if !ok {
		return false
	}
	if n.Kind != yaml.SequenceNode {
		d.wrong(n, want, `begin each entry with "- "`)
		return false
	}
	if len(n.Content) == 0 {
		d.fail(n, fix, "the list is empty")
		return false
	}
	for _, entry := range n.Content {
		if d.full {
			return false
		}
		each(entry)
	}
	return true
}
