package policy

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Paths says how the server behind takes paths, where servers differ by
// choice. The zero Paths is what most do, and the safe side: /login/ is /login,
// and /LOGIN is another.
type Paths struct {
	// AnyCase takes /LOGIN for /login, for a server that does. Letters of all
	// scripts count.
	AnyCase bool
	// Slash tells /login/ from /login, for a server on which they are two
	// things. A rule on one then says nothing of the other.
	Slash bool
}

// A CompileOption says more about how rules are meant.
type CompileOption func(*Policy)

// WithPaths compiles for a server that takes paths so.
func WithPaths(paths Paths) CompileOption {
	return func(p *Policy) { p.paths = paths }
}

// Paths returns how p takes paths. Fronts whose requests have paths append them
// by [Paths.Append].
func (p *Policy) Paths() Paths { return p.paths }

// Append is [AppendPath], which keeps the slash at the end if p tells it apart.
func (p Paths) Append(dst []byte, raw string) []byte {
	return appendReadings(dst, raw, p.Slash)
}

// prepare puts the conditions on paths into the form that p reads paths in.
func (p Paths) prepare(rules []Rule) {
	if !p.AnyCase {
		return
	}
	for i := range rules {
		r := &rules[i]
		r.Match, r.Peek = p.fold(r.Match), p.fold(r.Peek)
		if r.Backup != nil {
			b := *r.Backup
			b.Match = p.fold(b.Match)
			r.Backup = &b
		}
		r.Lanes, r.Prices = slices.Clone(r.Lanes), slices.Clone(r.Prices)
		for j := range r.Lanes {
			r.Lanes[j].Match = p.fold(r.Lanes[j].Match)
		}
		for j := range r.Prices {
			r.Prices[j].Match = p.fold(r.Prices[j].Match)
		}
	}
}

// fold returns m with the case of paths folded, if p does so.
func (p Paths) fold(m Match) Match {
	if !p.AnyCase || !slices.ContainsFunc(m, func(c Condition) bool { return c.Attribute.Kind == Path }) {
		return m
	}
	m = slices.Clone(m)
	for i := range m {
		if m[i].Attribute.Kind != Path {
			continue
		}
		m[i].Values = slices.Clone(m[i].Values)
		for j, v := range m[i].Values {
			m[i].Values[j] = string(foldCase([]byte(v), 0))
		}
	}
	return m
}

// foldCase folds the case of what stands in b from there on: letters that some
// server might take for the same become one.
func foldCase(b []byte, from int) []byte {
	ascii := true
	for i := from; i < len(b); i++ {
		switch c := b[i]; {
		case 'A' <= c && c <= 'Z':
			b[i] = c + 'a' - 'A'
		case c >= utf8.RuneSelf:
			ascii = false
		}
	}
	if ascii {
		return b
	}
	old := bytes.Clone(b[from:])
	b = b[:from]
	for len(old) > 0 {
		r, n := utf8.DecodeRune(old)
		if r == utf8.RuneError && n == 1 {
			b = append(b, old[0])
		} else {
			b = utf8.AppendRune(b, unicode.ToLower(unicode.ToUpper(r)))
		}
		old = old[n:]
	}
	return b
}

// slashed reports that m has a path that ends in a slash, which without
// [Paths.Slash] no request ever has.
func (p Paths) slashed(m Match) error {
	if p.Slash {
		return nil
	}
	for _, c := range m {
		for _, v := range c.Values {
			if v = strings.TrimPrefix(v, "!"); c.Attribute.Kind == Path && len(v) > 1 && v[len(v)-1] == '/' {
				return fmt.Errorf("%s: value %q: not in normal form, so it would never match; write %q", c.Attribute, v, v[:len(v)-1])
			}
		}
	}
	return nil
}

// checkSlashes reports paths of r that end in a slash.
func (p Paths) checkSlashes(r *Rule, bad func(field string, err error)) {
	check := func(field string, m Match) {
		if err := p.slashed(m); err != nil {
			bad(field, err)
		}
	}
	check("match", r.Match)
	check("peek", r.Peek)
	if r.Backup != nil {
		check("backup", r.Backup.Match)
	}
	for i := range r.Lanes {
		check("lanes", r.Lanes[i].Match)
	}
	for i := range r.Prices {
		check("cost", r.Prices[i].Match)
	}
}
