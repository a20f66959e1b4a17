package policyfile

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/policy"
	"go.yaml.in/yaml/v4"
)

// scalar follows an alias to a scalar that is there. It reports false, and an
// error, for everything else.
func (d *decoder) scalar(n *yaml.Node, want string) (*yaml.Node, bool) {
	n, ok := d.value(n)
	if ok && (n.Kind != yaml.ScalarNode || n.ShortTag() == "!!null") {
		fix := "write one value here"
		if n.Kind == yaml.SequenceNode && len(n.Content) == 1 && n.Content[0].Kind == yaml.ScalarNode {
			fix = fmt.Sprintf("write %s, without brackets and dashes", n.Content[0].Value)
		}
		d.wrong(n, want, fix)
		ok = false
	}
	return n, ok
}

// readText reads a string. A number, or true, is none: fix says what to do
// about it, or "" that it would do in quotes.
func readText(d *decoder, n *yaml.Node, fix string) (string, bool) {
	n, ok := d.scalar(n, "text")
	if !ok {
		return "", false
	}
	if n.ShortTag() != "!!str" {
		if fix == "" {
			fix = fmt.Sprintf("put it in quotes: %q", n.Value)
		}
		d.wrong(n, "text", fix)
		return "", false
	}
	return n.Value, true
}

// readValue reads the value of an attribute: text, or a length as a number.
func readValue(d *decoder, n *yaml.Node, a policy.Attribute, fix string) (string, bool) {
	if v, ok := d.value(n); ok && a.Kind == policy.ContentLength && v.ShortTag() == "!!int" && decimal.MatchString(v.Value) && v.Value[0] != '-' {
		return v.Value, true
	}
	return readText(d, n, fix)
}

// lengthSchema is the schema of a length, of which text is that of a value.
func lengthSchema(text schema) schema {
	return schema{"anyOf": []any{text, schema{"type": "integer", "minimum": 0}}}
}

// plainName is a name, put where a rule has one.
func plainName(put func(r *policy.Rule, s string)) kind[string] {
	return kind[string]{
		schema: schema{"type": "string", "pattern": "^[a-z0-9._-]{1,64}$"},
		read: func(d *decoder, n *yaml.Node) (string, bool) {
			s, ok := word.read(d, n)
			if !ok {
				return "", false
			}
			if err := probe(func(r *policy.Rule) { put(r, s) }); err != nil {
				d.fail(n, fixName(s), "%s", plain(err)).Err = err
				return "", false
			}
			return s, true
		},
	}
}

// word is a string that is not empty.
var word = wordOr("")

// wordOr is a word, and fix says what to do about a number.
func wordOr(fix string) kind[string] {
	return kind[string]{
		schema: schema{"type": "string", "minLength": 1},
		read: func(d *decoder, n *yaml.Node) (string, bool) {
			s, ok := readText(d, n, fix)
			if ok && s == "" {
				d.fail(n, "write something, or remove the key", "empty")
				return "", false
			}
			return s, ok
		},
	}
}

// oneOrMore is one value of a kind, or a list of them, which may be left out.
func oneOrMore[V any](k kind[V]) kind[[]V] {
	return oneOrMoreElse(k, "name at least one, or leave it out")
}

// needed is oneOrMore of what can't be left out.
func needed[V any](k kind[V]) kind[[]V] { return oneOrMoreElse(k, "name at least one") }

// oneOrMoreElse is oneOrMore; fix is what to do about an empty list.
func oneOrMoreElse[V any](k kind[V], fix string) kind[[]V] {
	return kind[[]V]{
		schema: schema{"anyOf": []any{k.schema, schema{"type": "array", "minItems": 1, "items": k.schema}}},
		read: func(d *decoder, n *yaml.Node) (out []V, good bool) {
			v, ok := d.value(n)
			if !ok {
				return nil, false
			}
			if v.Kind != yaml.SequenceNode {
				one, ok := k.read(d, v)
				return []V{one}, ok
			}
			good = true
			ok = d.list(v, "a list", fix, func(n *yaml.Node) {
				one, ok := k.read(d, n)
				out, good = append(out, one), good && ok
			})
			return out, ok && good
		},
	}
}

// A choice is a word that stands for a value.
type choice[V any] struct {
	word  string
	value V
}

// oneOf is one of a few words.
func oneOf[V any](choices ...choice[V]) kind[V] {
	var words []string
	for _, c := range choices {
		words = append(words, c.word)
	}
	want := strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
	return kind[V]{
		schema: schema{"enum": words},
		read: func(d *decoder, n *yaml.Node) (v V, ok bool) {
			n, ok = d.scalar(n, want)
			if !ok {
				return v, false
			}
			for _, c := range choices {
				if n.Value == c.word {
					return c.value, true
				}
			}
			fix := "write one of these words; " + words[0] + " is what is meant without the key"
			w := closest(n.Value, words)
			if s, ok := map[string]string{"true": "on", "false": "off"}[n.Value]; ok && slices.Contains(words, s) {
				w = s
			}
			if w != "" {
				fix = fmt.Sprintf("did you mean %q?", w)
			}
			d.wrong(n, want, fix)
			return v, false
		},
	}
}

