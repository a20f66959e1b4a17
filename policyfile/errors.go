package policyfile

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// An Error is one thing that is wrong with a policy file.
type Error struct {
	File string
	// Line and Column count from 1; a column is a character, not a byte. The
	// file as a whole is 1, 1.
	Line, Column int
	// Msg says what is wrong, and Fix, if not empty, what to write instead.
	Msg, Fix string
	// Err is the cause, if it came from elsewhere: a [*policy.RuleError], a
	// [*spillgate.SyntaxError], a [*clientip.NetworkError], the YAML
	// library's or the file system's error. It may be nil.
	Err error
}

// Error returns "file:line:column: message; fix".
func (e *Error) Error() string {
	s := e.place() + ": " + e.Msg
	if e.Fix != "" {
		s += "; " + e.Fix
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

func (e *Error) place() string {
	return fmt.Sprintf("%s:%d:%d", e.File, e.Line, e.Column)
}

// Errors are the errors of one file, in the order of their places. There is at
// least one.
type Errors []*Error

// Error returns all errors, one a line.
func (e Errors) Error() string {
	var b strings.Builder
	for i, one := range e {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(one.Error())
	}
	return b.String()
}

// Unwrap returns the errors.
func (e Errors) Unwrap() []error {
	out := make([]error, len(e))
	for i, one := range e {
		out[i] = one
	}
	return out
}

// Report writes the errors for people, each with the line of the text src that
// it speaks of, a caret under the place, and the fix:
//
//	limits.yaml:3:5: unknown key "limt"
//	    3 |     limt: 10/s
//	      |     ^
//	      | fix: did you mean "limit"?
func (e Errors) Report(w io.Writer, src []byte) error {
	text := newText(src)
	var b bytes.Buffer
	for i, one := range e {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "%s: %s\n", one.place(), one.Msg)
		if line, indent := excerpt(text.line(one.Line), one.Column); line != "" {
			fmt.Fprintf(&b, "%5d | %s\n      | %s^\n", one.Line, line, indent)
		}
		if one.Fix != "" {
			fmt.Fprintf(&b, "      | fix: %s\n", one.Fix)
		}
	}
	_, err := w.Write(b.Bytes())
	return err
}

// sorted puts errors in the order of their places and drops repetitions, such
// as aliases of one wrong value make.
func sorted(errs Errors) Errors {
	slices.SortStableFunc(errs, func(a, b *Error) int {
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return a.Column - b.Column
	})
	return slices.CompactFunc(errs, func(a, b *Error) bool {
		return a.Line == b.Line && a.Column == b.Column && a.Msg == b.Msg
	})
}

// Characters shown before and after the column.
const before, after = 60, 40

// excerpt returns the part of a line around a column, safe to print, and what
// stands before the caret.
func excerpt(line string, column int) (part, indent string) {
	// Go to the column, then back, since the line may be megabytes long.
	at := 0
	for i := 1; i < column && at < len(line); i++ {
		_, size := utf8.DecodeRuneInString(line[at:])
		at += size
	}
	from, to := at, at
	for i := 0; i < before && from > 0; i++ {
		_, size := utf8.DecodeLastRuneInString(line[:from])
		from -= size
	}
	for i := 0; i < after && to < len(line); i++ {
		_, size := utf8.DecodeRuneInString(line[to:])
		to += size
	}
	head, tail := printable(line[from:at]), printable(line[at:to])
	if from > 0 {
		head = "…" + head
	}
	if to < len(line) {
		tail += "…"
	}
	indent = strings.Map(func(c rune) rune {
		if c == '\t' {
			return c
		}
		return ' '
	}, head)
	return strings.TrimRight(head+tail, " \t"), indent
}

// maxMessage is how many bytes of a message are kept: a wrong value may be
// megabytes long.
const maxMessage = 500

// readable makes a message that quotes a file safe to print.
func readable(s string) string {
	if len(s) > maxMessage {
		s = strings.ToValidUTF8(s[:maxMessage], "") + "…"
	}
	return printable(s)
}

// printable keeps a terminal from obeying what a broken file holds.
func printable(s string) string {
	return strings.Map(func(c rune) rune {
		if c == '\t' || unicode.IsPrint(c) {
			return c
		}
		return '\uFFFD'
	}, s)
}
