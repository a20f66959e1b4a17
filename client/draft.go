package client

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spillgate/spillgate"
)

// The fields of the draft as net/http spells the keys of its maps.
const (
	limitField  = "Ratelimit"
	policyField = "Ratelimit-Policy"
)

// draft reads RateLimit and RateLimit-Policy, nil if there is nothing to read.
// As the draft wants it, a list that is not well formed counts as absent, and an
// item that lacks what it must have is passed over. Lines that make no list
// together are read each for itself: one proxy may have put its own beside those
// of an older draft.
func draft(h http.Header) (quotas []Quota) {
	lines := h[limitField]
	limits := items(lines)
	if limits == nil && len(lines) > 0 {
		for _, line := range lines[:min(len(lines), maxQuotas)] {
			if it, ok := dictionary(line); ok {
				limits = append(limits, it)
			} else if len(lines) > 1 {
				limits = append(limits, items([]string{line})...)
			}
		}
	}
	policies := items(h[policyField])
	for _, it := range limits {
		remaining, ok := it.integer("r")
		if !ok || len(quotas) == maxQuotas {
			continue
		}
		q := Quota{Name: it.name, Unit: "requests", Limit: -1, Remaining: remaining, Window: -1, Reset: it.duration("t")}
		if limit, ok := it.integer("limit"); ok && it.old {
			q.Limit = limit
		}
		for _, p := range policies {
			if p.name != it.name || it.old {
				continue
			}
			if limit, ok := p.integer("q"); ok {
				q.Limit = limit
			}
			if unit := p.params["qu"]; strings.HasPrefix(unit, `"`) {
				q.Unit = unit[1:]
			}
			q.Window = p.duration("w")
			break
		}
		quotas = append(quotas, q)
	}
	return quotas
}

// An item is a String with parameters. The text of a parameter begins with a
// quote if it is a String; that of an Integer is its digits.
type item struct {
	name   string
	params map[string]string
	old    bool // it is that of an older draft, without a name
}

// integer returns a parameter that is an Integer, and not negative.
func (it *item) integer(key string) (int64, bool) {
	text := it.params[key]
	if !digits(text) {
		return 0, false
	}
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil
}

// duration returns a parameter that is whole seconds, -1 if there is none.
func (it *item) duration(key string) time.Duration {
	n, ok := it.integer(key)
	switch {
	case !ok:
		return -1
	case n > math.MaxInt64/int64(time.Second):
		return spillgate.Never
	}
	return time.Duration(n) * time.Second
}

// items reads a List (RFC 9651, 4.2.1) whose members are Items. Members that
// are no String are passed over; nil means that the text is no List.
func items(lines []string) (list []item) {
	r := &reader{strings.Trim(strings.Join(lines, ", "), " ")}
	if len(r.s) > maxField {
		return nil
	}
	for r.s != "" {
		name, ok := r.bare()
		if !ok {
			return nil
		}
		it := item{params: map[string]string{}}
		if !r.params(it.params) {
			return nil
		}
		if strings.HasPrefix(name, `"`) {
			it.name = name[1:]
			list = append(list, it)
		}
		r.blanks()
		if r.s == "" {
			break
		}
		if !r.eat(',') {
			return nil
		}
		if r.blanks(); r.s == "" {
			return nil // a comma at the end
		}
	}
	return list
}

// dictionary reads the form of draft-ietf-httpapi-ratelimit-headers-07, a
// Dictionary (RFC 9651, 4.2.2): limit=100, remaining=0, reset=60.
func dictionary(line string) (it item, ok bool) {
	r := &reader{strings.Trim(line, " ")}
	if len(r.s) > maxField {
		return it, false
	}
	all := map[string]string{}
	for {
		key, value := r.word(keyByte), "?1"
		if key == "" {
			return it, false
		}
		if r.eat('=') {
			if value, ok = r.bare(); !ok {
				return it, false
			}
		}
		if !r.params(map[string]string{}) {
			return it, false
		}
		all[key] = value
		r.blanks()
		if r.s == "" {
			break
		}
		if !r.eat(',') {
			return it, false
		}
		r.blanks()
	}
	return item{params: map[string]string{"limit": all["limit"], "r": all["remaining"], "t": all["reset"]}, old: true}, true
}

// A reader takes a Structured Field apart.
type reader struct{ s string }

func (r *reader) eat(c byte) bool {
	if r.s == "" || r.s[0] != c {
		return false
	}
	r.s = r.s[1:]
	return true
}

func (r *reader) blanks() { r.s = strings.TrimLeft(r.s, " \t") }

// word takes the bytes that belong to one.
func (r *reader) word(belongs func(byte) bool) string {
	i := 0
	for i < len(r.s) && belongs(r.s[i]) {
		i++
	}
	word := r.s[:i]
	r.s = r.s[i:]
	return word
}

// params reads the parameters of an item.
func (r *reader) params(into map[string]string) (ok bool) {
	for r.eat(';') {
		r.s = strings.TrimLeft(r.s, " ")
		key, value := r.word(keyByte), "?1"
		if key == "" {
			return false
		}
		if r.eat('=') {
			if value, ok = r.bare(); !ok {
				return false
			}
		}
		into[key] = value
	}
	return true
}

// bare reads a bare item: a String as its text after a quote, a Byte Sequence
// with its colons, anything else as it is written.
func (r *reader) bare() (text string, ok bool) {
	switch {
	case r.eat('"'):
		return r.quoted()
	case r.eat(':'):
		text = r.word(base64Byte)
		return ":" + text + ":", r.eat(':')
	}
	text = r.word(tokenByte)
	return text, text != ""
}

func (r *reader) quoted() (text string, ok bool) {
	b := []byte{'"'}
	for i := 0; i < len(r.s); i++ {
		switch c := r.s[i]; {
		case c == '"':
			r.s = r.s[i+1:]
			return string(b), true
		case c == '\\':
			if i++; i == len(r.s) || r.s[i] != '"' && r.s[i] != '\\' {
				return "", false
			}
			b = append(b, r.s[i])
		case c < ' ' || c > '~':
			return "", false
		default:
			b = append(b, c)
		}
	}
	return "", false
}

func alphanumeric(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

func keyByte(c byte) bool {
	return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || strings.IndexByte("_-.*", c) >= 0
}

func base64Byte(c byte) bool { return alphanumeric(c) || strings.IndexByte("+/=", c) >= 0 }

// tokenByte reports whether c can stand in a Token, a number, a Boolean or a
// Date.
func tokenByte(c byte) bool {
	return alphanumeric(c) || strings.IndexByte("!#$%&'*+-.^_`|~:/?@", c) >= 0
}
