package policy

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"unsafe"

	"github.com/spillgate/spillgate"
)

// A Part is one part of a rule's key: the first of Attributes that the
// request has. It is written like
//
//	client.ip                  IPv6 grouped by /64
//	client.ip/56               IPv6 grouped by /56
//	header.x-email lower trim  in the normal form of the account look-up
//	user else client.ip        the first that is there
//	header.x-id secret         shown as a fingerprint, never as it is
//	cookie.lang shown          shown as it is, though in a cookie
type Part struct {
	Attributes []Attribute
	// Prefix groups IPv6 addresses, 32 to 128 bits; 0 means 64. IPv4 is
	// always a whole address.
	Prefix int
	// Lower folds ASCII letters, Trim cuts blanks and control characters at
	// both ends.
	Lower, Trim bool
	// Secret shows the value as a fingerprint wherever a key is shown; see
	// [FingerprintKey]. Shown shows it as it is, also where
	// [Attribute.Secret] says otherwise.
	Secret, Shown bool

	slots []int // of the attributes in a [cache], of parts of a policy's rules
}

// DefaultPrefix is how many bits of an IPv6 address tell callers apart: one
// subscriber usually has a whole /64.
const DefaultPrefix = 64

// ParsePart reads a part of a key.
func ParsePart(s string) (Part, error) {
	var p Part
	fail := func(format string, args ...any) (Part, error) {
		return Part{}, fmt.Errorf("policy: key part %q: %w", s, fmt.Errorf(format, args...))
	}
	words := strings.Fields(s)
	if len(words) == 0 {
		return fail(`empty; want an attribute such as client.ip`)
	}
	for i := 0; i < len(words); i++ {
		switch w := words[i]; {
		case i > 0 && w == "lower":
			p.Lower = true
		case i > 0 && w == "trim":
			p.Trim = true
		case i > 0 && w == "secret":
			p.Secret = true
		case i > 0 && w == "shown":
			p.Shown = true
		case i > 0 && w != "else":
			return fail("unknown word %q; known are lower, trim, secret, shown and else ATTRIBUTE", w)
		default:
			if w == "else" {
				if i++; i == len(words) {
					return fail("else needs an attribute after it; write one, such as else client.ip, or remove it")
				}
				w = words[i]
			}
			name, bits, grouped := strings.Cut(w, "/")
			a, err := ParseAttribute(name)
			if err != nil {
				return Part{}, err
			}
			if grouped {
				n, err := strconv.Atoi(bits)
				if a.Kind != ClientIP || err != nil || n < 32 || n > 128 || p.Prefix != 0 {
					return fail("/%s: only client.ip is grouped, once, by 32 to 128 bits of an IPv6 address", bits)
				}
				p.Prefix = n
			}
			p.Attributes = append(p.Attributes, a)
		}
	}
	if p.Secret && p.Shown {
		return fail("secret and shown exclude each other; remove one of them")
	}
	return p, nil
}

// String returns the part as it is written in a policy.
func (p Part) String() string {
	var b strings.Builder
	for i, a := range p.Attributes {
		if i > 0 {
			b.WriteString(" else ")
		}
		b.WriteString(a.String())
		if a.Kind == ClientIP && p.Prefix != 0 {
			fmt.Fprintf(&b, "/%d", p.Prefix)
		}
	}
	if p.Lower {
		b.WriteString(" lower")
	}
	if p.Trim {
		b.WriteString(" trim")
	}
	if p.Secret {
		b.WriteString(" secret")
	}
	if p.Shown {
		b.WriteString(" shown")
	}
	return b.String()
}

// request is one request being decided: its attributes and scratch space.
type request struct {
	attrs Attributes
	buf   []byte // values
	key   []byte // the encoding of the key at hand

	addr  netip.Addr // of the client, once asked for
	asked bool

	cache cache
	found []uint64 // the rules that may apply

	several *Attribute // of the key at hand, that the request has several values of
}

// begin makes r ready for another request, under a policy with these slots.
func (r *request) begin(attrs Attributes, s slots) {
	r.attrs, r.asked = attrs, false
	r.cache.begin(s)
}

// value returns the value of a; it is good until the next call.
func (r *request) value(a Attribute) ([]byte, bool) {
	v, ok := r.attrs.AppendAttr(r.buf[:0], a)
	if r.cache.anyCase && a.Kind == Path {
		v = foldCase(v, 0)
	} else if a.Kind.field() {
		v = v[:copy(v, normalHeader(a, v))]
	}
	if cap(v) > cap(r.buf) {
		r.buf = v[:0]
	}
	return v, ok && (!empty(v) || len(r.repeats(a, 0)) > 0)
}

// address returns the client's address; it is not valid if the request has
// none, or one that is no address.
func (r *request) address() netip.Addr {
	if r.asked {
		return r.addr
	}
	r.asked, r.addr = true, netip.Addr{}
	if a, ok := r.attrs.(Addressed); ok {
		r.addr = a.ClientAddr()
	} else if v, ok := r.value(Attribute{Kind: ClientIP}); ok {
		// A copy would be an allocation a request. The string lives no longer
		// than this call: ParseAddr keeps its text only in an error, dropped
		// here, and zones are cloned (package unique).
		if a, err := netip.ParseAddr(unsafe.String(unsafe.SliceData(v), len(v))); err == nil {
			r.addr = a
		}
	}
	r.addr = r.addr.Unmap().WithZone("")
	return r.addr
}

