package policyfile

import (
	"encoding/json"
	"strings"

	"github.com/spillgate/spillgate/policy"
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
	rule["allOf"] = unusedBeside()
	client := clientIPForm.asSchema()
	client["required"], client["minProperties"] = clientIPForm.keys(), len(clientIPForm.keys())
	test := testForm.asSchema()
	test["required"] = []string{"name", "requests"}
	with, request := withForm.asSchema(), requestForm.asSchema()
	with["patternProperties"], request["patternProperties"] = attributePatterns(), attributePatterns()
	lists := listSchemas()
	pattern := kind[string]{schema: schema{"type": "string", "not": schema{"pattern": `^!?[ \t]*$`}}} // no attribute is empty
	root["$defs"] = schema{
		"lane": lists["lane"], "cost": lists["cost"],
		"test": test, "with": with, "request": request, "expect": expectSchema(),
		"penalty":   penaltySchema(),
		"override":  overrideSchema(),
		"server":    serverForm.asSchema(),
		"client_ip": client,
		"rule":      rule,
		"match": schema{
			"type": "object", "minProperties": 1,
			"propertyNames":        schema{"pattern": attributePattern()},
			"properties":           schema{policy.Attribute{Kind: policy.ContentLength}.String(): oneOrMore(kind[string]{schema: lengthSchema(pattern.schema)}).schema},
			"additionalProperties": oneOrMore(pattern).schema,
		},
	}
	root["$defs"].(schema)["paths"] = pathsForm.asSchema()
	heldSchemas(root["$defs"].(schema))
	usageSchemas(root["$defs"].(schema))
	store := storeForm.asSchema()
	store["required"] = []string{"redis"}
	root["$defs"].(schema)["store"] = store
	out, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		return nil // maps of strings and numbers always marshal
	}
	return append(out, '\n')
}

// unusedBeside are the keys that have no effect beside others.
func unusedBeside() []any {
	const no = false
	table := schema{"max_keys": false, "at_cap": schema{"const": "overflow"}}
	with := func(more schema) schema {
		for k, v := range table {
			more[k] = v
		}
		return schema{"properties": more}
	}
	counting := schema{"failures": no, "ttl": no, "on_fault": schema{"const": "local"}}
	denies := schema{"unit": no, "cost": no, "tell": schema{"const": false}, "backup": no}
	for k, v := range counting {
		denies[k] = v
	}
	unlimited := schema{"cost": no, "backup": no}
	for k, v := range counting {
		unlimited[k] = v
	}
	has := func(key, value any) schema {
		return schema{"required": []any{key}, "properties": schema{key.(string): schema{"const": value}}}
	}
	return []any{
		schema{"if": has("deny", true), "then": with(denies)},
		schema{"if": has("limit", "unlimited"), "then": with(unlimited)},
		schema{"if": schema{"required": []string{"limit"}, "properties": schema{"limit": schema{"pattern": " at once"}}}, "then": schema{"properties": schema{
			"failures": no, "unit": schema{"not": schema{"const": policy.Bytes}},
		}}},
		schema{"if": schema{"not": schema{"required": []string{"key"}}}, "then": with(schema{
			"missing": schema{"const": "share"}, "enforce": schema{"enum": []int{0, 100}},
		})},
	}
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
func attributePattern() string { return patternOf(attributeNames()) }

// patternOf matches attributes, of which those that end in a dot have a name.
func patternOf(attributes []string) string {
	var names []string
	for _, name := range attributes {
		quoted := strings.ReplaceAll(name, ".", `\.`)
		if strings.HasSuffix(name, ".") {
			quoted += `\S+`
		}
		names = append(names, quoted)
	}
	return "^(" + strings.Join(names, "|") + ")$"
}
