package policyfile

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/spillgate/spillgate/policy"
)

type object struct {
	Description          string            `json:"description"`
	Properties           map[string]object `json:"properties"`
	AdditionalProperties any               `json:"additionalProperties"`
	Enum                 []string          `json:"enum"`
	Examples             []string          `json:"examples"`
	AnyOf                []object          `json:"anyOf"`
	Defs                 map[string]object `json:"$defs"`
}

func readSchema(t *testing.T) object {
	t.Helper()
	var o object
	if err := json.Unmarshal(Schema(), &o); err != nil {
		t.Fatal(err)
	}
	return o
}

// TestSchemaHasEachKey holds the keys of the schema against those that Parse
// knows.
func TestSchemaHasEachKey(t *testing.T) {
	s := readSchema(t)
	for name, c := range map[string]struct {
		schema object
		known  []string
	}{
		"file":        {s, documentForm.keys()},
		"server":      {s.Defs["server"], serverForm.keys()},
		"client_ip":   {s.Defs["client_ip"], clientIPForm.keys()},
		"rule":        {s.Defs["rule"], ruleForm.keys()},
		"lane":        {s.Defs["lane"], laneForm.keys()},
		"cost":        {s.Defs["cost"], costForm.keys()},
		"test":        {s.Defs["test"], testForm.keys()},
		"with":        {s.Defs["with"], withForm.keys()},
		"request":     {s.Defs["request"], requestForm.keys()},
		"expect":      {s.Defs["expect"].AnyOf[1], expectForm.keys()},
		"answer":      {s.Defs["answer"], answerForm.keys()},
		"on_fault":    {s.Defs["on_fault"], onFaultForm.keys()},
		"of a fault":  {s.Defs["fault_answer"], answerForm.keys()},
		"paths":       {s.Defs["paths"], pathsForm.keys()},
		"delay":       {s.Defs["delay"], delayForm.keys()},
		"backup":      {s.Defs["backup"], backupForm.keys()},
		"penalty":     {s.Defs["penalty"], penaltyForm.keys()},
		"override":    {s.Defs["override"], overrideForm.keys()},
		"usage":       {s.Defs["usage"], usageForm.keys()},
		"paths of":    {s.Defs["usage_paths"], usagePathsForm.keys()},
		"store":       {s.Defs["store"], storeForm.keys()},
		"connections": {s.Defs["server"].Properties["connections"], connectionsForm.keys()},
		"tls":         {s.Defs["server"].Properties["tls"], tlsForm.keys()},
	} {
		var keys []string
		for key, p := range c.schema.Properties {
			keys = append(keys, key)
			if p.Description == "" {
				t.Errorf("%s: %s has no description", name, key)
			}
		}
		slices.Sort(keys)
		slices.Sort(c.known)
		if !slices.Equal(keys, c.known) {
			t.Errorf("%s: the schema has %q, Parse knows %q", name, keys, c.known)
		}
		if c.schema.AdditionalProperties != false {
			t.Errorf("%s: the schema takes unknown keys", name)
		}
	}
}

// TestSchemaWordsAreTaken gives each word and example of a rule's schema to
// Parse.
func TestSchemaWordsAreTaken(t *testing.T) {
	tried := 0
	for key, p := range readSchema(t).Defs["rule"].Properties {
		for _, value := range append(p.Enum, p.Examples...) {
			tried++
			rule := map[string]string{"name": "a", "limit": "10/s", "key": "user"}
			rule[key] = value
			companion := map[string]string{"name": "b", "limit": "10/s", "key": "client.ip"}
			text, err := json.Marshal(map[string]any{"rules": []any{rule, companion}})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := Parse("x", text); err != nil {
				t.Errorf("%s: %q: %v", key, value, err)
			}
		}
	}
	if tried < 10 {
		t.Errorf("only %d words and examples found", tried)
	}
}

func TestAttributeNamesAreAll(t *testing.T) {
	if next := (policy.Attribute{Kind: policy.Proxy + 1}).String(); next != "attribute(16)" {
		t.Errorf("there is a kind of attribute after the last known one: %s", next)
	}
	for _, name := range attributeNames() {
		if _, err := policy.ParseAttribute(name); err != nil {
			if _, err := policy.ParseAttribute(name + "x"); err != nil {
				t.Error(err)
			}
		}
	}
}
