package policyfile

import (
	"time"

	"github.com/spillgate/spillgate/policy"
	"go.yaml.in/yaml/v4"
)

var penaltyForm = form[policy.Penalty]{
	what:    "a penalty",
	example: "penalty: {after: 10, within: 1m, block: 1h}",
	also: map[string]string{
		"refusals": "after", "violations": "after", "count": "after", "window": "within", "in": "within",
		"for": "block", "ban": "block", "factor": "grow", "max": "most",
	},
	fields: []field[policy.Penalty]{
		in("after", "How many refusals of a key by this rule block it.", whole(1, policy.MaxAfter),
			func(p *policy.Penalty, v int64) { p.After = v }),
		in("within", "In which time they have to come.", duration,
			func(p *policy.Penalty, v time.Duration) { p.Within = v }),
		in("block", "How long the key is blocked then: within, or longer.", duration,
			func(p *policy.Penalty, v time.Duration) { p.Block = v }),
		in("grow", "By what each further block of a key is longer than the one before; 1 if left out.", whole(1, 100),
			func(p *policy.Penalty, v int64) { p.Grow = v }),
		in("most", "The longest that a block grows to; a day, or block if that is longer, if left out.", duration,
			func(p *policy.Penalty, v time.Duration) { p.Most = v }),
		in("forget", "How long after the beginning of its last block a key's next one is its first again; twice most if left out.", duration,
			func(p *policy.Penalty, v time.Duration) { p.Forget = v }),
	},
}

// penaltyNeeds are the keys without which there is no penalty.
var penaltyNeeds = []string{"after", "within", "block"}

// penalty is what becomes of a key that was refused too often.
var penalty = kind[policy.Penalty]{
	schema: schema{"$ref": "#/$defs/penalty"},
	read: func(d *decoder, n *yaml.Node) (p policy.Penalty, ok bool) {
		before := len(d.errs)
		m, ok := penaltyForm.read(d, n, &p)
		if !ok {
			return p, false
		}
		for _, key := range penaltyNeeds {
			if m.values[key] == nil && !m.strange {
				d.fail(m.node, "write "+penaltyForm.example, "%s is missing", key)
			}
		}
		return p, len(d.errs) == before
	},
}

func penaltySchema() schema {
	s := penaltyForm.asSchema()
	s["required"] = penaltyNeeds
	return s
}
