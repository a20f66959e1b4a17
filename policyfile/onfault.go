package policyfile

import (
	"github.com/spillgate/spillgate/policy"
	"go.yaml.in/yaml/v4"
)

var faultWords = oneOf(choice[policy.OnFault]{"local", policy.Local}, choice[policy.OnFault]{"open", policy.Open}, choice[policy.OnFault]{"closed", policy.Shut})

// onFaultField is a word, or "closed" with an answer.
var onFaultField = field[policy.Rule]{
	key:   "on_fault",
	about: "How the rule decides while a shared store, or one that a program brings, can't answer: in local memory, open (let pass), or closed (refuse as unavailable), also with an answer of its own. The gateway's own memory always answers.",
	schema: schema{"anyOf": []any{
		faultWords.schema,
		schema{"$ref": "#/$defs/on_fault"},
	}},
	read: func(d *decoder, n *yaml.Node, r *policy.Rule) {
		if target(n).Kind != yaml.MappingNode {
			if v, ok := faultWords.read(d, n); ok {
				r.OnFault = v
			}
			return
		}
		var a policy.Answer
		if m, ok := onFaultForm.read(d, n, &a); ok && !m.spoilt() {
			r.OnFault, r.FaultAnswer = policy.Shut, &a
		}
	},
}

var onFaultForm = form[policy.Answer]{
	what:    "on_fault",
	example: `on_fault: {closed: {status: 503, text: "Come back later."}}`,
	hint: func(key string) string {
		switch key {
		case "local", "open":
			return "write on_fault: " + key + "; only closed refuses, and so has an answer"
		}
		if answerForm.field(key) != nil {
			return "write it under closed: on_fault: {closed: {" + key + ": …}}"
		}
		return ""
	},
	fields: []field[policy.Answer]{{
		key: "closed", about: "Refuses as unavailable, and so answers.",
		schema: schema{"$ref": "#/$defs/fault_answer"},
		read: func(d *decoder, n *yaml.Node, into *policy.Answer) {
			if a, ok := readAnswer(d, n, &faultAnswerForm, (*policy.Answer).ValidateFault); ok {
				*into = *a
			}
		},
	}},
}

// faultAnswerForm is an answer while the store fails.
var faultAnswerForm = func() form[policy.Answer] {
	f := answerForm
	f.example = `closed: {status: 503, text: "Come back later."}`
	return f
}()

// faultSchemas are the schemas of an answer while the store fails: it tells of no
// quota.
func faultSchemas(defs schema) {
	on, answer := onFaultForm.asSchema(), answerSchema()
	properties := answer["properties"].(schema)
	status, problem := properties["status"].(schema), properties["problem"].(schema)
	status["description"] = "The HTTP status; 503 if left out."
	status["not"] = schema{"const": 429}
	problem["enum"] = []string{string(policy.ReducedCapacity)}
	defs["on_fault"], defs["fault_answer"] = on, answer
}
