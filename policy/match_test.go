package policy

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func holds(t *testing.T, c Condition, attrs Attrs) bool {
	t.Helper()
	cs, err := compileMatch(Match{c})
	if err != nil {
		t.Fatalf("%v: %v", c, err)
	}
	r := &request{attrs: attrs}
	return r.meets(cs, false)
}

func TestConditions(t *testing.T) {
	tests := []struct {
		attr   string
		values string // blank-separated
		value  string // "-" means absent
		want   bool
	}{
		{"method", "POST", "POST", true},
		{"method", "POST", "post", false},
		{"method", "POST PUT", "PUT", true},
		{"method", "!GET", "POST", true},
		{"method", "!GET", "GET", false},
		{"method", "!GET", "-", true},
		{"method", "GET", "-", false},
		{"method", "GET !GET", "GET", false},
		{"host", "*.tunnel.example", "a.tunnel.example", true},
		{"host", "*.tunnel.example", "a.b.tunnel.example", true},
		{"host", "*.tunnel.example", "tunnel.example", false},
		{"host", "*.tunnel.example", "a.tunnel.example.evil.example", false},
		{"path", "/login", "/login", true},
		{"path", "/login", "/login/x", false},
		{"path", "/api/*", "/api/a", true},
		{"path", "/api/*", "/api/a/b", false},
		{"path", "/api/*", "/api", false},
		{"path", "/api/**", "/api/a/b", true},
		{"path", "/api/**", "/api", true},
		{"path", "/api/**", "/apix", false},
		{"path", "/api/v*/users", "/api/v2/users", true},
		{"path", "/api/v*/users", "/api/v2/x/users", false},
		{"path", "/**", "/", true},
		{"path", "/a/**", "/a", true},
		{"path", "/a/**", "/ab", false},
		{"path", "/a*/**", "/ab/c", true},
		{"path", "/a/b", "/a%2Fb", true},   // what a decoding server serves
		{"path", "/a/*", "/a/b%2Fc", true}, // what the others serve
		{"path", "/login", "/x/..%2Flogin", true},
		{"path", "/login", "/x/a%2f../../login", true},
		{"path", "/login", "/x;%2f../login", true},
		{"path", "/admin/**", "/admin/;/../secret", true},
		{"path", "/admin/**", "/admin//../secret", true},
		{"path", "/api/**", "/api/..;/x", true},
		{"path", "!/pub/**", "/pub/a%2f../../login", true},
		{"path", "!/pub/**", "/pub/a", false},
		{"header.x-plan", "free*", "freemium", true},
		{"header.x-plan", "a*b*c", "a-b-b-c", true},
		{"header.x-plan", "a*b*c", "a-b-b", false},
		{"client.ip", "203.0.113.0/24", "203.0.113.7", true},
		{"client.ip", "203.0.113.0/24", "::ffff:203.0.113.7", true},
		{"client.ip", "203.0.113.0/24 !203.0.113.7", "203.0.113.7", false},
		{"client.ip", "!203.0.113.0/24", "198.51.100.1", true},
		{"client.ip", "2001:db8::/32", "2001:db8:1::1", true},
		{"client.ip", "203.0.113.7", "203.0.113.7", true},
		{"client.ip", "203.0.113.7", "garbage", false},
	}
	for _, tt := range tests {
		a, err := ParseAttribute(tt.attr)
		if err != nil {
			t.Fatal(err)
		}
		attrs := Attrs{tt.attr: tt.value}
		if tt.attr == "path" {
			attrs["path"] = string(AppendPath(nil, tt.value))
		}
		if tt.value == "-" {
			attrs = Attrs{}
		}
		if got := holds(t, Condition{a, strings.Fields(tt.values)}, attrs); got != tt.want {
			t.Errorf("%s %s with %q: %v, want %v", tt.attr, tt.values, tt.value, got, tt.want)
		}
	}
}