// truth is true or false, in no other spelling.
var truth = kind[bool]{
	schema: schema{"type": "boolean"},
	read: func(d *decoder, n *yaml.Node) (bool, bool) {
		n, ok := d.scalar(n, "true or false")
		if !ok {
			return false, false
		}
		if n.ShortTag() == "!!bool" && (n.Value == "true" || n.Value == "false") {
			return n.Value == "true", true
		}
		fix := "write true or false"
		switch strings.ToLower(n.Value) {
		case "yes", "on", "y", "true", "1":
			fix = "write true"
		case "no", "off", "n", "false", "0":
			fix = "write false"
		}
		d.wrong(n, "true or false", fix)
		return false, false
	},
}

var decimal = regexp.MustCompile(`^(0|-?[1-9][0-9]*)$`)

// whole is a decimal number from low to high.
func whole(low, high int64) kind[int64] {
	want := fmt.Sprintf("a whole number from %d to %d", low, high)
	if high == math.MaxInt64 {
		want = fmt.Sprintf("a whole number, at least %d", low)
	}
	s := schema{"type": "integer", "minimum": low}
	if high < math.MaxInt64 {
		s["maximum"] = high
	}
	return kind[int64]{
		schema: s,
		read: func(d *decoder, n *yaml.Node) (int64, bool) {
			n, ok := d.scalar(n, want)
			if !ok {
				return 0, false
			}
			v, err := strconv.ParseInt(n.Value, 10, 64)
			switch {
			case decimal.MatchString(n.Value) && n.ShortTag() == "!!str" && err == nil && low <= v && v <= high:
				d.wrong(n, want, "write it without quotes: "+n.Value)
			case !decimal.MatchString(n.Value) || err != nil || v < low || v > high:
				d.wrong(n, want, fixWhole(n.Value, low, high))
			default:
				return v, true
			}
			return 0, false
		},
	}
}

// limit is a limit in the grammar of spillgate.ParseLimit.
var limit = kind[spillgate.Limit]{
	schema: schema{
		"type": "string", "pattern": `^(unlimited|[0-9][0-9_]*(/| at once).*)$`,
		"examples": []string{"10/s", "10/s burst 20", "1/10s burst 10", "1000/calendar day in Europe/Berlin", "100/min sliding", "20 at once for 30s"},
	},
	read: func(d *decoder, n *yaml.Node) (spillgate.Limit, bool) {
		const want = `a limit such as "10/s burst 20"`
		n, ok := d.value(n)
		if !ok {
			return spillgate.Limit{}, false
		}
		if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" {
			fix := fixLimit(n.Value)
			switch {
			case n.Kind == yaml.MappingNode:
				fix = limitOf(n)
			case n.Kind == yaml.SequenceNode:
				fix = "write one limit; each other one is a rule of its own"
			case thousands.MatchString(d.src.after(n.Line, n.Column)) && !strings.HasPrefix(fixLimit(thousands.FindString(d.src.after(n.Line, n.Column))), fixLimitForms):
				fix = fixLimit(thousands.FindString(d.src.after(n.Line, n.Column)))
			case n.Value == "0":
				fix = `write "deny: true" in place of the limit, to refuse all`
			case decimal.MatchString(n.Value) && n.Value[0] != '-':
				fix = fmt.Sprintf("say in which time: %s/s, %s/min, %s/h, or \"%s at once\"", n.Value, n.Value, n.Value, n.Value)
			case len(n.Value) < maxSlip && !strings.HasPrefix(fixLimit(n.Value+"/s"), fixLimitForms):
				fix = "say in which time: " + strings.TrimPrefix(fixLimit(n.Value+"/s"), "write ")
			}
			d.wrong(n, want, fix)
			return spillgate.Limit{}, false
		}
		l, err := spillgate.ParseLimit(n.Value)
		var syntax *spillgate.SyntaxError
		switch {
		case errors.As(err, &syntax):
			line, column := d.inside(n, syntax.Offset)
			d.failAt(line, column, fixLimit(n.Value), "%s", syntax.Reason).Err = err
		case err != nil:
			// The text is in the file, and the last cause says once more what
			// is wrong in the words of another package.
			msg := strings.TrimSuffix(plain(err), fmt.Sprintf(" (in %q)", n.Value))
			msg, _, _ = strings.Cut(msg, ": unknown time zone ")
			fix := fixLimit(n.Value)
			if errors.Is(err, spillgate.ErrLimit) && strings.Contains(msg, "; use ") && strings.HasPrefix(fix, fixLimitForms) {
				fix = ""
			}
			d.fail(n, fix, "%s", msg).Err = err
		}
		return l, err == nil
	},
}

