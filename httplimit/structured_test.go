package httplimit_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// A strict reader of Structured Fields (RFC 9651, section 4.2), as far as the
// RateLimit fields use them: Lists whose items are Strings, with parameters.
// Whatever a strict client would refuse is an error.

type sfItem struct {
	value  string
	params map[string]any // int64, string, []byte, sfToken or bool
}

type sfToken string

type sfReader struct{ s string }

// parseList reads a List of Strings from the lines of a field.
func parseList(lines []string) ([]sfItem, error) {
	r := &sfReader{strings.Trim(strings.Join(lines, ", "), " ")}
	var items []sfItem
	for r.s != "" {
		v, err := r.bare()
		if err != nil {
			return nil, err
		}
		name, ok := v.(string)
		if !ok {
			return nil, fmt.Errorf("member %v is a %T, not a String", v, v)
		}
		item := sfItem{name, map[string]any{}}
		for r.eat(';') {
			r.s = strings.TrimLeft(r.s, " ")
			key, err := r.key()
			if err != nil {
				return nil, err
			}
			var value any = true
			if r.eat('=') {
				if value, err = r.bare(); err != nil {
					return nil, err
				}
			}
			item.params[key] = value
		}
		items = append(items, item)
		r.s = strings.TrimLeft(r.s, " \t")
		if r.s == "" {
			return items, nil
		}
		if !r.eat(',') {
			return nil, fmt.Errorf("expected a comma before %q", r.s)
		}
		r.s = strings.TrimLeft(r.s, " \t")
		if r.s == "" {
			return nil, errors.New("trailing comma")
		}
	}
	return items, nil
}

func (r *sfReader) eat(c byte) bool {
	if r.s != "" && r.s[0] == c {
		r.s = r.s[1:]
		return true
	}
	return false
}

func (r *sfReader) key() (string, error) {
	i := 0
	for i < len(r.s) {
		c := r.s[i]
		if 'a' <= c && c <= 'z' || c == '*' || i > 0 && ('0' <= c && c <= '9' || c == '_' || c == '-' || c == '.') {
			i++
			continue
		}
		break
	}
	if i == 0 {
		return "", fmt.Errorf("no key at %q", r.s)
	}
	key := r.s[:i]
	r.s = r.s[i:]
	return key, nil
}

func (r *sfReader) bare() (any, error) {
	if r.s == "" {
		return nil, errors.New("no item")
	}
	switch c := r.s[0]; {
	case c == '"':
		return r.text()
	case c == '-' || '0' <= c && c <= '9':
		return r.integer()
	case c == ':':
		end := strings.IndexByte(r.s[1:], ':')
		if end < 0 {
			return nil, errors.New("unclosed byte sequence")
		}
		b, err := base64.StdEncoding.DecodeString(r.s[1 : 1+end])
		r.s = r.s[end+2:]
		return b, err
	case c == '?':
		if len(r.s) < 2 || r.s[1] != '0' && r.s[1] != '1' {
			return nil, fmt.Errorf("bad boolean at %q", r.s)
		}
		b := r.s[1] == '1'
		r.s = r.s[2:]
		return b, nil
	case c == '*' || 'a' <= c|0x20 && c|0x20 <= 'z':
		i := 1
		for i < len(r.s) && r.s[i] > ' ' && r.s[i] < 0x7f && !strings.ContainsRune(`"(),;<=>?@[\]{}`, rune(r.s[i])) {
			i++
		}
		token := sfToken(r.s[:i])
		r.s = r.s[i:]
		return token, nil
	}
	return nil, fmt.Errorf("no item at %q", r.s)
}

func (r *sfReader) text() (any, error) {
	var b strings.Builder
	for i := 1; i < len(r.s); i++ {
		switch c := r.s[i]; {
		case c == '\\':
			i++
			if i == len(r.s) || r.s[i] != '"' && r.s[i] != '\\' {
				return nil, errors.New("bad escape")
			}
			b.WriteByte(r.s[i])
		case c == '"':
			r.s = r.s[i+1:]
			return b.String(), nil
		case c < ' ' || c > '~':
			return nil, fmt.Errorf("byte %#x in a string", c)
		default:
			b.WriteByte(c)
		}
	}
	return nil, errors.New("unclosed string")
}

func (r *sfReader) integer() (any, error) {
	i := 0
	if r.s[0] == '-' {
		i = 1
	}
	start := i
	for i < len(r.s) && '0' <= r.s[i] && r.s[i] <= '9' {
		i++
	}
	if n := i - start; n < 1 || n > 15 {
		return nil, fmt.Errorf("an integer of %d digits", n)
	}
	if i < len(r.s) && r.s[i] == '.' {
		return nil, errors.New("a decimal where whole numbers are wanted")
	}
	n, err := strconv.ParseInt(r.s[:i], 10, 64)
	r.s = r.s[i:]
	return n, err
}

func TestTheReaderIsStrict(t *testing.T) {
	for _, good := range []string{
		`"permin";q=50;w=60,"perhr";q=1000;w=3600`, `"a";r=0;t=1`, `"a";pk=:AQI=:;qu="x y"`, `"a\"b\\"`, ``, `"a";q=-1`, `"a";x;y=?0;z=tok`,
	} {
		if _, err := parseList([]string{good}); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{
		`a;q=1`, `"a";q=1.5`, `"a";q=1234567890123456`, `"a" "b"`, `"a",`, `"a`, `"a";Q=1`, `"é"`, `"a";q=`, `1`, `,"a"`, `"a\x"`,
	} {
		if items, err := parseList([]string{bad}); err == nil {
			t.Errorf("%s: read as %v", bad, items)
		}
	}
}
