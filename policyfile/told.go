package policyfile

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// A Dialect is the name of a set of fields that tell of limits.
type Dialect string

// The dialects; package httplimit says what each is made of.
const (
	DialectDraft  Dialect = "draft"
	DialectGitHub Dialect = "github"
	DialectDelta  Dialect = "delta"
	DialectOpenAI Dialect = "openai"
	DialectEnvoy  Dialect = "envoy"
)

// alike are those whose fields have the same names.
var alike = []Dialect{DialectGitHub, DialectDelta, DialectEnvoy}

// dialectsField says which fields tell of limits.
var dialectsField = field[Server]{
	key: "dialects", about: "Which fields tell of limits: draft (RateLimit), github, delta, openai, envoy. Left out, draft.",
	schema: oneOrMore(dialect).schema,
	read: func(d *decoder, n *yaml.Node, s *Server) {
		ds, ok := oneOrMore(dialect).read(d, n)
		if !ok {
			return
		}
		var first Dialect
		for i, one := range ds {
			switch {
			case slices.Contains(ds[:i], one):
				d.fail(entry(n, i), "remove one of them", "%s is there twice", one)
				return
			case !slices.Contains(alike, one):
			case first != "":
				d.fail(entry(n, i), "remove one of them", "%s and %s use the same names", first, one)
				return
			default:
				first = one
			}
		}
		s.Dialects = ds
	},
}

var dialect = oneOf(choice[Dialect]{"draft", DialectDraft}, choice[Dialect]{"github", DialectGitHub}, choice[Dialect]{"delta", DialectDelta},
	choice[Dialect]{"openai", DialectOpenAI}, choice[Dialect]{"envoy", DialectEnvoy})

// jitterField spreads those who come back.
var jitterField = in("jitter", "Makes Retry-After longer by up to so much, differently for each refusal, so that not all come back at once.", percentage,
	func(s *Server, v int) { s.Jitter = v })

// partitionsField tells callers their quotas apart.
var partitionsField = in("partition_keys", "Adds pk to the RateLimit fields: a name for the caller whose quota it is.", truth,
	func(s *Server, v bool) { s.PartitionKeys = v })

// percentage is a share such as 10%, from 0 to 100.
var percentage = kind[int]{
	schema: schema{"type": "string", "pattern": `^(0|[1-9][0-9]?|100)%$`, "examples": []string{"10%"}},
	read: func(d *decoder, n *yaml.Node) (int, bool) {
		const want = "a percentage such as 10%, from 0% to 100%"
		n, ok := d.scalar(n, want)
		if !ok {
			return 0, false
		}
		number, ok := strings.CutSuffix(n.Value, "%")
		if v, err := strconv.Atoi(number); ok && decimal.MatchString(number) && err == nil && v >= 0 && v <= 100 {
			return v, true
		}
		fix := "write a percentage such as 10%"
		if v, err := strconv.Atoi(strings.TrimSpace(number)); err == nil && v >= 0 && v <= 100 {
			fix = fmt.Sprintf("write %d%%", v)
		}
		d.wrong(n, want, fix)
		return 0, false
	},
}
