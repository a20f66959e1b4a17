package policyfile

import (
	"encoding/json"
	"strings"
)

// Schema returns a JSON Schema (2020-12) of the format, for editors. It is
// made of the tables that the reader works by. It can't tell everything that
// [Parse] does: whether a limit can be carried out, or a rule stands alone.
func Schema() []byte {
	root := documentForm.asSchema()
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["title"] = "Spillgate policy"
	root["required"] = []string{"rules"}
	rule := ruleForm.asSchema()
	rule["required"] = []string{"name"}
	rule["oneOf"] = ruleSorts()
	client := clientIPForm.asSchema()
	client["required"], client["minProperties"] = clientIPForm.keys(), len(clientIPForm.keys())
	test := testForm.asSchema()
	test["required"] = []string{"name", "requests"}
	with, request := withForm.asSchema(), requestForm.asSchema()
	with["patternProperties"], request["patternProperties"] = attributePatterns(), attributePatterns()
	lists := listSchemas()
	root["$defs"] = schema{
		"lane": lists["lane"], "cost": lists["cost"],
		"test": test, "with": with, "request": request, "expect": expectSchema(),
		"penalty":   penaltySchema(),
		"server":    serverForm.asSchema(),
		"client_ip": client,
		"rule":      rule,
		"match": schema{
			"type": "object", "minProperties": 1,
			"propertyNames":        schema{"pattern": attributePattern()},
			"additionalProperties": oneOrMore(anyText).schema,
		},
	}
	heldSchemas(root["$defs"].(schema))
	usageSchemas(root["$defs"].(schema))
	out, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		return nil // maps of strings and numbers always marshal
	}
	return append(out, '\n')
}

// asSchema returns the schema of a mapping.
func (f *form[T]) asSchema() schema {
	properties := make(schema)
	for i := range f.fields {
		p := schema{"description": f.fields[i].about}
		for k, v := range f.fields[i].schema {
			p[k] = v
		}
		properties[f.fields[i].key] = p
	}
	return schema{"type": "object", "minProperties": 1, "additionalProperties": false, "properties": properties}
}

// attributePattern matches the names of all attributes.
func attributePattern() string {
	var names []string
	for _, name := range attributeNames() {
		quoted := strings.ReplaceAll(name, ".", `\.`)
		if strings.HasSuffix(name, ".") {
			quoted += `\S+`
		}
		names = append(names, quoted)
	}
	return "^(" + strings.Join(names, "|") + ")$"
}
