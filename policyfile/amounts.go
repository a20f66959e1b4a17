package policyfile

import (
	"math"
	"regexp"
	"strconv"

	"github.com/spillgate/spillgate/policy"
	"go.yaml.in/yaml/v4"
)

// costField is one number, one mapping, or a list of mappings.
var costField = field[policy.Rule]{
	key:   "cost",
	about: "How many units a request costs when the program says nothing else: a number, an attribute that holds one, or a list of which the first that matches decides. 1 if left out.",
	schema: schema{"anyOf": []any{
		constantCost.schema,
		schema{"$ref": "#/$defs/cost"},
		schema{"type": "array", "minItems": 1, "items": schema{"$ref": "#/$defs/cost"}},
	}},
	read: func(d *decoder, n *yaml.Node, r *policy.Rule) {
		v := target(n)
		switch v.Kind {
		case yaml.MappingNode:
			readCost(d, n, r)
		case yaml.SequenceNode:
			d.items(n, "a list of costs", func(n *yaml.Node) { readCost(d, n, r) })
		default:
			if units, ok := constantCost.read(d, n); ok {
				r.Cost = units
			}
		}
	},
}

var constantCost = whole(1, math.MaxInt64)

// readCost reads one entry of a list of costs.
func readCost(d *decoder, n *yaml.Node, r *policy.Rule) {
	var p policy.Price
	if m, ok := costForm.read(d, n, &p); ok && !m.spoilt() {
		r.Prices = append(r.Prices, p)
	}
}

var costForm = form[policy.Price]{
	what:    "a cost",
	example: "{from: query.n, most: 100}, or {match: {method: POST}, cost: 5}",
	also:    map[string]string{"when": "match", "if": "match", "units": "cost", "weight": "cost", "header": "from", "max": "most", "cap": "most", "else": "default", "divide": "per"},
	fields: []field[policy.Price]{
		in("match", "Which requests cost this. Left out, all that no cost before it matches.", match,
			func(p *policy.Price, v policy.Match) { p.Match = v }),
		in("cost", "How many units each of them costs.", constantCost,
			func(p *policy.Price, v int64) { p.Units = v }),
		in("from", "The attribute that holds a number of items or bytes: content-length, or a header, cookie, query, claim, attr or proxy.", attributeName,
			func(p *policy.Price, v policy.Attribute) { p.From = v }),
		in("per", "How many items are one unit; 1 if left out.", constantCost,
			func(p *policy.Price, v int64) { p.Per = v }),
		in("default", "What a request costs that lacks the attribute; 1 if left out.", constantCost,
			func(p *policy.Price, v int64) { p.Default = v }),
		in("most", "What a request costs at most, and what one costs whose value is no whole number. Left out, it is refused if the cost never fits, and if the value is no number.", constantCost,
			func(p *policy.Price, v int64) { p.Most = v }),
	},
}

// attributeName is the name of an attribute, which holds a number.
var attributeName = kind[policy.Attribute]{
	schema: schema{"type": "string", "pattern": `^(content-length|(header|cookie|query|claim|attr|proxy)\.\S+)$`, "examples": []string{"query.n", "header.x-batch", "content-length"}},
	read: func(d *decoder, n *yaml.Node) (policy.Attribute, bool) {
		s, ok := word.read(d, n)
		if !ok {
			return policy.Attribute{}, false
		}
		a, err := policy.ParseAttribute(s)
		if err != nil {
			msg, fix := attributeError(err, s)
			d.fail(n, fix, "%s", msg).Err = err
		}
		return a, err == nil
	},
}

// lanesField is a list of lanes.
var lanesField = field[policy.Rule]{
	key:    "lanes",
	about:  "Keeps a part of the limit for better requests: of the lanes the first that matches decides how much must stay. The last one has no match.",
	schema: schema{"type": "array", "minItems": 2, "items": schema{"$ref": "#/$defs/lane"}},
	read: func(d *decoder, n *yaml.Node, r *policy.Rule) {
		d.items(n, "a list of lanes", func(n *yaml.Node) {
			var l policy.Lane
			m, ok := laneForm.read(d, n, &l)
			if !ok {
				return
			}
			if m.values["keep"] == nil && !m.strange {
				d.fail(m.node, "add keep: 0 if it is the best lane, else keep: 30% or how many units must stay", "the lane does not say what it keeps")
				return
			}
			if !m.spoilt() {
				r.Lanes = append(r.Lanes, l)
			}
		})
	},
}

var laneForm = form[policy.Lane]{
	what:    "a lane",
	example: "{keep: 30%}",
	also:    map[string]string{"when": "match", "if": "match", "reserve": "keep", "leave": "keep"},
	fields: []field[policy.Lane]{
		in("match", "Whose lane this is. Left out, all that no lane before it matches.", match,
			func(l *policy.Lane, v policy.Match) { l.Match = v }),
		in("keep", "How many units must stay for better lanes: a number, or a percentage of what fits at once.", keep,
			func(l *policy.Lane, v policy.Lane) { l.Keep, l.Percent = v.Keep, v.Percent }),
	},
}

var percent = regexp.MustCompile(`^(0|[1-9][0-9]?)%$`)

// keep is a number of units or a percentage.
var keep = kind[policy.Lane]{
	schema: schema{"anyOf": []any{
		schema{"type": "integer", "minimum": 0},
		schema{"type": "string", "pattern": percent.String(), "examples": []string{"30%"}},
	}},
	read: func(d *decoder, n *yaml.Node) (l policy.Lane, ok bool) {
		const want = "a whole number of units, or a percentage from 0% to 99%"
		n, ok = d.scalar(n, want)
		if !ok {
			return l, false
		}
		if n.ShortTag() == "!!str" && percent.MatchString(n.Value) {
			l.Percent, _ = strconv.Atoi(n.Value[:len(n.Value)-1])
			return l, true
		}
		units, err := strconv.ParseInt(n.Value, 10, 64)
		if n.ShortTag() == "!!str" || !decimal.MatchString(n.Value) || err != nil || units < 0 {
			d.wrong(n, want, "write 30%, or a number such as 20")
			return l, false
		}
		l.Keep = units
		return l, true
	},
}

// spoilt reports whether an error was told of something in m.
func (m *mapping) spoilt() bool {
	for _, bad := range m.bad {
		if bad {
			return true
		}
	}
	return m.strange
}

// listSchemas are the entries of lists in a rule.
func listSchemas() schema {
	lane := laneForm.asSchema()
	lane["required"] = []string{"keep"}
	cost := costForm.asSchema()
	constant := schema{"cost": schema{}}
	for _, key := range []string{"from", "per", "default", "most"} {
		constant[key] = false
	}
	cost["oneOf"] = []any{
		schema{"required": []string{"cost"}, "properties": constant},
		schema{"required": []string{"from"}, "properties": schema{"cost": false}},
	}
	return schema{"lane": lane, "cost": cost}
}
