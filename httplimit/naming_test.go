package httplimit

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

// Names that some server takes for one are one, and no others.
func TestNamesOfParametersThatAreOne(t *testing.T) {
	for _, c := range []struct {
		rule       string
		same, none []string
	}{
		{"api_key", []string{"api_key", "api.key", "api key", " api_key", "  api.key", "api[key", "[api_key]", "[api_key", "api_key]", "api_key[]", "api_key[0]", "api_key[12][]", "[api_key][]", "api_key\x00x", "api_key[]\x00",
			"[api_key]x", "[api_key].x", "[api_key]]", "[[api_key]]", "api_key[]x", "api_key[0]x[1]", "api_key[]x["},
			[]string{"", "api-key", "apikey", "API_KEY", "api_key_", "api_key[x]", "api[key]", "xapi_key", "api_key=", "api", "api_key[", "[api_key]x[y]", "[", "]", "[]", "api_key[[]"}},
		{"api.key", []string{"api_key", "api.key"}, []string{"api-key"}},
		{"filter[name]", []string{"filter[name]", "filter[name][]", " filter[name]", "[filter][name]", "filter[name]x", "filter]x[name]"}, []string{"filter[name", "filter", "filter[size]", "filter_name", "filter_name_"}},
		{"ids[]", []string{"ids", "ids[]", "ids[1]"}, []string{"ids[a]"}},
	} {
		for _, got := range c.same {
			if !(naming{any: true}).same([]byte(got), c.rule) {
				t.Errorf("%q is not %s", got, c.rule)
			}
			if (naming{}).same([]byte(got), c.rule) != (got == c.rule) {
				t.Errorf("%q and %s: without AnyServer only what is the same is", got, c.rule)
			}
		}
		for _, got := range c.none {
			if (naming{any: true}).same([]byte(got), c.rule) {
				t.Errorf("%q is %s", got, c.rule)
			}
		}
	}
	if n := (naming{any: true, anyCase: true}); !n.same([]byte("API.Key"), "api_Key") || n.same([]byte("API-Key"), "api_Key") {
		t.Error("case counts, or nothing else does")
	}
}

func TestParametersOfAnyServer(t *testing.T) {
	for _, c := range []struct{ query, first, all string }{
		{"k=a", "a", ""}, {"j=1&k=a;x", "a", ""}, {"x;k=a", "a", ""}, {"k[]=a", "a", ""}, {"j=a", "-", ""}, {"K=a", "-", ""},
		{"k=a&k[]=b", "a", "a,b,"}, {"[k]=a&k=a", "a", ""}, {"x;k=b&k=a", "b", "b,a,"}, {"k%00=a&%20k=b&%5bk%5d=c", "a", "a,b,c,"}, {";&;k=a;;", "a", ""}, {"k", "", ""},
	} {
		r, err := http.NewRequest("GET", "http://x/?"+c.query, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := ask(t, r, "query.k", AnyServer()); got != c.first {
			t.Errorf("%s: %q, want %q", c.query, got, c.first)
		}
		if got := strings.ReplaceAll(string(naming{any: true}.appendQueries(nil, c.query, "k")), "\x00", ","); got != c.all {
			t.Errorf("%s: all are %q, want %q", c.query, got, c.all)
		}
	}
}

// What some server takes for the cookie that a rule reads is taken out, unless the
// rule reads it.
func TestCookiesThatAreOne(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"my_sid=a; x=1", "my_sid=a; x=1"},
		{"my.sid=b; my_sid=a", "my_sid=a"},
		{"my_sid=a; my.sid=b; my sid=c; my_sid[]=d; my_sid[0]=e; my[sid=f; my%5fsid=g; my%5Fsid%00x=h", "my_sid=a"},
		{"my.sid=b", ""},
		{"my-sid=a; mysid=b; MY_SID=c; my_sid_=d; my%zzsid=e", "my-sid=a; mysid=b; MY_SID=c; my_sid_=d; my%zzsid=e"},
		{"my_sid=a; x=1 my_sid=b", "my_sid=a"},
		{"x=1 y=2, z; my_sid=a", "x=1 y=2, z; my_sid=a"},
		{"x my_sid=b; y=1,my.sid = b; z=1\tmy_sid=b; w=\"a my_sid=b\"", ""},
		{"my_sid=a my_sid=b; my_sid=c", "my_sid=c"},
		{"my_sid = a b; x=a my_sid; y=my_sid=a", "my_sid = a b; x=a my_sid; y=my_sid=a"},
	} {
		h := http.Header{"Cookie": {c.in}}
		FirstCookies(h, []string{"my_sid"}, false)
		if got := strings.Join(h["Cookie"], "|"); got != c.want {
			t.Errorf("%q: %q, want %q", c.in, got, c.want)
		}
	}
	h := http.Header{"Cookie": {"my_sid=a; MY_SID=b; x=1"}}
	if FirstCookies(h, []string{"my_sid"}, true); !slices.Equal(h["Cookie"], []string{"my_sid=a; x=1"}) {
		t.Errorf("with any case: %q", h["Cookie"])
	}
}