// thousands begins with a number whose commas, inside braces, end a value.
var thousands = regexp.MustCompile(`^[0-9]{1,3}(,[0-9]{3})+[^,}\]#]*`)

// limitOf returns the fix for a limit that is written as a mapping.
func limitOf(n *yaml.Node) string {
	part := make(map[string]string)
	for i := 0; i+1 < len(n.Content); i += 2 {
		switch key := strings.ToLower(n.Content[i].Value); key {
		case "rate", "limit", "count", "requests", "max", "amount", "events":
			part["rate"] = n.Content[i+1].Value
		case "per", "period", "window", "interval", "unit", "in", "every":
			part["period"] = n.Content[i+1].Value
		case "burst":
			part[key] = " burst " + n.Content[i+1].Value
		}
	}
	text := part["rate"]
	if part["period"] != "" {
		text += "/" + part["period"]
	}
	text += part["burst"]
	if _, err := spillgate.ParseLimit(text); err == nil {
		return "write " + text
	}
	return fixLimit(text)
}

// inside returns the place of a byte of a scalar's value: exactly if the value
// stands in its line as it is, else that of the scalar.
func (d *decoder) inside(n *yaml.Node, offset int) (line, column int) {
	column = n.Column
	if n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0 {
		column++
	}
	if offset > len(n.Value) || !strings.HasPrefix(d.src.after(n.Line, column), n.Value) {
		return n.Line, n.Column
	}
	return n.Line, column + len([]rune(n.Value[:offset]))
}

var (
	// duration is a time in the form of a limit's period.
	duration = durationIn(timeSpan{1, maxPeriod, "10m", ""})
	// lifetime is a ttl, which nobody needs.
	lifetime = durationIn(timeSpan{1, maxPeriod, "10m", ", or leave it out: a caller is then forgotten when its limit is full again"})
)

// durationIn is a duration in a span of times.
func durationIn(r timeSpan) kind[time.Duration] {
	want := fmt.Sprintf("a time of %s to %s: a whole number and a unit (ns, us, ms, s, m or min, h, d, w), such as %s", FormatPeriod(r.least), FormatPeriod(r.most), r.example)
	return kind[time.Duration]{schema: durationSchema, read: func(d *decoder, n *yaml.Node) (time.Duration, bool) {
		n, ok := d.scalar(n, want)
		if !ok {
			return 0, false
		}
		s := n.Value
		if n.ShortTag() == "!!str" && s != "" && '0' <= s[0] && s[0] <= '9' && !strings.Contains(s, " ") {
			if l, err := spillgate.ParseLimit("1/" + s); err == nil && r.least <= l.Period && l.Period <= r.most {
				return l.Period, true
			}
		}
		d.wrong(n, want, r.fix(s))
		return 0, false
	}}
}

var durationSchema = schema{"type": "string", "pattern": `^[0-9]+(ns|us|µs|ms|s|m|min|h|d|day|w)$`, "examples": []string{"10m", "1h", "7d"}}

// outcome is how a request can end: a status may stand as a number.
var outcome = kind[string]{
	schema: schema{"anyOf": []any{
		schema{"type": "integer", "minimum": 100, "maximum": 599},
		schema{"type": "string", "pattern": `^[1-5]([0-9][0-9]|xx)$`},
		schema{"enum": append([]string{"error"}, codes...)},
	}},
	read: func(d *decoder, n *yaml.Node) (string, bool) {
		const want = "an HTTP status (401, 4xx), a gRPC code (UNAUTHENTICATED) or error"
		n, ok := d.scalar(n, want)
		if !ok {
			return "", false
		}
		if probe(func(r *policy.Rule) { r.Failures = []string{n.Value} }) != nil {
			d.wrong(n, want, fixOutcome(n.Value))
			return "", false
		}
		return n.Value, true
	},
}

// filePath is the name of a file.
var filePath = kind[string]{
	schema: schema{"type": "string", "pattern": `[^/\x00]$`, "examples": []string{"/var/lib/spillgate/state"}},
	read: func(d *decoder, n *yaml.Node) (string, bool) {
		s, ok := readText(d, n, "")
		if !ok {
			return "", false
		}
		if s == "" || strings.HasSuffix(s, "/") || strings.ContainsRune(s, 0) {
			d.wrong(n, "the name of a file, such as /var/lib/spillgate/state", "write the file's own name too")
			return "", false
		}
		return s, true
	},
}
