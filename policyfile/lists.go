package policyfile

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/spillgate/spillgate/policy"
)

// Bounds of a list file.
const (
	MaxListSize = 64 << 20 // bytes
	MaxListLine = 4096     // bytes
)

// maxListErrors is how many errors of one list are told.
const maxListErrors = 10

// Lists returns the names of the files that the overrides' lists are in, each
// once: paths from the folder of the policy file downwards, parted by slashes.
func (f *File) Lists() []string {
	var out []string
	for i := range f.overrides {
		if name := f.overrides[i].List; name != "" && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// ReadLists reads the lists of the overrides anew, and returns the overrides
// with what they hold now, for [policy.Engine.SetOverrides]; f is not changed.
// What is wrong with a list is [Errors], whose places are in the list; a list
// that can't be read is the file system's error, wrapped.
func (f *File) ReadLists() (*policy.Overrides, error) {
	full := append([]policy.Override(nil), f.overrides...)
	r := listsReader{files: f.files}
	for i := range full {
		if full[i].List == "" {
			continue
		}
		var err error
		if full[i].Entries, err = r.read(&full[i]); err != nil {
			return nil, err
		}
	}
	pol, err := f.Policy.WithOverrides(full)
	if err != nil {
		return nil, fmt.Errorf("policyfile: %w", err)
	}
	return pol.Overrides(), nil
}

// listsReader reads each list once.
type listsReader struct {
	files fs.FS
	done  map[[2]string][]policy.Entry // by name and key
}

func (r *listsReader) read(o *policy.Override) ([]policy.Entry, error) {
	id := [2]string{o.List, o.Key.String()}
	if entries, ok := r.done[id]; ok {
		return entries, nil
	}
	if !fs.ValidPath(o.List) {
		return nil, fmt.Errorf("policyfile: %.60q is no path from the policy file's folder downwards", o.List)
	}
	data, err := readBeside(r.files, o.List, MaxListSize)
	if err != nil {
		return nil, fmt.Errorf("policyfile: %w", err)
	}
	entries, err := ParseList(o.List, data, o.Key)
	if err != nil {
		return nil, err
	}
	if r.done == nil {
		r.done = make(map[[2]string][]policy.Entry)
	}
	r.done[id] = entries
	return entries, nil
}

// ParseList reads the text of a list; name stands for it in errors. Each line
// holds an address or a network, or, if key names another attribute than
// client.ip, a value of that; # begins a comment. After it may stand
//
//	203.0.113.0/24 until=2027-01-31 reason="port scans" owner=ops
//
// A value with a blank, a quotation mark or a # is written in quotation marks,
// as in Go. Lines end with LF or CRLF; the text is UTF-8, with or without a
// byte order mark. The error is [Errors].
func ParseList(name string, data []byte, key policy.Part) ([]policy.Entry, error) {
	l := listReader{name: name, addresses: len(key.Attributes) == 0 || key.Attributes[0].Kind == policy.ClientIP}
	l.secret = slices.ContainsFunc(key.Attributes, key.Hides)
	switch {
	case len(data) > MaxListSize:
		l.fail(1, 1, "split it into several", "more than %d MiB", MaxListSize>>20)
		return nil, l.errs
	case bytes.HasPrefix(data, []byte("\xff\xfe")), bytes.HasPrefix(data, []byte("\xfe\xff")):
		l.fail(1, 1, "save it as UTF-8", "the text is UTF-16")
		return nil, l.errs
	}
	rest := string(bytes.TrimPrefix(data, []byte("\ufeff")))
	for number := 1; rest != "" && len(l.errs) < maxListErrors; number++ {
		var line string
		line, rest, _ = strings.Cut(rest, "\n")
		l.line(number, strings.TrimSuffix(line, "\r"))
	}
	if len(l.errs) > 0 {
		return nil, l.errs
	}
	return l.entries, nil
}

// listReader reads the lines of a list.
type listReader struct {
	name      string
	addresses bool
	secret    bool // what stands in it is not for logs
	entries   []policy.Entry
	errs      Errors
}

func (l *listReader) fail(line, column int, fix, format string, args ...any) {
	l.errs = append(l.errs, &Error{File: l.name, Line: line, Column: column, Msg: readable(fmt.Sprintf(format, args...)), Fix: readable(fix)})
}

// quote quotes what stands in the list, unless it may be a part of a secret: a
// token with a blank in it whose quotation marks were forgotten, say.
func (l *listReader) quote(text string) string {
	if l.secret {
		return "something"
	}
	return fmt.Sprintf("%.60q", text)
}

// line reads one line, which may say nothing.
func (l *listReader) line(number int, text string) {
	if len(text) > MaxListLine {
		l.fail(number, 1, "write one entry a line", "a line of %d bytes; at most %d", len(text), MaxListLine)
		return
	}
	if !utf8.ValidString(text) {
		l.fail(number, 1, "save it as UTF-8", "a line that is not UTF-8")
		return
	}
	e := policy.Entry{Line: number}
	rest := text
	for first := true; ; first = false {
		rest = strings.TrimLeftFunc(rest, unicode.IsSpace)
		column := utf8.RuneCountInString(text) - utf8.RuneCountInString(rest) + 1
		if rest == "" || rest[0] == '#' {
			if !first && len(l.errs) == 0 {
				l.entries = append(l.entries, e)
			}
			return
		}
		word, after, err := listWord(rest)
		if err != nil {
			l.fail(number, column, `write it as in "a b", with \" for a quotation mark in it`, "%v", err)
			return
		}
		if first {
			l.value(&e, word, number, column)
		} else {
			l.field(&e, word, number, column)
		}
		rest = after
	}
}

// value reads what an entry is about.
func (l *listReader) value(e *policy.Entry, word string, number, column int) {
	if !l.addresses {
		if e.Value = word; strings.Trim(word, " \t") == "" {
			l.fail(number, column, "remove the line", "an empty value")
		}
		return
	}
	p, err := policy.ParseNetwork(word)
	if err != nil {
		msg, fix := advice(plain(err))
		if fix == "" {
			fix = "write an address or a network, or # before a comment"
		}
		l.fail(number, column, fix, "%s", msg)
		return
	}
	e.Network = p
}

// field reads what an entry says of itself.
func (l *listReader) field(e *policy.Entry, word string, number, column int) {
	name, value, ok := strings.Cut(word, "=")
	switch {
	case !ok || value == "":
		l.fail(number, column, `write until=2027-01-31, reason="…" or owner="…", or # before a comment`, "%s after the entry", l.quote(word))
	case name == "until":
		t, ok := parseExpiry(value)
		if !ok {
			l.fail(number, column, fixExpiry(value), "until: want a date such as 2027-01-31, or a time with its zone, not %.60q", value)
			return
		}
		e.Until = t
	case name == "reason":
		e.Reason = value
	case name == "owner":
		e.Owner = value
	default:
		l.fail(number, column, "known are until, reason and owner", "unknown field %s", l.quote(name))
	}
}

// listWord cuts the first word off a text. A quotation mark anywhere in it
// begins a part that may hold blanks.
func listWord(s string) (word, rest string, err error) {
	if end := strings.IndexFunc(s, unicode.IsSpace); end < 0 && !strings.ContainsRune(s, '"') {
		return s, "", nil
	} else if end >= 0 && !strings.ContainsRune(s[:end], '"') {
		return s[:end], s[end:], nil
	}
	var b strings.Builder
	for s != "" {
		if s[0] == '"' {
			quoted, err := strconv.QuotedPrefix(s)
			if err != nil {
				return "", "", errors.New("a quotation mark without its partner, or an escape that Go does not know")
			}
			text, err := strconv.Unquote(quoted)
			if err != nil {
				return "", "", err
			}
			b.WriteString(text)
			s = s[len(quoted):]
			continue
		}
		c, size := utf8.DecodeRuneInString(s)
		if unicode.IsSpace(c) {
			break
		}
		b.WriteString(s[:size])
		s = s[size:]
	}
	return b.String(), s, nil
}
