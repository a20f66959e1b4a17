package policy

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/spillgate/spillgate"
)

// A client that makes its request so much at once that too many rules apply is told
// that it is its own fault, and a policy that has too many for a plain one that it is
// the policy's.
func TestOddRequestsToWhichTooManyRulesApply(t *testing.T) {
	var paths, headers []Rule
	for i := range spillgate.MaxCharges + 1 {
		r := testRule(t, fmt.Sprint("r", i), "1/s", "client.ip")
		r.Match = on(t, "path", fmt.Sprintf("/p*%d/**", i))
		paths = append(paths, r)
		r.Match = on(t, "header.x-a", []string{"a*", "b*"}[i%2])
		headers = append(headers, r)
	}
	odd := string(AppendPath(nil, "/a;b//..%2f%5c..;/x"))
	for name, c := range map[string]struct {
		rules []Rule
		attrs Attributes
		odd   bool
		err   bool
	}{
		"a plain path":        {paths, Attrs{"path": "/p300", "client.ip": "192.0.2.1"}, false, false},
		"any path":            {paths, Attrs{"path": odd, "client.ip": "192.0.2.1"}, true, true},
		"any path, and fewer": {paths[1:], Attrs{"path": odd, "client.ip": "192.0.2.1"}, false, false},
		"one value":           {headers, Attrs{"header.x-a": "a", "client.ip": "192.0.2.1"}, false, false},
		"two values":          {headers, repeating{Attrs{"header.x-a": "a, b", "client.ip": "192.0.2.1"}, "a\x00b\x00"}, true, true},
		"the policy's fault":  {append(headers[1:len(headers):len(headers)], headers...), Attrs{"header.x-a": "a", "client.ip": "192.0.2.1"}, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			for i := range c.rules {
				c.rules[i].Name = fmt.Sprint("r", i)
			}
			e := testEngine(t, c.rules...)
			v := e.Decide(context.Background(), c.attrs)
			var o *OddError
			if err := v.Err(); errors.As(err, &o) != c.odd || (err != nil) != c.err || v.Allowed == c.err {
				t.Errorf("allowed %t, error %v", v.Allowed, err)
			}
		})
	}
}

// repeating are attributes one of which has several values.
type repeating struct {
	Attrs
	repeats string
}

func (l repeating) AppendRepeats(dst []byte, a Attribute) []byte {
	if a.Kind != Header {
		return dst
	}
	return append(dst, l.repeats...)
}