// oddReadings stands in a key for a path or method that has several readings.
var oddReadings = []byte{readingsEnd}

// pick returns the first attribute of p that the request has, nil if it has
// none, and its value in the form that is a key. For an address that is one
// the value is empty, and addr is valid. The value is good until the next call,
// and must not be changed.
func (r *request) pick(p *Part) (a *Attribute, v []byte, addr netip.Addr) {
	for i := range p.Attributes {
		a := &p.Attributes[i]
		if a.Kind == ClientIP {
			if addr := r.address(); addr.IsValid() {
				return a, nil, addr
			}
		}
		slot := 0
		if p.slots != nil {
			slot = p.slots[i]
		}
		v, ok := r.known(*a, slot)
		if !ok {
			continue
		}
		if a.Kind.read() && bytes.IndexByte(v, readingsEnd) >= 0 {
			return a, oddReadings, netip.Addr{} // else each reading would be another key
		}
		if len(r.repeats(*a, slot)) > 0 {
			r.several = a
		} else if v = r.normal(p, v); len(v) == 0 {
			continue // nothing is left of it
		}
		return a, v, netip.Addr{}
	}
	return nil, nil, netip.Addr{}
}

// normal returns a value in the form in which p tells callers apart. It is good
// until the next call.
func (r *request) normal(p *Part, v []byte) []byte {
	if p.Trim {
		v = bytes.TrimFunc(v, blank)
	}
	if p.Lower {
		r.buf = append(r.buf[:0], v...)
		v = r.buf
		for i, c := range v {
			if 'A' <= c && c <= 'Z' {
				v[i] = c + 'a' - 'A'
			}
		}
	}
	return v
}

// What begins a part of a key that is no text, where a [Kind] would stand. They
// are no kinds, however many there will be.
const (
	partMissing byte = 0x40
	partAddress byte = 0x41
)

// appendKey appends the encoding of p's value to the key at hand, and reports
// false if the request has none of its attributes.
func (r *request) appendKey(p *Part) bool {
	if p.Attributes[0].Kind == ClientIP {
		if addr := r.address(); addr.IsValid() {
			r.appendAddress(addr, p.Prefix)
			return true
		}
	}
	a, v, addr := r.pick(p)
	switch {
	case a == nil:
		r.key = append(r.key, partMissing)
		return false
	case addr.IsValid():
		r.appendAddress(addr, p.Prefix)
	default:
		r.key = binary.AppendUvarint(r.key, uint64(a.Kind))
		r.key = spillgate.AppendPart(r.key, a.Name, v)
	}
	return true
}

// digest is the digest of a key that several rules have, in a round.
type digest struct {
	round uint64
	key   spillgate.Key
	whole bool // no part is missing

	several *Attribute
}

// keyOf returns the request's key under r, and whether no part of it is missing.
func (e *Engine) keyOf(s *scratch, r *rule) (key spillgate.Key, whole bool) {
	var same *digest
	if r.sameKey > 0 {
		if same = &s.keys[r.sameKey-1]; same.round == s.cache.round {
			s.several = same.several
			return same.key, same.whole
		}
	}
	s.key, whole, s.several = s.key[:0], true, nil
	for p := range r.Key {
		whole = s.appendKey(&r.Key[p]) && whole
	}
	if key = e.seed.Key(s.key); same != nil {
		*same = digest{s.cache.round, key, whole, s.several}
	}
	return key, whole
}

// numberKeys finds the keys that several rules have, and returns how many
// there are.
func numberKeys(rules []rule) (n int) {
	first := make(map[string]*rule)
	for i := range rules {
		r := &rules[i]
		if r.Disabled || r.Exempt {
			continue
		}
		text := fmt.Sprintf("%#v", r.Key) // not as it is written: a program's names may hold anything
		before := first[text]
		if before == nil {
			first[text] = r
			continue
		}
		if before.sameKey == 0 {
			n++
			before.sameKey = n
		}
		r.sameKey = before.sameKey
	}
	return n
}

// appendAddress appends the form in which an address is a key: the bits of an
// IPv4 address, or of an IPv6 prefix and its length. Text in the
// place of an address is appended as any other value, under another kind.
func (r *request) appendAddress(a netip.Addr, prefix int) {
	if a.Is4() {
		b := a.As4()
		r.key = append(r.key, partAddress, 4, 32, b[0], b[1], b[2], b[3])
		return
	}
	p := group(a, prefix)
	b := p.Addr().As16()
	r.key = append(append(r.key, partAddress, 6, byte(p.Bits())), b[:]...)
}

// group returns the network that stands for an IPv6 address in a key.
func group(a netip.Addr, prefix int) netip.Prefix {
	if prefix == 0 {
		prefix = DefaultPrefix
	}
	p, _ := a.Prefix(prefix)
	return p
}