func TestConditionsThatCanNeverHoldAreErrors(t *testing.T) {
	for _, tt := range []struct{ attr, value, want string }{
		{"method", "post", "upper case"},
		{"method", "", "upper case"},
		{"header.x", "", "counts as missing"}, {"query.x", "! ", "counts as missing"},
		{"method", "PSOT", "mean POST"},
		{"method", "POTS", "mean POST"},
		{"method", "PUTT", "mean PUT"},
		{"method", "DELTE", "mean DELETE"},
		{"path", "/login?x=1", "use query.NAME"},
		{"path", "login", "begins with /"},
		{"path", "/login//", `write "/login"`},
		{"path", "/a/../b", `write "/b"`},
		{"path", "/a/**/b", "last segment"},
		{"path", "/a**", "last segment"},
		{"host", "Example.com", "lower case"},
		{"host", "example.com.", "trailing dot"},
		{"host", "example.com:80", "without their port"},
		{"host", "http://example.com", "without scheme"},
		{"client.ip", "203.0.113.7/24", "write 203.0.113.0/24"},
		{"client.ip", "::ffff:0:0/80", "at least 96 bits"},
		{"client.ip", "localhost", "want an address"},
	} {
		a, _ := ParseAttribute(tt.attr)
		_, err := compileMatch(Match{{a, []string{tt.value}}})
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s %q: error %v, want one that says %q", tt.attr, tt.value, err, tt.want)
		}
	}
}

func TestAttributeNames(t *testing.T) {
	for _, name := range []string{"client.ip", "method", "path", "host", "route", "user", "tenant", "device", "header.x-a", "cookie.Sid", "query.q", "claim.sub", "attr.plan"} {
		a, err := ParseAttribute(name)
		if err != nil || a.String() != name {
			t.Errorf("%q: %v, %v", name, a, err)
		}
		if v, ok := (Attrs{name: "x"}).AppendAttr(nil, a); !ok || string(v) != "x" {
			t.Errorf("Attrs has no %q", name)
		}
		if _, ok := (Attrs{}).AppendAttr(nil, a); ok {
			t.Errorf("empty Attrs has %q", name)
		}
	}
	if a, err := ParseAttribute("header.X-Tenant"); err != nil || a.Name != "x-tenant" {
		t.Errorf("header names are taken in any case: %v, %v", a, err)
	}
	for name, want := range map[string]string{
		"ip": `did you mean "client.ip"`, "Host": `did you mean "host"`, "client_ip": `did you mean "client.ip"`,
		"header.Transfer-Encoding": "net/http takes this field away", "header.trailer": "net/http",
		"Header.X-User": `did you mean "header.x-user"`, "headers.x-user": `did you mean "header.x-user"`, "jwt.sub": `did you mean "claim.sub"`,
		"claims.Sub": `did you mean "claim.Sub"`, "cookies.sid": `did you mean "cookie.sid"`, "user-agent": `did you mean "header.user-agent"`,
		"X-Api-Key": `did you mean "header.x-api-key"`, "X_Api_Key": `did you mean "header.x-api-key"`, "content_length": `did you mean "content-length"`,
		"form.user": `"form.user"; known are`, "headers.a b": "; known are", "headers.": "; known are", "x-": "; known are",
		"header": `did you mean "header.NAME"`, "header.": "want a name", "": "unknown attribute", "x": "known are",
	} {
		if _, err := ParseAttribute(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want one that says %q", name, err, want)
		}
	}
}

func TestParts(t *testing.T) {
	for _, s := range []string{"client.ip", "client.ip/56", "header.x-email lower trim", "user else client.ip", "user else cookie.sid else client.ip/48"} {
		p, err := ParsePart(s)
		if err != nil || p.String() != s {
			t.Errorf("%q: %q, %v", s, p, err)
		}
	}
	for _, s := range []string{"", "ip", "host/64", "client.ip/31", "client.ip/129", "client.ip/x", "user else", "user upper", "user client.ip", "client.ip/64 else client.ip/48"} {
		if p, err := ParsePart(s); err == nil {
			t.Errorf("%q was read as %v", s, p)
		}
	}
}

// keyOf returns the encoding of the key that parts make of attrs.
func keyOf(t *testing.T, attrs Attrs, parts ...string) string {
	t.Helper()
	r := &request{attrs: attrs}
	for _, s := range parts {
		p, err := ParsePart(s)
		if err != nil {
			t.Fatal(err)
		}
		r.appendKey(&p)
	}
	return string(r.key)
}

