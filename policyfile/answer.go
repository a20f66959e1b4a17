package policyfile

import (
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/spillgate/spillgate/policy"
	"go.yaml.in/yaml/v4"
)

// answerField is what a rule says of its answer.
var answerField = field[policy.Rule]{
	key: "answer", about: "What those are told whom this rule refuses, in place of the usual answer.",
	schema: schema{"$ref": "#/$defs/answer"},
	read: func(d *decoder, n *yaml.Node, r *policy.Rule) {
		if a, ok := readAnswer(d, n, &answerForm, (*policy.Answer).Validate); ok {
			r.Answer = a
		}
	},
}

// The media types of an answer's body.
const (
	typeText = "text/plain; charset=utf-8"
	typeJSON = "application/json"
	typeHTML = "text/html; charset=utf-8"
)

// bodyKeys are those that give an answer its body.
var bodyKeys = []string{"text", "json", "html", "file"}

var answerForm = form[policy.Answer]{
	what:    "an answer",
	example: `answer: {status: 503, text: "Come back later."}`,
	also: map[string]string{
		"code": "status", "header": "headers", "fields": "headers", "body": "text", "content": "text", "message": "text",
		"page": "file", "path": "file", "type": "problem",
	},
	fields: []field[policy.Answer]{
		in("status", "The HTTP status; 429 if left out, 403 for a rule that denies, or what the problem says.", whole(200, 599),
			func(a *policy.Answer, v int64) { a.Status = int(v) }),
		in("headers", "Header fields to set besides.", headerFields,
			func(a *policy.Answer, v map[string]string) { a.Header = v }),
		in("text", "The body, as plain text.", word,
			func(a *policy.Answer, v string) { a.Type, a.Body = typeText, v }),
		in("json", "The body, as JSON.", jsonText,
			func(a *policy.Answer, v string) { a.Type, a.Body = typeJSON, v }),
		in("html", "The body, as HTML.", word,
			func(a *policy.Answer, v string) { a.Type, a.Body = typeHTML, v }),
		{
			key: "file", about: "The file that holds the body, beside the policy file or in a folder below; read when the policy is.",
			schema: schema{"type": "string", "pattern": `\.(html|htm|json|txt)$`, "examples": []string{"busy.html"}},
			read:   readBodyFile,
		},
		in("problem", "The type of the usual body, a problem of RFC 9457.",
			oneOf(choice[policy.Problem]{"quota-exceeded", policy.QuotaExceeded}, choice[policy.Problem]{"temporary-reduced-capacity", policy.ReducedCapacity}, choice[policy.Problem]{"abnormal-usage-detected", policy.AbnormalUsage}),
			func(a *policy.Answer, v policy.Problem) { a.Problem = v }),
	},
}

func readAnswer(d *decoder, n *yaml.Node, form *form[policy.Answer], validate func(*policy.Answer) error) (*policy.Answer, bool) {
	before := len(d.errs)
	var a policy.Answer
	m, ok := form.read(d, n, &a)
	if !ok {
		return nil, false
	}
	first := ""
	for _, key := range bodyKeys {
		if m.values[key] == nil {
			continue
		}
		if first != "" {
			d.fail(m.at(key), "remove one of them", "%s and %s are two bodies", first, key)
		}
		first = key
	}
	if len(d.errs) > before {
		return nil, false
	}
	if err := validate(&a); err != nil {
		msg := plain(err)
		at := m.at(first)
		for _, key := range []string{"status", "problem", "headers"} {
			if strings.HasPrefix(msg, strings.TrimSuffix(key, "s")) {
				at = m.at(key)
			}
		}
		d.cause(at, "", err)
		return nil, false
	}
	return &a, true
}

// headerFields is a mapping of fields' names to their values.
var headerFields = kind[map[string]string]{
	schema: schema{"type": "object", "minProperties": 1, "propertyNames": schema{"pattern": "^[!#$%&'*+.^_`|~0-9A-Za-z-]+$"}, "additionalProperties": anyText.schema},
	read: func(d *decoder, n *yaml.Node) (map[string]string, bool) {
		out, before := make(map[string]string), len(d.errs)
		ok, _ := d.pairs(n, "header fields", "headers: {X-Reason: busy}", func(key, value *yaml.Node) {
			if v, ok := readText(d, value, ""); ok {
				out[key.Value] = v
			}
		})
		return out, ok && len(d.errs) == before
	},
}

// jsonText is text that is JSON.
var jsonText = kind[string]{
	schema: schema{"type": "string", "minLength": 1, "examples": []string{`{"error": "busy"}`}},
	read: func(d *decoder, n *yaml.Node) (string, bool) {
		const fix = `write it as text, in single quotes: '{"error": "busy"}'`
		if n, ok := d.value(n); ok && n.Kind != yaml.ScalarNode {
			d.wrong(n, "JSON as text", fix)
			return "", false
		}
		s, ok := readText(d, n, fix)
		if !ok {
			return "", false
		}
		var value json.RawMessage
		if err := json.Unmarshal([]byte(s), &value); err != nil {
			d.fail(n, "mend it, or say text in place of json", "not valid JSON: %s", err)
			return "", false
		}
		return s, true
	},
}

// types are those of files, by extension.
var types = map[string]string{".html": typeHTML, ".htm": typeHTML, ".json": typeJSON, ".txt": typeText}

// readBodyFile reads the file that holds an answer's body.
func readBodyFile(d *decoder, n *yaml.Node, a *policy.Answer) {
	name, ok := filePath.read(d, n)
	if !ok {
		return
	}
	kind := types[strings.ToLower(path.Ext(name))]
	switch {
	case kind == "":
		d.fail(n, "name it .html, .json or .txt", "%.60q: its name does not say what it holds", name)
	case d.files == nil:
		d.fail(n, "write the body here, as text, json or html", "this policy is read by itself, without other files")
	case !fs.ValidPath(name):
		d.fail(n, "put it beside the policy file or in a folder below, and name it from there: "+path.Base(name), "%.60q is no path from the policy file's folder downwards", name)
	default:
		body, err := readBeside(d.files, name, policy.MaxAnswer)
		switch {
		case err != nil:
		case !utf8.Valid(body):
			err = fmt.Errorf("%s is not in UTF-8, as which it would be sent", name)
		case kind == typeJSON && !json.Valid(body):
			err = fmt.Errorf("%s is not valid JSON", name)
		}
		if err != nil {
			d.fail(n, "mend the file, or name another", "%v", err).Err = err
			return
		}
		a.Type, a.Body = kind, string(body)
	}
}

// readBeside reads a file of at most so many bytes.
func readBeside(files fs.FS, name string, most int64) ([]byte, error) {
	info, err := fs.Stat(files, name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no file", name)
	}
	f, err := files.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(data)) > most {
		err = fmt.Errorf("%s has more than %d bytes", name, most)
	}
	return data, err
}

// answerSchema is the schema of answerForm: one body at most.
func answerSchema() schema {
	s := answerForm.asSchema()
	var one []any
	for _, key := range append([]string{"problem"}, bodyKeys...) {
		one = append(one, schema{"required": []string{key}})
	}
	s["oneOf"] = append(one, schema{"not": schema{"anyOf": one}})
	return s
}
