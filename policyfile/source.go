package policyfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// text is a text by its lines.
type text struct {
	whole  string
	starts []int // offset of each line's first byte
}

func newText(data []byte) text {
	t := text{whole: string(bytes.TrimPrefix(data, []byte("\uFEFF"))), starts: []int{0}}
	for i := 0; ; {
		n := strings.IndexByte(t.whole[i:], '\n')
		if n < 0 {
			return t
		}
		i += n + 1
		t.starts = append(t.starts, i)
	}
}

// line returns the n-th line, from 1, without its end; "" if there is none.
func (t *text) line(n int) string {
	if n < 1 || n > len(t.starts) {
		return ""
	}
	line, _, _ := strings.Cut(t.whole[t.starts[n-1]:], "\n")
	return strings.TrimSuffix(line, "\r")
}

// after returns the text from a place on, up to the end of the line.
func (t *text) after(line, column int) string {
	rest := t.line(line)
	for ; column > 1 && rest != ""; column-- {
		_, size := utf8.DecodeRuneInString(rest)
		rest = rest[size:]
	}
	return rest
}

// source is the text of a file.
type source struct {
	name string
	text
}

// newSource checks what YAML itself does not care about, or tells without a
// place: size, encoding, characters. After it every line ends with a line feed,
// so that lines are counted as editors count them.
func newSource(name string, data []byte) (*source, *Error) {
	whole := func(fix, format string, args ...any) (*source, *Error) {
		return nil, &Error{File: name, Line: 1, Column: 1, Msg: fmt.Sprintf(format, args...), Fix: fix}
	}
	if len(data) > MaxSize {
		return whole("split the policy", "more than %d bytes", MaxSize)
	}
	if bytes.HasPrefix(data, []byte("\xff\xfe")) || bytes.HasPrefix(data, []byte("\xfe\xff")) {
		return whole("save the file as UTF-8", "encoded in UTF-16")
	}
	pieces := 0
	for _, c := range data {
		switch c {
		case '\n', ',', '[', '{', '?':
			pieces++
		}
	}
	if pieces > maxPieces {
		return whole("split the policy", "more than %d lines and list entries", maxPieces)
	}
	s := &source{name, newText(data)}
	for i := range s.starts {
		line := s.line(i + 1)
		if strings.HasPrefix(line, "%") {
			return nil, s.errorAt(i+1, 1, "a line that begins with % is a YAML directive, and a policy has none", "remove it")
		}
		for at := 0; at < len(line); {
			if c := line[at]; c >= ' ' && c < 0x7f || c == '\t' {
				at++
				continue
			}
			r, size := utf8.DecodeRuneInString(line[at:])
			if what, fix := foreign(r, size); what != "" {
				return nil, s.errorAt(i+1, utf8.RuneCountInString(line[:at])+1, what, fix)
			}
			at += size
		}
	}
	return s, nil
}

// foreign says why a character can't stand in a policy file.
func foreign(r rune, size int) (what, fix string) {
	switch {
	case r == utf8.RuneError && size == 1:
		return "a byte that is not UTF-8", "save the file as UTF-8"
	case r == '\r':
		return "a carriage return without a line feed", "end lines with a line feed"
	case r == 0x85 || r == 0x2028 || r == 0x2029:
		return fmt.Sprintf("the line separator %U, which YAML counts as a line and editors do not", r), "end lines with a line feed"
	case r == 0xFEFF:
		return "a byte order mark that is not at the beginning", "remove it"
	case r < 0xA0 || r == 0xFFFE || r == 0xFFFF:
		return fmt.Sprintf("the control character %U", r), `remove it, or write it as an escape ("\x1b") in double quotes`
	}
	return "", ""
}

// errorAt makes an error at a place, which is brought into the file if it is
// beyond its end.
func (s *source) errorAt(line, column int, msg, fix string) *Error {
	line = min(max(line, 1), len(s.starts))
	if line == len(s.starts) && line > 1 && s.line(line) == "" {
		// The end of the file is told at the end of its last line.
		line--
		column = utf8.RuneCountInString(s.line(line)) + 1
	}
	column = min(max(column, 1), utf8.RuneCountInString(s.line(line))+1)
	return &Error{File: s.name, Line: line, Column: column, Msg: readable(msg), Fix: readable(fix)}
}