func TestKeysThatAreOne(t *testing.T) {
	for _, tt := range []struct {
		part   string
		values []string
	}{
		{"client.ip", []string{"1.2.3.4", "::ffff:1.2.3.4", "::ffff:102:304", "0:0:0:0:0:ffff:0102:0304"}},
		{"client.ip", []string{"2001:db8:1234:5678::1", "2001:db8:1234:5678:ffff::", "2001:db8:1234:5678::1.2.3.4", "2001:db8:1234:5678::1%eth0"}},
		{"header.x-email lower trim", []string{"user@example.org", "User@Example.org", " user@example.org", "user@example.org\x00"}},
	} {
		attr, _, _ := strings.Cut(tt.part, " ")
		first := keyOf(t, Attrs{attr: tt.values[0]}, tt.part)
		for _, v := range tt.values[1:] {
			if keyOf(t, Attrs{attr: v}, tt.part) != first {
				t.Errorf("%s: %q and %q are two keys", tt.part, tt.values[0], v)
			}
		}
	}
}

func TestKeysThatDiffer(t *testing.T) {
	keys := map[string]string{}
	add := func(name, key string) {
		if other, dup := keys[key]; dup {
			t.Errorf("%s and %s are one key", name, other)
		}
		keys[key] = name
	}
	add("user", keyOf(t, Attrs{"user": "203.0.113.9"}, "user else client.ip"))
	add("anonymous", keyOf(t, Attrs{"client.ip": "203.0.113.9"}, "user else client.ip"))
	add("a,bc", keyOf(t, Attrs{"user": "a", "tenant": "bc"}, "user", "tenant"))
	add("ab,c", keyOf(t, Attrs{"user": "ab", "tenant": "c"}, "user", "tenant"))
	add("abc,-", keyOf(t, Attrs{"user": "abc"}, "user", "tenant"))
	add("v6 /64", keyOf(t, Attrs{"client.ip": "2001:db8::1"}, "client.ip"))
	add("other /64", keyOf(t, Attrs{"client.ip": "2001:db8:0:1::1"}, "client.ip"))
	add("/48", keyOf(t, Attrs{"client.ip": "2001:db8::1"}, "client.ip/48"))
	add("garbage 1", keyOf(t, Attrs{"client.ip": "unknown"}, "client.ip"))
	add("garbage 2", keyOf(t, Attrs{"client.ip": "_hidden"}, "client.ip"))
	for _, b := range []string{"\x00", "\n", "\x7f", "\xff", "%", "*", "{x}", "\xed\xa0\x80", ""} {
		add("bytes", keyOf(t, Attrs{"user": b}, "user"))
	}
}

// TestKeysAreDigestedAsTheyAre holds the digests of keys that several rules
// have, which are made once a request, against those of each rule by itself.
func TestKeysAreDigestedAsTheyAre(t *testing.T) {
	keys := [][]string{
		{}, {"client.ip"}, {"client.ip", "user"}, {"client.ip/56"}, {"user else client.ip"}, {"user", "client.ip"},
		{"header.x-a"}, {"header.x-a lower"}, {"header.x-a lower trim"}, {"path"}, {"path", "header.x-a"}, {"tenant"},
	}
	var rules []Rule
	for i := range 3 * len(keys) {
		rules = append(rules, testRule(t, fmt.Sprintf("r%d", i), "100/s", keys[i%len(keys)]...))
		if i%5 == 0 {
			rules[i].Match = Match{{Attribute{Kind: Header, Name: "x-a"}, []string{" Abc"}}}
		}
	}
	e := testEngine(t, rules...)
	for i, who := range []Attrs{
		{"client.ip": "2001:db8::1", "user": "u", "header.x-a": " Abc", "path": "/a"},
		{"client.ip": "203.0.113.7", "header.x-a": "abc", "path": "/a\x00/b"},
		{"client.ip": "odd", "user": "u", "path": "/a"},
		{},
	} {
		v := e.Decide(t.Context(), who, At(start.Add(time.Duration(i)*time.Second)))
		if want := 3 * len(keys); v.Len() < want-8 {
			t.Fatalf("%v: %d rules apply", who, v.Len())
		}
		for j := range v.Len() {
			o := v.Outcome(j)
			r := &request{attrs: who}
			for k := range o.Rule.Key {
				p := o.Rule.Key[k]
				p.slots = nil
				r.appendKey(&p)
			}
			if want := e.seed.Key(r.key); o.key != want {
				t.Errorf("%v: %s, keyed by %v, has the key %x, want %x", who, o.Rule.Name, o.Rule.Key, o.key, want)
			}
		}
	}
}
