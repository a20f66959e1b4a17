package policy

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// A Condition holds if the attribute has one of the values. A value may hold
// "*", which stands for any run of characters; in a path it stays within one
// segment, and a last segment "**" stands for any rest. A value that begins
// with "!" must not be met. Values of client.ip are addresses and networks
// (203.0.113.0/24). A request that lacks the attribute does not meet a
// condition unless all its values begin with "!".
type Condition struct {
	Attribute Attribute
	Values    []string
}

// Validate reports what is wrong with c, nil if it can be compiled.
func (c Condition) Validate() error {
	_, err := compileMatch(Match{c})
	if err == nil {
		err = Paths{}.slashed(Match{c})
	}
	if err != nil {
		return fmt.Errorf("policy: %w", err)
	}
	return nil
}

// A Match is a list of conditions that must all hold. The empty Match holds
// for every request.
type Match []Condition

// condition is a Condition made ready.
type condition struct {
	attr     Attribute
	slot     int // of the attribute in a [cache]
	want     []pattern
	unwanted []pattern
	looking  int // how many of these look through values,
	longest  int // which are no longer than that
}

type pattern struct {
	text   string // for exact
	globs  bool
	under  bool // text is a folder without stars, and all under it is met
	prefix netip.Prefix

	// Of one that globs and is not under:
	parts []glob // one, or those of a path's segments
	rest  bool   // of a path: any may follow
	looks bool   // it looks through a value, and not only at its ends
}

func compileMatch(m Match) ([]condition, error) {
	var out []condition
	for _, c := range m {
		if len(c.Values) == 0 {
			return nil, fmt.Errorf("%s: no values: name at least one, or leave the condition out", c.Attribute)
		}
		cc := condition{attr: c.Attribute}
		for _, v := range c.Values {
			text, not := strings.CutPrefix(v, "!")
			for _, text := range credentialPatterns(c.Attribute, text) {
				p, err := compilePattern(c.Attribute.Kind, text)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", c.Attribute, err)
				}
				if p.looks {
					cc.looking++
				}
				if not {
					cc.unwanted = append(cc.unwanted, p)
				} else {
					cc.want = append(cc.want, p)
				}
			}
		}
		cc.longest = longestLooked(cc.looking)
		out = append(out, cc)
	}
	return out, nil
}

func compilePattern(k Kind, v string) (pattern, error) {
	switch k {
	case ClientIP:
		p, err := ParseNetwork(v)
		if err != nil {
			return pattern{}, err
		}
		return pattern{prefix: p}, nil
	case Method:
		if v == "" || v != strings.ToUpper(v) {
			return pattern{}, fmt.Errorf("value %q: methods are upper case, such as POST", v)
		}
		if m := misspelt(v); m != "" {
			return pattern{}, fmt.Errorf("value %q: did you mean %s?", v, m)
		}
	case Path:
		if !strings.HasPrefix(v, "/") {
			return pattern{}, fmt.Errorf("value %q: a path begins with /", v)
		}
		if strings.ContainsAny(v, "?#") {
			return pattern{}, fmt.Errorf("value %q: a path has no query and no fragment; use query.NAME", v)
		}
		if i := strings.Index(v, "**"); i >= 0 && (i != len(v)-2 || v[i-1] != '/') {
			return pattern{}, fmt.Errorf("value %q: ** stands only for a whole last segment, as in /api/**", v)
		}
		if n := string(AppendPath(nil, v)); n != v && n+"/" != v { // the slash: see Paths.slashed
			all := strings.Split(n, "\x00")
			if n = all[0]; n == v { // as /a%2Fb is in the first of its readings
				n = all[len(all)-1]
			}
			return pattern{}, fmt.Errorf("value %q: not in normal form, so it would never match; write %q", v, n)
		}
	case Host:
		if n := strings.TrimSuffix(strings.ToLower(v), "."); n != v || v == "" {
			return pattern{}, fmt.Errorf("value %q: hosts are lower case, without a trailing dot; write %q", v, n)
		}
		if strings.Contains(v, "://") {
			return pattern{}, fmt.Errorf("value %q: hosts are matched without scheme and path", v)
		}
		if !strings.HasPrefix(v, "[") && strings.Contains(v, ":") {
			return pattern{}, fmt.Errorf("value %q: hosts are matched without their port", v)
		}
	}
	if empty([]byte(v)) {
		return pattern{}, errors.New(`an empty value counts as missing, so none would be met; for requests that lack the attribute write "!*"`)
	}
	if folder, ok := strings.CutSuffix(v, "/**"); ok && k == Path && folder != "" && !strings.Contains(folder, "*") {
		return pattern{text: folder, globs: true, under: true}, nil
	}
	p := pattern{text: v, globs: strings.Contains(v, "*")}
	if p.globs {
		p.split(k)
	}
	return p, nil
}

