package policyfile

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// Rewrite plays the tests of a file that pick chooses (all, if it is nil), and
// returns its text with what came in the place of what was expected, and how many
// places were rewritten. Requests that expect nothing get all that came. Comments,
// order and everything else stay as they are. The error is [Errors] if the file
// has any, or if an expectation can't be rewritten where it stands; nothing is
// rewritten then.
func Rewrite(name string, data []byte, pick func(*Test) bool) ([]byte, int, error) {
	return RewriteFS(nil, name, data, pick)
}

// RewriteFS is [Rewrite] for text that may name other files, as with [ParseFS].
func RewriteFS(files fs.FS, name string, data []byte, pick func(*Test) bool) ([]byte, int, error) {
	f, err := ParseFS(files, name, data)
	if err != nil {
		return nil, 0, err
	}
	var edits []edit
	var errs Errors
	for _, t := range f.Tests {
		if pick != nil && !pick(t) {
			continue
		}
		e, wrong := t.edits(t.Run())
		edits, errs = append(edits, e...), append(errs, wrong...)
	}
	if len(errs) > 0 {
		return nil, 0, sorted(errs)
	}
	text := newText(data).whole
	slices.SortStableFunc(edits, func(a, b edit) int { return b.from - a.from })
	for _, e := range edits {
		text = text[:e.from] + e.write + text[e.to:]
	}
	out := append(slices.Clone(data[:len(data)-len(newText(data).whole)]), text...) // with its byte order mark
	if err := holds(files, name, out, pick); err != nil {
		return nil, 0, err
	}
	return out, len(edits), nil
}

// holds reports whether the chosen tests of a text pass.
func holds(files fs.FS, name string, data []byte, pick func(*Test) bool) error {
	f, err := ParseFS(files, name, data)
	if err != nil {
		return fmt.Errorf("policyfile: rewritten, the file could not be read, so it was left alone: %w", err)
	}
	for _, t := range f.Tests {
		if pick != nil && !pick(t) {
			continue
		}
		if r := t.Run(); len(r.Failures) > 0 {
			return r.Failures
		}
	}
	return nil
}

// edit replaces a part of a text.
type edit struct {
	from, to int // bytes
	write    string
}

// edits returns what to write so that the expectations are what came.
func (t *Test) edits(r *TestResult) (out []edit, errs Errors) {
	seen := make(map[*yaml.Node]bool)
	refuse := func(n *yaml.Node, msg, fix string) {
		errs = append(errs, t.src.errorAt(n.Line, n.Column, msg, fix))
	}
	for _, m := range r.misses {
		if seen[m.node] {
			continue
		}
		seen[m.node] = true
		from, to, ok := t.src.extent(m.node)
		s := &r.Steps[m.step]
		if m.key == "" {
			m.write = s.entry.want.rewritten(&s.last)
		}
		switch {
		case m.key == "" && !s.alike:
			refuse(m.node, notAlike, "write them as two requests")
		case m.write == "":
			refuse(m.node, "what came can't be written here: "+m.got, "remove this, and add what holds")
		case !ok:
			refuse(m.node, "can't be rewritten where it stands", "write it in one line, without an alias and without comments in it")
		default:
			out = append(out, edit{from, to, m.write})
		}
	}
	for i := range r.Steps {
		s := &r.Steps[i]
		if s.Expects {
			continue
		}
		if s.Times > 1 && !s.alike {
			refuse(s.entry.node, notAlike, "write them as two requests")
			continue
		}
		expect := "expect: " + expectationOf(&s.last, func(key string) bool { return key != "rules" })
		if e, ok := t.src.insertion(s.entry.node, expect); ok {
			out = append(out, e)
		} else {
			refuse(s.entry.node, "no expectation can be added here", "add "+expect)
		}
	}
	return out, errs
}

const notAlike = "these requests are not all answered alike, so one expectation can't tell what came"

// offset returns where a place is in the text, in bytes.
func (t *text) offset(line, column int) int {
	if line < 1 || line > len(t.starts) {
		return len(t.whole)
	}
	at := t.starts[line-1]
	for ; column > 1 && at < len(t.whole); column-- {
		_, size := utf8.DecodeRuneInString(t.whole[at:])
		at += size
	}
	return at
}

// extent returns the part of the text that is the value n. It reports false if
// that can't be told, or holds a comment that would be lost.
func (t *text) extent(n *yaml.Node) (from, to int, ok bool) {
	from = t.offset(n.Line, n.Column)
	rest := t.whole[from:]
	switch {
	case n.Kind == yaml.AliasNode || n.Anchor != "" || n.Style&yaml.TaggedStyle != 0:
		return 0, 0, false
	case n.Kind == yaml.ScalarNode && n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0:
		end := quotedEnd(rest)
		return from, from + end, end > 0
	case n.Kind == yaml.ScalarNode:
		return from, from + len(n.Value), n.Value != "" && strings.HasPrefix(rest, n.Value)
	case n.Style&yaml.FlowStyle != 0:
		end := flowEnd(rest)
		return from, from + end, end > 0
	case len(n.Content) == 0:
		return 0, 0, false
	}
	_, to, ok = t.extent(n.Content[len(n.Content)-1])
	return from, to, ok && !strings.Contains(t.whole[from:to], "#")
}

// quotedEnd returns where the quoted scalar that s begins with ends, 0 if it
// does not.
func quotedEnd(s string) int {
	quote := s[0]
	for i := 1; i < len(s); i++ {
		switch {
		case quote == '"' && s[i] == '\\':
			i++
		case s[i] == quote && quote == '\'' && i+1 < len(s) && s[i+1] == quote:
			i++
		case s[i] == quote:
			return i + 1
		}
	}
	return 0
}

// flowEnd returns where the brackets that s begins with are closed, 0 if they
// are not, or hold a comment.
func flowEnd(s string) int {
	depth := 0
	before := byte(' ') // the last that is no blank
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			if depth--; depth == 0 {
				return i + 1
			}
		case c == '#' && i > 0 && strings.IndexByte(" \t\n", s[i-1]) >= 0:
			return 0
		case (c == '"' || c == '\'') && strings.IndexByte("{[,:", before) >= 0:
			end := quotedEnd(s[i:])
			if end == 0 {
				return 0
			}
			i += end - 1
		}
		if c := s[i]; c != ' ' && c != '\t' && c != '\n' && c != '\r' {
			before = c
		}
	}
	return 0
}

// insertion returns what adds a key to the mapping n.
func (t *text) insertion(n *yaml.Node, pair string) (edit, bool) {
	if n.Style&yaml.FlowStyle != 0 {
		_, end, ok := t.extent(n)
		if !ok {
			return edit{}, false
		}
		at := end - 1
		for at > 0 && strings.IndexByte(" \t", t.whole[at-1]) >= 0 {
			at--
		}
		if at > 0 && t.whole[at-1] == ',' {
			return edit{at, at, " " + pair}, true
		}
		return edit{at, at, ", " + pair}, true
	}
	last := n.Content[len(n.Content)-1]
	_, at, ok := t.extent(last)
	if !ok {
		return edit{}, false
	}
	eol := "\n"
	if i := strings.IndexByte(t.whole[at:], '\n'); i >= 0 {
		at += i // a comment stays in its line
		if at > 0 && t.whole[at-1] == '\r' {
			at, eol = at-1, "\r\n"
		}
	} else {
		at = len(t.whole)
	}
	return edit{at, at, eol + strings.Repeat(" ", n.Column-1) + pair}, true
}
