package httplimit

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/spillgate/spillgate/policy"
)

func TestFirstCookies(t *testing.T) {
	for _, c := range []struct{ in, want []string }{
		{nil, nil},
		{[]string{"sid=a; b=c"}, []string{"sid=a; b=c"}},
		{[]string{"b=1;  b=2 ;c=\"d"}, []string{"b=1;  b=2 ;c=\"d"}}, // none that is read
		{[]string{"sid=a; b=1; sid=b; b=2"}, []string{"sid=a; b=1; b=2"}},
		{[]string{"sid = a", "sid=b"}, []string{"sid = a"}}, // as net/http cuts names
		{[]string{"sid=\"a b; sid=\"a\"; sid=c"}, []string{"sid=\"a\""}},
		{[]string{"sid=a b\\", "SID=b"}, []string{"SID=b"}},
		{[]string{"x=1; sid=a", "sid=b; y=2"}, []string{"x=1; sid=a", "y=2"}},
		{[]string{"sid=\\"}, nil},
	} {
		h := http.Header{"Cookie": slices.Clone(c.in)}
		if c.in == nil {
			h = http.Header{}
		}
		want, had := (&http.Request{Header: h}).Cookie("sid")
		FirstCookies(h, []string{"other", "sid"}, false)
		if got := h["Cookie"]; !slices.Equal(got, c.want) {
			t.Errorf("%q: %q, want %q", c.in, got, c.want)
		}
		if got, has := (&http.Request{Header: h}).Cookie("sid"); (had == nil) != (has == nil) || had == nil && got.Value != want.Value {
			t.Errorf("%q: net/http read %v, and now %v", c.in, want, got)
		}
	}
}

func TestRepeats(t *testing.T) {
	many := strings.Repeat("k=a&", 20)
	for _, c := range []struct{ query, want string }{
		{"", ""}, {"k=a", ""}, {"k=a&k=a&j=b", ""}, {many, ""},
		{"k=a&%6b=%62", "a,b,"}, {"k=&k=a", ",a,"}, {"k=a%00b&k=a", "a,b,a,"}, {"k=a%00b&k=a%00b", ""},
		{"k=a&;k=b&k=%zz&k=c", "a,c,"}, // as net/url reads them
		{many + "k=z", strings.Repeat("a,", policy.MaxRepeats-1) + "z,"},
	} {
		if got := strings.ReplaceAll(string(naming{}.appendQueries(nil, c.query, "k")), "\x00", ","); got != c.want {
			t.Errorf("%q: %q, want %q", c.query, got, c.want)
		}
	}
}
