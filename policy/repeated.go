package policy

import (
	"bytes"
	"fmt"

	"github.com/spillgate/spillgate"
)

// Repeating is what [Attributes] may be besides: those that know of values that
// a request has several of under one name. Which of them a server takes, nobody
// knows before: some take the first, some the last, some all. So a condition is
// asked for each, as for the readings of a path, and a caller can't be known by
// them; see [RepeatedError].
type Repeating interface {
	// AppendRepeats appends the values that the request has of a, a header or a
	// query parameter, each with a NUL behind it, if they are several and
	// differ; otherwise it appends nothing. Of more than [MaxRepeats] these
	// are the first ones and the last. It is asked after AppendAttr of a.
	AppendRepeats(dst []byte, a Attribute) []byte
}

// MaxRepeats is how many values of one name conditions look at.
const MaxRepeats = 16

// A RepeatedError says that nobody can tell whose a request is, or by which
// limit it counts: what tells it comes several times, with different values. A
// client that sent a fresh one beside the one that the server takes would
// otherwise be somebody else each time. It is the client's fault, like a cost
// that can't be told.
type RepeatedError struct{ Attribute Attribute }

// Error names the attribute, and none of its values, which may be secrets.
func (e *RepeatedError) Error() string {
	return fmt.Sprintf("policy: %s comes several times, with different values", e.Attribute)
}

// repeats reports whether a request may have several values of kind k. Of
// cookies, which browsers send several of for several paths, the first counts.
func (k Kind) repeats() bool { return k.field() || k == Query }

// repeats returns the values of an attribute that was read, in the form of
// [Repeating]: empty unless they are several. It is good until the next call.
func (r *request) repeats(a Attribute, slot int) []byte {
	if !a.Kind.repeats() {
		return nil
	}
	c := &r.cache
	if slot > 0 {
		at := &c.reads[slot-1]
		return c.text[at.to:at.more]
	}
	s, ok := r.attrs.(Repeating)
	if !ok {
		return nil
	}
	n := len(c.text)
	all := s.AppendRepeats(c.text, a)
	c.text = all[:n]
	return normalRepeats(a, all[n:])
}

// cutRepeat cuts the first value off repeats.
func cutRepeat(all []byte) (v, rest []byte) {
	v, rest, _ = bytes.Cut(all, []byte{readingsEnd})
	return v, rest
}

// normalRepeats puts each of the repeats of a into its form, in place.
func normalRepeats(a Attribute, all []byte) []byte {
	if !a.Kind.field() {
		return all
	}
	out := all[:0]
	for len(all) > 0 {
		var v []byte
		v, all = cutRepeat(all)
		out = append(append(out, normalHeader(a, v)...), readingsEnd)
	}
	return out
}

// holdsEach is holds for an attribute with several values: joined is what it
// is as a list, if it is one. If all is asked for each must meet c, and
// otherwise one.
func (c *condition) holdsEach(joined, each []byte, all bool) bool {
	if c.attr.Kind.field() && c.meets(joined) != all {
		return !all
	}
	for len(each) > 0 {
		var v []byte
		v, each = cutRepeat(each)
		holds := len(c.want) == 0 // as where the attribute is missing
		if !empty(v) {
			holds = c.meets(v)
		}
		if holds != all {
			return !all
		}
	}
	return all
}

// repeatedIn returns an attribute of some conditions that the request has
// several values of, nil if there is none.
func (r *request) repeatedIn(cs []condition) *Attribute {
	for i := range cs {
		c := &cs[i]
		if !c.attr.Kind.repeats() {
			continue
		}
		r.known(c.attr, c.slot)
		if len(r.repeats(c.attr, c.slot)) > 0 {
			return &c.attr
		}
	}
	return nil
}

// repeated makes v an error: the request can't be told from others.
func (v *Verdict) repeated(a *Attribute) {
	v.alone()
	v.err = &RepeatedError{*a}
}

// findRepeated adds the overrides that name one of several values. One that
// blocks holds for each of them. One that exempts holds for none, since it can't
// be for all. Whether another limit holds, nobody knows.
func (b *bound) findRepeated(v *Verdict, s *scratch, set *values, each []byte, now *int64) {
	a, c := &set.part.Attributes[0], &s.cache
	c.text = c.text[:len(c.text)+len(each)] // each stands there, and stays
	for len(each) > 0 {
		var one []byte
		one, each = cutRepeat(each)
		if head, ok := set.heads[string(s.normal(&set.part, one))]; ok {
			b.chain(v, s, head, now, a)
		}
	}
}

// unknown returns an attribute by which it can't be told how a request counts
// under r: it has several values of what is in the key, just made, or of what
// an override with another limit goes by. It is nil if there is none, and where
// it does not matter.
func (s *scratch) unknown(r *rule, by *exception) *Attribute {
	switch {
	case by.limits() && by.unsure != nil:
		return by.unsure
	case r.Limit.Algorithm == spillgate.Unlimited:
		return nil
	}
	return s.several
}

// AppendLines appends the value of a header that comes in these lines: that of
// each if they are the same, and else all of them as one list (RFC 9110, 5.3),
// or, of cookies, as one header (RFC 9113, 8.2.3).
func AppendLines(dst []byte, name string, lines []string) []byte {
	if !differ(lines) {
		lines = lines[:min(len(lines), 1)]
	}
	between := ", "
	if name == cookies {
		between = "; "
	}
	for i, line := range lines {
		if i > 0 {
			dst = append(dst, between...)
		}
		dst = append(dst, line...)
	}
	return dst
}

// AppendRepeats appends the lines of a header, named in lower case, as
// [Repeating] wants them. The lines of cookies are one header.
func AppendRepeats(dst []byte, name string, lines []string) []byte {
	if name == cookies || !differ(lines) {
		return dst
	}
	for i, line := range lines {
		if i < MaxRepeats-1 || i == len(lines)-1 {
			dst = append(append(dst, line...), readingsEnd)
		}
	}
	return dst
}

// cookies is the header that has all cookies.
const cookies = "cookie"

func differ(lines []string) bool {
	for i := 1; i < len(lines); i++ {
		if lines[i] != lines[0] {
			return true
		}
	}
	return false
}