// bounds keeps the YAML library from nesting beyond maxDepth. Aliases are not
// its business, since nodes are not expanded.
type bounds struct{}

func (bounds) CheckDepth(depth int, _ *yaml.DepthContext) error {
	if depth > maxDepth {
		return fmt.Errorf("nested deeper than %d levels", maxDepth)
	}
	return nil
}

func (bounds) CheckAlias(int, int) error { return nil }

// root parses the text, and returns the value of its one document, or nil if
// there is none.
func (s *source) root() (*yaml.Node, *Error) {
	loader, err := yaml.NewLoader(strings.NewReader(s.whole), yaml.WithPlugin(bounds{}))
	if err != nil {
		return nil, s.syntax(err)
	}
	var first, second yaml.Node
	if err := loader.Load(&first); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		return nil, s.syntax(err)
	}
	switch err := loader.Load(&second); {
	case err == nil:
		return nil, s.errorAt(second.Line, second.Column, "a second document", "one file is one policy: remove this, or move it to a file of its own")
	case !errors.Is(err, io.EOF):
		return nil, s.syntax(err)
	}
	if first.Kind == yaml.DocumentNode && len(first.Content) == 1 {
		return first.Content[0], nil
	}
	return nil, nil
}

// syntax turns an error of the YAML library into one of ours, with a fix for
// the usual slips.
func (s *source) syntax(err error) *Error {
	var load *yaml.LoadError
	if !errors.As(err, &load) {
		e := s.errorAt(1, 1, fmt.Sprintf("not YAML: %v", err), "")
		e.Err = err
		return e
	}
	at := load.Mark
	msg := "not YAML: " + load.Message
	if load.ContextMsg != "" {
		msg += " " + load.ContextMsg
	}
	var fix string
	if open := load.ContextMark; open.Line > 0 && at.Line >= len(s.starts) && s.line(len(s.starts)) == "" {
		at, fix = open, "it is still open at the end of the file"
	}
	here := s.after(min(max(at.Line, 1), len(s.starts)), at.Column)
	switch {
	case strings.HasPrefix(here, "\t"):
		msg, fix = "not YAML: a tab where the indentation stands", "indent with spaces"
	case strings.HasPrefix(here, "*"):
		msg, fix = "not YAML: a value that begins with * names an anchor, and there is none of that name", fmt.Sprintf(`if a pattern is meant, put it in quotes: "%s"`, plainWord(here))
	case strings.HasPrefix(here, "@"), strings.HasPrefix(here, "`"), strings.HasPrefix(here, "%"):
		msg, fix = fmt.Sprintf("not YAML: a value can't begin with %c", here[0]), "put it in quotes"
	case strings.HasPrefix(load.Message, "mapping values are not allowed"):
		fix = `check the indentation; a value that holds ": " must be in quotes`
	case strings.HasPrefix(here, "]"), strings.HasPrefix(here, "}"):
		fix = fmt.Sprintf("remove the %c, or write the bracket that it closes", here[0])
	case strings.HasPrefix(load.Message, "did not find expected '-'"), strings.HasPrefix(load.Message, "did not find expected key"), strings.HasPrefix(load.Message, "did not find expected <document start>"):
		fix = "check the indentation: what stands side by side begins in the same column"
	case strings.HasPrefix(load.Message, "did not find expected ','") && load.ContextMark.Line > 0 && fix == "":
		fix = fmt.Sprintf("close the bracket that opens in line %d, or write a comma between its values", load.ContextMark.Line)
	case strings.HasPrefix(load.Message, "could not find expected ':'") && load.ContextMark.Line > 0:
		at, msg, fix = load.ContextMark, "not YAML: a key without its value", `write "key: value", with a colon and a space`
	}
	e := s.errorAt(at.Line, at.Column, msg, fix)
	e.Err = err
	return e
}

// plainWord cuts an unquoted word off the front of a line.
func plainWord(s string) string {
	if i := strings.IndexAny(s, " \t,]}#"); i >= 0 {
		s = s[:i]
	}
	return s
}
