package policyfile

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/policy"
	"go.yaml.in/yaml/v4"
)

// usageField is what a file says of calls that are paid for by usage.
var usageField = field[document]{
	key: "usage", about: "How calls of language models are paid for: an estimate before, what the answer says of itself after.",
	schema: schema{"type": "array", "minItems": 1, "maxItems": policy.MaxUsage, "items": schema{"$ref": "#/$defs/usage"}},
	read: func(d *decoder, n *yaml.Node, into *document) {
		d.items(n, "a list", func(n *yaml.Node) {
			outer := d.in
			d.in = ""
			var u policy.Usage
			m, ok := usageForm.read(d, n, &u)
			d.in = outer
			if !ok {
				return
			}
			u.Source = fmt.Sprintf("%s:%d", d.src.name, m.node.Line)
			into.usage, into.usagePlaces = append(into.usage, u), append(into.usagePlaces, m)
		})
	},
}

var usageForm = form[policy.Usage]{
	what:    "a usage",
	example: "{match: {path: /v1/chat/completions}, format: openai}",
	also: map[string]string{
		"when": "match", "where": "match", "provider": "format", "api": "format", "paths": "format", "path": "match",
		"prompt": "input", "completion": "output", "max_tokens": "output", "weight": "weights", "cost": "weights", "on_error": "errors", "buffer": "read",
	},
	fields: []field[policy.Usage]{
		in("match", "Which requests it speaks of: all conditions must hold. Left out, every request. Of those that match, the first for each unit applies.", match,
			func(u *policy.Usage, v policy.Match) { u.Match = v }),
		in("unit", "The unit of the rules that are charged; tokens if left out.", word,
			func(u *policy.Usage, v string) { u.Unit = v }),
		{
			key: "format", about: "How requests and answers speak: openai, anthropic, or where the numbers stand in others.",
			schema: schema{"anyOf": []any{schema{"enum": []string{"openai", "anthropic"}}, schema{"$ref": "#/$defs/usage_paths"}}},
			read:   readFormat,
		},
		in("input", "The estimate of a request's tokens: one for each N bytes (bytes/4), or a number. bytes/4 if left out.",
			estimate(`^(bytes/([1-9][0-9]?|100)|0|[1-9][0-9]{0,9})$`, policy.DefaultInput, "500"),
			func(u *policy.Usage, v string) { u.Input = v }),
		in("output", "The estimate of an answer's tokens: max_tokens, p95 and a number, with else between. max_tokens else p95 else 1000 if left out.",
			estimate(`^((max_tokens|p95) +else +){0,2}(0|[1-9][0-9]{0,9})$`, policy.DefaultOutput, "p95 else 2000", "500"),
			func(u *policy.Usage, v string) { u.Output = v }),
		in("weights", "How many percent of a unit a token costs; 100% for those left out.", weights,
			func(u *policy.Usage, v map[string]int) { u.Weights = v }),
		in("errors", "Whether an answer that is an error (status 400 and above, but for 504) and tells no usage is free, or charged as estimated; free if left out.",
			oneOf(choice[bool]{"free", false}, choice[bool]{"charged", true}),
			func(u *policy.Usage, v bool) { u.Keep = v }),
		in("read", "How many bytes of a request's body are looked at before the call; 1048576 if left out.", whole(1, policy.MaxRead),
			func(u *policy.Usage, v int64) { u.Read = v }),
	},
}

// usagePathsForm is where numbers stand in JSON.
var usagePathsForm = form[policy.Usage]{
	what:    "paths",
	example: "format: {input: usage.input_tokens, output: usage.output_tokens}",
	fields: []field[policy.Usage]{
		usagePath("input", "The tokens of the request."),
		usagePath("cached", "Of them, those that were read from a cache."),
		usagePath("written", "Of them, those that were written to a cache."),
		usagePath("output", "The tokens of the answer."),
		usagePath("reasoning", "Of them, those that are not shown."),
		usagePath("most", "In the request: how many tokens the answer may have."),
	},
}

func usagePath(word, about string) field[policy.Usage] {
	return in(word, about+" One path or several, which are added up.", oneOrMore(jsonPath), func(u *policy.Usage, v []string) { u.Paths[word] = v })
}

// jsonPath is a path in JSON.
var jsonPath = kind[string]{
	schema: schema{"type": "string", "pattern": `^[^."\\\s]+(\.[^."\\\s]+){0,7}$`, "examples": []string{"usageMetadata.promptTokenCount"}},
	read:   word.read,
}

func readFormat(d *decoder, n *yaml.Node, u *policy.Usage) {
	n, ok := d.value(n)
	if !ok {
		return
	}
	if n.Kind == yaml.MappingNode {
		u.Paths = make(map[string][]string)
		usagePathsForm.read(d, n, u)
		return
	}
	if s, ok := oneOf(choice[string]{"openai", "openai"}, choice[string]{"anthropic", "anthropic"}).read(d, n); ok {
		u.Format = s
	}
}

