package policy

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/spillgate/spillgate"
)

func TestPathsKeepTheSlash(t *testing.T) {
	for raw, want := range map[string]string{
		"/login": "/login", "/login/": "/login/", "/login//": "/login/", "//login": "/login\x00/", "/": "/", "": "/", "//": "/",
		"/a/.": "/a/\x00/a/./", "/a/..": "/\x00/a/../", "/a/b/..": "/a/\x00/a/b/../", "/a/../login/": "/login/\x00/a/../login/", "/%6cogin/": "/login/", "/a/./b": "/a/b\x00/a/./b",
		"/login/;x": "/login/\x00/login/;x", "/a%2f": "/a%2F\x00/a/", "/login;x": "/login\x00/login;x", "/a/..;/": "/",
	} {
		got := string(Paths{Slash: true}.Append(nil, raw))
		if first, _, _ := strings.Cut(got, "\x00"); got != want && !(strings.Contains(raw, "..;") && first == want) {
			t.Errorf("%q: %q, want %q", raw, got, want)
		}
		if got, want := string(Paths{}.Append(nil, raw)), string(AppendPath(nil, raw)); got != want {
			t.Errorf("%q: %q by default, want %q", raw, got, want)
		}
	}
}

// matched compiles a rule on a path and reports which of the requests it
// refuses.
func matched(t *testing.T, paths Paths, pattern string, raws ...string) (out []string) {
	t.Helper()
	r := testRule(t, "r", "")
	r.Deny, r.Match = true, Match{{Attribute{Kind: Path}, []string{pattern}}}
	p, err := Compile([]Rule{r}, WithPaths(paths))
	if err != nil {
		t.Fatal(err)
	}
	e := NewEngine(p, spillgate.NewMemory())
	for _, raw := range raws {
		if v := e.Decide(context.Background(), Attrs{"path": string(p.Paths().Append(nil, raw))}); !v.Allowed {
			out = append(out, raw)
		}
	}
	return out
}

func TestPathsByChoice(t *testing.T) {
	anyCase, slash := Paths{AnyCase: true}, Paths{Slash: true}
	for _, c := range []struct {
		paths   Paths
		pattern string
		asked   string
		want    string
	}{
		{Paths{}, "/login", "/login /login/ /LOGIN", "/login /login/"},
		{anyCase, "/login", "/login /LOGIN/ /%4cogin /log", "/login /LOGIN/ /%4cogin"},
		{anyCase, "/Login", "/login /LOGIN", "/login /LOGIN"},
		{anyCase, "/API/**", "/api /Api/x /ap", "/api /Api/x"},
		{anyCase, "/straße/ä", "/STRASSE/Ä /Straße/Ä /straẞe/%C3%84", "/Straße/Ä /straẞe/%C3%84"},
		{anyCase, "/k", "/\u212a /K /\xff", "/\u212a /K"}, // the sign for kelvin
		{slash, "/login", "/login /login/ //login", "/login //login"},
		{slash, "/login/", "/login /login/ /login/. /login//", "/login/ /login/. /login//"},
		{slash, "/files/**", "/files /files/ /files/a/", "/files /files/ /files/a/"},
		{slash, "/files/*", "/files/a /files/a/ /files/", "/files/a /files/"},
		{slash, "/", "/ // /a", "/ //"},
		{Paths{true, true}, "/Login/", "/LOGIN/ /login", "/LOGIN/"},
	} {
		if got := strings.Join(matched(t, c.paths, c.pattern, strings.Fields(c.asked)...), " "); got != c.want {
			t.Errorf("%+v %s: %q, want %q", c.paths, c.pattern, got, c.want)
		}
	}
}

// Keys by path are one for what the server takes for one.
func TestKeysOfPathsInAnyCase(t *testing.T) {
	r := testRule(t, "r", "1/h burst 1", "path")
	p, err := Compile([]Rule{r}, WithPaths(Paths{AnyCase: true}))
	if err != nil {
		t.Fatal(err)
	}
	e := NewEngine(p, spillgate.NewMemory())
	for i, raw := range []string{"/a", "/A", "/b"} {
		if v := e.Decide(context.Background(), Attrs{"path": raw}); v.Allowed != (i != 1) {
			t.Errorf("%s: allowed %t", raw, v.Allowed)
		}
	}
}

func TestSlashesThatNeverMatch(t *testing.T) {
	slashed := Match{{Attribute{Kind: Path}, []string{"/a", "!/login/"}}}
	for field, change := range map[string]func(*Rule){
		"match":  func(r *Rule) { r.Match = slashed },
		"peek":   func(r *Rule) { r.Peek = slashed },
		"backup": func(r *Rule) { r.Backup = &Backup{"http://b.test", slashed} },
		"lanes":  func(r *Rule) { r.Lanes = []Lane{{Match: slashed}, {Percent: 10}} },
		"cost":   func(r *Rule) { r.Prices = []Price{{Match: slashed, Units: 1}} },
	} {
		r := testRule(t, "r", "10/s")
		change(&r)
		_, err := Compile([]Rule{r})
		var re *RuleError
		if !errors.As(err, &re) || re.Field != field || !strings.Contains(err.Error(), `write "/login"`) {
			t.Errorf("%s: error %v", field, err)
		}
		for _, paths := range []Paths{{Slash: true}, {Slash: true, AnyCase: true}} {
			if _, err := Compile([]Rule{r}, WithPaths(paths)); err != nil {
				t.Errorf("%s with slashes: %v", field, err)
			}
		}
	}
	if err := (Condition{Attribute{Kind: Path}, []string{"/login/"}}).Validate(); err == nil {
		t.Error("a condition by itself may end in a slash")
	}
}