// methods are those of RFC 9110 and PATCH (RFC 5789). Others are taken as they
// are, unless they look like one of these.
var methods = []string{"GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"}

// misspelt returns the method that v is a slip of: two letters swapped, one
// too many, one too few or one wrong; "" if it is none.
func misspelt(v string) string {
	for _, m := range methods {
		if v == m {
			return ""
		}
	}
	for _, m := range methods {
		i := 0
		for i < len(v) && i < len(m) && v[i] == m[i] {
			i++
		}
		a, b := v[i:], m[i:]
		switch {
		case len(v) < 3:
		case len(a) == len(b) && len(a) > 1 && a[0] == b[1] && a[1] == b[0] && a[2:] == b[2:],
			len(a) == len(b) && len(m) > 3 && a[1:] == b[1:],
			len(a) == len(b)+1 && a[1:] == b,
			len(b) == len(a)+1 && b[1:] == a:
			return m
		}
	}
	return ""
}

// holds reports whether the request meets c. A path or a method meets it if any of its
// readings does, or, where all is asked for, only if every one does. A value that is too
// long to be looked through may be any.
func (c *condition) holds(r *request, all bool) bool {
	switch c.attr.Kind {
	case ClientIP:
		a := r.address()
		return (len(c.want) == 0 || contains(c.want, a)) && !contains(c.unwanted, a)
	case Path, Method:
		v, ok := r.known(c.attr, c.slot)
		if !ok {
			return len(c.want) == 0
		}
		if c.tooLong(r, len(v)) {
			return !all
		}
		for {
			i := bytes.IndexByte(v, readingsEnd)
			if i < 0 {
				if string(v) == anyReading && c.attr.Kind == Path {
					return !all
				}
				return c.meets(v)
			}
			if c.meets(v[:i]) != all {
				return !all
			}
			v = v[i+1:]
		}
	}
	v, ok := r.known(c.attr, c.slot)
	if !ok {
		return len(c.want) == 0
	}
	each := r.repeats(c.attr, c.slot)
	if c.tooLong(r, len(v)+len(each)) {
		return !all
	}
	if len(each) > 0 {
		return c.holdsEach(v, each, all)
	}
	return c.meets(v)
}

func (c *condition) meets(v []byte) bool {
	return (len(c.want) == 0 || meets(c.want, c.attr.Kind, v)) && !meets(c.unwanted, c.attr.Kind, v)
}

func contains(ps []pattern, a netip.Addr) bool {
	for i := range ps {
		if ps[i].prefix.Contains(a) {
			return true
		}
	}
	return false
}

func meets(ps []pattern, k Kind, v []byte) bool {
	for i := range ps {
		p := &ps[i]
		switch {
		case !p.globs:
			if string(v) == p.text {
				return true
			}
		case p.under:
			if n := len(p.text); len(v) >= n && string(v[:n]) == p.text && (len(v) == n || v[n] == '/') {
				return true
			}
		case k == Path:
			if p.meetsPath(v) {
				return true
			}
		case p.parts[0].matches(v):
			return true
		}
	}
	return false
}