// estimate is text or a number; what it means is read later.
func estimate(pattern string, examples ...string) kind[string] {
	return kind[string]{
		schema: schema{"anyOf": []any{schema{"type": "integer", "minimum": 0, "maximum": 1_000_000_000}, schema{"type": "string", "pattern": pattern}}, "examples": examples},
		read: func(d *decoder, n *yaml.Node) (string, bool) {
			n, ok := d.scalar(n, "an estimate such as "+examples[0])
			if !ok {
				return "", false
			}
			if n.Value == "" {
				d.wrong(n, "an estimate such as "+examples[0], "write "+examples[0])
				return "", false
			}
			return n.Value, true
		},
	}
}

var percentText = regexp.MustCompile(`^(0|[1-9][0-9]{0,3}|10000)%$`)

// weights are percentages by what they weigh.
var weights = kind[map[string]int]{
	schema: schema{
		"type": "object", "minProperties": 1, "propertyNames": schema{"enum": weighed},
		"additionalProperties": schema{"type": "string", "pattern": percentText.String()},
	},
	read: func(d *decoder, n *yaml.Node) (map[string]int, bool) {
		out, before := make(map[string]int), len(d.errs)
		ok, _ := d.pairs(n, "weights", "weights: {cached: 10%}", func(key, value *yaml.Node) {
			const want = "a percentage from 0% to 10000%"
			n, ok := d.scalar(value, want)
			if !ok {
				return
			}
			percent, err := strconv.Atoi(strings.TrimSuffix(n.Value, "%"))
			switch {
			case !percentText.MatchString(n.Value) && decimal.MatchString(n.Value) && percent >= 0 && percent <= 10_000:
				d.wrong(n, want, fmt.Sprintf("write %d%%", percent))
			case !percentText.MatchString(n.Value) || err != nil:
				d.wrong(n, want, "write 10% for a tenth, 100% for a whole")
			default:
				out[key.Value] = percent
				if known := closest(key.Value, weighed); known != key.Value {
					fix := "known are " + strings.Join(weighed, ", ")
					if known != "" {
						fix = fmt.Sprintf("did you mean %q?", known)
					}
					d.fail(key, fix, "unknown key %.60q in weights", key.Value)
				}
			}
		})
		return out, ok && len(d.errs) == before
	},
}

// weighed is what has a weight.
var weighed = []string{"input", "cached", "written", "output", "reasoning"}

// usage adds the usages of a file to its policy, nil if that has errors of its
// own: then the usages are checked by themselves.
func (d *decoder) usage(pol *policy.Policy, doc *document) *policy.Policy {
	if len(doc.usage) == 0 {
		return pol
	}
	base := pol
	if base == nil {
		base, _ = policy.Compile([]policy.Rule{{Name: "probe", Unit: policy.Tokens, Limit: spillgate.Limit{Rate: 1, Period: 1e9, Burst: 1}}})
	}
	out, err := base.WithUsage(doc.usage)
	for _, err := range flatten(err) {
		var wrong *policy.UsageError
		switch {
		case d.full:
			return nil
		case !errors.As(err, &wrong) || wrong.Index >= len(doc.usagePlaces):
			d.failAt(1, 1, "", "%s", plain(err)).Err = err
		case doc.usagePlaces[wrong.Index].bad[wrong.Field], wrong.Field == "unit" && (pol == nil || doc.lost("unit")):
			// Told already, or it can't be known.
		default:
			d.usageError(wrong, doc)
		}
	}
	if pol == nil || err != nil {
		return pol
	}
	return out
}

// usageError reports what is wrong with a usage, at the value that it speaks of.
func (d *decoder) usageError(wrong *policy.UsageError, doc *document) {
	m, u := &doc.usagePlaces[wrong.Index], &doc.usage[wrong.Index]
	if m.strange && m.values[wrong.Field] == nil {
		return // missing, but maybe meant by a key that is not known
	}
	fix := ""
	switch wrong.Field {
	case "unit":
		fix = "give a rule that unit, or name the unit of one"
	case "format":
		fix = "write format: openai, format: anthropic, or " + usagePathsForm.example
	case "input":
		fix = "write " + policy.DefaultInput
	case "output":
		fix = "write " + policy.DefaultOutput
		if u.Format == "" {
			fix = "write p95 else 1000, or add most: to the format"
		}
	}
	d.in = wrong.Field
	msg, _, _ := strings.Cut(plain(wrong.Err), "; ")
	d.fail(m.at(wrong.Field), fix, "%s", msg).Err = wrong
	d.in = ""
}

func usageSchemas(defs schema) {
	u := usageForm.asSchema()
	u["required"] = []string{"format"}
	paths := usagePathsForm.asSchema()
	paths["anyOf"] = []any{schema{"required": []string{"input"}}, schema{"required": []string{"output"}}}
	defs["usage"], defs["usage_paths"] = u, paths
}
